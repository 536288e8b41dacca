//! Standard streams are the command's own.

use std::time::Duration;

use foster_tests::{ANSWER, DEATH, Program, Stage};

#[test]
fn every_byte_of_standard_input_and_output_passes_unchanged() {
    let stage = Stage::new();
    let mut process = Program::foster(&stage, &["--", "cat"]).start();
    process.say("one");
    // The command answers while its input is open: nothing is held back in between.
    assert_eq!(process.stdout.line(), "one");
    process.say("two");
    process.close_stdin();
    let finished = process.finish(ANSWER);
    assert_eq!((finished.code(), finished.stdout.as_str()), (0, "two\n"));
    assert_eq!(finished.stderr, "");
}

#[test]
fn end_of_standard_input_reaches_the_command_while_foster_runs() {
    let stage = Stage::new();
    let script = "cat > /dev/null; echo ended; sleep 60";
    let mut process = Program::foster(&stage, &["-k", "0.1", "sh", "-c", script]).start();
    process.say("something");
    process.close_stdin();
    assert_eq!(process.stdout.line(), "ended");
    process.signal(libc::SIGTERM);
    assert_eq!(process.wait(DEATH).code(), Some(143));
}

#[test]
fn closed_standard_output_reaches_its_reader_while_foster_runs() {
    let stage = Stage::new();
    let script = "echo last; exec >&-; read line; exit 6";
    let mut process = Program::foster(&stage, &["sh", "-c", script]).start();
    assert_eq!(process.stdout.wait_for_end(ANSWER), b"last\n");
    assert!(
        process.witness().is_alive(),
        "the command still waits for its line"
    );
    process.say("go");
    assert_eq!(process.wait(DEATH).code(), Some(6));
}

#[test]
fn nothing_of_foster_is_on_standard_output_whatever_happens() {
    let stage = Stage::new();
    for options in [
        &[
            "-v",
            "-t",
            "0.2",
            "-k",
            "0.1",
            "--report",
            "-",
            "sh",
            "-c",
            "trap '' TERM; sleep 60; sleep 60",
        ] as &[&str],
        &["-v", "--report", "-", "no-such-command-anywhere"],
        &["-v", "true"],
    ] {
        let finished = Program::foster(&stage, options).run();
        assert_eq!(finished.stdout, "", "{finished:?}");
        assert_ne!(finished.stderr, "", "{options:?}");
    }
}

#[test]
fn ordinary_run_says_nothing_at_all() {
    let stage = Stage::new();
    for script in ["exit 0", "exit 3", "kill -9 $$", "sleep 0.2 & wait; exit 1"] {
        let finished = Program::foster(&stage, &["sh", "-c", script]).run();
        assert_eq!(
            (finished.stdout.as_str(), finished.stderr.as_str()),
            ("", ""),
            "{script}"
        );
    }
}

#[test]
fn one_line_says_that_something_had_to_be_killed() {
    let stage = Stage::new();
    let script = "(trap '' TERM; echo ready; exec sleep 60) & read line; exit 0";
    let mut process = Program::foster(&stage, &["-k", "0.2", "sh", "-c", script]).start();
    assert_eq!(process.stdout.line(), "ready");
    process.say("go");
    let finished = process.finish(DEATH);
    assert_eq!(finished.code(), 0);
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
    assert!(finished.stderr.contains("kill"), "{finished:?}");
    assert!(finished.stderr.contains("sleep"), "{finished:?}");
}

#[test]
fn quiet_says_nothing_of_what_had_to_be_killed() {
    let stage = Stage::new();
    let script = "trap '' TERM; sleep 60 & wait; sleep 60";
    let args = ["-q", "-t", "0.2", "-k", "0.1", "sh", "-c", script];
    let finished = Program::foster(&stage, &args).run();
    assert_eq!((finished.code(), finished.stderr.as_str()), (124, ""));
}

#[test]
fn reader_that_is_gone_kills_the_command_as_without_foster() {
    let stage = Stage::new();
    let mut process = Program::foster(&stage, &["yes"]).start();
    process.stdout.line();
    // Dropping the reader is what `head` does.
    let (unread, _writer) = foster_tests::Tracer::new();
    drop(std::mem::replace(&mut process.stdout, unread));
    assert_eq!(process.wait(DEATH).code(), Some(128 + libc::SIGPIPE));
}

#[test]
fn command_is_given_its_streams_and_no_other_descriptor() {
    let stage = Stage::new();
    let path = foster_tests::places::fixture("prints-descriptors");
    let path = path.to_str().expect("a path of text");
    let finished = Program::fixture(&stage, "with-leaked-descriptors")
        .args(["20", "--"])
        .arg(foster_tests::places::foster())
        .args(["run", path])
        .run();
    let numbers: Vec<&str> = finished
        .stdout
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(numbers, ["0", "1", "2"], "{finished:?}");
}

#[test]
fn grandchild_that_holds_the_output_delays_the_exit_by_its_ending_only() {
    let stage = Stage::new();
    let begin = std::time::Instant::now();
    let finished = Program::foster(&stage, &["sh", "-c", "sleep 60 & exit 7"]).run();
    assert_eq!(finished.code(), 7);
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn streams_that_are_closed_at_the_start_are_null_to_the_command() {
    let stage = Stage::new();
    let foster = foster_tests::places::foster();
    let run = |script: &str| {
        Program::new(&stage, "sh")
            .args(["-c", script])
            .arg(&foster)
            .run()
    };
    let code = |script: &str| run(script).code();
    assert_eq!(code("\"$0\" run sh -c 'echo lost; exit 3' >&-"), 3);
    assert_eq!(code("\"$0\" run sh -c 'read line; exit $?' <&-"), 1);
    assert_eq!(code("\"$0\" run -t 0.2 sleep 60 2>&-"), 124);
    assert_eq!(code("\"$0\" run sh -c 'exit 4' <&- >&- 2>&-"), 4);
}
