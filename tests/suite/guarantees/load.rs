//! Many short commands from many threads: one result each, and nothing grows.

use std::time::Duration;

use foster_tests::{Process, Program, Stage, places};

/// How long a run may take on a busy machine; the host itself lives no longer.
const LIMIT: Duration = Duration::from_secs(59);

#[test]
fn ten_thousand_commands_from_sixteen_threads_have_one_right_result_each() {
    let stage = Stage::new();
    let mut process = Program::fixture(&stage, "host-under-load")
        .arg("10000")
        .start();
    process.close_stdin();
    let finished = process.finish(LIMIT);
    assert_eq!(finished.stdout, "as it should be\n", "{finished:?}");
    assert_eq!(finished.code(), 0, "{finished:?}");
}

#[test]
fn host_that_ignores_child_signals_gets_every_result() {
    let stage = Stage::new();
    let mut process = Program::fixture(&stage, "with-dirty-signals")
        .arg("--")
        .arg(places::fixture("host-under-load"))
        .arg("500")
        .start();
    process.close_stdin();
    let finished = process.finish(LIMIT);
    assert_eq!(finished.stdout, "as it should be\n", "{finished:?}");
}

/// Writes and runs programs, and gives how many rounds there were and how many were busy.
fn write_and_run(by: &str, rounds: &str, millis: &str) -> (u64, u64) {
    let stage = Stage::new();
    let mut process: Process = Program::fixture(&stage, "host-that-writes-programs")
        .arg(by)
        .arg(stage.scratch())
        .args([rounds, millis])
        .start();
    process.close_stdin();
    let finished = process.finish(LIMIT);
    assert_eq!(finished.code(), 0, "{finished:?}");
    let numbers = finished.stdout.trim().split_once(' ').expect("two numbers");
    let number = |word: &str| word.parse().expect("a number");
    (number(numbers.0), number(numbers.1))
}

#[test]
fn program_that_was_just_written_is_never_busy() {
    let (rounds, busy) = write_and_run("foster", "10000", "25000");
    assert_eq!(busy, 0, "of {rounds} rounds");
    assert!(rounds >= 2000, "only {rounds} rounds in the time");
}

#[test]
fn control_program_that_was_just_written_is_busy_without_foster() {
    // Each turn is short, and one that bites is enough.
    for _ in 0..10 {
        let (_, busy) = write_and_run("std", "10000", "1500");
        if busy > 0 {
            return;
        }
    }
    foster_tests::not_run(
        "the control of programs that are busy",
        "std never shows one here",
    );
}
