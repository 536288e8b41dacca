//! The look at the end of a test: whether anything that carries its tag is left.

use crate::deadline::{SETTLE, eventually};
use crate::proc;
use crate::sys;
use crate::tracer::Witness;

/// The variable that carries a test's tag in the environment of everything that it starts.
pub const TAG: &str = "FOSTER_TRACER";

/// Every process but this one that carries the tag in its environment or its arguments, as
/// `pid state name` lines. It only looks.
#[must_use]
pub fn find_tagged(tag: &str) -> Vec<String> {
    let own = i32::try_from(std::process::id()).expect("a pid fits");
    let tagged = proc::pids()
        .into_iter()
        .filter(|pid| *pid != own)
        .filter(|pid| {
            proc::holds(*pid, "environ", tag.as_bytes())
                || proc::holds(*pid, "cmdline", tag.as_bytes())
        });
    let lines = tagged.filter_map(proc::stat).map(|stat| {
        format!(
            "{} {} {}",
            stat.pid,
            stat.state,
            String::from_utf8_lossy(&stat.name)
        )
    });
    lines.collect()
}

/// Takes hold of every process but this one that carries the tag and lives.
#[must_use]
pub fn hold_tagged(tag: &str) -> Vec<Witness> {
    let own = i32::try_from(std::process::id()).expect("a pid fits");
    let is_tagged = |pid: i32| {
        proc::holds(pid, "environ", tag.as_bytes()) || proc::holds(pid, "cmdline", tag.as_bytes())
    };
    let pids = proc::pids().into_iter();
    let pids = pids.filter(|pid| *pid != own && is_tagged(*pid));
    let held = pids.filter_map(|pid| {
        let pidfd = sys::pidfd_open(pid).ok()?;
        let witness = Witness::new(pid, pidfd);
        // The pidfd pins whoever has the number now; the second look says that it is ours.
        (is_tagged(pid) && witness.is_alive()).then_some(witness)
    });
    held.collect()
}

/// Asserts that nothing that carries the tag is left, or is gone in a moment.
///
/// # Panics
///
/// Where something is left; the message names it.
pub fn assert_nothing_left(tag: &str) {
    let mut left = find_tagged(tag);
    if left.is_empty() {
        return;
    }
    let what = format!("nothing of {tag} is left; at first: {left:?}");
    eventually(&what, SETTLE, || {
        left = find_tagged(tag);
        left.is_empty()
    });
}
