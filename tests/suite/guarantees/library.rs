//! The library in a host with threads: handles, outputs, and commands that turn on others.

use std::time::{Duration, Instant};

use foster::{Cause, OnExit, Stdio};
use foster_tests::{DEATH, SETTLE, Stage, Tracer, eventually, is_spare, proc};

use crate::ground::{helper, pid, sh};
use crate::shapes::{GRACE, MARGIN, assert_in_time, time_to_end};

#[test]
fn dropped_handle_ends_the_whole_tree() {
    assert_in_time("the tree", GRACE + MARGIN, || {
        let stage = Stage::new();
        let helper = helper();
        let (mut tracer, writer) = Tracer::new();
        let script = "trap '' TERM; sleep 60 & echo ready; sleep 60";
        let child = sh(&stage, &helper, script).stdout(writer).spawn();
        let child = child.expect("the command");
        tracer.line();
        let begin = Instant::now();
        drop(child);
        assert!(begin.elapsed() < GRACE, "a drop does not wait");
        time_to_end(&mut tracer, begin)
    });
}

#[test]
fn output_returns_at_the_exit_though_a_grandchild_holds_the_pipe() {
    let stage = Stage::new();
    let helper = helper();
    let (mut tracer, writer) = Tracer::new();
    let begin = Instant::now();
    let output = sh(&stage, &helper, "echo out; echo err >&2; sleep 60 & exit 7")
        .fd(3, writer)
        .drain(Duration::from_millis(100))
        .output()
        .expect("an output");
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"out\n");
    assert_eq!(output.stderr, b"err\n");
    assert!(output.still_open, "the grandchild holds both");
    tracer.wait_for_end(DEATH);
}

#[test]
fn ten_mebibytes_come_whole_on_both_streams_at_once() {
    const LENGTH: usize = 10 * 1024 * 1024;
    let stage = Stage::new();
    let helper = helper();
    let script = "head -c 10485760 /dev/zero & head -c 10485760 /dev/zero >&2; wait";
    let output = sh(&stage, &helper, script).output().expect("an output");
    assert!(output.status.success());
    assert_eq!((output.stdout.len(), output.stderr.len()), (LENGTH, LENGTH));
    assert!(!output.still_open);
}

#[test]
fn what_was_written_before_the_deadline_is_returned() {
    let stage = Stage::new();
    let helper = helper();
    let begin = Instant::now();
    let child = sh(
        &stage,
        &helper,
        "echo partial; sleep 60 & sleep 60; echo late",
    )
    .stdout(Stdio::piped())
    .deadline(Duration::from_millis(300))
    .spawn()
    .expect("the command");
    let session = child.session().clone();
    let output = child.wait_with_output().expect("an output");
    assert_eq!(output.stdout, b"partial\n");
    assert!(!output.status.success());
    let exit = session.wait_exit(None).expect("an exit").expect("an exit");
    assert_eq!(exit.cause, Cause::Deadline);
    assert!(begin.elapsed() >= Duration::from_millis(300));
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn command_that_kills_its_own_group_harms_nobody_else() {
    let stage = Stage::new();
    let helper = helper();
    let (mut tracer, writer) = Tracer::new();
    let sibling = sh(&stage, &helper, "echo ready; exec sleep 60")
        .stdout(writer)
        .spawn()
        .expect("the sibling");
    tracer.line();
    for signal in ["TERM", "KILL"] {
        let status = sh(&stage, &helper, &format!("kill -{signal} 0; sleep 60")).status();
        assert!(!status.expect("a status").success());
    }
    assert!(tracer.is_held(), "the sibling lives");
    helper.ping().expect("the helper lives");
    drop(sibling);
    tracer.wait_for_end(DEATH);
}

#[test]
fn storm_of_stop_signals_stalls_no_spawn() {
    const SPAWNS: u32 = 300;
    let stage = Stage::new();
    let helper = helper();
    let target = foster_tests::Witness::of(pid(&helper));
    std::thread::scope(|scope| {
        let (until, is_over) = std::sync::mpsc::channel::<()>();
        let target = &target;
        scope.spawn(move || {
            use std::sync::mpsc::TryRecvError;
            while is_over.try_recv() == Err(TryRecvError::Empty) {
                for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU, libc::SIGCONT] {
                    target.signal(signal);
                }
                foster_tests::pass(Duration::from_micros(200));
            }
        });
        for _ in 0..SPAWNS {
            let begin = Instant::now();
            let child = sh(&stage, &helper, "exit 4").spawn().expect("the command");
            // The new group gets its share; it may have exited, which is as well.
            drop(child.signal(libc::SIGTSTP));
            drop(child.signal(libc::SIGCONT));
            let exit = child.session().wait_exit(Some(DEATH)).expect("a reply");
            assert_eq!(exit.map(|exit| exit.status), Some(4 << 8));
            assert!(
                begin.elapsed() < Duration::from_secs(1),
                "{:?}",
                begin.elapsed()
            );
        }
        drop(until);
    });
    assert_idle(&helper);
}

#[test]
fn thousand_spawns_and_drops_leave_no_zombie() {
    let stage = Stage::new();
    let helper = helper();
    for turn in 0..1000 {
        let script = if turn % 2 == 0 {
            "exit 0"
        } else {
            "exec sleep 60"
        };
        let child = sh(&stage, &helper, script).on_exit(OnExit::Hold).spawn();
        drop(child.expect("the command"));
    }
    assert_idle(&helper);
}

/// Asserts that the helper has no session, and no child but keepers that wait for one.
fn assert_idle(helper: &foster::Helper) {
    eventually("the helper is idle", SETTLE, || {
        let counters = helper.ping().expect("the helper lives");
        let is_idle = (counters.sessions, counters.held) == (0, 0);
        is_idle && proc::children(pid(helper)).iter().all(is_spare)
    });
}

#[test]
fn calls_on_a_session_that_is_being_closed_return() {
    const ROUNDS: u32 = 200;
    let stage = Stage::new();
    let helper = helper();
    let (tell, told) = std::sync::mpsc::channel();
    for round in 0..ROUNDS {
        let child = sh(&stage, &helper, "exec sleep 60").spawn();
        let child = child.expect("the command");
        let session = child.session().clone();
        let tell = tell.clone();
        // Not scoped: a call that never returns must not keep the test from saying so.
        std::thread::spawn(move || {
            drop(child);
            for _ in 0..3 {
                // It is refused or reaches somebody; what matters is that it is answered.
                drop(session.signal(libc::SIGKILL, foster::Target::Tree));
            }
            drop(session.wait_end(None));
            match tell.send(()) {
                // The test may have given up on this round.
                Ok(()) | Err(_) => {}
            }
        });
        let answered = told.recv_timeout(DEATH);
        assert!(answered.is_ok(), "round {round}: a call is never answered");
    }
}
