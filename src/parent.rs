//! The life of this process's own parent, held by a pidfd.

use std::io;
use std::os::fd::OwnedFd;

use nix::libc::ESRCH;
use nix::unistd::getppid;

use crate::sys;

/// What is known of the parent.
#[derive(Debug)]
pub(crate) enum Parent {
    /// It lives, and the pidfd becomes readable when it dies.
    Watched(OwnedFd),
    /// It is the first process of the system or of a pid namespace, or outside the namespace:
    /// nobody whose death would mean anything.
    First,
    /// It has just died.
    Gone,
}

/// Takes hold of the parent.
///
/// # Errors
///
/// What `pidfd_open(2)` says: `ENOSYS` before Linux 5.3, `EMFILE` where no descriptor is free.
pub(crate) fn hold() -> io::Result<Parent> {
    let parent = getppid();
    let Ok(number @ 2..) = u32::try_from(parent.as_raw()) else {
        return Ok(Parent::First);
    };
    let pidfd = match sys::open_pidfd(number) {
        Ok(pidfd) => pidfd,
        Err(error) if error.raw_os_error() == Some(ESRCH) => return Ok(Parent::Gone),
        Err(error) => return Err(error),
    };
    // A parent that died before the call left its number to anybody; ours is then another.
    if getppid() == parent {
        Ok(Parent::Watched(pidfd))
    } else {
        Ok(Parent::Gone)
    }
}
