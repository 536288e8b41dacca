//! Exit codes and durations.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use foster_tests::{Program, Stage, is_root, places};

/// Runs foster with these arguments and gives its code.
fn code(args: &[&str]) -> i32 {
    Program::foster(&Stage::new(), args).run().code()
}

#[test]
fn code_of_the_command_is_the_code_of_foster() {
    for expected in [0, 1, 42, 125, 255] {
        assert_eq!(code(&["sh", "-c", &format!("exit {expected}")]), expected);
    }
}

#[test]
fn death_by_a_signal_is_128_and_the_signal() {
    for (name, number) in [("TERM", 15), ("KILL", 9), ("ABRT", 6), ("USR1", 10)] {
        assert_eq!(
            code(&["sh", "-c", &format!("kill -{name} $$")]),
            128 + number
        );
    }
}

#[test]
fn timeout_is_124_whatever_the_command_makes_of_it() {
    assert_eq!(code(&["-t", "0.2", "sleep", "60"]), 124);
    let handles = "trap 'exit 3' TERM; sleep 60 & wait";
    assert_eq!(code(&["-t", "200ms", "sh", "-c", handles]), 124);
    let ignores = "trap '' TERM; sleep 60 & wait; sleep 60";
    assert_eq!(code(&["-t", "0.2s", "-k", "0.1", "sh", "-c", ignores]), 124);
}

#[test]
fn preserved_status_is_that_of_the_command_at_the_timeout() {
    let keep = "--preserve-status";
    assert_eq!(code(&[keep, "-t", "0.2", "sleep", "60"]), 143);
    let handles = "trap 'exit 3' TERM; sleep 60 & wait";
    assert_eq!(code(&[keep, "-t", "0.2", "sh", "-c", handles]), 3);
    assert_eq!(code(&[keep, "-t", "0.2", "-s", "KILL", "sleep", "60"]), 137);
}

#[test]
fn command_that_is_not_there_is_127() {
    let stage = Stage::new();
    for command in ["no-such-command-anywhere", "/no/such/command"] {
        // A folder that may not be searched is another matter, as it is with execvp(3).
        let finished = Program::foster(&stage, &[command])
            .env("PATH", "/usr/bin:/bin")
            .run();
        assert_eq!(finished.code(), 127, "{finished:?}");
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
        assert!(finished.stderr.contains(command), "{finished:?}");
    }
}

#[test]
fn command_that_cannot_be_executed_is_126() {
    let stage = Stage::new();
    let path = stage.scratch().join("text");
    fs::write(&path, "#!/bin/sh\nexit 0\n").expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
    let run = |path: &str| Program::foster(&stage, &[path]).run();
    let finished = run(path.to_str().expect("a path of text"));
    assert_eq!(finished.code(), 126, "{finished:?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
    assert_eq!(run("/").code(), 126, "a folder");
}

#[test]
fn missing_interpreter_is_126_and_is_named() {
    let stage = Stage::new();
    let path = stage.scratch().join("script");
    fs::write(&path, "#!/no/such/interpreter\n").expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
    let path = path.to_str().expect("a path of text");
    let finished = Program::foster(&stage, &[path]).run();
    assert_eq!(finished.code(), 126, "{finished:?}");
    assert!(finished.stderr.contains("interpreter"), "{finished:?}");
}

#[test]
fn failures_of_foster_itself_are_125_and_one_line() {
    let stage = Stage::new();
    let directory = Program::foster(&stage, &["-C", "/no/such/folder", "true"]).run();
    assert_eq!(directory.code(), 125, "{directory:?}");
    assert!(
        directory.stderr.contains("/no/such/folder"),
        "{directory:?}"
    );
    assert_eq!(directory.stderr.lines().count(), 1, "{directory:?}");
    if is_root() {
        return;
    }
    let forbidden = Program::foster(&stage, &["-C", "/root", "true"]).run();
    assert_eq!(forbidden.code(), 125, "{forbidden:?}");
}

#[test]
fn durations_are_kept_in_every_spelling() {
    for word in ["300ms", "0.3", ".3s", "0.005m", "3e-1"] {
        let begin = Instant::now();
        assert_eq!(code(&["-t", word, "sleep", "60"]), 124, "{word}");
        let took = begin.elapsed();
        assert!(took >= Duration::from_millis(300), "{word}: {took:?}");
        assert!(took < Duration::from_secs(3), "{word}: {took:?}");
    }
}

#[test]
fn zero_is_no_timeout() {
    for word in ["0", "0s", "0ms"] {
        assert_eq!(
            code(&["-t", word, "sh", "-c", "sleep 0.3; exit 5"]),
            5,
            "{word}"
        );
    }
}

#[test]
fn grace_of_zero_is_kill_at_once() {
    let stage = Stage::new();
    let finished = Program::foster(&stage, &["-t", "0.3", "-k", "0"])
        .arg(places::fixture("records-signals"))
        .run();
    assert_eq!(finished.code(), 124, "{finished:?}");
    assert_eq!(finished.stdout, "recording\n", "no signal came before KILL");
}

#[test]
fn grace_ends_when_the_tree_is_empty() {
    let begin = Instant::now();
    assert_eq!(
        code(&["-t", "0.2", "-k", "30", "sh", "-c", "sleep 60 & sleep 60"]),
        124
    );
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn timeout_holds_for_what_the_command_has_left_behind() {
    let begin = Instant::now();
    let args = [
        "-t",
        "0.4",
        "--on-exit",
        "wait",
        "sh",
        "-c",
        "sleep 60 & exit 0",
    ];
    assert_eq!(code(&args), 124);
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
}
