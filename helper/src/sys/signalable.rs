//! The ids that may be signalled at all.
//!
//! `kill(2)` gives 0, -1 and negative numbers a meaning of their own: the caller's group,
//! everybody, a group. An id that went wrong must not reach it.

use std::io;

use nix::unistd::{getpgrp, getpid};

/// An id that must never be signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSignalable {
    /// 1 or less: the first process, everybody, or a group.
    TooLow,
    /// This process.
    Ourselves,
    /// The group of this process.
    OwnGroup,
}

impl From<NotSignalable> for io::Error {
    /// `EPERM`, as `kill(2)` answers for a target that is out of reach.
    fn from(reason: NotSignalable) -> Self {
        match reason {
            NotSignalable::TooLow | NotSignalable::Ourselves | NotSignalable::OwnGroup => {
                Self::from_raw_os_error(libc::EPERM)
            }
        }
    }
}

/// Gives `id` back where it may be signalled, as a process or as a group.
///
/// # Errors
///
/// The reason why it may not.
pub(crate) fn signalable(id: i32) -> Result<i32, NotSignalable> {
    if id <= 1 {
        Err(NotSignalable::TooLow)
    } else if id == getpid().as_raw() {
        Err(NotSignalable::Ourselves)
    } else if id == getpgrp().as_raw() {
        Err(NotSignalable::OwnGroup)
    } else {
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_with_a_meaning_of_their_own_are_refused() {
        for id in [
            1,
            0,
            -1,
            -2,
            i32::MIN,
            -getpid().as_raw(),
            -getpgrp().as_raw(),
        ] {
            assert_eq!(signalable(id), Err(NotSignalable::TooLow), "{id}");
        }
    }

    #[test]
    fn this_process_and_its_group_are_refused() {
        assert_eq!(signalable(getpid().as_raw()), Err(NotSignalable::Ourselves));
        let group = signalable(getpgrp().as_raw());
        assert!(matches!(
            group,
            Err(NotSignalable::OwnGroup | NotSignalable::Ourselves)
        ));
    }

    #[test]
    fn any_other_id_is_given_back() {
        assert_eq!(signalable(i32::MAX), Ok(i32::MAX));
    }

    #[test]
    fn a_refusal_reads_as_a_missing_permission() {
        let error = io::Error::from(NotSignalable::TooLow);
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }
}
