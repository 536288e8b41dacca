//! The look at the end of a whole run: nothing of a test that is over is left on the machine.
//!
//! `cargo test` runs its test executables by name, and this one is the last. It only looks.

use foster_tests::{SETTLE, TAG, eventually, proc};

/// What begins the tag of a test: the process id of its executable follows.
const TAG_BEGIN: &str = "stage-";

/// The process id of the test executable that has started this process, if one has.
fn test_of(pid: i32) -> Option<i32> {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let name = format!("{TAG}={TAG_BEGIN}");
    let mut entries = environ.split(|byte| *byte == 0);
    let number = entries.find_map(|entry| entry.strip_prefix(name.as_bytes()))?;
    let digits = number.split(|byte| *byte == b'-').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Processes of tests that are over, as lines. Another run may be under way: its are none.
fn left() -> Vec<String> {
    let is_over = |pid: i32| test_of(pid).is_some_and(|test| proc::stat(test).is_none());
    let left = proc::pids().into_iter().filter(|pid| is_over(*pid));
    left.filter_map(proc::stat)
        .map(|stat| format!("{stat:?}"))
        .collect()
}

#[test]
fn nothing_of_a_finished_test_run_is_left() {
    let mut found = left();
    if !found.is_empty() {
        let what = format!("nothing is left; at first: {found:#?}");
        eventually(&what, SETTLE, || {
            found = left();
            found.is_empty()
        });
    }
}

#[test]
fn control_tag_of_a_living_process_is_found() {
    let stage = foster_tests::Stage::new();
    let process = foster_tests::Program::new(&stage, "sleep")
        .arg("20")
        .start();
    let own = i32::try_from(std::process::id()).expect("a pid fits");
    eventually("the tag is there", SETTLE, || {
        test_of(process.pid()) == Some(own)
    });
}
