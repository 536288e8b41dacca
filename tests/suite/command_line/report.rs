//! The JSON report: one line, whose fields say what has happened.

use foster_tests::{DEATH, Program, Stage};
use serde_json::{Value, json};

/// Runs foster with a report file and gives the report and the code.
fn report(args: &[&str]) -> (Value, i32) {
    let stage = Stage::new();
    let path = stage.scratch().join("report");
    let target = path.to_str().expect("a path of text");
    let finished = Program::foster(&stage, &["--report", target])
        .args(args)
        .run();
    (read(&path), finished.code())
}

fn read(path: &std::path::Path) -> Value {
    let text = std::fs::read_to_string(path).expect("a report");
    assert!(text.ends_with('\n'), "{text:?}");
    assert_eq!(text.lines().count(), 1, "{text:?}");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn report_of_an_exit_has_its_code_and_its_times() {
    let (report, code) = report(&["--level", "group", "sh", "-c", "sleep 0.2; exit 3"]);
    assert_eq!((code, &report["exit_code"]), (3, &json!(3)), "{report}");
    assert_eq!(report["foster"], 1, "{report}");
    assert_eq!(report["reason"], "exit", "{report}");
    assert_eq!(report["code"], 3, "{report}");
    assert_eq!(report["signal"], Value::Null, "{report}");
    assert_eq!(report["core"], false, "{report}");
    assert!(
        report["pid"].as_i64().is_some_and(|pid| pid > 1),
        "{report}"
    );
    let wall = report["wall_s"].as_f64().expect("a number");
    assert!((0.2..20.0).contains(&wall), "{report}");
    let cpu = |name: &str| report[name].as_f64().expect("a number");
    assert!((0.0..10.0).contains(&cpu("user_s")), "{report}");
    assert!((0.0..10.0).contains(&cpu("system_s")), "{report}");
    assert!(
        report["max_rss_kib"]
            .as_u64()
            .is_some_and(|size| size > 100),
        "{report}"
    );
    assert_eq!(report["at_exit"], json!([]), "{report}");
    assert_eq!(report["survivors"], json!([]), "{report}");
    assert_eq!(report["verdict"], "all-gone", "{report}");
    assert_eq!(report["containment"]["level"], "group", "{report}");
    assert_eq!(report["error"], Value::Null, "{report}");
}

#[test]
fn report_of_a_death_has_its_signal() {
    let (report, code) = report(&["sh", "-c", "kill -9 $$"]);
    assert_eq!((code, &report["exit_code"]), (137, &json!(137)), "{report}");
    assert_eq!(report["reason"], "signal", "{report}");
    assert_eq!(
        (&report["code"], &report["signal"]),
        (&Value::Null, &json!(9)),
        "{report}"
    );
}

#[test]
fn report_of_a_timeout_names_who_was_there_and_how_each_ended() {
    let script = "sleep 60 & (trap '' TERM; exec sleep 60) & sleep 60";
    let (report, code) = report(&["-t", "0.5", "-k", "0.2", "sh", "-c", script]);
    assert_eq!(
        (code, &report["reason"]),
        (124, &json!("timeout")),
        "{report}"
    );
    assert_eq!(report["signal"], 15, "{report}");
    let members = report["at_exit"].as_array().expect("a list");
    let ended = |how: &str| members.iter().filter(|one| one["ended"] == how).count();
    assert!(members.iter().all(|one| one["name"] == "sleep"), "{report}");
    assert_eq!((ended("first-signal"), ended("kill")), (2, 1), "{report}");
    let took = report["took_s"].as_f64().expect("a number");
    assert!((0.2..10.0).contains(&took), "{report}");
}

#[test]
fn report_of_a_signal_to_foster_says_cancelled() {
    let stage = Stage::new();
    let path = stage.scratch().join("report");
    let target = path.to_str().expect("a path of text");
    let script = "trap 'exit 5' TERM; echo ready; sleep 60 & wait";
    let mut process = Program::foster(&stage, &["--report", target, "sh", "-c", script]).start();
    process.stdout.line();
    process.signal(libc::SIGTERM);
    assert_eq!(process.wait(DEATH).code(), Some(5));
    let report = read(&path);
    assert_eq!(
        (&report["reason"], &report["code"]),
        (&json!("cancelled"), &json!(5)),
        "{report}"
    );
}

#[test]
fn report_of_a_command_that_never_ran_says_why() {
    let (report, code) = report(&["/no/such/command"]);
    assert_eq!((code, &report["exit_code"]), (127, &json!(127)), "{report}");
    assert_eq!(report["reason"], "spawn-failed", "{report}");
    assert_eq!(
        (&report["pid"], &report["code"]),
        (&Value::Null, &Value::Null),
        "{report}"
    );
    let error = report["error"].as_str().expect("a text");
    assert!(error.contains("/no/such/command"), "{report}");
}

#[test]
fn report_of_a_lost_helper_says_so() {
    let stage = Stage::new();
    let path = stage.scratch().join("report");
    let target = path.to_str().expect("a path of text");
    let script = "echo ready; exec sleep 60";
    let mut process = Program::foster(&stage, &["--report", target, "sh", "-c", script]).start();
    process.stdout.line();
    process.only_child().signal(libc::SIGKILL);
    let finished = process.finish(DEATH);
    assert_eq!(finished.code(), 125, "{finished:?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
    let report = read(&path);
    assert_eq!(report["reason"], "helper-lost", "{report}");
}

#[test]
fn report_on_standard_error_is_one_line_there() {
    let stage = Stage::new();
    let finished = Program::foster(&stage, &["--report", "-", "sh", "-c", "exit 2"]).run();
    assert_eq!((finished.code(), finished.stdout.as_str()), (2, ""));
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
    let report: Value = serde_json::from_str(&finished.stderr).expect("JSON");
    assert_eq!(report["code"], 2);
}

#[test]
fn report_on_a_descriptor_goes_there_and_the_command_has_none_of_it() {
    let stage = Stage::new();
    let path = stage.scratch().join("report");
    let foster = foster_tests::places::foster();
    let script = "exec 7>\"$1\"; exec \"$0\" run --report fd:7 sh -c 'ls /proc/self/fd | wc -l'";
    let finished = Program::new(&stage, "sh")
        .args(["-c", script])
        .arg(foster)
        .arg(&path)
        .run();
    // The three streams, and the one of the listing itself.
    assert_eq!(finished.stdout.trim(), "4", "{finished:?}");
    assert_eq!(read(&path)["reason"], "exit");
}

#[test]
fn report_file_is_emptied_before_it_is_written() {
    let stage = Stage::new();
    let path = stage.scratch().join("report");
    std::fs::write(&path, "old\n".repeat(1000)).expect("a file");
    let target = path.to_str().expect("a path of text");
    assert_eq!(
        Program::foster(&stage, &["--report", target, "true"])
            .run()
            .code(),
        0
    );
    assert_eq!(read(&path)["code"], 0);
}

#[test]
fn report_that_fails_at_the_end_is_125_and_names_the_code_of_the_command() {
    let stage = Stage::new();
    let finished = Program::foster(&stage, &["--report", "/dev/full", "sh", "-c", "exit 9"]).run();
    assert_eq!(finished.code(), 125, "{finished:?}");
    assert!(finished.stderr.contains('9'), "{finished:?}");
}
