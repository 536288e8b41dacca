//! What options give the command: its directory, its environment, its containment.

use foster_tests::{Finished, Program, Stage};

fn run(stage: &Stage, args: &[&str]) -> Finished {
    let finished = Program::foster(stage, args).run();
    assert_eq!(finished.code(), 0, "{finished:?}");
    finished
}

#[test]
fn command_starts_in_the_directory_that_is_asked_for() {
    let stage = Stage::new();
    let path = stage.scratch().canonicalize().expect("a real path");
    let path = path.to_str().expect("a path of text");
    assert_eq!(run(&stage, &["-C", path, "pwd", "-P"]).stdout.trim(), path);
}

#[test]
fn command_starts_in_the_directory_of_foster_without_one() {
    let stage = Stage::new();
    let path = stage.scratch().canonicalize().expect("a real path");
    let finished = Program::foster(&stage, &["pwd", "-P"])
        .directory(&path)
        .run();
    assert_eq!(
        finished.stdout.trim(),
        path.to_str().expect("a path of text")
    );
}

#[test]
fn relative_program_is_taken_from_the_directory_that_is_asked_for() {
    let stage = Stage::new();
    let folder = stage.scratch().join("folder");
    std::fs::create_dir(&folder).expect("a folder");
    std::os::unix::fs::symlink("/bin/echo", folder.join("speaker")).expect("a link");
    let folder = folder.to_str().expect("a path of text");
    assert_eq!(
        run(&stage, &["-C", folder, "./speaker", "here"]).stdout,
        "here\n"
    );
}

#[test]
fn variables_are_added_and_the_last_of_a_name_counts() {
    let stage = Stage::new();
    let finished = Program::foster(&stage, &["-e", "A=1", "-e", "B=x=y", "-e", "A=2"])
        .args(["sh", "-c", "echo $A $B $C"])
        .env("A", "0")
        .env("C", "3")
        .run();
    assert_eq!(finished.stdout, "2 x=y 3\n", "{finished:?}");
}

#[test]
fn cleared_environment_holds_what_was_asked_for_alone() {
    let stage = Stage::new();
    let tag = format!("{}={}", foster_tests::TAG, stage.tag());
    let args = ["--env-clear", "-e", "ONLY=this", "-e", &tag, "/usr/bin/env"];
    let finished = run(&stage, &args);
    let mut lines: Vec<&str> = finished.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, [tag.as_str(), "ONLY=this"]);
}

#[test]
fn arguments_pass_as_they_are() {
    let stage = Stage::new();
    let finished = run(
        &stage,
        &["printf", "[%s]", "-t", "--", "", "a b", "--report", "$HOME"],
    );
    assert_eq!(finished.stdout, "[-t][--][][a b][--report][$HOME]");
    let finished = run(&stage, &["--", "printf", "[%s]", "--", "-k"]);
    assert_eq!(finished.stdout, "[--][-k]");
}

#[test]
fn level_that_is_offered_can_be_required() {
    let stage = Stage::new();
    for args in [
        &["--require", "group", "true"] as &[&str],
        &["--level", "group", "true"],
        &["--level", "group", "--require", "group", "true"],
    ] {
        run(&stage, args);
    }
}

/// Every level by its word, and whether the helper offers it here.
pub(crate) fn levels() -> Vec<(&'static str, bool)> {
    let helper = foster::Helper::builder()
        .path(foster_tests::places::fixture("helper-under-test"))
        .launch()
        .expect("the helper");
    let levels = helper.capabilities().levels.iter();
    let word = |level| match level {
        foster::Level::Direct => "direct",
        foster::Level::Group => "group",
        foster::Level::Tree => "tree",
        foster::Level::Cgroup => "cgroup",
        foster::Level::Namespace => "namespace",
    };
    levels
        .map(|one| (word(one.level), one.errno == 0))
        .collect()
}

#[test]
fn level_that_is_asked_for_is_in_force_or_reported_as_missing() {
    let stage = Stage::new();
    for (level, is_offered) in levels() {
        let finished = run(&stage, &["--level", level, "--report", "-", "true"]);
        let report: serde_json::Value =
            serde_json::from_str(&finished.stderr).expect("one line of JSON");
        let missing = report["containment"]["missing"].as_array().expect("a list");
        let is_missing = missing.iter().any(|one| one["level"] == level);
        let is_in_force = report["containment"]["level"] == level;
        assert_eq!(
            (is_in_force, is_missing),
            (is_offered, !is_offered),
            "{level}: {report}"
        );
    }
}

#[test]
fn command_has_no_signal_ignored_or_blocked_that_foster_has() {
    let stage = Stage::new();
    let finished = Program::fixture(&stage, "with-dirty-signals")
        .arg("--")
        .arg(foster_tests::places::foster())
        .args(["run", "grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"])
        .run();
    for name in ["SigBlk", "SigIgn"] {
        let mask = foster_tests::proc::field_of(&finished.stdout, name);
        assert_eq!(mask.as_deref(), Some("0000000000000000"), "{finished:?}");
    }
}
