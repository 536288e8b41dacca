//! The leader of a direct session: a child of this process that it alone reaps.
//!
//! Its number, and so its group's and its session's, is nobody else's while it is unreaped.
//! So only a `&Leader` can be signalled, and reaping consumes it. It must never be signalled
//! by number after somebody else in this process, or the kernel where SIGCHLD is ignored, has
//! collected it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};

use super::signalable::Signalable;
use crate::poll::poll_until;
use crate::sys::{self, Exited, Who};

/// A leader that has not been reaped by us.
#[derive(Debug)]
pub(super) struct Leader {
    pid: i32,
    /// Opened while the child was waiting for its first byte; none without pidfds.
    pidfd: Option<Arc<OwnedFd>>,
}

/// What a look at a leader shows.
#[derive(Debug)]
pub(super) enum Sight {
    /// It runs.
    Running,
    /// It has exited and is unreaped.
    Exited(Exited),
    /// It has exited, and its status went to somebody else.
    Stolen,
}

impl Leader {
    /// Takes a child that waits for its first byte, so that it is surely there.
    pub(super) fn new(pid: i32) -> Self {
        Self {
            pid,
            pidfd: sys::open_pidfd(pid.unsigned_abs()).ok().map(Arc::new),
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn pidfd(&self) -> Option<&Arc<OwnedFd>> {
        self.pidfd.as_ref()
    }

    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(|pidfd| pidfd.as_fd())
    }

    fn who(&self) -> Who {
        match &self.pidfd {
            Some(pidfd) => Who::Pidfd(pidfd.as_raw_fd()),
            None => Who::Number(self.pid),
        }
    }

    /// Looks whether it has exited, without reaping it.
    pub(super) fn look(&self) -> io::Result<Sight> {
        match sys::look(self.who()) {
            Ok(Some(exited)) => Ok(Sight::Exited(exited)),
            Ok(None) => Ok(Sight::Running),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(Sight::Stolen),
            Err(error) => Err(error),
        }
    }

    /// Whether its number is its own: it runs, or is a zombie that is ours to reap.
    pub(super) fn is_pinned(&self) -> bool {
        matches!(self.look(), Ok(Sight::Running | Sight::Exited(_)))
    }

    /// Whether its pidfd says that it is dead, whoever may collect it.
    pub(super) fn is_dead(&self) -> bool {
        let Some(pidfd) = self.as_fd() else {
            return false;
        };
        let mut polled = [PollFd::new(pidfd, PollFlags::POLLIN)];
        let looked = poll_until(&mut polled, Some(Duration::ZERO));
        looked.is_ok() && polled.iter().any(|one| one.any() == Some(true))
    }

    /// Signals its group. It has run `setsid`, so that the group is there and is not ours.
    ///
    /// # Errors
    ///
    /// `ESRCH` where nobody is left, or where the number is no longer its own.
    pub(super) fn signal_group(&self, signal: i32) -> io::Result<()> {
        if let Some(pidfd) = self.as_fd() {
            match sys::signal_whole_group(pidfd, signal) {
                // Before Linux 6.9 there is no such flag.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
                }
                outcome => return outcome,
            }
        }
        sys::kill_group(self.guarded()?.get(), signal)
    }

    /// Signals it alone.
    ///
    /// # Errors
    ///
    /// `ESRCH` where its number is no longer its own.
    pub(super) fn signal(&self, signal: i32) -> io::Result<()> {
        if let Some(pidfd) = self.as_fd() {
            match sys::signal_process(pidfd, signal) {
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {}
                outcome => return outcome,
            }
        }
        sys::kill_process(self.guarded()?.get(), signal)
    }

    /// Its number, where it is its own and may be signalled.
    fn guarded(&self) -> io::Result<Signalable> {
        let id = Signalable::new(i64::from(self.pid))?;
        if self.is_pinned() {
            Ok(id)
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    }

    /// Collects its status: its number is free after this. It has exited.
    pub(super) fn reap(self) {
        if let Err(error) = sys::reap(self.who()) {
            // ECHILD: somebody else was faster.
            tracing::debug!(pid = self.pid, %error, "leader was not ours to reap");
        }
    }
}
