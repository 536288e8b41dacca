//! A helper that is not to be had or dies at each moment: one notice each, and no command twice.

use std::fs;
use std::io::Read;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use foster::{ErrorKind, Fallback, Level, Notice, Spawner, Stdio};
use foster_tests::{DEATH, Stage, Tracer};

use crate::ground::{SOON, kill, leader, lines, marking, scripted, sh, spawn, spawner, witness};

#[test]
fn helper_that_cannot_be_started_leaves_the_command_to_the_host_with_a_notice() {
    let stage = Stage::new();
    let (command, marker) = marking(&stage);
    let spawner = Spawner::new().path(stage.scratch().join("missing"));
    let mut child = spawn(&spawner, &command);
    assert_eq!(child.notice(), Some(Notice::NoHelper));
    assert_eq!(child.containment().level, Level::Direct);
    assert!(child.wait().expect("a status").success());
    assert_eq!(child.notice(), Some(Notice::NoHelper));
    assert_eq!(lines(&marker), 1);
    let output = spawner.output(&sh(&stage, "echo out"), Fallback::Direct);
    let output = output.expect("an output");
    assert_eq!(output.notice, Some(Notice::NoHelper));
    assert_eq!(output.stdout, b"out\n");
}

#[test]
fn helper_that_dies_before_its_hello_is_started_once_more_and_no_oftener() {
    for script in ["exit 3", "kill -KILL $$"] {
        let stage = Stage::new();
        let (command, marker) = marking(&stage);
        let (spawner, starts) = scripted(&stage, script);
        let mut child = spawn(&spawner, &command);
        assert_eq!(child.notice(), Some(Notice::NoHelper), "{script}");
        assert!(child.wait().expect("a status").success());
        assert_eq!((lines(&starts), lines(&marker)), (2, 1), "{script}");
    }
}

#[test]
fn helper_that_is_there_at_the_second_start_runs_the_command() {
    let stage = Stage::new();
    let (command, marker) = marking(&stage);
    let script = "[ $(wc -l < \"$LOG\") = 1 ] && exit 3; exec \"$HELPER\"";
    let (spawner, starts) = scripted(&stage, script);
    let mut child = spawn(&spawner, &command);
    assert_eq!(child.notice(), None);
    assert!(child.containment().level >= Level::Group);
    assert!(child.wait().expect("a status").success());
    assert_eq!((lines(&starts), lines(&marker)), (2, 1));
}

#[test]
fn helper_that_died_unnoticed_is_replaced_for_the_call_at_hand() {
    let stage = Stage::new();
    let (command, marker) = marking(&stage);
    let spawner = spawner();
    let first = spawner.launch().expect("a helper");
    kill(&witness(&first));
    let mut child = spawn(&spawner, &command);
    assert_eq!(child.notice(), None);
    assert!(child.containment().level >= Level::Group);
    assert!(child.wait().expect("a status").success());
    assert_eq!(lines(&marker), 1);
    let second = spawner.launch().expect("a helper");
    assert_ne!(first.id(), second.id());
}

#[test]
fn helper_that_died_and_does_not_come_back_leaves_the_command_to_the_host() {
    let stage = Stage::new();
    let (command, marker) = marking(&stage);
    let script = "[ $(wc -l < \"$LOG\") = 1 ] && exec \"$HELPER\"; exit 3";
    let (spawner, starts) = scripted(&stage, script);
    kill(&witness(&spawner.launch().expect("a helper")));
    let mut child = spawn(&spawner, &command);
    assert_eq!(child.notice(), Some(Notice::NoHelper));
    assert_eq!(child.containment().level, Level::Direct);
    assert!(child.wait().expect("a status").success());
    assert_eq!((lines(&starts), lines(&marker)), (2, 1));
}

#[test]
fn helper_that_dies_between_a_spawn_and_its_answer_leaves_a_child_of_unknown_fate() {
    let stage = Stage::new();
    let (command, marker) = marking(&stage);
    let script = format!("exec \"$MISHELPER\" '{}'", marker.display());
    let (spawner, starts) = scripted(&stage, &script);
    let begin = Instant::now();
    let mut child = spawn(&spawner, &command);
    assert_eq!(child.notice(), Some(Notice::StartUnknown));
    assert_eq!(child.id(), 0);
    let kinds = [
        child.wait().expect_err("unknown").kind(),
        child.try_wait().expect_err("unknown").kind(),
        child.end(Duration::ZERO).expect_err("unknown").kind(),
        child.kill().expect_err("unknown").kind(),
        child.signal(libc::SIGTERM).expect_err("unknown").kind(),
        child.session().release().expect_err("unknown").kind(),
        child.session().wait_end(None).expect_err("unknown").kind(),
    ];
    assert_eq!(kinds, [ErrorKind::SpawnFateUnknown; 7]);
    assert_eq!(child.notice(), Some(Notice::StartUnknown));
    let error = spawner.output(&command, Fallback::Direct);
    let error = error.expect_err("unknown again");
    assert_eq!(error.notice(), Some(Notice::StartUnknown));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    // Each of the two calls ran it once.
    assert_eq!((lines(&starts), lines(&marker)), (2, 2));
}

#[test]
fn helper_that_is_killed_before_it_reads_a_spawn_leaves_a_child_of_unknown_fate() {
    let stage = Stage::new();
    let (command, marker) = marking(&stage);
    let spawner = spawner();
    let helper = witness(&spawner.launch().expect("a helper"));
    helper.stop();
    let child = thread::scope(|scope| {
        let spawning = scope.spawn(|| spawn(&spawner, &command));
        // The request is small: it is in the socket as soon as the call has begun. Where the
        // kill is faster, it is unsent, and the command runs through a fresh helper.
        foster_tests::pass(Duration::from_millis(300));
        kill(&helper);
        spawning.join().expect("the call")
    });
    assert_eq!(child.notice(), Some(Notice::StartUnknown));
    assert_eq!(lines(&marker), 0);
    let mut next = spawn(&spawner, &command);
    assert_eq!(next.notice(), None);
    assert!(next.wait().expect("a status").success());
    assert_eq!(lines(&marker), 1);
}

#[test]
fn helper_that_is_killed_while_the_command_runs_leaves_its_exit_unknown() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    let spawner = spawner();
    let helper = witness(&spawner.launch().expect("a helper"));
    let mut command = sh(&stage, "echo partial; echo ready >&3; exec sleep 60");
    command.stdout(Stdio::piped()).fd(3, writer);
    let mut child = spawn(&spawner, &command);
    drop(command);
    tracer.line();
    assert_eq!(child.notice(), None);
    kill(&helper);
    assert_eq!(child.notice(), Some(Notice::ExitUnknown));
    let begin = Instant::now();
    let error = child.wait().expect_err("no exit");
    assert_eq!(error.kind(), ErrorKind::ExitUnknown);
    assert_eq!(error.notice(), Some(Notice::ExitUnknown));
    let error = child.end(Duration::ZERO).expect_err("no end");
    assert_eq!(error.kind(), ErrorKind::EndUnknown);
    assert_eq!(child.notice(), Some(Notice::ExitUnknown));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    let mut text = String::new();
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_to_string(&mut text).expect("what it wrote");
    assert_eq!(text, "partial\n");
    tracer.wait_for_end(DEATH);
}

#[test]
fn helper_that_is_killed_before_a_release_leaves_the_rest_unknown_and_the_exit_known() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    let spawner = spawner();
    let helper = witness(&spawner.launch().expect("a helper"));
    let mut command = sh(&stage, "sleep 60 & exit 5");
    command.fd(3, writer);
    let mut child = spawn(&spawner, &command);
    drop(command);
    assert_eq!(child.wait().expect("a status").code(), Some(5));
    kill(&helper);
    let error = child.session().release().expect_err("no helper");
    assert_eq!(error.kind(), ErrorKind::ReleaseFateUnknown);
    assert_eq!(child.notice(), Some(Notice::ReleaseUnknown));
    assert_eq!(child.exit().map(|exit| exit.status), Some(5 << 8));
    drop(child);
    tracer.wait_for_end(DEATH);
}

#[test]
fn helper_that_is_killed_after_the_exit_leaves_the_end_unconfirmed() {
    let stage = Stage::new();
    let spawner = spawner();
    let helper = witness(&spawner.launch().expect("a helper"));
    let mut child = spawn(&spawner, &sh(&stage, "exit 5"));
    assert_eq!(child.wait().expect("a status").code(), Some(5));
    kill(&helper);
    assert_eq!(child.notice(), None, "the exit is known");
    let error = child.end(Duration::ZERO).expect_err("no helper");
    assert_eq!(error.kind(), ErrorKind::EndUnknown);
    assert_eq!(child.notice(), Some(Notice::EndUnconfirmed));
}

#[test]
fn command_that_may_not_run_without_a_helper_never_runs() {
    let stage = Stage::new();
    let (mut command, marker) = marking(&stage);
    let spawner = Spawner::new().path(stage.scratch().join("missing"));
    let error = spawner.spawn(&command, Fallback::Refuse);
    assert!(error.expect_err("refused").is_launch());
    command.require(Level::Group);
    let error = spawner.spawn(&command, Fallback::Direct);
    assert!(error.expect_err("refused").is_launch());
    let error = spawner.gated(&command, Fallback::Direct);
    assert!(error.expect_err("refused").is_launch());
    let error = Spawner::without_helper().spawn(&command, Fallback::Direct);
    let error = error.expect_err("refused");
    assert!(error.is_rejected(), "{error}");
    assert_eq!(lines(&marker), 0);
}

#[test]
fn spawner_that_is_meant_to_have_no_helper_runs_commands_silently() {
    let stage = Stage::new();
    let (command, marker) = marking(&stage);
    let mut child = spawn(&Spawner::without_helper(), &command);
    assert_eq!(child.notice(), None);
    assert_eq!(child.containment().level, Level::Direct);
    assert!(child.wait().expect("a status").success());
    assert_eq!(lines(&marker), 1);
}

#[test]
fn error_of_the_command_is_its_callers_and_the_helper_serves_on() {
    let stage = Stage::new();
    for spawner in [spawner(), Spawner::without_helper()] {
        let missing = foster::Command::new("/missing/program");
        let error = spawner.spawn(&missing, Fallback::Direct);
        let error = error.expect_err("no program");
        assert!(error.is_not_found(), "{error}");
        assert!(error.to_string().contains("/missing/program"), "{error}");
        let mut astray = sh(&stage, "true");
        astray.current_dir("/missing/directory");
        let error = spawner.spawn(&astray, Fallback::Direct);
        assert!(error.expect_err("no directory").is_directory());
        let file = stage.scratch().join("file");
        fs::write(&file, "no program").expect("a file");
        let error = spawner.spawn(&foster::Command::new(&file), Fallback::Direct);
        assert!(error.expect_err("no program").is_not_executable());
        let mut child = spawn(&spawner, &sh(&stage, "exit 4"));
        assert_eq!(child.wait().expect("a status").code(), Some(4));
    }
}

#[test]
fn callers_at_once_have_one_helper_and_each_its_own_child() {
    const CALLERS: usize = 8;
    let stage = Stage::new();
    let (spawner, starts) = scripted(&stage, "exec \"$HELPER\"");
    let barrier = Barrier::new(CALLERS);
    thread::scope(|scope| {
        for code in 0..CALLERS {
            let (spawner, barrier, stage) = (&spawner, &barrier, &stage);
            scope.spawn(move || {
                barrier.wait();
                let mut child = spawn(spawner, &sh(stage, &format!("exit {code}")));
                let status = child.wait().expect("a status");
                assert_eq!(
                    status.code().and_then(|code| usize::try_from(code).ok()),
                    Some(code)
                );
            });
        }
    });
    assert_eq!(lines(&starts), 1);
}

#[test]
fn callers_that_waited_for_a_helper_that_hangs_do_not_each_wait_again() {
    const CALLERS: usize = 6;
    let stage = Stage::new();
    let (spawner, starts) = scripted(&stage, "exec sleep 60");
    let spawner = spawner.timeout(Duration::from_millis(500));
    let barrier = Barrier::new(CALLERS);
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            let (spawner, barrier, stage) = (&spawner, &barrier, &stage);
            scope.spawn(move || {
                barrier.wait();
                let child = spawn(spawner, &sh(stage, "true"));
                assert_eq!(child.notice(), Some(Notice::NoHelper));
            });
        }
    });
    assert!(lines(&starts) < 2 * CALLERS, "{}", lines(&starts));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

#[test]
fn dropped_child_of_a_lost_helper_ends_its_group() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    let spawner = spawner();
    let helper = witness(&spawner.launch().expect("a helper"));
    let mut command = sh(&stage, "trap '' TERM; sleep 60 & echo ready >&3; sleep 60");
    command.fd(3, writer);
    let child = spawn(&spawner, &command);
    drop(command);
    tracer.line();
    let leader = leader(&child);
    kill(&helper);
    drop(child);
    leader.wait_for_death(DEATH);
    tracer.wait_for_end(DEATH);
}
