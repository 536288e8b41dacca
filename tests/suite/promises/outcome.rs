//! What a cell shows.

use std::collections::BTreeSet;

/// Why somebody is left, as a host or a sweep was told, in the order of the page's notes.
pub(crate) const REASONS: [(&str, &str); 10] = [
    (
        "not_permitted",
        "it is another user's, whom the helper may not signal",
    ),
    (
        "listed",
        "its session was closed and stays in the helper's list, as ended",
    ),
    ("uninterruptible", "it is in uninterruptible sleep"),
    ("held_by_tracer", "a tracer holds it"),
    (
        "fork_rate",
        "new members came faster than they could be ended",
    ),
    (
        "dying",
        "it has been sent KILL and was not dead at the limit",
    ),
    ("left_cgroup", "it left its cgroup"),
    ("not_pinned", "the kernel has no pidfds"),
    (
        "unattributed",
        "it has left the session and its parent, and no session can be shown to own it; it ends with the helper",
    ),
    (
        "live",
        "its helper is stopped and not dead, so that a sweep does not touch what is its",
    ),
];

/// What a cell shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nobody is left.
    Gone,
    /// The host was told who is left, each with one of these reasons.
    Named(BTreeSet<String>),
    /// Somebody is left, of whom the host was not told, until a sweep ends everybody.
    Swept,
    /// Somebody is left of whom the host was not told. The reasons are those that a sweep gives,
    /// where a sweep is what ends the rest, and this one did not.
    Left(BTreeSet<String>),
    /// There is no such cell.
    Void(&'static str),
    /// It has not run here, for want of this.
    NotRun(String),
}

impl Outcome {
    /// As the page shows it; none where it has not run.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Gone => Some("gone".to_owned()),
            Self::Named(reasons) => Some(format!("named {}", notes(reasons))),
            Self::Swept => Some("sweep".to_owned()),
            Self::Left(reasons) if reasons.is_empty() => Some("**left**".to_owned()),
            Self::Left(reasons) => Some(format!("**left** {}", notes(reasons))),
            Self::Void(_) => Some("–".to_owned()),
            Self::NotRun(_) => None,
        }
    }
}

/// The numbers of the notes.
fn notes(reasons: &BTreeSet<String>) -> String {
    let places = REASONS.iter().zip(1..);
    let numbers = places.filter(|((name, _), _)| reasons.contains(*name));
    let numbers = numbers.map(|(_, number): (_, u32)| number.to_string());
    numbers.collect::<Vec<_>>().join(", ")
}
