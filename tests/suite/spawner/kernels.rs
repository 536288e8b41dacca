//! A host without a helper on older kernels, and one that does not leave its children alone.

use foster_tests::{Program, Stage, is_root, not_run, places};

/// A leader that leaves somebody behind in its group.
const SCRIPT: &str = "sleep 60 & exit 3";

/// What a host without a helper says whose system calls fail as this wrapper is told.
fn said(stage: &Stage, wrapper: &str, words: &[&str], script: &str) -> Vec<String> {
    let finished = Program::fixture(stage, wrapper)
        .args(words)
        .arg("--")
        .arg(places::fixture("host-direct"))
        .args(["--", "/bin/bash", "-c", script])
        .run();
    assert!(finished.status.success(), "{finished:?}");
    finished.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn kernels_without_newer_calls_are_served_as_well() {
    let kernels: [&[&str]; 4] = [
        &["pidfd_group"],
        &["pidfd_open", "pidfd_send_signal"],
        &["close_range"],
        &["pidfd_open", "pidfd_send_signal", "close_range", "clone3"],
    ];
    for refused in kernels {
        let stage = Stage::new();
        let lines = said(&stage, "without-syscalls", refused, SCRIPT);
        let expected = [
            "exit 768",
            "all gone Some(SessionScanEmpty) None",
            "no handler",
        ];
        assert_eq!(lines, expected, "{refused:?}");
    }
}

#[test]
fn exit_that_was_collected_by_somebody_else_is_unknown_and_nobody_is_signalled_by_number() {
    let stage = Stage::new();
    // The kernel reaps what exits: the leader's number may be anybody's then.
    let lines = said(&stage, "with-dirty-signals", &[], SCRIPT);
    let expected = [
        "ExitUnknown",
        "incomplete None Some(EndUnconfirmed)",
        "no handler",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn tree_is_killed_and_its_end_unconfirmed_where_the_process_table_cannot_be_read() {
    let what = "a host without a process table";
    if !is_root() {
        not_run(what, "only root can take the table away");
        return;
    }
    let stage = Stage::new();
    let host = places::fixture("host-direct");
    let script = "mount -t tmpfs none /proc && exec \"$@\"";
    let finished = Program::new(&stage, "unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(host)
        .args(["--", "/bin/sh", "-c", SCRIPT])
        .run();
    if finished.stderr.contains("mount:") || finished.stderr.contains("unshare:") {
        not_run(what, &finished.stderr);
        return;
    }
    let lines: Vec<&str> = finished.stdout.lines().collect();
    let expected = [
        "exit 768",
        "incomplete None Some(EndUnconfirmed)",
        "no handler",
    ];
    assert_eq!(lines, expected, "{finished:?}");
}
