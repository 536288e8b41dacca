//! Wrong use: one line, 125, and nothing is started.

use std::path::Path;

use foster_tests::{Finished, Program, Stage, places};

use crate::options::levels;

/// Runs foster with options that are wrong, on a command that would leave a file.
fn refused(stage: &Stage, options: &[&str]) -> Finished {
    let file = stage.scratch().join("started");
    let path = file.to_str().expect("a path of text");
    let finished = Program::foster(stage, options)
        .args(["--", "touch", path])
        .run();
    assert_refused(&finished, &file, &format!("{options:?}"));
    finished
}

fn assert_refused(finished: &Finished, started: &Path, what: &str) {
    assert_eq!(finished.code(), 125, "{what}: {finished:?}");
    assert_eq!(finished.stdout, "", "{what}");
    assert_eq!(finished.stderr.lines().count(), 1, "{what}: {finished:?}");
    assert!(
        finished.stderr.starts_with("foster: "),
        "{what}: {finished:?}"
    );
    assert!(!started.exists(), "{what}: the command was started");
}

#[test]
fn wrong_option_is_one_line_and_starts_nothing() {
    let stage = Stage::new();
    for options in [
        &["--no-such-option"] as &[&str],
        &["-z"],
        &["-t", "soon"],
        &["-t", "-1"],
        &["-t", "5x"],
        &["-t", ""],
        &["-k", "nan"],
        &["-s", "NOSUCH"],
        &["-s", "0"],
        &["--on-exit", "later"],
        &["--on-exit", "wait:x"],
        &["-e", "NOTHING"],
        &["-e", "=value"],
        &["--level", "castle"],
        &["--require", "auto"],
        &["-v", "-q"],
        &["--report", "fd:x"],
        &["--report", ""],
    ] {
        refused(&stage, options);
    }
}

#[test]
fn unknown_option_is_named() {
    let stage = Stage::new();
    let finished = refused(&stage, &["--no-such-option"]);
    assert!(finished.stderr.contains("--no-such-option"), "{finished:?}");
}

#[test]
fn report_that_cannot_be_written_starts_nothing() {
    let stage = Stage::new();
    for target in ["/no/such/folder/report", "/", "fd:77", "fd:99999999999"] {
        refused(&stage, &["--report", target]);
    }
    // Standard input is a pipe that cannot be written to.
    refused(&stage, &["--report", "fd:0"]);
}

#[test]
fn level_that_is_required_and_not_offered_starts_nothing() {
    let stage = Stage::new();
    for (level, is_offered) in levels() {
        if is_offered {
            let finished = Program::foster(&stage, &["--require", level, "true"]).run();
            assert_eq!(finished.code(), 0, "{level}: {finished:?}");
        } else {
            let finished = refused(&stage, &["--require", level]);
            assert!(finished.stderr.contains(level), "{finished:?}");
        }
    }
}

#[test]
fn missing_command_and_missing_verb_are_one_line() {
    let stage = Stage::new();
    let started = stage.scratch().join("started");
    for words in [
        &["run"] as &[&str],
        &["run", "--"],
        &["run", ""],
        &[],
        &["walk"],
    ] {
        let finished = Program::new(&stage, places::foster()).args(words).run();
        assert_refused(&finished, &started, &format!("{words:?}"));
    }
}

#[test]
fn helper_started_by_hand_is_one_line_and_100() {
    let stage = Stage::new();
    for word in ["helper", places::RESERVED_ARGUMENT] {
        let finished = Program::new(&stage, places::foster()).arg(word).run();
        assert_eq!(finished.code(), 100, "{finished:?}");
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
        assert_eq!(finished.stdout, "");
    }
}

#[test]
fn help_and_version_are_asked_for_and_go_to_standard_output() {
    let stage = Stage::new();
    for words in [&["--help"] as &[&str], &["--version"], &["run", "--help"]] {
        let finished = Program::new(&stage, places::foster()).args(words).run();
        assert_eq!(finished.code(), 0, "{finished:?}");
        assert!(finished.stdout.contains("foster"), "{finished:?}");
        assert_eq!(finished.stderr, "");
    }
    let help = Program::new(&stage, places::foster()).arg("--help").run();
    assert!(
        !help.stdout.contains("helper"),
        "the helper is hidden: {help:?}"
    );
}
