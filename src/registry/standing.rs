//! Where a row stands: whether the process that it names lives and is ours.
//!
//! It never signals. Whoever acts on a row does it by the pidfd that this gives out.

use std::fs;
use std::sync::OnceLock;

use super::row::{Row, State};
use crate::identity::{Held, IdentityError};

/// What is known of the process of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It lives and is the one that was registered.
    Ours,
    /// There is none yet.
    NotYet,
    /// There is none any more, or none that could be shown to be ours.
    Stale(Stale),
    /// Nobody can tell at the moment: a system call failed, or there are no pidfds.
    Unknown,
}

/// Why a row is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stale {
    /// The machine was started anew: numbers of before mean nothing.
    OtherBoot,
    /// The row names no process.
    NoPid,
    /// Nobody lives under the number: a zombie does not.
    Dead,
    /// Somebody lives under the number, and it is not the process that was registered.
    NotOurs,
    /// The row has nothing by which a process could be known again.
    NoIdentity,
    /// The host has said that it is over.
    Over,
}

/// The process of a row, held, if it is ours.
pub(super) fn stand(row: &Row) -> (Standing, Option<Held>) {
    match look(row) {
        Ok(held) => (Standing::Ours, Some(held)),
        Err(standing) => (standing, None),
    }
}

fn look(row: &Row) -> Result<Held, Standing> {
    let stale = |why| Err(Standing::Stale(why));
    match row.state {
        State::Running => {}
        State::Starting if row.pid.is_none() && row.boot == boot() => return Err(Standing::NotYet),
        State::Starting => {}
        State::Error | State::Stopped => return stale(Stale::Over),
    }
    if row.boot.is_empty() || row.boot != boot() {
        return stale(Stale::OtherBoot);
    }
    let Some(pid) = row.pid else {
        return stale(Stale::NoPid);
    };
    // A service without markers is of no kind that we know.
    let Some(markers) = row.markers() else {
        return stale(Stale::NoIdentity);
    };
    // The pidfd comes first: what is read after it is of its process, if that lives then.
    let held = match Held::open(pid) {
        Ok(held) => held,
        Err(IdentityError::Gone { .. }) => return stale(Stale::Dead),
        Err(IdentityError::NotSignalable(_)) => return stale(Stale::NotOurs),
        Err(error) => {
            tracing::warn!(service = %row.name, %error, "service cannot be looked at");
            return Err(Standing::Unknown);
        }
    };
    // Where the kernel names processes, its name decides: a program may write over its
    // environment (its title often stands there), and can never take another one's name.
    let is_ours = match (row.pidfs_id(), held.pidfs_id()) {
        (Some(then), Some(now)) => then == now,
        (Some(_) | None, Some(_) | None) => held.carries(&markers),
    };
    match (is_ours, held.is_alive()) {
        (true, true) => Ok(held),
        (false, true) => stale(Stale::NotOurs),
        (_, false) => stale(Stale::Dead),
    }
}

/// The id of this boot; empty where it cannot be read, and then no row is of this boot.
pub(super) fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(
        || match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
            Ok(text) => text.trim().to_owned(),
            Err(error) => {
                tracing::warn!(%error, "boot id cannot be read: no service is found again");
                String::new()
            }
        },
    )
}
