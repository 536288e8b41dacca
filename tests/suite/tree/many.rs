//! Many keepers, one after the other and at once: each goes, and nothing is left in the helper.

use std::time::Duration;

use foster_tests::{ANSWER, Stage};

use crate::ground::{Escape, LONG, assert_all_gone, tree};

#[test]
fn thousand_sessions_one_after_the_other_leave_no_keeper_no_zombie_and_no_descriptor() {
    let stage = Stage::new();
    let mut link = stage.link();
    link.output(tree(stage.command("/bin/true", &[])));
    link.assert_idle();
    let before = link.descriptors();
    for turn in 0..1_000 {
        let running = link.spawn(tree(stage.command("/bin/true", &[])));
        assert_eq!(link.exit(running.session).status, 0, "turn {turn}");
        link.close(running.session);
    }
    link.assert_idle();
    link.assert_descriptors(before);
}

#[test]
fn two_hundred_sessions_at_once_end_and_leave_no_keeper_no_zombie_and_no_descriptor() {
    let stage = Stage::new();
    let mut link = stage.link();
    link.output(tree(stage.command("/bin/true", &[])));
    link.assert_idle();
    let before = link.descriptors();
    let started: Vec<_> = (0..200)
        .map(|_| link.start(tree(stage.command("/bin/sleep", &["60"]))))
        .collect();
    for (_, spawn) in &started {
        let reply = link.answer(*spawn).reply;
        let is_running = matches!(reply, foster_protocol::Reply::Spawned { .. });
        assert!(is_running, "{reply:?}");
    }
    assert_eq!(link.ping().sessions, 200);
    let ends: Vec<_> = started
        .iter()
        .map(|(session, _)| link.ask_kill(*session, libc::SIGTERM, LONG))
        .collect();
    for end in ends {
        assert_all_gone(&link.ended(end, ANSWER), "one of two hundred");
    }
    for (session, _) in started {
        link.close(session);
    }
    link.assert_idle();
    link.assert_descriptors(before);
}

#[test]
fn fifty_sessions_with_daemons_end_at_hangup_all_together() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut all: Vec<_> = (0..50)
        .map(|_| Escape::Daemon.spawn(&stage, &mut link, |spec| spec))
        .collect();
    link.hang_up();
    assert_eq!(link.exit_code_within(Duration::from_secs(20)), 0);
    for escaped in &mut all {
        escaped.assert_dead("one of fifty");
    }
}
