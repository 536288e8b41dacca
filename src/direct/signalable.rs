//! The ids that may be signalled at all.
//!
//! `kill(2)` gives 0, -1 and negative numbers a meaning of their own: the caller's group,
//! everybody, a group. An id that went wrong must not reach it.

use std::io;

use nix::unistd::{getpgrp, getpid};

/// An id that may be signalled: neither the first process, nor this one, nor its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signalable(i32);

/// Why an id must never be signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotSignalable {
    /// 1 or less: the first process, everybody, or a group.
    TooLow,
    /// No process has such a number; as a signed one it is a group, or everybody.
    TooHigh,
    /// This process.
    Ourselves,
    /// The group of this process.
    OwnGroup,
}

impl Signalable {
    /// Takes an id that may be signalled, as a process or as a group.
    ///
    /// # Errors
    ///
    /// The reason why it may not.
    pub(super) fn new(id: i64) -> Result<Self, NotSignalable> {
        if id <= 1 {
            return Err(NotSignalable::TooLow);
        }
        let id = i32::try_from(id).map_err(|_| NotSignalable::TooHigh)?;
        if id == getpid().as_raw() {
            Err(NotSignalable::Ourselves)
        } else if id == getpgrp().as_raw() {
            Err(NotSignalable::OwnGroup)
        } else {
            Ok(Self(id))
        }
    }

    pub(super) fn get(self) -> i32 {
        self.0
    }
}

impl From<NotSignalable> for io::Error {
    /// `EPERM`, as `kill(2)` answers for a target that is out of reach.
    fn from(reason: NotSignalable) -> Self {
        match reason {
            NotSignalable::TooLow
            | NotSignalable::TooHigh
            | NotSignalable::Ourselves
            | NotSignalable::OwnGroup => Self::from_raw_os_error(libc::EPERM),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_with_a_meaning_of_their_own_are_refused() {
        let own = i64::from(getpid().as_raw());
        for id in [1, 0, -1, -2, i64::from(i32::MIN), i64::MIN, -own] {
            assert_eq!(Signalable::new(id), Err(NotSignalable::TooLow), "{id}");
        }
        for id in [i64::from(i32::MAX) + 1, i64::from(u32::MAX), i64::MAX] {
            assert_eq!(Signalable::new(id), Err(NotSignalable::TooHigh), "{id}");
        }
    }

    #[test]
    fn this_process_and_its_group_are_refused() {
        let own = Signalable::new(i64::from(getpid().as_raw()));
        assert_eq!(own, Err(NotSignalable::Ourselves));
        let group = Signalable::new(i64::from(getpgrp().as_raw()));
        assert!(matches!(
            group,
            Err(NotSignalable::OwnGroup | NotSignalable::Ourselves)
        ));
        let error = io::Error::from(NotSignalable::OwnGroup);
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn any_other_id_is_taken() {
        let most = Signalable::new(i64::from(i32::MAX)).expect("it is nobody's");
        assert_eq!(most.get(), i32::MAX);
    }
}
