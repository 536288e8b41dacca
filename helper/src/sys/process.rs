//! Any process that is not a leader, held by its pidfd.
//!
//! The order is the rule: the pidfd is opened first, then the identity is read, then the pidfd
//! is asked whether its process still lives. Only then is what was read true of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use foster_protocol::Pid;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::proc::{self, Stat};
use super::raw;
use super::signalable::signalable;

/// A process that was alive after its identity had been read.
#[derive(Debug)]
pub(crate) struct Process {
    pidfd: OwnedFd,
    /// True of the process that `pidfd` holds, as it was when it was opened.
    stat: Stat,
}

impl Process {
    /// Opens a process; `None` where it is gone, or dead and not reaped yet.
    ///
    /// # Errors
    ///
    /// `EPERM` for an id that must not be signalled; `ENOSYS` where the kernel has no pidfds;
    /// otherwise what `pidfd_open(2)` and `/proc` say.
    pub(crate) fn open(pid: i32) -> io::Result<Option<Self>> {
        let pid = signalable(pid)?;
        let pidfd = match raw::pidfd_open(pid) {
            Ok(pidfd) => pidfd,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let stat = match proc::stat(pid) {
            Ok(stat) => stat,
            Err(error) if proc::is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let process = Self { pidfd, stat };
        Ok(if process.is_dead()? {
            None
        } else {
            Some(process)
        })
    }

    /// Its number.
    pub(crate) fn pid(&self) -> Pid {
        Pid(self.stat.pid)
    }

    /// What it was when it was opened.
    pub(crate) fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Its pidfd. Readable once it is dead.
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Whether it is dead. State `Z` does not say so: a process whose main thread has exited
    /// shows it while its other threads run.
    ///
    /// # Errors
    ///
    /// What `poll(2)` says.
    pub(crate) fn is_dead(&self) -> io::Result<bool> {
        is_readable(self.pidfd())
    }

    /// Signals it.
    ///
    /// # Errors
    ///
    /// `ESRCH` where it has been reaped; otherwise what `pidfd_send_signal(2)` says.
    pub(crate) fn signal(&self, number: i32) -> io::Result<()> {
        raw::pidfd_send_signal(self.pidfd(), number, 0)
    }
}

/// Whether `pidfd_open` says that no process has the number: `EINVAL`, or `ENOENT` on newer
/// kernels (6.18 does), is its answer when the number has become that of a thread.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ESRCH | libc::EINVAL | libc::ENOENT)
    )
}

/// Whether the process of a pidfd is dead.
fn is_readable(pidfd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = [PollFd::new(pidfd, PollFlags::POLLIN)];
    let ready = raw::retry(|| poll(&mut polled, PollTimeout::ZERO).map_err(io::Error::from))?;
    Ok(ready > 0)
}
