//! How soon this process runs beside others (`sched(7)`).
//!
//! A bomb of a thousand sessions is a thousand groups to the scheduler, and whoever ends it is
//! one more. So the sessions of helper and keepers weigh more, and the helper goes before
//! everybody while a tree is ended, where they may. What it forks is given back what the helper
//! was started with.
//!
//! A keeper never goes before everybody: on the processor that it does not take, a tree that
//! flees by forking would run undisturbed.

use std::fs;
use std::io;

use super::raw::{self, Scheduling};

/// The scheduling of the thread that serves.
#[derive(Debug)]
pub(crate) struct Pace {
    calm: Option<Scheduling>,
    in_haste: bool,
    may_haste: bool,
}

/// What the helper was started with, to be given back to what it forks. None where it stays:
/// somebody has set a policy of their own for it.
pub(crate) fn inherited() -> Option<Scheduling> {
    let found = raw::scheduling().ok()?;
    if !found.is_ordinary() {
        return None;
    }
    // The kernel tells the usual slice as it tells one that was asked for.
    raw::set_scheduling(&found.with_slice(0)).ok()?;
    let usual = raw::scheduling().ok()?;
    let slice = if found == usual { 0 } else { found.slice() };
    raw::set_scheduling(&found.with_slice(slice)).ok()?;
    Some(found.with_slice(slice))
}

/// Gives the session of this process more of the processors than others have, where it may
/// (`CAP_SYS_NICE`): `sched(7)`, "The autogroup feature". A command has a session and a weight
/// of its own.
pub(crate) fn weigh_more() {
    if let Err(error) = fs::write("/proc/self/autogroup", "-20") {
        tracing::debug!(%error, "the weight of the session stays as it is");
    }
}

impl Pace {
    /// Sets the calm pace of this thread. A keeper may have been forked in haste.
    pub(crate) fn calm(inherited: Option<Scheduling>, may_haste: bool) -> Self {
        if let Some(Err(error)) = inherited.as_ref().map(raw::set_scheduling) {
            tracing::debug!(%error, "the scheduling stays as it is");
        }
        Self {
            calm: inherited,
            in_haste: false,
            may_haste,
        }
    }

    /// Hastes or calms down, where it is not so already.
    pub(crate) fn keep(&mut self, haste: bool) {
        let Some(calm) = &self.calm else { return };
        if haste == self.in_haste || (haste && !self.may_haste) {
            return;
        }
        let set: io::Result<()> = match haste {
            true => raw::set_scheduling(&Scheduling::before_everybody()),
            false => raw::set_scheduling(calm),
        };
        match set {
            Ok(()) => self.in_haste = haste,
            // It takes `CAP_SYS_NICE` or a limit (`RLIMIT_RTPRIO`), and is not asked for again.
            Err(error) => {
                tracing::debug!(%error, "no place before others");
                self.may_haste = false;
            }
        }
    }
}
