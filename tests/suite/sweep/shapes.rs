//! Whatever is left when host, helper and keeper are killed at once is ended, and no stranger.

use foster_protocol::Level;
use foster_tests::{DEATH, Program, SETTLE, Stage, Witness, eventually, note_not_run, proc};

use crate::ground::{Ground, Run, cgroups, pids, state};

/// A shape: its name, how the command starts its member, and what the member does.
struct Shape {
    name: &'static str,
    start: &'static str,
    member: &'static str,
}

/// Set by `.ci/run`, which runs that test alone.
const ALONE: &str = "FOSTER_TEST_ALL_BOMBS";

const SLEEPS: &str = "echo member $$; exec sleep 60";

const SHAPES: [Shape; 7] = [
    Shape {
        name: "same group",
        start: r#"sh -c "$1" "$0" &"#,
        member: SLEEPS,
    },
    Shape {
        name: "own group",
        start: r#"set -m; sh -c "$1" "$0" &"#,
        member: SLEEPS,
    },
    Shape {
        name: "setsid",
        start: r#"setsid sh -c "$1" "$0" &"#,
        member: SLEEPS,
    },
    Shape {
        name: "daemon without environment and descriptors",
        start: r#"setsid env -i /bin/sh -c '/bin/sh -c "$1" "$0" & exit 0' "$0" "$1" &"#,
        member: "echo member $$; exec /bin/sleep 60 <&- >&- 2>&-",
    },
    Shape {
        name: "ignores TERM",
        start: r#"sh -c "$1" "$0" &"#,
        member: "trap '' TERM; echo member $$; exec sleep 60",
    },
    Shape {
        // In the leader's session it would be continued and hung up when the leader dies.
        name: "stopped",
        start: r#"setsid sh -c "$1" "$0" &"#,
        member: "echo member $$; kill -STOP $$; exec sleep 60",
    },
    Shape {
        name: "below timeout",
        start: r#"timeout 60 sh -c "$1" "$0" &"#,
        member: SLEEPS,
    },
];

/// A process of the same user with this limit of file locks, which is none of foster's.
fn stranger(stage: &Stage, limit: &str) -> (foster_tests::Process, Witness) {
    let script = format!("ulimit -x {limit}; echo $$; exec sleep 60");
    let mut process = Program::new(stage, "/bin/bash")
        .args(["-c", &script])
        .start();
    let witness = Witness::of(process.stdout.pid());
    (process, witness)
}

fn sweep_every_shape_at(level: Level) {
    for Shape {
        name,
        start,
        member,
    } in SHAPES
    {
        let ground = Ground::new();
        // Another instance's mark, as good as; a limit that bears none; and no limit.
        let limits = ["2305843009213693953", "7", "unlimited"];
        let strangers = limits.map(|limit| stranger(&ground.stage, limit));
        let mut run = Run::start(&ground, level, start, member);
        if name == "stopped" {
            eventually("the member is stopped", SETTLE, || {
                proc::state(run.member.pid()) == Some('T')
            });
        }
        let (path, record) = ground.record();
        run.kill_all();
        let leaves = cgroups(&record).len();
        assert!(leaves == 0 || level == Level::Cgroup, "{name}");
        if leaves == 0 && level == Level::Cgroup {
            note_not_run(name, "no cgroup can be made here, so it is at level tree");
        }
        let (code, report) = ground.sweep(&[]);
        assert_eq!((code, state(&report)), (0, "all-gone"), "{name}: {report}");
        run.member.wait_for_death(DEATH);
        run.leader.wait_for_death(DEATH);
        let found = pids(&report, "found");
        assert!(found.contains(&i64::from(run.member.pid())), "{report}");
        assert!(!path.exists(), "{name}: the record is left");
        assert_eq!(cgroups(&record), Vec::<String>::new(), "{name}");
        for (_, stranger) in &strangers {
            assert!(stranger.is_alive(), "{name}: a stranger was signalled");
        }
    }
}

#[test]
fn what_is_left_of_any_shape_at_level_group_is_ended_and_no_stranger() {
    sweep_every_shape_at(Level::Group);
}

#[test]
fn what_is_left_of_any_shape_at_level_tree_is_ended_and_no_stranger() {
    sweep_every_shape_at(Level::Tree);
}

#[test]
fn what_is_left_of_any_shape_at_level_cgroup_is_ended_and_no_stranger() {
    sweep_every_shape_at(Level::Cgroup);
}

#[test]
fn members_have_the_grace_to_act_on_term_and_none_with_a_grace_of_zero() {
    for (options, acts) in [(&[][..], true), (&["--grace", "0"], false)] {
        let ground = Ground::new();
        let file = ground.stage.scratch().join("acted");
        let member = format!(
            "trap 'echo > {}; exit' TERM; echo member $$; while :; do sleep 0.05; done",
            file.display()
        );
        let mut run = Run::start(&ground, Level::Tree, r#"setsid sh -c "$1" "$0" &"#, &member);
        run.kill_all();
        let (code, report) = ground.sweep(options);
        assert_eq!((code, state(&report)), (0, "all-gone"), "{report}");
        assert_eq!(file.exists(), acts, "{report}");
    }
}

#[test]
fn processes_that_flee_for_ever_are_caught() {
    // They use up the machine's numbers until they are caught, so that nobody beside them forks.
    if std::env::var_os(ALONE).is_none() {
        return note_not_run("processes that flee", "FOSTER_TEST_ALL_BOMBS is not set");
    }
    let ground = Ground::new();
    let fixture = foster_tests::places::fixture("flees-for-ever");
    let start = format!("{} 8 <&- >&2 & ", fixture.display());
    let start = format!("{start} sh -c \"$1\" \"$0\" &");
    let mut run = Run::start(&ground, Level::Tree, &start, SLEEPS);
    run.kill_all();
    let (code, report) = ground.sweep(&["--grace", "0"]);
    assert_eq!((code, state(&report)), (0, "all-gone"), "{report}");
    run.member.wait_for_death(DEATH);
}
