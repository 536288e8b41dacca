//! What a call says of a helper that was lost while it waited, by what it waited for; and a fresh
//! helper in the place of a lost one.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use foster::{Child, ErrorKind, Helper, Seal, Sealed};
use foster_tests::{DEATH, SETTLE, Stage, Tracer, Witness, eventually, find_tagged};
use nix::unistd::gettid;

use crate::ground::{helper, pid, sh};
use crate::helper_lost::{TOLD, wait_until_asleep};

/// Kills a helper that is stopped while a call waits for it, and gives the call's error.
fn lose_during(
    helper: &Helper,
    call: impl FnOnce() -> Option<foster::Error> + Send,
) -> foster::Error {
    let target = Witness::of(pid(helper));
    target.stop();
    let (say_thread, thread) = mpsc::channel();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let number = gettid().as_raw();
            say_thread.send(number).expect("the test listens");
            call()
        });
        wait_until_asleep(thread.recv().expect("the thread says its number"));
        let begin = Instant::now();
        target.signal(libc::SIGKILL);
        let error = waiting.join().expect("the thread that calls");
        assert!(begin.elapsed() < TOLD, "{:?}", begin.elapsed());
        error.expect("the helper was lost")
    })
}

fn assert_says(error: &foster::Error, kind: ErrorKind, words: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.is_helper_lost(), "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

/// A command that runs for a minute.
fn sleeper(stage: &Stage, helper: &Helper) -> (Child, Tracer) {
    let (mut tracer, writer) = Tracer::new();
    let child = sh(stage, helper, "echo ready; exec sleep 60")
        .detachable(true)
        .stdout(writer)
        .spawn()
        .expect("the command");
    tracer.line();
    (child, tracer)
}

#[test]
fn spawn_that_was_sent_and_not_answered_may_have_run_and_is_not_run_again() {
    let stage = Stage::new();
    let helper = helper();
    let log = stage.scratch().join("log");
    let mut command = sh(&stage, &helper, "echo ran >> \"$0\"");
    command.arg(&log);
    let error = lose_during(&helper, || command.spawn().err());
    assert_says(&error, ErrorKind::SpawnFateUnknown, "may have run");
    assert!(!error.is_spawn_failure());
    assert!(!log.exists(), "a stopped helper started it, or another one");
}

#[test]
fn wait_that_is_not_answered_says_that_the_exit_is_unknown() {
    let stage = Stage::new();
    let helper = helper();
    let (mut child, mut tracer) = sleeper(&stage, &helper);
    let error = lose_during(&helper, || child.wait().err());
    assert_says(&error, ErrorKind::ExitUnknown, "status is unknown");
    tracer.wait_for_end(DEATH);
}

#[test]
fn end_and_kill_that_are_not_answered_say_that_the_end_is_not_confirmed() {
    for grace in [Duration::ZERO, Duration::from_secs(20)] {
        let stage = Stage::new();
        let helper = helper();
        let (child, mut tracer) = sleeper(&stage, &helper);
        let error = lose_during(&helper, || match grace {
            Duration::ZERO => child.kill().err(),
            grace => child.end(grace).err(),
        });
        assert_says(&error, ErrorKind::EndUnknown, "not confirmed");
        tracer.wait_for_end(DEATH);
    }
}

#[test]
fn release_that_is_not_answered_leaves_the_fate_unknown() {
    let stage = Stage::new();
    let helper = helper();
    let (child, mut tracer) = sleeper(&stage, &helper);
    let leader = Witness::of(i32::try_from(child.id()).expect("a pid fits"));
    let error = lose_during(&helper, || child.session().release().err());
    assert_says(&error, ErrorKind::ReleaseFateUnknown, "fate");
    // Whether it was let go is not known, so the client does not end it; a keeper may.
    foster_tests::clean_up(&[leader]);
    tracer.wait_for_end(DEATH);
}

#[test]
fn loss_that_nobody_waits_for_is_told_by_the_next_call() {
    let stage = Stage::new();
    let helper = helper();
    let (mut child, mut tracer) = sleeper(&stage, &helper);
    let target = Witness::of(pid(&helper));
    target.signal(libc::SIGKILL);
    target.wait_for_death(DEATH);
    let error = child.try_wait().expect_err("no helper");
    assert_says(&error, ErrorKind::ExitUnknown, "status is unknown");
    tracer.wait_for_end(DEATH);
    let error = sh(&stage, &helper, "exit 0")
        .spawn()
        .expect_err("no helper");
    assert_says(&error, ErrorKind::HelperLost, "did not run");
}

#[test]
fn helper_that_is_watched_goes_with_its_last_handle() {
    let stage = Stage::new();
    let helper = helper();
    helper.watch().expect("room for a thread");
    let (child, mut tracer) = sleeper(&stage, &helper);
    let target = Witness::of(pid(&helper));
    drop((child, helper));
    tracer.wait_for_end(DEATH);
    target.wait_for_death(DEATH);
}

#[test]
fn relaunched_helper_serves_and_the_lost_ones_sessions_keep_their_fates() {
    let stage = Stage::new();
    let lost = helper();
    let (child, mut tracer) = sleeper(&stage, &lost);
    lost.watch().expect("room for a thread");
    let target = Witness::of(pid(&lost));
    target.signal(libc::SIGKILL);
    target.wait_for_death(DEATH);
    let fresh = lost.relaunch().expect("a helper");
    assert_ne!(fresh.id(), lost.id());
    let status = sh(&stage, &fresh, "exit 7").status().expect("a status");
    assert_eq!(status.code(), Some(7));
    assert!(lost.is_lost());
    let error = child.session().wait_end(None).expect_err("no helper");
    assert_says(&error, ErrorKind::EndUnknown, "not confirmed");
    tracer.wait_for_end(DEATH);
    drop((child, lost));
    eventually("nothing is left of the lost one", SETTLE, || {
        find_tagged(stage.tag()).is_empty()
    });
}

#[test]
fn relaunched_helper_is_sealed_as_the_lost_one_was() {
    let stage = Stage::new();
    let lost = helper();
    let seal = Seal {
        programs: Some(vec!["/bin/sh".into()]),
        ..Seal::default()
    };
    lost.restrict(seal).expect("it is the first request");
    lost.shutdown(Duration::ZERO).expect("a farewell");
    let fresh = lost.relaunch().expect("a helper");
    let status = sh(&stage, &fresh, "exit 3").status().expect("a status");
    assert_eq!(status.code(), Some(3));
    let mut other = crate::ground::command(&stage, &fresh, "/bin/true");
    let error = other.spawn().expect_err("it is sealed");
    let what = Sealed::Program;
    let refused = foster::Reject::NotPermitted { what };
    assert_eq!(error.rejection(), Some(&refused));
}
