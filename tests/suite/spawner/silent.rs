//! A helper that is there and says nothing: no call hangs, and nothing late is left alone.

use std::thread;
use std::time::{Duration, Instant};

use foster::{ErrorKind, Fallback, Level, Notice, Spawner, Stdio};
use foster_tests::{DEATH, SETTLE, Stage, Tracer, eventually};

use crate::ground::{SOON, leader, lines, marking, sh, spawn, spawner, witness};

/// How long the helper's answers may take.
const LIMIT: Duration = Duration::from_millis(600);

fn impatient() -> Spawner {
    spawner().timeout(LIMIT)
}

#[test]
fn spawn_of_a_stopped_helper_is_given_up_in_time_and_ended_when_the_helper_goes_on() {
    let stage = Stage::new();
    let spawner = impatient();
    let helper = witness(&spawner.launch().expect("a helper"));
    let (mut sibling_tracer, writer) = Tracer::new();
    let mut command = sh(&stage, "echo ready >&3; exec sleep 60");
    command.fd(3, writer);
    let sibling = spawn(&spawner, &command);
    drop(command);
    sibling_tracer.line();
    helper.stop();
    let (mut tracer, writer) = Tracer::new();
    let marker = stage.scratch().join("late");
    let mut late = sh(&stage, "echo ran >> \"$0\"; exec sleep 60");
    late.arg(&marker).fd(3, writer);
    let begin = Instant::now();
    let child = spawn(&spawner, &late);
    drop(late);
    let took = begin.elapsed();
    assert!(took >= LIMIT && took < SOON, "{took:?}");
    assert_eq!(child.notice(), Some(Notice::StartUnknown));
    // A fresh helper takes the next command at once.
    let (command, mark) = marking(&stage);
    let mut next = spawn(&spawner, &command);
    assert_eq!(next.notice(), None);
    assert!(next.containment().level >= Level::Group);
    assert!(next.wait().expect("a status").success());
    assert_eq!(lines(&mark), 1);
    helper.signal(libc::SIGCONT);
    // What it started late has the pipe, and is ended; its other session goes on.
    tracer.wait_for_end(DEATH);
    assert!(lines(&marker) <= 1);
    assert!(sibling_tracer.is_held(), "the sibling lives");
    let ending = sibling.kill().expect("an ending");
    assert!(ending.survivors.is_empty());
    sibling_tracer.wait_for_end(DEATH);
}

#[test]
fn every_call_on_a_session_of_a_stopped_helper_returns_in_time() {
    let stage = Stage::new();
    let spawner = impatient();
    let helper = witness(&spawner.launch().expect("a helper"));
    let mut done = spawn(&spawner, &sh(&stage, "exit 0"));
    done.wait().expect("a status");
    let running = spawn(&spawner, &sh(&stage, "exec sleep 60"));
    let mut dying = spawn(&spawner, &sh(&stage, "exec sleep 60"));
    let dying_leader = leader(&dying);
    helper.stop();
    let begin = Instant::now();
    let error = done.session().release().expect_err("silence");
    assert_eq!(error.kind(), ErrorKind::ReleaseFateUnknown);
    assert_eq!(done.notice(), Some(Notice::ReleaseUnknown));
    let error = running.signal(libc::SIGUSR1).expect_err("silence");
    assert_eq!(error.kind(), ErrorKind::HelperSilent);
    dying_leader.signal(libc::SIGKILL);
    let error = dying.wait().expect_err("silence");
    assert_eq!(error.kind(), ErrorKind::ExitUnknown);
    assert_eq!(dying.notice(), Some(Notice::ExitUnknown));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    // An ending has its grace and the time for KILL before it is given up.
    let error = running.end(Duration::ZERO).expect_err("silence");
    assert_eq!(error.kind(), ErrorKind::EndUnknown);
    assert_eq!(running.notice(), Some(Notice::EndUnconfirmed));
    drop((done, running, dying));
    helper.signal(libc::SIGCONT);
}

#[test]
fn gate_of_a_stopped_helper_runs_nothing_and_the_command_goes_elsewhere() {
    let stage = Stage::new();
    let spawner = impatient();
    let (command, marker) = marking(&stage);
    let first = spawner.gated(&command, Fallback::Direct).expect("a gate");
    let helper = witness(&spawner.launch().expect("a helper"));
    helper.stop();
    // Nobody has opened it, so that this one has surely not run, and is made again.
    let second = spawner.gated(&command, Fallback::Direct).expect("a gate");
    assert_eq!(second.notice(), None);
    let begin = Instant::now();
    let error = first.open().expect_err("silence");
    assert_eq!(error.kind(), ErrorKind::SpawnFateUnknown);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    let mut child = second.open().expect("the program runs");
    assert!(child.wait().expect("a status").success());
    assert_eq!(lines(&marker), 1);
    helper.signal(libc::SIGCONT);
}

#[test]
fn command_that_waits_at_its_gate_delays_no_other_spawn() {
    let stage = Stage::new();
    for spawner in [spawner(), Spawner::without_helper()] {
        let (command, marker) = marking(&stage);
        let gate = spawner.gated(&command, Fallback::Direct).expect("a gate");
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let begin = Instant::now();
                    let mut other = spawn(&spawner, &sh(&stage, "exit 0"));
                    assert!(other.wait().expect("a status").success());
                    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
                });
            }
        });
        drop(gate);
        assert_eq!(lines(&marker), 0);
    }
}

#[test]
fn stopped_helper_holds_no_captured_output_back() {
    let stage = Stage::new();
    let spawner = impatient();
    let helper = witness(&spawner.launch().expect("a helper"));
    let mut command = sh(&stage, "echo out; exec sleep 60");
    command.stdout(Stdio::piped());
    let child = spawn(&spawner, &command);
    let leader = leader(&child);
    helper.stop();
    eventually("the command has exited", SETTLE, || {
        leader.signal(libc::SIGKILL);
        !leader.is_alive()
    });
    let begin = Instant::now();
    let error = child.wait_with_output().expect_err("no status");
    assert_eq!(error.notice(), Some(Notice::ExitUnknown));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    helper.signal(libc::SIGCONT);
}
