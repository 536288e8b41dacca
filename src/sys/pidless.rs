//! Platforms without pidfds: every call says so, and its caller has another way or none.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// There are no pidfds.
///
/// # Errors
///
/// `ENOSYS`, always.
pub(crate) fn open_pidfd(_pid: u32) -> io::Result<OwnedFd> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// There are no pidfds.
///
/// # Errors
///
/// `ENOSYS`, always.
pub(crate) fn signal_process(_pidfd: BorrowedFd<'_>, _signal: i32) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// There are no pidfds.
///
/// # Errors
///
/// `ENOSYS`, always.
pub(crate) fn signal_whole_group(_pidfd: BorrowedFd<'_>, _signal: i32) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}
