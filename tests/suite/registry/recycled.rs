//! Rows whose number was given to somebody else, in a pid namespace in which that can be had.

use std::time::Duration;

use foster_tests::{Program, Stage, not_run};

use crate::ground::folder;

/// How long a run may take: far more than it does.
const LIMIT: Duration = Duration::from_secs(45);

/// Runs the fixture; none where there can be no namespace, which is said.
fn run(what: &str) -> Option<String> {
    let stage = Stage::new();
    let mut process = Program::fixture(&stage, "in-pid-namespace")
        .args(["pid_max=400", "--"])
        .arg(foster_tests::places::fixture("recycles-registered"))
        .arg(what)
        .arg(folder(&stage))
        .start();
    process.close_stdin();
    let line = process.stdout.line();
    if line != "inside" {
        not_run("a recycled number", &line);
    }
    let finished = process.finish(LIMIT);
    if line != "inside" {
        return None;
    }
    assert!(finished.status.success(), "{finished:?}");
    Some(finished.stdout)
}

#[test]
fn row_whose_number_was_recycled_is_dropped_and_the_stranger_is_unharmed() {
    for what in ["pidfs", "markers"] {
        let Some(said) = run(what) else { return };
        assert_eq!(
            said, "reconcile Dropped(NotOurs)\nstop web Stale(NotOurs)\nrow false\nunharmed true\n",
            "{what}"
        );
    }
}

#[test]
fn control_that_kills_the_number_in_the_row_hits_the_stranger() {
    let Some(said) = run("naive") else { return };
    assert_eq!(said, "unharmed false\n");
}
