//! What leaves the command's session: `foster run` ends with its command, and takes it along at
//! every level. It says so.

use std::time::Duration;

use foster_tests::{DEATH, Process, Program, Stage, Witness, only_child_of, places};

/// Runs the escape below foster, then the rest of the script.
fn start(stage: &Stage, options: &[&str], rest: &str) -> (Process, Witness) {
    let escape = places::fixture("escapes-by-setsid").display().to_string();
    let mut process = Program::foster(stage, &["-k", "0.3"])
        .args(options)
        .args(["sh", "-c", &format!("{escape}; {rest}")])
        .start();
    // It holds the pipe and lives for a minute, so that the number is its own.
    let escapee = Witness::of(process.stdout.pid());
    (process, escapee)
}

#[test]
fn escapee_is_ended_and_named_when_the_root_exits() {
    let stage = Stage::new();
    let (mut process, escapee) = start(&stage, &[], "read line; exit 3");
    process.say("go");
    let finished = process.finish(DEATH);
    assert_eq!(finished.code(), 3, "{finished:?}");
    escapee.wait_for_death(Duration::ZERO);
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
    assert!(finished.stderr.contains("escapes-by-sets"), "{finished:?}");
}

#[test]
fn escapee_is_ended_at_term() {
    let stage = Stage::new();
    let (mut process, escapee) = start(&stage, &[], "sleep 60");
    process.signal(libc::SIGTERM);
    assert_eq!(process.wait(DEATH).code(), Some(143));
    escapee.wait_for_death(Duration::ZERO);
    process.stdout.wait_for_end(DEATH);
}

#[test]
fn escapee_is_ended_at_the_timeout() {
    let stage = Stage::new();
    let (mut process, escapee) = start(&stage, &["-t", "0.6"], "sleep 60");
    assert_eq!(process.wait(DEATH).code(), Some(124));
    escapee.wait_for_death(Duration::ZERO);
    process.stdout.wait_for_end(DEATH);
}

#[test]
fn escapee_is_ended_when_foster_is_killed() {
    let stage = Stage::new();
    let (mut process, escapee) = start(&stage, &[], "sleep 60");
    let helper = only_child_of(process.pid());
    process.signal(libc::SIGKILL);
    process.stdout.wait_for_end(DEATH);
    escapee.wait_for_death(DEATH);
    helper.wait_for_death(DEATH);
}

#[test]
fn report_names_the_escapee_at_level_group() {
    let stage = Stage::new();
    let path = stage.scratch().join("report");
    let target = path.to_str().expect("a path of text");
    let (mut process, escapee) = start(
        &stage,
        &["--level", "group", "--report", target],
        "read line; exit 0",
    );
    process.say("go");
    assert_eq!(process.wait(DEATH).code(), Some(0));
    let text = std::fs::read_to_string(&path).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let escaped = report["escaped"].as_array().expect("a list");
    let [one] = escaped.as_slice() else {
        panic!("{report}")
    };
    assert_eq!(one["pid"], escapee.pid(), "{report}");
    assert_eq!(one["ended"], "first-signal", "{report}");
    assert_eq!(report["verdict"], "all-gone", "{report}");
}
