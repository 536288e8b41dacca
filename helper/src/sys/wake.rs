//! Wakes a thread that waits in `epoll` (`eventfd(2)`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::raw;

/// A flag that one thread raises and another one sees as readable.
#[derive(Debug)]
pub(crate) struct Wake {
    descriptor: OwnedFd,
}

impl Wake {
    /// Makes a flag that is not raised.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes numbers only.
        let number = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if number == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for this call.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        Ok(Self { descriptor })
    }

    /// Raises the flag. Async-signal-safe; never blocks.
    pub(crate) fn raise(&self) {
        // The only failure is a counter at its limit, and that flag is raised.
        let _ = raw::write(self.descriptor.as_raw_fd(), &1_u64.to_ne_bytes());
    }

    /// Lowers the flag. What it announced has to be looked for afterwards, not before.
    pub(crate) fn clear(&self) {
        // The only failure is a flag that is not raised.
        let _ = raw::read(self.descriptor.as_raw_fd(), &mut [0_u8; 8]);
    }

    /// Readable while the flag is raised.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
