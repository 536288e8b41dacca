//! A keeper's death: its session ends with it and says so, and the helper serves on.

use std::time::Duration;

use foster_protocol::{Cause, Ending, Level, Reject, Reply, Request, Spec, StateName, Verdict};
use foster_tests::{ANSWER, Command, DEATH, Link, Stage, Tracer, Witness, at_level, clean_up};

use crate::ground::{ESCAPES, Escape, spawn_sleeper, tree};

/// Asserts that a session is over because its keeper died, and that nobody is left of it.
fn assert_lost(ending: &Ending, what: &str) {
    assert_eq!(ending.cause, Cause::SupervisorLost, "{what}: {ending:?}");
    assert_eq!(ending.verdict, Verdict::AllGone, "{what}: {ending:?}");
    assert!(ending.survivors.is_empty(), "{what}: {ending:?}");
}

fn assert_serves(stage: &Stage, link: &mut Link) {
    for level in [Level::Tree, Level::Group] {
        let running = link.spawn(at_level(level, stage.sh("exit 5")));
        assert_eq!(link.exit(running.session).status, 5 << 8, "{level:?}");
        link.close(running.session);
    }
}

const LOST: Reply = Reply::Rejected {
    reason: Reject::SupervisorLost,
};

#[test]
fn killed_keeper_ends_its_session_with_the_escapees_and_says_so() {
    for escape in ESCAPES {
        let stage = Stage::new();
        let mut link = stage.link();
        let what = format!("{escape:?}");
        let mut escaped = escape.spawn(&stage, &mut link, |spec| spec);
        let session = escaped.running.session;
        let (exit, end) = (link.ask_exit(session), link.ask_end(session));
        link.ping();
        escaped.keeper.signal(libc::SIGKILL);
        assert_eq!(link.answer(exit).reply, LOST, "{what}");
        let ending = link.ended(end, ANSWER);
        assert_lost(&ending, &what);
        escaped.assert_dead(&what);
        // The record answers the same until it is closed.
        assert_eq!(link.ending(session), ending, "{what}");
        assert_eq!(link.end(session, Duration::ZERO), ending, "{what}");
        assert_eq!(link.state(session), Some(StateName::Ended), "{what}");
        let late = link.refusal(Request::Wait {
            session,
            until: foster_protocol::Until::Exit,
        });
        assert!(
            matches!(late, Reject::SupervisorLost | Reject::IllegalState { .. }),
            "{what}: {late:?}"
        );
        assert_serves(&stage, &mut link);
        link.close(session);
        link.assert_idle();
    }
}

#[test]
fn end_that_is_asked_right_after_the_keepers_death_gets_the_same_ending() {
    for turn in 0..50 {
        let stage = Stage::new();
        let mut link = stage.link();
        let (running, mut tracer, keeper) = spawn_sleeper(&stage, &mut link);
        keeper.signal(libc::SIGKILL);
        if turn % 2 == 0 {
            keeper.wait_for_death(DEATH);
        }
        // Before the helper has seen the death, after it, or in the middle of the sweep.
        let ending = link.ending(running.session);
        assert_lost(&ending, &format!("turn {turn}"));
        tracer.wait_for_end(DEATH);
        link.close(running.session);
        link.assert_idle();
    }
}

#[test]
fn exit_that_was_told_before_the_keepers_death_is_told_again() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (mut tracer, writer) = Tracer::new();
    let spec = tree(stage.sh("( setsid sh -c 'echo ready; exec sleep 60' & ); read x; exit 7"));
    let (reader, gate) = Tracer::gate();
    let running = link.spawn(Command::new(spec).with(0, reader).with(1, writer));
    tracer.line();
    let keeper = link.keeper_of(&running);
    drop(gate);
    let exit = link.exit(running.session);
    assert_eq!(exit.status, 7 << 8);
    let end = link.ask_end(running.session);
    keeper.signal(libc::SIGKILL);
    assert_lost(&link.ended(end, ANSWER), "a held leader");
    tracer.wait_for_end(DEATH);
    assert_eq!(link.exit(running.session), exit);
    link.close(running.session);
    link.assert_idle();
}

#[test]
fn killed_keeper_of_a_detachable_session_ends_it_too() {
    let stage = Stage::new();
    let mut link = stage.link();
    let detachable = |spec| Spec {
        detachable: true,
        ..spec
    };
    let mut escaped = Escape::Daemon.spawn(&stage, &mut link, detachable);
    let end = link.ask_end(escaped.running.session);
    escaped.keeper.signal(libc::SIGKILL);
    assert_lost(&link.ended(end, ANSWER), "detachable");
    escaped.assert_dead("detachable");
}

#[test]
fn killed_keeper_with_an_unopened_gate_runs_nothing() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (mut tracer, writer) = Tracer::new();
    let command = Command::new(tree(stage.sleeper())).with(1, writer);
    let prepared = link.prepare(command);
    let end = link.ask_end(prepared.session);
    link.keeper_of(&prepared).signal(libc::SIGKILL);
    assert_lost(&link.ended(end, ANSWER), "a gate");
    assert_eq!(tracer.wait_for_end(DEATH), b"");
    let reply = link.open(prepared.session);
    assert!(matches!(reply, Reply::Rejected { .. }), "{reply:?}");
    link.close(prepared.session);
    link.assert_idle();
}

#[test]
fn killed_keeper_harms_no_other_session() {
    let stage = Stage::new();
    let mut link = stage.link();
    let grouped = link.spawn_traced(at_level(Level::Group, stage.sleeper()));
    let mut other = Escape::Daemon.spawn(&stage, &mut link, |spec| spec);
    let mut lost = Escape::Daemon.spawn(&stage, &mut link, |spec| spec);
    let end = link.ask_end(lost.running.session);
    lost.keeper.signal(libc::SIGKILL);
    assert_lost(&link.ended(end, ANSWER), "the lost one");
    lost.assert_dead("the lost one");
    let daemon = other.escapee.as_ref().expect("one process");
    assert!(other.keeper.is_alive() && daemon.is_alive(), "the other");
    assert!(other.tracer.is_held(), "the other's leader");
    assert!(grouped.0.witness.is_alive(), "the one without a keeper");
}

#[test]
fn keepers_that_die_together_end_each_session_and_answer_each_wait() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut all: Vec<_> = (0..10)
        .map(|_| Escape::Daemon.spawn(&stage, &mut link, |spec| spec))
        .collect();
    let ends: Vec<_> = all
        .iter()
        .map(|escaped| link.ask_end(escaped.running.session))
        .collect();
    for escaped in &all {
        escaped.keeper.signal(libc::SIGKILL);
    }
    for (end, escaped) in ends.into_iter().zip(&mut all) {
        assert_lost(&link.ended(end, ANSWER), "one of ten");
        escaped.assert_dead("one of ten");
        link.close(escaped.running.session);
    }
    link.assert_idle();
    assert_serves(&stage, &mut link);
}

#[test]
fn list_and_shutdown_are_answered_after_a_keepers_death() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut lost = Escape::Setsid.spawn(&stage, &mut link, |spec| spec);
    let _kept = spawn_sleeper(&stage, &mut link);
    lost.keeper.signal(libc::SIGKILL);
    let (sessions, _) = link.list();
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    let report = link.shut_down(Duration::from_secs(5));
    assert!(report.survivors.is_empty(), "{report:?}");
    lost.assert_dead("the lost one");
    assert_eq!(link.exit_code(), 0);
}

#[test]
fn killed_keeper_beside_a_released_session_ends_what_is_its_own_and_claims_no_more() {
    let stage = Stage::new();
    let mut link = stage.link();
    let detachable = Spec {
        detachable: true,
        ..at_level(Level::Group, stage.sleeper())
    };
    let (released, mut released_tracer) = link.spawn_traced(detachable);
    link.release(released.session);
    // A job of the leader's own session, and a daemon that could be anybody's.
    let (mut job_tracer, job_writer) = Tracer::new();
    let script = "( sh -c 'echo $$ >&3; exec sleep 60' & ) >/dev/null; exec 3>&-; \
                  ( setsid sh -c 'echo $$; cd /; exec env -i sleep 60 >&- 2>&-' & ); exec sleep 60";
    let (mut tracer, writer) = Tracer::new();
    let command = Command::new(tree(stage.sh(script)));
    let running = link.spawn(command.with(1, writer).with(3, job_writer));
    let job = Witness::of(job_tracer.pid());
    let daemon = Witness::of(tracer.pid());
    let end = link.ask_end(running.session);
    link.keeper_of(&running).signal(libc::SIGKILL);
    let ending = link.ended(end, ANSWER);
    running.witness.wait_for_death(DEATH);
    let is_left = daemon.is_alive();
    assert!(
        !job.is_alive(),
        "the job is in the leader's session: {ending:?}"
    );
    let is_named = ending
        .unattributed
        .iter()
        .map(|orphan| orphan.pid)
        .chain(ending.survivors.iter().map(|survivor| survivor.pid))
        .any(|pid| pid.0 == daemon.pid());
    assert!(!is_left || is_named, "who is left is named: {ending:?}");
    assert!(
        !is_left || ending.proof != Some(foster_protocol::Proof::NoOrphans),
        "an orphan lives: {ending:?}"
    );
    assert!(released_tracer.is_held(), "what was released is left alone");
    clean_up(&[daemon, job, released.witness]);
}
