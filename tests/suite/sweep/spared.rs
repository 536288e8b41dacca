//! Whom a sweep leaves alone: the living, the released, itself, and everybody when it is dry.

use std::fs;

use foster_protocol::{Level, Spec};
use foster_tests::{DEATH, Program, Tracer, Witness, at_level, clean_up, places, proc};

use crate::ground::{Ground, Run, cgroups, instances, kill_together, pids, read, speaker, state};

const DAEMON: &str = r#"setsid sh -c "$1" "$0" &"#;
const SLEEPS: &str = "echo member $$; exec sleep 60";

#[test]
fn dry_run_lists_what_is_left_and_touches_nothing() {
    let ground = Ground::new();
    let mut run = Run::start(&ground, Level::Tree, DAEMON, SLEEPS);
    let (path, _) = ground.record();
    run.kill_all();
    let (code, report) = ground.sweep(&["--dry-run"]);
    assert_eq!((code, state(&report)), (1, "left"), "{report}");
    let found = pids(&report, "found");
    assert!(found.contains(&i64::from(run.member.pid())), "{report}");
    assert!(run.member.is_alive() && path.exists());
    assert_eq!(ground.sweep(&[]).0, 0);
    run.member.wait_for_death(DEATH);
    let (code, report) = ground.sweep(&["--dry-run"]);
    assert_eq!((code, instances(&report).len()), (0, 0), "{report}");
}

#[test]
fn live_instance_is_not_touched_while_its_helper_or_a_keeper_lives() {
    let ground = Ground::new();
    let run = Run::start(&ground, Level::Tree, DAEMON, SLEEPS);
    let (path, _) = ground.record();
    for _ in 0..3 {
        let (code, report) = ground.sweep(&[]);
        assert_eq!((code, state(&report)), (0, "live"), "{report}");
    }
    // The keeper holds the lock alone.
    let keeper = Witness::of(proc::stat(run.leader.pid()).expect("it lives").parent);
    keeper.stop();
    kill_together(&[run.host.witness(), &run.host.only_child()]);
    let (code, report) = ground.sweep(&[]);
    assert_eq!((code, state(&report)), (0, "live"), "{report}");
    assert!(run.member.is_alive() && path.exists());
    keeper.signal(libc::SIGCONT);
    run.member.wait_for_death(DEATH);
    keeper.wait_for_death(DEATH);
    let (code, report) = ground.sweep(&[]);
    assert_eq!((code, state(&report)), (0, "all-gone"), "{report}");
    assert!(!path.exists());
}

#[test]
fn released_session_is_spared_and_its_sibling_is_not() {
    for level in [Level::Group, Level::Tree, Level::Cgroup] {
        let ground = Ground::new();
        let mut link = ground.launch().greeted();
        let script = "setsid sh -c 'echo member $$; exec sleep 60' & echo leader $$; exec sleep 60";
        let detachable = Spec {
            detachable: true,
            ..at_level(level, ground.stage.sh(script))
        };
        let mut spawn = |spec: Spec| {
            let (tracer, end) = Tracer::new();
            let mut tracer = tracer;
            let running = link.spawn(foster_tests::Command::new(spec).with(1, end));
            let speakers = [speaker(&mut tracer).1, speaker(&mut tracer).1];
            (running, speakers, tracer)
        };
        let (released, kept) = (spawn(detachable.clone()), spawn(detachable));
        let (path, record) = ground.record();
        link.release(released.0.session);
        let keepers = |running: &foster_tests::Running| {
            let parent = proc::stat(running.pid).expect("it lives").parent;
            (parent != link.pid()).then(|| Witness::of(parent))
        };
        let keepers: Vec<Witness> = [&released.0, &kept.0]
            .into_iter()
            .filter_map(keepers)
            .collect();
        let helper = Witness::of(link.pid());
        kill_together(&keepers.iter().chain([&helper]).collect::<Vec<_>>());
        link.wait_for_death();
        assert!(kept.1.iter().all(Witness::is_alive), "nothing to sweep");
        let (code, report) = ground.sweep(&[]);
        assert_eq!((code, state(&report)), (0, "all-gone"), "{report}");
        kept.1.iter().for_each(|one| one.wait_for_death(DEATH));
        assert!(released.1.iter().all(Witness::is_alive), "{level:?}");
        assert!(!path.exists());
        clean_up(&released.1);
        remove_cgroups(&record);
    }
}

/// What a released session leaves of its cgroup when nobody watches over it.
fn remove_cgroups(record: &foster_protocol::Record) {
    let base = record.cgroup.as_ref().map(|base| base.0.clone());
    let base = String::from_utf8(base.unwrap_or_default()).expect("a path of text");
    for name in cgroups(record) {
        let path = std::path::Path::new(&base).join(name);
        foster_tests::eventually("the cgroup is empty", DEATH, || {
            fs::remove_dir(&path).is_ok()
        });
    }
}

#[test]
fn sweep_from_inside_spares_itself_its_ancestors_and_its_group() {
    for level in [Level::Tree, Level::Cgroup] {
        let ground = Ground::new();
        let output = ground.stage.scratch().join("output");
        let words = ground
            .sweep_words()
            .map(|word| format!("'{word}'"))
            .join(" ");
        // In one group: the shell, a sleeper, and the sweep. Another group of the same tree goes.
        let member = format!(
            "setsid sh -c 'echo member $$; exec sleep 60' & sleep 60 & sleeper=$!; \
             echo member $$; read line < {fifo}; {foster} {words} > {output}; \
             kill -0 $sleeper && echo spared >> {output}; kill $sleeper; echo over $$; exec sleep 60",
            fifo = ground.stage.scratch().join("fifo").display(),
            foster = places::foster().display(),
            output = output.display(),
        );
        let fifo = ground.stage.scratch().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a named pipe");
        let mut run = Run::start(&ground, level, r#"setsid sh -c "$1" "$0" &"#, &member);
        let (_, second) = speaker(&mut run.host.stdout);
        run.kill_all();
        fs::write(&fifo, "go\n").expect("the shell reads");
        let (who, shell) = speaker(&mut run.host.stdout);
        assert_eq!(who, "over");
        let said = fs::read_to_string(&output).expect("the sweep has spoken");
        let (report, rest) = said.split_once('\n').expect("a line");
        assert_eq!(rest, "spared\n");
        let report: serde_json::Value = serde_json::from_str(report).expect("it is JSON");
        assert_eq!(state(&report), "incomplete", "{report}");
        let spared = pids(&report, "spared");
        assert!(spared.contains(&i64::from(shell.pid())), "{report}");
        let other = [&run.member, &second].into_iter();
        let other: Vec<_> = other.filter(|one| one.pid() != shell.pid()).collect();
        other.iter().for_each(|one| one.wait_for_death(DEATH));
        assert!(shell.is_alive());
        // From outside nobody is spared.
        let (code, report) = ground.sweep(&[]);
        assert_eq!((code, state(&report)), (0, "all-gone"), "{report}");
        shell.wait_for_death(DEATH);
    }
}

#[test]
fn instance_inside_another_is_found_by_its_own_mark_and_by_the_outer_one() {
    for sweeps_inner in [true, false] {
        let (outer, inner) = (Ground::new(), Ground::new());
        let foster = places::foster().display().to_string();
        let member = format!(
            "XDG_RUNTIME_DIR={} exec {foster} run -v --level tree -- \
             setsid -w sh -c 'echo member $$; exec sleep 60'",
            inner.runtime().display()
        );
        let mut run = Run::start(&outer, Level::Tree, r#"sh -c "$1" "$0" &"#, &member);
        let (_, record) = inner.record();
        // Host, helper and keeper of the inner one. The host is the leader's child.
        let host = foster_tests::only_child_of(run.leader.pid());
        let helper = foster_tests::only_child_of(host.pid());
        let keeper = foster_tests::only_child_of(helper.pid());
        if sweeps_inner {
            kill_together(&[&host, &helper, &keeper]);
            assert!(run.member.is_alive(), "{record:?}");
            let (code, report) = inner.sweep(&[]);
            assert_eq!((code, state(&report)), (0, "all-gone"), "{report}");
            run.member.wait_for_death(DEATH);
            assert!(run.leader.is_alive(), "it is the outer one's alone");
        }
        // Its member is dead where the inner one was swept.
        run.kill_watchers();
        let (code, report) = outer.sweep(&[]);
        assert_eq!((code, state(&report)), (0, "all-gone"), "{report}");
        for one in [&host, &helper, &keeper, &run.member, &run.leader] {
            one.wait_for_death(DEATH);
        }
        assert_eq!(inner.sweep(&[]).0, 0);
    }
}

#[test]
fn command_that_sets_the_limit_of_its_own_is_found_by_its_cgroup_alone() {
    let ground = Ground::new();
    let mut run = Run::start(
        &ground,
        Level::Cgroup,
        r#"(ulimit -x 9; exec setsid sh -c "$1" "$0") &"#,
        SLEEPS,
    );
    let (_, record) = ground.record();
    let has_cgroup = !cgroups(&record).is_empty();
    run.kill_all();
    assert!(run.member.is_alive());
    let (code, report) = ground.sweep(&[]);
    assert_eq!(code, 0, "{report}");
    match has_cgroup {
        true => run.member.wait_for_death(DEATH),
        // It has left, as docs/DESIGN.md says.
        false => clean_up(&[run.member]),
    }
}

#[test]
fn sweep_of_the_usual_folders_looks_below_the_runtime_directory() {
    let ground = Ground::new();
    let mut run = Run::start(&ground, Level::Tree, DAEMON, SLEEPS);
    let (path, _) = ground.record();
    run.kill_all();
    let dry: Program = ground.foster(&["sweep", "--dry-run", "--json"]);
    let (_, report) = read(&dry.run());
    let path = path.display().to_string();
    let is_this = |one: &&serde_json::Value| {
        one.get("record").and_then(|record| record.as_str()) == Some(&path)
    };
    assert!(
        instances(&report).iter().any(|one| is_this(&one)),
        "{report}"
    );
    assert_eq!(ground.sweep(&[]).0, 0);
}
