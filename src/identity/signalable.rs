//! The numbers that may reach a signal at all.
//!
//! It is a guard and proves nothing: a number that passes may still be a stranger's.

use thiserror::Error;

/// A number that names one process other than the first one and the caller.
///
/// To `kill(2)` 0 is the caller's group, -1 everybody, any other negative a group; a group
/// kill of 1 becomes -1; what is above `i32::MAX` becomes negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signalable(i32);

/// Why a number may never reach a signal.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotSignalable {
    /// 0 is the caller's own group.
    #[error("process id 0 means the caller's own group")]
    OwnGroup,
    /// 1 is the first process, and everybody as the number of a group.
    #[error("process id 1 is the first process")]
    First,
    /// The number is negative as `kill(2)` takes it: a group or everybody.
    #[error("process id {pid} is above {max}: it would mean a group or everybody", max = i32::MAX)]
    TooLarge {
        /// The number.
        pid: u32,
    },
    /// The number is the caller's.
    #[error("process id {pid} is the caller's own")]
    Caller {
        /// The number.
        pid: u32,
    },
}

impl Signalable {
    /// Returns the number as `kill(2)` takes it.
    #[must_use]
    pub fn get(self) -> i32 {
        self.0
    }

    /// Returns the number as std has it.
    #[must_use]
    pub fn unsigned(self) -> u32 {
        self.0.unsigned_abs()
    }
}

/// Lets a number pass that may be signalled if it is known whose it is.
///
/// # Errors
///
/// Says what the number would mean instead of one other process.
///
/// # Examples
///
/// ```
/// use foster::identity::{NotSignalable, signalable};
///
/// assert_eq!(signalable(0), Err(NotSignalable::OwnGroup));
/// assert_eq!(signalable(1), Err(NotSignalable::First));
/// assert!(signalable(u32::MAX).is_err());
/// assert!(signalable(std::process::id()).is_err());
/// ```
pub fn signalable(pid: u32) -> Result<Signalable, NotSignalable> {
    match i32::try_from(pid) {
        Err(_) => Err(NotSignalable::TooLarge { pid }),
        Ok(0) => Err(NotSignalable::OwnGroup),
        Ok(1) => Err(NotSignalable::First),
        Ok(_) if pid == std::process::id() => Err(NotSignalable::Caller { pid }),
        Ok(number) => Ok(Signalable(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_mean_more_than_one_other_process_are_refused() {
        assert_eq!(signalable(0), Err(NotSignalable::OwnGroup));
        assert_eq!(signalable(1), Err(NotSignalable::First));
        for pid in [1 << 31, u32::MAX - 1, u32::MAX] {
            assert_eq!(signalable(pid), Err(NotSignalable::TooLarge { pid }));
        }
        let pid = std::process::id();
        assert_eq!(signalable(pid), Err(NotSignalable::Caller { pid }));
    }

    #[test]
    fn any_other_number_passes_as_it_is() {
        let largest = i32::MAX.unsigned_abs();
        let passed = signalable(largest).expect("a number of a process");
        assert_eq!((passed.get(), passed.unsigned()), (i32::MAX, largest));
    }
}
