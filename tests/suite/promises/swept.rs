//! A sweep of what a cell has left: the command, as its user runs it, over the cell's own folder.

use std::collections::BTreeSet;
use std::time::Duration;

use foster_tests::{Program, places};
use serde_json::Value;

use crate::ground::Ground;

/// How long a sweep may take: its hard limit, and what a machine without a free core adds.
const LIMIT: Duration = Duration::from_secs(45);

/// The words of `foster sweep` for a survivor, and the reasons of the page.
const WORDS: [(&str, &str); 6] = [
    ("no permission", "not_permitted"),
    ("in uninterruptible sleep", "uninterruptible"),
    ("held by its tracer", "held_by_tracer"),
    ("new processes came faster", "fork_rate"),
    ("killed, and not dead yet", "dying"),
    ("it left its cgroup", "left_cgroup"),
];

/// What a sweep came to.
#[derive(Debug)]
pub(crate) struct Swept {
    /// It says that nobody is left.
    pub(crate) is_clean: bool,
    /// Why somebody is left.
    pub(crate) reasons: BTreeSet<String>,
}

/// Sweeps.
///
/// # Errors
///
/// The condition that is missing here.
pub(crate) fn sweep(ground: &Ground, grace: &str) -> Result<Swept, String> {
    let program = Program::new(&ground.stage, places::foster())
        .args(["sweep", "--json", "--grace", grace, "--dir"])
        .arg(ground.records());
    let program = match ground.user {
        Some(user) => program.as_user(user),
        None => program,
    };
    let finished = program.start().finish(LIMIT);
    let report: Value = serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {finished:?}"));
    let instances = report.get("instances").and_then(Value::as_array);
    let [instance] = instances.map_or(&[][..], Vec::as_slice) else {
        panic!("one instance: {report}")
    };
    let state = instance.get("state").and_then(Value::as_str);
    let state = state.expect("a state");
    let survivors = instance.get("survivors").and_then(Value::as_array);
    let mut reasons: BTreeSet<String> = survivors.into_iter().flatten().map(reason).collect();
    if state == "live" {
        reasons.insert(state.to_owned());
    }
    assert_eq!(state == "incomplete", finished.code() == 1, "{report}");
    Ok(Swept {
        is_clean: state == "all-gone",
        reasons,
    })
}

fn reason(survivor: &Value) -> String {
    let why = survivor.get("why").and_then(Value::as_str);
    let why = why.expect("a reason");
    let known = WORDS.iter().find(|(words, _)| why.starts_with(words));
    let (_, reason) = known.unwrap_or_else(|| panic!("no such reason: {why}"));
    (*reason).to_owned()
}
