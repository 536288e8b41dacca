//! What wakes the thread of a session while it polls.

#[cfg(target_os = "linux")]
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(not(target_os = "linux"))]
use std::os::unix::net::UnixStream;

#[cfg(target_os = "linux")]
use crate::sys;

/// A bell: rung by handles, heard by the thread that polls it.
#[derive(Debug)]
pub(super) struct Wake {
    /// A counter.
    #[cfg(target_os = "linux")]
    counter: File,
    /// The ends of a socket, where there are no counters.
    #[cfg(not(target_os = "linux"))]
    ends: (UnixStream, UnixStream),
}

#[cfg(target_os = "linux")]
impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        let counter = File::from(sys::eventfd()?);
        Ok(Self { counter })
    }

    fn ends(&self) -> (&File, &File) {
        (&self.counter, &self.counter)
    }
}

#[cfg(not(target_os = "linux"))]
impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        let ends = UnixStream::pair()?;
        ends.0.set_nonblocking(true)?;
        ends.1.set_nonblocking(true)?;
        Ok(Self { ends })
    }

    fn ends(&self) -> (&UnixStream, &UnixStream) {
        (&self.ends.0, &self.ends.1)
    }
}

impl Wake {
    pub(super) fn ring(&self) {
        let (_, mut sender) = self.ends();
        // A bell that is full rings just as well.
        let _full = sender.write(&1_u64.to_ne_bytes());
    }

    /// Empties it. What is left of many rings wakes once more.
    pub(super) fn quiet(&self) {
        let (mut receiver, _) = self.ends();
        let _already_empty = receiver.read(&mut [0; 64]);
    }
}

impl AsFd for Wake {
    /// To be polled.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ends().0.as_fd()
    }
}
