//! A process that is held by a pidfd: its number cannot become another's while it lives.
//!
//! A pidfd that is readable says that its process has exited, zombie or not; it never comes to
//! mean somebody else.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::fstat;
use nix::sys::statfs::fstatfs;
use thiserror::Error;

use super::{Markers, NotSignalable, signalable};
use crate::child::Child;
use crate::sys;

/// The magic number of pidfs (`PID_FS_MAGIC`, Linux 6.9). Before it, every pidfd has the one
/// inode of all anonymous files, which says nothing.
const PIDFS_MAGIC: i128 = 0x5049_4446;

/// More than any environment that `execve(2)` takes: three quarters of 8 MiB with arguments.
const ENVIRON_LIMIT: u64 = 8 << 20;

/// The kernel's own name of a process: the inode of its pidfd. No two processes of one boot
/// have the same, whatever their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PidfsId(pub u64);

/// A process that is held by a pidfd.
#[derive(Debug)]
pub struct Held {
    pid: u32,
    pidfd: OwnedFd,
    pidfs: Option<PidfsId>,
}

/// Whom a signal to a group was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The whole group that the process leads.
    Group,
    /// The process alone: it leads no group, or the kernel cannot signal a group by a pidfd
    /// (before Linux 6.9), and a number is not good enough.
    Process,
}

/// Why a process cannot be held or signalled.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The number is nobody's to signal.
    #[error("process is not to be signalled")]
    NotSignalable(#[from] NotSignalable),
    /// Nobody has the number, or who had it has exited.
    #[error("process {pid} is gone")]
    Gone {
        /// The number.
        pid: u32,
    },
    /// The kernel has no pidfds, or a filter takes them away.
    #[error("process {pid} cannot be held: there are no pidfds here")]
    NoPidfds {
        /// The number.
        pid: u32,
    },
    /// A system call failed.
    #[error("process {pid}: {what}")]
    System {
        /// The number.
        pid: u32,
        /// What was tried.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl Held {
    /// Takes hold of whoever has this number now.
    ///
    /// That says nothing of who it is: ask [`carries`](Self::carries) or compare
    /// [`pidfs_id`](Self::pidfs_id) before anything is done to it.
    ///
    /// # Errors
    ///
    /// [`Gone`](IdentityError::Gone) where nobody lives under the number.
    pub fn open(pid: u32) -> Result<Self, IdentityError> {
        signalable(pid)?;
        let pidfd = sys::open_pidfd(pid).map_err(|source| refused(pid, source))?;
        Self::new(pid, pidfd)
    }

    /// Takes hold of a child's leader, through the pidfd that its helper has passed on.
    ///
    /// # Errors
    ///
    /// [`NoPidfds`](IdentityError::NoPidfds) where none came with the child.
    pub fn of(child: &Child) -> Result<Self, IdentityError> {
        let pid = child.id();
        signalable(pid)?;
        let pidfd = child.session().pidfd();
        let pidfd = pidfd.ok_or(IdentityError::NoPidfds { pid })?;
        let copy = pidfd.try_clone_to_owned();
        Self::new(pid, copy.map_err(|source| refused(pid, source))?)
    }

    /// Takes hold of a child of this process that nobody has waited for.
    ///
    /// # Errors
    ///
    /// [`Gone`](IdentityError::Gone) where its exit is known.
    pub fn of_std(child: &mut std::process::Child) -> Result<Self, IdentityError> {
        let pid = child.id();
        // A child that was waited for has given its number back.
        match child.try_wait() {
            Ok(None) => Self::open(pid),
            Ok(Some(_)) => Err(IdentityError::Gone { pid }),
            Err(source) => Err(refused(pid, source)),
        }
    }

    fn new(pid: u32, pidfd: OwnedFd) -> Result<Self, IdentityError> {
        let pidfs = pidfs_id(pidfd.as_fd()).map_err(|errno| IdentityError::System {
            pid,
            what: "pidfd cannot be looked at",
            source: errno.into(),
        })?;
        let held = Self { pid, pidfd, pidfs };
        match held.is_alive() {
            true => Ok(held),
            false => Err(IdentityError::Gone { pid }),
        }
    }

    /// Returns the number. It is the process's own while [`is_alive`](Self::is_alive).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the kernel's own name of the process, where it has one (Linux 6.9).
    #[must_use]
    pub fn pidfs_id(&self) -> Option<PidfsId> {
        self.pidfs
    }

    /// Whether the process has not exited. A zombie has. False where that cannot be told.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        exited(&[self], Duration::ZERO).is_ok_and(|places| places.is_empty())
    }

    /// Waits for the process's exit; false where the time was up first.
    #[must_use]
    pub fn wait_for_exit(&self, timeout: Duration) -> bool {
        let until = Instant::now().checked_add(timeout);
        loop {
            let left = until.map_or(timeout, |until| {
                until.saturating_duration_since(Instant::now())
            });
            match exited(&[self], left) {
                Ok(places) if places.is_empty() && !left.is_zero() => {}
                Ok(places) => return !places.is_empty(),
                Err(errno) => {
                    tracing::warn!(pid = self.pid, %errno, "exit cannot be waited for");
                    return false;
                }
            }
        }
    }

    /// Whether the process lives and was started with these markers.
    ///
    /// False, with a warning, where its environment cannot be read.
    #[must_use]
    pub fn carries(&self, markers: &Markers) -> bool {
        match self.environ() {
            // The environment was that of the number's owner, and the owner is this process
            // only if it lives still.
            Ok(environ) => markers.is_in(&environ) && self.is_alive(),
            Err(_) if !self.is_alive() => false,
            Err(error) => {
                tracing::warn!(
                    pid = self.pid,
                    %error,
                    "environment cannot be read: the process is not taken for one of ours"
                );
                false
            }
        }
    }

    fn environ(&self) -> io::Result<Vec<u8>> {
        let file = File::open(format!("/proc/{}/environ", self.pid))?;
        let mut environ = Vec::new();
        let count = file.take(ENVIRON_LIMIT).read_to_end(&mut environ)?;
        match u64::try_from(count) {
            Ok(count) if count < ENVIRON_LIMIT => Ok(environ),
            Ok(_) | Err(_) => Err(io::Error::other("environment is too long")),
        }
    }

    /// Signals the process.
    ///
    /// # Errors
    ///
    /// [`Gone`](IdentityError::Gone) where it has been reaped; otherwise what the kernel says.
    pub fn signal(&self, number: i32) -> Result<(), IdentityError> {
        sys::signal_process(self.pidfd.as_fd(), number).map_err(|source| self.unsent(source))
    }

    /// Signals the group that the process leads, or the process alone where it leads none.
    ///
    /// The caller's own group cannot be meant: then the process alone is signalled.
    ///
    /// # Errors
    ///
    /// As [`signal`](Self::signal).
    pub fn signal_group(&self, number: i32) -> Result<Reach, IdentityError> {
        let is_own = nix::unistd::getpgrp().as_raw().unsigned_abs() == self.pid;
        if !is_own {
            match sys::signal_whole_group(self.pidfd.as_fd(), number) {
                Ok(()) => return Ok(Reach::Group),
                // It leads no group, or is gone; or the flag is not known.
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::ESRCH | libc::EINVAL | libc::ENOSYS)
                    ) => {}
                Err(source) => return Err(self.unsent(source)),
            }
        }
        self.signal(number).map(|()| Reach::Process)
    }

    fn unsent(&self, source: io::Error) -> IdentityError {
        refused(self.pid, source)
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Waits until one of these has exited, and gives the places of all that have; none where the
/// time was up first, or a signal came.
///
/// # Errors
///
/// What the kernel says; nothing is known then.
pub(crate) fn exited(held: &[&Held], timeout: Duration) -> nix::Result<Vec<usize>> {
    let mut set: Vec<PollFd<'_>> = held
        .iter()
        .map(|one| PollFd::new(one.as_fd(), PollFlags::POLLIN))
        .collect();
    // Rounded up, so that a wait never spins.
    let millis = timeout.as_micros().div_ceil(1000);
    let millis = i32::try_from(millis).unwrap_or(i32::MAX);
    let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
    match poll(&mut set, timeout) {
        // A poll without a wait is never interrupted.
        Ok(0) | Err(Errno::EINTR) => Ok(Vec::new()),
        Ok(_) => {
            let events = set.iter().enumerate();
            let ready = events.filter(|(_, entry)| entry.any().unwrap_or(true));
            Ok(ready.map(|(place, _)| place).collect())
        }
        Err(errno) => Err(errno),
    }
}

fn pidfs_id(pidfd: BorrowedFd<'_>) -> nix::Result<Option<PidfsId>> {
    // Signed with one C library and unsigned with another.
    let magic = i128::from(fstatfs(pidfd)?.filesystem_type().0);
    match magic {
        PIDFS_MAGIC => Ok(Some(PidfsId(fstat(pidfd)?.st_ino))),
        _ => Ok(None),
    }
}

fn refused(pid: u32, source: io::Error) -> IdentityError {
    match source.raw_os_error() {
        Some(libc::ESRCH) => IdentityError::Gone { pid },
        // The number of a thread that leads no process: EINVAL, ENOENT since Linux 6.15.
        Some(libc::EINVAL | libc::ENOENT) => IdentityError::Gone { pid },
        Some(libc::ENOSYS) => IdentityError::NoPidfds { pid },
        Some(_) | None => IdentityError::System {
            pid,
            what: "process cannot be held or signalled",
            source,
        },
    }
}
