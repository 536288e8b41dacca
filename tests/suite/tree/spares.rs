//! Keepers that wait for a session after their first: what they are used for, what does not reach
//! the next session, and that nobody's spawn hangs on one.

use std::fs;
use std::process;
use std::time::{Duration, Instant};

use foster_protocol::{Bytes, Mapping, Reject, Reply, ResourceLimit, Spec, Verdict};
use foster_tests::{
    Command, DEATH, Link, Running, SETTLE, Stage, Tracer, Witness, eventually, not_run, proc,
};

use crate::ground::{Escape, assert_all_gone, spawn_sleeper, tree};

/// How many keepers wait at most.
const MOST_SPARE: usize = 4;

/// Ends a session and gives its keeper, which waits then.
fn finish(link: &mut Link, running: &Running, keeper: Witness) -> Witness {
    let ending = link.end(running.session, Duration::from_secs(5));
    assert_all_gone(&ending, "before the next session");
    link.close(running.session);
    wait_for_spare(link, &keeper);
    keeper
}

fn wait_for_spare(link: &mut Link, keeper: &Witness) {
    eventually("the keeper waits for a session", SETTLE, || {
        link.spares().contains(&keeper.pid()) && link.ping().sessions == 0
    });
}

/// A keeper that waits.
fn spare(stage: &Stage, link: &mut Link) -> Witness {
    let (running, _tracer, keeper) = spawn_sleeper(stage, link);
    finish(link, &running, keeper)
}

/// Changes something of a process that any process of its user may change.
fn change(program: &str, args: &[&str]) -> bool {
    let run = process::Command::new(program).args(args).output();
    run.is_ok_and(|output| output.status.success())
}

#[test]
fn keeper_of_a_session_that_is_over_keeps_the_next_one() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut keeper = spare(&stage, &mut link);
    for turn in 0..5 {
        let (running, mut tracer, next) = spawn_sleeper(&stage, &mut link);
        assert_eq!(next.pid(), keeper.pid(), "turn {turn}");
        assert!(tracer.is_held() && keeper.is_alive(), "turn {turn}");
        keeper = finish(&mut link, &running, next);
        assert!(!tracer.is_held(), "turn {turn}");
    }
    assert_eq!(link.ping().forks, 6);
}

#[test]
fn keeper_of_a_failed_spawn_keeps_the_next_session() {
    let stage = Stage::new();
    let mut link = stage.link();
    let keeper = spare(&stage, &mut link);
    for _ in 0..3 {
        let (session, reply) = link.try_spawn(tree(stage.command("/missing", &[])));
        assert!(matches!(reply, Reply::SpawnFailed { .. }), "{reply:?}");
        link.close(session);
        wait_for_spare(&mut link, &keeper);
    }
    let (running, _tracer, next) = spawn_sleeper(&stage, &mut link);
    assert_eq!(next.pid(), keeper.pid());
    finish(&mut link, &running, next);
}

#[test]
fn escapees_of_each_session_are_its_own_and_end_with_it() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut keeper = spare(&stage, &mut link);
    for escape in [Escape::Daemon, Escape::Sibling, Escape::Setsid] {
        let mut escaped = escape.spawn(&stage, &mut link, |spec| spec);
        assert_eq!(escaped.keeper.pid(), keeper.pid(), "{escape:?}");
        let (sessions, loose) = link.list();
        assert!(loose.is_empty(), "{loose:?}");
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        let what = format!("{escape:?}");
        let ending = link.end(escaped.running.session, Duration::from_secs(5));
        assert_all_gone(&ending, &what);
        let known: Vec<i32> = ending.members.iter().map(|member| member.pid.0).collect();
        assert!(!known.contains(&keeper.pid()), "{known:?}");
        escaped.assert_dead(&what);
        link.close(escaped.running.session);
        keeper = escaped.keeper;
        wait_for_spare(&mut link, &keeper);
    }
}

/// Everything that a command can see of how it was started, but for the mark, which is each
/// session's own.
fn looks_around(stage: &Stage) -> Spec {
    tree(stage.sh("umask; pwd; ulimit -a | grep -v '^locks'; nice; env | sort; \
         grep -E '^(SigPnd|SigBlk|SigIgn|SigCgt|Shd|Cap|NoNew|Cpus_allowed:|Groups|Uid|Gid|Seccomp)' /proc/self/status; \
         cat /proc/self/oom_score_adj /proc/self/cgroup; ls -l /proc/self/fd | wc -l"))
}

#[test]
fn nothing_of_one_session_reaches_the_next() {
    let stage = Stage::new();
    let mut fresh = stage.link();
    let (_, expected) = fresh.output(looks_around(&stage));
    let mut link = stage.link();
    let keeper = spare(&stage, &mut link);
    let before = proc::descriptors(keeper.pid()).len();
    let (_held, gate) = Tracer::gate();
    let (_other, second) = Tracer::gate();
    let loud = stage.sleeper();
    let mut env = loud.env.clone();
    env.push(Bytes::from("SECRET=of the first"));
    let dirty = Spec {
        env,
        umask: Some(0o777),
        nice: Some(7),
        resource_limits: vec![ResourceLimit {
            resource: libc::RLIMIT_NOFILE,
            soft: 20,
            hard: 20,
        }],
        directory: Some(Bytes::from("/proc")),
        no_new_privs: true,
        label: Bytes::from("the first"),
        deadline: Some(Duration::from_millis(600).into()),
        descriptors: vec![
            Mapping {
                target: 7,
                source: 1,
            },
            Mapping {
                target: 9,
                source: 2,
            },
        ],
        ..tree(loud)
    };
    let (mut tracer, writer) = Tracer::new();
    let mut command = Command::new(dirty);
    command.spec.descriptors.push(Mapping {
        target: 1,
        source: 0,
    });
    command.descriptors = vec![writer, gate, second];
    let running = link.spawn(command);
    tracer.line();
    assert_eq!(link.keeper_of(&running).pid(), keeper.pid());
    link.end(running.session, Duration::from_secs(5));
    link.close(running.session);
    wait_for_spare(&mut link, &keeper);
    assert_eq!(proc::descriptors(keeper.pid()).len(), before);
    let (_, seen) = link.output(looks_around(&stage));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&seen), text(&expected));
    wait_for_spare(&mut link, &keeper);
    // The deadline was the first one's.
    let (next, mut tracer, used) = spawn_sleeper(&stage, &mut link);
    assert_eq!(used.pid(), keeper.pid());
    tracer.assert_held_for(Duration::from_millis(800));
    let label = link.list().0.first().map(|info| info.label.0.clone());
    assert_eq!(label, Some(Vec::new()));
    finish(&mut link, &next, used);
}

#[test]
fn signals_to_a_waiting_keeper_are_not_the_next_sessions() {
    let stage = Stage::new();
    let mut link = stage.link();
    let keeper = spare(&stage, &mut link);
    for number in [
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGCHLD,
    ] {
        keeper.signal(number);
    }
    let (running, mut tracer, used) = spawn_sleeper(&stage, &mut link);
    assert_eq!(used.pid(), keeper.pid());
    let set = proc::status_field(running.pid, "SigPnd");
    assert_eq!(set.as_deref(), Some("0000000000000000"));
    assert!(tracer.is_held());
    finish(&mut link, &running, used);
}

#[test]
fn keeper_that_a_session_has_changed_keeps_no_other_one() {
    let stage = Stage::new();
    let mut link = stage.link();
    for (program, option) in [("renice", "-n"), ("prlimit", "--core=0:0")] {
        let (running, _tracer, keeper) = spawn_sleeper(&stage, &mut link);
        let pid = keeper.pid().to_string();
        let changed = match program {
            "renice" => change(program, &[option, "3", "-p", &pid]),
            _ => change(program, &["--pid", &pid, option]),
        };
        if !changed {
            return not_run("a changed keeper", "renice or prlimit cannot be run");
        }
        link.end(running.session, Duration::from_secs(5));
        link.close(running.session);
        keeper.wait_for_death(DEATH);
        link.assert_idle();
        assert!(link.spares().is_empty(), "{program}");
    }
    let running = link.spawn(tree(stage.sh("nice; exit 4")));
    assert_eq!(link.exit(running.session).status, 4 << 8);
    link.close(running.session);
}

#[test]
fn keeper_that_is_killed_while_it_waits_is_replaced() {
    let stage = Stage::new();
    let mut link = stage.link();
    link.ping();
    let before = link.descriptors();
    for _ in 0..10 {
        let keeper = spare(&stage, &mut link);
        keeper.signal(libc::SIGKILL);
        keeper.wait_for_death(DEATH);
        let (running, _tracer, next) = spawn_sleeper(&stage, &mut link);
        assert_ne!(next.pid(), keeper.pid());
        next.signal(libc::SIGKILL);
        assert_eq!(link.ending(running.session).verdict, Verdict::AllGone);
        link.close(running.session);
    }
    link.assert_idle();
    link.assert_descriptors(before);
}

#[test]
fn keeper_that_is_stopped_while_it_waits_delays_nobody() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut keeper = spare(&stage, &mut link);
    for _ in 0..5 {
        keeper.stop();
        let begin = Instant::now();
        let (running, _tracer, used) = spawn_sleeper(&stage, &mut link);
        assert!(begin.elapsed() < SETTLE, "{:?}", begin.elapsed());
        assert_eq!(used.pid(), keeper.pid(), "it was continued");
        keeper = finish(&mut link, &running, used);
    }
    // One that is stopped goes with the helper all the same.
    keeper.stop();
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    assert!(!keeper.is_alive());
}

#[test]
fn spawn_that_meets_the_death_of_a_keeper_is_answered_and_runs_once_at_most() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (mut ran, mut lost) = (0, 0);
    for turn in 0..40 {
        let keeper = spare(&stage, &mut link);
        let file = stage.scratch().join(format!("turn-{turn}"));
        let script = format!("echo x >>{}", file.display());
        // It dies before the spawn is read, while it is, or after it.
        let (session, id) = match turn % 2 {
            0 => {
                keeper.signal(libc::SIGKILL);
                link.start(tree(stage.sh(&script)))
            }
            _ => {
                let started = link.start(tree(stage.sh(&script)));
                keeper.signal(libc::SIGKILL);
                started
            }
        };
        let reply = link.answer(id).reply;
        let lost_reply = Reply::Rejected {
            reason: Reject::SupervisorLost,
        };
        if matches!(reply, Reply::Spawned { .. }) {
            ran += 1;
        } else {
            assert_eq!(reply, lost_reply, "turn {turn}");
            lost += 1;
        }
        let ending = link.end(session, Duration::ZERO);
        assert_eq!(ending.verdict, Verdict::AllGone, "turn {turn}");
        link.close(session);
        keeper.wait_for_death(DEATH);
        let lines = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            lines.len() <= 2,
            "turn {turn}: it ran more than once: {lines}"
        );
        link.assert_idle();
    }
    assert_eq!(ran + lost, 40);
}

#[test]
fn few_keepers_wait_and_they_go_with_the_helper() {
    let stage = Stage::new();
    let mut link = stage.link();
    let trees: Vec<_> = (0..10).map(|_| spawn_sleeper(&stage, &mut link)).collect();
    let mut keepers = Vec::new();
    for (running, _, keeper) in trees {
        link.end(running.session, Duration::from_secs(5));
        link.close(running.session);
        keepers.push(keeper);
    }
    link.assert_idle();
    let alive = || keepers.iter().filter(|keeper| keeper.is_alive()).count();
    eventually("the others have gone", SETTLE, || alive() <= MOST_SPARE);
    assert_eq!(link.spares().len(), MOST_SPARE);
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    assert_eq!(alive(), 0);
}

#[test]
fn waiting_keepers_go_when_the_helper_is_killed() {
    let stage = Stage::new();
    let mut link = stage.link();
    let keeper = spare(&stage, &mut link);
    link.kill_helper();
    link.wait_for_death();
    keeper.wait_for_death(DEATH);
}

#[test]
fn waiting_keepers_go_with_a_shutdown_which_does_not_count_them() {
    let stage = Stage::new();
    let mut link = stage.link();
    let keeper = spare(&stage, &mut link);
    let report = link.shut_down(Duration::from_secs(5));
    assert_eq!(report.sessions, 0, "{report:?}");
    assert!(
        report.survivors.is_empty() && report.orphans.is_empty(),
        "{report:?}"
    );
    assert_eq!(link.exit_code(), 0);
    assert!(!keeper.is_alive());
}

#[test]
fn keeper_of_a_released_session_keeps_no_other_one() {
    let stage = Stage::new();
    let mut link = stage.link();
    let detachable = Spec {
        detachable: true,
        ..tree(stage.sleeper())
    };
    let (running, _tracer) = link.spawn_traced(detachable);
    let keeper = link.keeper_of(&running);
    link.release(running.session);
    link.close(running.session);
    let (other, _other_tracer, next) = spawn_sleeper(&stage, &mut link);
    assert_ne!(next.pid(), keeper.pid());
    running.witness.signal(libc::SIGKILL);
    keeper.wait_for_death(DEATH);
    finish(&mut link, &other, next);
}

#[test]
fn keeper_that_is_stopped_as_it_is_handed_a_session_delays_it_and_no_more() {
    let stage = Stage::new();
    let mut link = stage.link();
    for turn in 0..8 {
        let keeper = spare(&stage, &mut link);
        let (session, id) = link.start(tree(stage.sh("exec sleep 60")));
        keeper.signal(libc::SIGSTOP);
        let reply = link.answer_within(id, DEATH).reply;
        assert!(
            matches!(reply, Reply::Spawned { .. }),
            "turn {turn}: {reply:?}"
        );
        let ending = link.end(session, Duration::ZERO);
        assert_all_gone(&ending, "it was continued");
        link.close(session);
        link.assert_idle();
    }
}
