//! A command that kills everybody whom it may signal. Each runs in a pid namespace of the test's
//! own, with a host, a helper and a sibling session.

use std::time::Duration;

use foster_tests::{Finished, Program, Stage, not_run, places};

const WHAT: &str = "a command that kills everybody";

/// How long it takes at the most.
const LIMIT: Duration = Duration::from_secs(40);

/// Runs the host at a level, its helper as this user; none where it cannot be.
fn run(level: &str, user: Option<&str>) -> Option<Finished> {
    let stage = Stage::new();
    let mut process = Program::fixture(&stage, "in-pid-namespace")
        .arg("--")
        .arg(places::fixture("host-of-a-killer"))
        .arg(level)
        .args(user)
        .start();
    process.close_stdin();
    let line = process.stdout.line();
    if line != "inside" {
        not_run(WHAT, &line);
    }
    let finished = process.finish(LIMIT);
    (line == "inside").then_some(finished)
}

#[test]
fn command_in_a_namespace_that_kills_everybody_hurts_nobody_but_its_own() {
    let Some(finished) = run("namespace", None) else {
        return;
    };
    assert!(finished.status.success(), "{finished:?}");
    let expected = "helper true, sibling true, killer true\n";
    assert_eq!(finished.stdout, expected, "{finished:?}");
}

#[test]
fn command_that_kills_everybody_of_its_user_costs_the_helper_and_leaves_nobody() {
    if !foster_tests::is_root() {
        return not_run(WHAT, "this is not root, and its host would go too");
    }
    for level in ["group", "tree"] {
        let Some(finished) = run(level, Some("65534")) else {
            return;
        };
        assert!(finished.status.success(), "{level}: {finished:?}");
        let is_lost = finished.stdout.starts_with("helper false, nobody is left");
        assert!(is_lost, "{level}: {finished:?}");
    }
}
