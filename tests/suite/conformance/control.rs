//! Asking the helper about itself, and sending it away.

use std::time::{Duration, Instant};

use foster_protocol::{Level, StateName, Verdict};
use foster_tests::{DEATH, Stage, level, proc};

#[test]
fn list_shows_every_session_with_its_leader_state_and_level() {
    let stage = Stage::new();
    let mut link = stage.link();
    assert_eq!(link.list(), (Vec::new(), Vec::new()));
    let (running, _tracer) = link.spawn_traced(stage.sleeper());
    let prepared = link.prepare(stage.sleeper());
    let exited = link.spawn(stage.command("/bin/true", &[]));
    link.exit(exited.session);
    let (failed, _) = link.try_spawn(stage.command("/missing", &[]));
    let (sessions, unattributed) = link.list();
    assert!(unattributed.is_empty(), "{unattributed:?}");
    let shown: Vec<_> = sessions
        .iter()
        .map(|info| (info.session, info.state))
        .collect();
    let expected = [
        (running.session, StateName::Running),
        (prepared.session, StateName::Prepared),
        (exited.session, StateName::Exited),
        (failed, StateName::Failed),
    ];
    assert_eq!(shown, expected);
    assert!(sessions.iter().all(|info| info.level == level()));
    let leader = sessions
        .first()
        .and_then(|info| info.leader)
        .expect("a leader");
    assert_eq!(leader.0, running.pid);
}

#[test]
fn counters_follow_what_happens() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer) = link.spawn_traced(stage.sleeper());
    let exited = link.spawn(stage.command("/bin/true", &[]));
    link.exit(exited.session);
    let wait = link.ask_exit(running.session);
    let counters = link.ping();
    assert_eq!((counters.sessions, counters.held), (2, 1), "{counters:?}");
    assert_eq!((counters.waiting, counters.forks), (1, 2), "{counters:?}");
    link.close(running.session);
    link.exited(wait, foster_tests::ANSWER);
    link.close(exited.session);
    link.assert_idle();
    assert_eq!(link.ping().forks, 2, "forks are counted since the start");
}

#[test]
fn probe_lists_every_level_once_and_group_can_be_had() {
    let stage = Stage::new();
    let mut link = stage.link();
    let capabilities = link.probe();
    let levels: Vec<Level> = capabilities
        .levels
        .iter()
        .map(|entry| entry.level)
        .collect();
    assert_eq!(
        levels,
        [Level::Group, Level::Tree, Level::Cgroup, Level::Namespace]
    );
    assert_eq!(
        capabilities.levels.first().map(|entry| entry.errno),
        Some(0)
    );
}

#[test]
fn helper_that_is_asked_for_no_helper_gives_at_least_a_group() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = foster_protocol::Spec {
        require: Some(Level::Direct),
        ..foster_tests::at_level(Level::Direct, stage.sh("exit 3"))
    };
    let running = link.spawn(spec);
    let (sessions, _) = link.list();
    let levels: Vec<Level> = sessions.iter().map(|info| info.level).collect();
    assert_eq!(levels, [Level::Group]);
    assert_eq!(link.exit(running.session).status, 3 << 8);
}

#[test]
fn shutdown_ends_every_session_says_farewell_and_exits_with_code_0() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (one, mut first) = link.spawn_traced(stage.sleeper());
    let (_, mut second) = link.spawn_traced(stage.fixture("ignores-term", &[]));
    let end = link.ask_end(one.session);
    let report = link.shut_down(Duration::from_millis(300));
    assert_eq!(report.sessions, 2);
    assert!(report.survivors.is_empty(), "{report:?}");
    let ending = link.ended(end, foster_tests::ANSWER);
    assert_eq!(
        (ending.cause, ending.verdict),
        (foster_protocol::Cause::Shutdown, Verdict::AllGone)
    );
    link.wait_for_hangup(DEATH);
    assert_eq!(link.exit_code(), 0);
    first.wait_for_end(DEATH);
    second.wait_for_end(DEATH);
}

#[test]
fn shutdown_without_sessions_is_quick() {
    let stage = Stage::new();
    let mut link = stage.link();
    let begin = Instant::now();
    assert_eq!(link.shut_down(Duration::from_secs(60)).sessions, 0);
    assert_eq!(link.exit_code(), 0);
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "it took {:?}",
        begin.elapsed()
    );
}

#[test]
fn shutdown_leaves_what_was_released() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = foster_protocol::Spec {
        detachable: true,
        ..stage.sleeper()
    };
    let (running, mut tracer) = link.spawn_traced(spec);
    link.release(running.session);
    let report = link.shut_down(Duration::from_millis(100));
    assert_eq!(report.sessions, 0, "{report:?}");
    assert_eq!(link.exit_code(), 0);
    assert!(tracer.is_held(), "what was released lives");
    running.witness.signal(libc::SIGKILL);
    tracer.wait_for_end(DEATH);
}

#[test]
fn helper_answers_while_an_ending_runs() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer) = link.spawn_traced(stage.fixture("has-many-children", &["100"]));
    let ending = link.ask_kill(running.session, libc::SIGTERM, Duration::from_secs(2));
    for _ in 0..50 {
        let begin = Instant::now();
        link.ping();
        assert!(
            begin.elapsed() < Duration::from_millis(500),
            "a ping took {:?}",
            begin.elapsed()
        );
    }
    assert!(!link.has_answer(ending), "the grace is not over");
    link.ended(ending, foster_tests::ANSWER);
}

#[test]
fn helper_is_no_zombie_collector_of_its_sessions_own_business() {
    let stage = Stage::new();
    let mut link = stage.link();
    // The leader's own children are its own to reap.
    let (running, _tracer) =
        link.spawn_traced(stage.sh("sleep 0 & p=$!; echo ready; wait $p; exit $?"));
    assert_eq!(link.exit(running.session).status, 0);
    assert_eq!(proc::children(link.pid()).len(), 1, "the held leader alone");
}
