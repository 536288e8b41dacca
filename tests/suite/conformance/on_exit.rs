//! What follows the leader's exit, and the limits that the helper itself keeps.

use std::time::{Duration, Instant};

use foster_protocol::{Cause, Ended, Micros, OnExit, Reply, Spec, StateName, Verdict};
use foster_tests::{ANSWER, Command, DEATH, Stage, Tracer};

const SOON: Micros = Micros(300_000);

/// A leader that leaves a member behind, which lives for a minute.
fn leaves_member(stage: &Stage, on_exit: OnExit) -> Spec {
    Spec {
        on_exit,
        ..stage.sh("sleep 60 & echo ready; exit 3")
    }
}

#[test]
fn hold_keeps_the_rest_until_the_client_decides() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, mut tracer) = link.spawn_traced(leaves_member(&stage, OnExit::Hold));
    assert_eq!(link.exit(running.session).status, 3 << 8);
    tracer.assert_held_for(Duration::from_millis(700));
    assert_eq!(link.state(running.session), Some(StateName::Exited));
}

#[test]
fn end_ends_the_rest_at_the_leaders_exit() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = leaves_member(&stage, OnExit::End { grace: SOON });
    let (running, mut tracer) = link.spawn_traced(spec);
    let ending = link.ending(running.session);
    assert_eq!(
        (ending.cause, ending.verdict),
        (Cause::Exit, Verdict::AllGone)
    );
    tracer.wait_for_end(DEATH);
    let exit = link.exit(running.session);
    assert_eq!((exit.status, exit.cause), (3 << 8, Cause::Exit));
    let member = ending.members.first().expect("the member is named");
    assert_eq!(member.ended, Ended::ByFirstSignal);
    // The member may be on its way from the shell to its program.
    assert!(
        [&b"sleep"[..], b"sh"].contains(&member.name.0.as_slice()),
        "{member:?}"
    );
}

#[test]
fn linger_lets_the_rest_finish_by_itself() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (gate, release) = Tracer::gate();
    let on_exit = OnExit::Linger {
        limit: Micros(60_000_000),
        grace: SOON,
    };
    let spec = Spec {
        on_exit,
        ..stage.sh("(read x <&3; echo done) & echo ready; exit 0")
    };
    let (mut tracer, writer) = Tracer::new();
    let running = link.spawn(Command::new(spec).with(1, writer).with(3, gate));
    tracer.line();
    link.exit(running.session);
    let end = link.ask_end(running.session);
    link.ping();
    assert!(!link.has_answer(end), "a member still runs");
    drop(release);
    let ending = link.ended(end, ANSWER);
    assert_eq!(
        (ending.cause, ending.verdict),
        (Cause::Exit, Verdict::AllGone)
    );
    assert_eq!(tracer.wait_for_end(DEATH), b"done\n");
}

#[test]
fn linger_ends_the_rest_at_its_limit() {
    let stage = Stage::new();
    let mut link = stage.link();
    let begin = Instant::now();
    let spec = leaves_member(
        &stage,
        OnExit::Linger {
            limit: SOON,
            grace: SOON,
        },
    );
    let (running, mut tracer) = link.spawn_traced(spec);
    let ending = link.ending(running.session);
    assert!(
        begin.elapsed() >= Duration::from(SOON),
        "it ended too early"
    );
    assert_eq!(
        (ending.cause, ending.verdict),
        (Cause::Linger, Verdict::AllGone)
    );
    tracer.wait_for_end(DEATH);
}

#[test]
fn leave_releases_the_rest() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (gate, release) = Tracer::gate();
    let (mut tracer, writer) = Tracer::new();
    let spec = Spec {
        on_exit: OnExit::Leave,
        ..stage.sh("cat <&3 >&1 & echo ready; exit 3")
    };
    let running = link.spawn(Command::new(spec).with(1, writer).with(3, gate));
    let id = link.ask_end(running.session);
    let reply = link.answer(id).reply;
    assert_eq!(reply, Reply::Released { still_running: 1 });
    assert_eq!(link.exit(running.session).status, 3 << 8);
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    assert!(tracer.is_held(), "what was left outlives the helper");
    drop(release);
    tracer.wait_for_end(DEATH);
}

#[test]
fn deadline_ends_a_running_command() {
    let stage = Stage::new();
    let mut link = stage.link();
    let begin = Instant::now();
    let spec = Spec {
        deadline: Some(SOON),
        ..stage.sleeper()
    };
    let (running, mut tracer) = link.spawn_traced(spec);
    let ending = link.ending(running.session);
    assert!(
        begin.elapsed() >= Duration::from(SOON),
        "it ended too early"
    );
    assert_eq!(
        (ending.cause, ending.verdict),
        (Cause::Deadline, Verdict::AllGone)
    );
    tracer.wait_for_end(DEATH);
    let exit = link.exit(running.session);
    assert_eq!((exit.status, exit.cause), (libc::SIGTERM, Cause::Deadline));
}

#[test]
fn deadline_holds_after_the_leaders_exit() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = Spec {
        deadline: Some(SOON),
        ..leaves_member(&stage, OnExit::Hold)
    };
    let (running, mut tracer) = link.spawn_traced(spec);
    let ending = link.ending(running.session);
    assert_eq!(
        (ending.cause, ending.verdict),
        (Cause::Deadline, Verdict::AllGone)
    );
    tracer.wait_for_end(DEATH);
    assert_eq!(link.exit(running.session).cause, Cause::Exit);
}

#[test]
fn deadline_does_not_touch_what_was_released() {
    let stage = Stage::new();
    let mut link = stage.link();
    let deadline = Some(SOON);
    let spec = Spec {
        deadline,
        detachable: true,
        ..stage.sleeper()
    };
    let (running, mut tracer) = link.spawn_traced(spec);
    link.release(running.session);
    tracer.assert_held_for(Duration::from_millis(900));
    running.witness.signal(libc::SIGKILL);
}

#[test]
fn deadline_of_a_hung_host_still_ends_the_command() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = Spec {
        deadline: Some(SOON),
        ..stage.sleeper()
    };
    let (_, mut tracer) = link.spawn_traced(spec);
    // The host asks for nothing and reads nothing meanwhile.
    tracer.wait_for_end(DEATH);
}
