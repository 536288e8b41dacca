//! How soon this process runs beside others (`sched(7)`).
//!
//! A bomb of a thousand sessions is a thousand groups to the scheduler, and whoever ends it is
//! one more. So the sessions of helper and keepers weigh more, and the helper goes before
//! everybody while a tree is ended, where they may. What it forks meanwhile is given back what the
//! helper was started with.
//!
//! A keeper never goes before everybody: on the processor that it does not take, a tree that
//! flees by forking would run undisturbed.

use std::fs;

use super::raw::{self, Scheduling};

/// The scheduling of the thread that serves.
#[derive(Debug)]
pub(crate) enum Pace {
    /// It stays as it is: that of a keeper, of a helper that may not haste, or of one for which
    /// somebody has set a policy of their own.
    Steady,
    /// As it was started. What that is, is read at the first haste.
    Calm { usual: Option<Scheduling> },
    /// Before everybody, and what it was before.
    Haste { usual: Scheduling },
}

/// Gives a keeper that was forked in haste the scheduling that its helper has when it is calm.
pub(crate) fn take_back(usual: Option<Scheduling>) {
    if let Some(Err(error)) = usual.as_ref().map(raw::set_scheduling) {
        tracing::debug!(%error, "the scheduling stays as it is");
    }
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
    /// Goes before everybody, where it may and does not so already.
    pub(crate) fn hasten(&mut self) {
        let Self::Calm { usual } = *self else { return };
        let Some(usual) = usual.or_else(read_usual) else {
            *self = Self::Steady;
            return;
        };
        *self = match raw::set_scheduling(&Scheduling::before_everybody()) {
            Ok(()) => Self::Haste { usual },
            // It takes `CAP_SYS_NICE` or a limit (`RLIMIT_RTPRIO`), and is not asked for again.
            Err(error) => {
                tracing::debug!(%error, "no place before others");
                Self::Steady
            }
        };
    }

    /// Goes as it was started. Where that is refused, it is asked for again at the next call.
    pub(crate) fn calm_down(&mut self) {
        let Self::Haste { usual } = *self else { return };
        match raw::set_scheduling(&usual) {
            Ok(()) => *self = Self::Calm { usual: Some(usual) },
            Err(error) => tracing::debug!(%error, "the place before others stays"),
        }
    }

    pub(crate) fn is_in_haste(&self) -> bool {
        self.to_give_back().is_some()
    }

    /// What is to be given back to whom this thread forks now: nothing where it is calm.
    pub(crate) fn to_give_back(&self) -> Option<Scheduling> {
        match *self {
            Self::Haste { usual } => Some(usual),
            Self::Calm { usual: _ } | Self::Steady => None,
        }
    }
}

/// The scheduling of a calm thread. None where somebody has set a policy of their own for it.
fn read_usual() -> Option<Scheduling> {
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_that_may_not_haste_or_has_calmed_down_goes_as_before() {
        let goes_as_before = || {
            raw::set_nice(5).unwrap();
            let before = raw::scheduling().unwrap();
            let mut pace = Pace::Calm { usual: None };
            assert_eq!(pace.to_give_back(), None, "nothing was changed");
            for _ in 0..2 {
                pace.hasten();
                let kept = match pace.to_give_back() {
                    Some(usual) => usual.with_slice(before.slice()),
                    None => raw::scheduling().unwrap(),
                };
                assert_eq!(kept, before);
                pace.calm_down();
                assert_eq!(raw::scheduling().unwrap(), before);
                assert_eq!(pace.to_give_back(), None);
            }
        };
        thread::spawn(goes_as_before).join().unwrap();
    }

    #[test]
    fn a_policy_of_somebody_elses_stays() {
        let stays = || {
            let batch = raw::scheduling().unwrap().with_policy(libc::SCHED_BATCH);
            raw::set_scheduling(&batch).unwrap();
            let before = raw::scheduling().unwrap();
            let mut pace = Pace::Calm { usual: None };
            pace.hasten();
            assert_eq!(pace.to_give_back(), None);
            assert_eq!(raw::scheduling().unwrap(), before);
        };
        thread::spawn(stays).join().unwrap();
    }
}
