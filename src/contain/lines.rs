//! What a starter says on standard error, and only where something is unusual.

use std::io::{self, Write};

use foster_protocol::{Farewell, Survivor, Why};

use crate::ended::Ended;
use crate::error::Error;

/// The most processes that one line names.
const NAMED: usize = 8;

/// Writes one line in one call, so that lines of the program do not cut it.
pub(super) fn say(text: &str) {
    let text = format!("foster: {}\n", text.replace(|c: char| c.is_control(), "?"));
    // Where standard error is gone there is nobody to tell.
    drop(io::stderr().write_all(text.as_bytes()));
}

/// An error with every cause of it.
pub(super) fn causes(error: &Error) -> String {
    let first: &dyn std::error::Error = error;
    let causes = std::iter::successors(Some(first), |error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// What is unusual about an end, in one line; none where nothing is.
pub(super) fn unusual(
    unknown: Option<&Error>,
    ended: &Ended,
    farewell: Option<&Farewell>,
) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(error) = unknown {
        parts.push(format!("exit of the program is unknown: {}", causes(error)));
    }
    let of_tree = match ended {
        Ended::Ending(ending) => ending.survivors.as_slice(),
        Ended::Released { .. } => &[],
    };
    let of_all = farewell.map_or(&[][..], |farewell| &farewell.survivors);
    let mut survivors: Vec<&Survivor> = Vec::new();
    for survivor in of_tree.iter().chain(of_all) {
        if survivors.iter().all(|known| known.pid != survivor.pid) {
            survivors.push(survivor);
        }
    }
    if !survivors.is_empty() {
        let names: Vec<String> = survivors.iter().take(NAMED).map(|one| name(one)).collect();
        let more = match survivors.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let count = survivors.len();
        let names = names.join(", ");
        parts.push(format!("could not end {count} of the tree: {names}{more}"));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn name(survivor: &Survivor) -> String {
    let Survivor {
        pid,
        uid,
        name,
        why: reason,
        ..
    } = survivor;
    let name = String::from_utf8_lossy(&name.0);
    format!("{name} ({}) of user {uid}: {}", pid.0, why(*reason))
}

/// Why a process outlived its ending.
pub(crate) fn why(why: Why) -> String {
    match why {
        Why::Uninterruptible => "in uninterruptible sleep".to_owned(),
        Why::HeldByTracer { tracer } => format!("held by its tracer, process {tracer}"),
        Why::NotPermitted { uid } => format!("no permission to signal user {uid}"),
        Why::ForkRate => "new processes came faster than they could be ended".to_owned(),
        Why::LeftCgroup => "it left its cgroup".to_owned(),
        Why::Dying => "killed, and not dead yet".to_owned(),
        Why::NotPinned => "it cannot be signalled without a risk to a stranger".to_owned(),
    }
}
