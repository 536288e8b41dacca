//! The gate: a child that waits before exec, and what becomes of it.

use std::path::PathBuf;
use std::time::Duration;

use foster_protocol::{Cause, Micros, Reply, Spec, StateName, Step, Verdict};
use foster_tests::{Command, DEATH, Running, Stage, Tracer};

/// A gated command that would leave a marker file, and the pipe that it holds.
fn gated(stage: &Stage, link: &mut foster_tests::Link) -> (Running, Tracer, PathBuf) {
    let marker = stage.scratch().join("marker");
    let script = format!("echo ran; echo x > {}", marker.display());
    let (tracer, writer) = Tracer::new();
    let running = link.prepare(Command::new(stage.sh(&script)).with(1, writer));
    (running, tracer, marker)
}

#[test]
fn nothing_runs_before_the_gate_is_opened_and_the_program_after_it() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, mut tracer, marker) = gated(&stage, &mut link);
    assert_eq!(link.state(running.session), Some(StateName::Prepared));
    assert!(tracer.is_held(), "the child waits");
    assert!(running.witness.is_alive());
    assert!(!marker.exists());
    let reply = link.open(running.session);
    let Reply::Spawned { pid, .. } = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(pid.0, running.pid);
    assert_eq!(link.exit(running.session).status, 0);
    assert!(marker.exists());
}

#[test]
fn exec_failure_behind_the_gate_is_the_reply_to_open() {
    let stage = Stage::new();
    let mut link = stage.link();
    let running = link.prepare(stage.command("/missing", &[]));
    let reply = link.open(running.session);
    assert_eq!(
        reply,
        Reply::SpawnFailed {
            step: Step::Exec,
            errno: libc::ENOENT
        }
    );
    assert_eq!(link.state(running.session), Some(StateName::Failed));
}

#[test]
fn close_of_an_unopened_gate_runs_nothing() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, mut tracer, marker) = gated(&stage, &mut link);
    link.close(running.session);
    assert_eq!(tracer.wait_for_end(DEATH), b"");
    assert!(!marker.exists());
    link.assert_idle();
}

#[test]
fn end_of_an_unopened_gate_runs_nothing_and_proves_it() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, mut tracer, marker) = gated(&stage, &mut link);
    let ending = link.end(running.session, Duration::from_secs(5));
    assert_eq!(
        (ending.cause, ending.verdict),
        (Cause::Kill, Verdict::AllGone)
    );
    assert_eq!(tracer.wait_for_end(DEATH), b"");
    assert!(!marker.exists());
}

#[test]
fn hangup_with_an_unopened_gate_runs_nothing() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, mut tracer, marker) = gated(&stage, &mut link);
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    running.witness.wait_for_death(DEATH);
    assert_eq!(tracer.wait_for_end(DEATH), b"");
    assert!(!marker.exists());
}

#[test]
fn death_of_the_helper_with_an_unopened_gate_runs_nothing() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, mut tracer, marker) = gated(&stage, &mut link);
    link.kill_helper();
    link.wait_for_death();
    running.witness.wait_for_death(DEATH);
    assert_eq!(tracer.wait_for_end(DEATH), b"");
    assert!(!marker.exists());
}

#[test]
fn gate_of_a_detachable_session_closes_with_the_helper_as_well() {
    let stage = Stage::new();
    let mut link = stage.link();
    let marker = stage.scratch().join("marker");
    let script = format!("echo x > {}", marker.display());
    let (mut tracer, writer) = Tracer::new();
    let spec = Spec {
        detachable: true,
        ..stage.sh(&script)
    };
    link.prepare(Command::new(spec).with(1, writer));
    link.kill_helper();
    link.wait_for_death();
    tracer.wait_for_end(DEATH);
    assert!(!marker.exists());
}

#[test]
fn deadline_runs_while_the_gate_is_closed() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = Spec {
        deadline: Some(Micros(200_000)),
        ..stage.sleeper()
    };
    let running = link.prepare(spec);
    let ending = link.ending(running.session);
    assert_eq!(
        (ending.cause, ending.verdict),
        (Cause::Deadline, Verdict::AllGone)
    );
}

#[test]
fn many_gates_wait_side_by_side_and_open_in_any_order() {
    let stage = Stage::new();
    let mut link = stage.link();
    let prepared: Vec<_> = (0..20)
        .map(|_| link.prepare(stage.sh("exit 9")).session)
        .collect();
    for session in prepared.iter().rev() {
        let reply = link.open(*session);
        assert!(matches!(reply, Reply::Spawned { .. }), "{reply:?}");
    }
    for session in prepared {
        assert_eq!(link.exit(session).status, 9 << 8);
        link.close(session);
    }
    link.assert_idle();
}
