//! One way of ending, whoever asks: the same signals in the same order with the same grace.

use std::time::{Duration, Instant};

use foster::{Child, Helper};
use foster_tests::{DEATH, Program, Stage, Tracer, places};

use crate::ground;
use crate::shapes::{GRACE, MARGIN};

/// What a member sees of an ending, and how long it lasted.
#[derive(Debug)]
struct Seen {
    signals: String,
    lasted: Duration,
}

/// Every ending is TERM, then CONT for those who are stopped, and KILL after the grace.
const EXPECTED: &str = "SIGTERM\nSIGCONT\n";

fn assert_expected(what: &str, seen: &Seen) {
    assert_eq!(seen.signals, EXPECTED, "{what}");
    assert!(
        seen.lasted >= GRACE - Duration::from_millis(50),
        "{what}: {seen:?}"
    );
    // A generous bound: how soon it has to be over is the subject of others.
    assert!(seen.lasted <= GRACE + MARGIN * 4, "{what}: {seen:?}");
}

/// Ends a session that records its signals.
fn seen(stage: &Stage, end: impl FnOnce(&Helper, Child)) -> Seen {
    let helper = ground::helper();
    let (mut tracer, writer) = Tracer::new();
    let recorder = places::fixture("records-signals");
    let recorder = recorder.to_str().expect("a path of text");
    let child = ground::command(stage, &helper, recorder)
        .stdout(writer)
        .spawn()
        .expect("the command");
    assert_eq!(tracer.line(), "recording");
    let begin = Instant::now();
    end(&helper, child);
    rest(&mut tracer, begin)
}

/// Ends foster, whose command records its signals.
fn seen_below_foster(stage: &Stage, options: &[&str], signal: Option<i32>) -> Seen {
    let recorder = places::fixture("records-signals");
    let mut process = Program::foster(stage, &["--grace", "300ms"])
        .args(options)
        .arg(recorder)
        .start();
    assert_eq!(process.stdout.line(), "recording");
    let begin = Instant::now();
    if let Some(number) = signal {
        process.signal(number);
    }
    let seen = rest(&mut process.stdout, begin);
    process.wait(DEATH);
    seen
}

fn rest(tracer: &mut Tracer, begin: Instant) -> Seen {
    let signals = String::from_utf8(tracer.wait_for_end(DEATH)).expect("names of signals");
    Seen {
        signals,
        lasted: begin.elapsed(),
    }
}

#[test]
fn every_way_of_ending_a_session_sends_the_same_signals() {
    let stage = Stage::new();
    let by_call = seen(&stage, |_, child| {
        let ending = child.end(GRACE).expect("an ending");
        assert_eq!(ending.verdict, foster::Verdict::AllGone);
    });
    assert_expected("by a call", &by_call);
    let by_drop = seen(&stage, |_, child| drop(child));
    assert_expected("by dropping the handle", &by_drop);
    let by_shutdown = seen(&stage, |helper, _child| {
        let report = helper.shutdown(GRACE).expect("a farewell");
        assert!(report.survivors.is_empty(), "{report:?}");
    });
    assert_expected("by a shutdown", &by_shutdown);
}

/// Ends a host, of which one session records its signals, by a word or by KILL.
fn seen_below_a_host(stage: &Stage, word: Option<&str>) -> Seen {
    let recorder = places::fixture("records-signals").display().to_string();
    let mut host = Program::fixture(stage, "host-with-sessions")
        .args(["1", &format!("exec {recorder}")])
        .start();
    // The host names its helper and is ready, and the recorder records: in any order.
    let lines = [(); 3].map(|()| host.stdout.line());
    assert!(lines.iter().any(|line| line == "ready"), "{lines:?}");
    assert!(lines.iter().any(|line| line == "recording"), "{lines:?}");
    let begin = Instant::now();
    match word {
        Some(word) => host.say(word),
        None => host.signal(libc::SIGKILL),
    }
    let seen = rest(&mut host.stdout, begin);
    host.wait(DEATH);
    seen
}

#[test]
fn every_way_of_losing_the_host_sends_the_same_signals() {
    let stage = Stage::new();
    let by_term = seen_below_foster(&stage, &[], Some(libc::SIGTERM));
    assert_expected("TERM to foster", &by_term);
    let by_kill = seen_below_foster(&stage, &[], Some(libc::SIGKILL));
    assert_expected("KILL to foster", &by_kill);
    for word in ["return", "exit", "abort", "panic"] {
        assert_expected(word, &seen_below_a_host(&stage, Some(word)));
    }
    assert_expected("KILL to a host", &seen_below_a_host(&stage, None));
}

#[test]
fn deadline_sends_the_same_signals() {
    let stage = Stage::new();
    let begin = Instant::now();
    let seen = seen_below_foster(&stage, &["--timeout", "400ms"], None);
    assert_eq!(seen.signals, EXPECTED);
    let least = Duration::from_millis(400) + GRACE;
    assert!(begin.elapsed() >= least, "{:?}", begin.elapsed());
}

#[test]
fn signal_of_the_options_comes_first_when_foster_is_killed() {
    let stage = Stage::new();
    let seen = seen_below_foster(&stage, &["--signal", "USR1"], Some(libc::SIGKILL));
    assert_eq!(seen.signals, "SIGUSR1\nSIGCONT\n");
}
