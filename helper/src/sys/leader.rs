//! A leader: a child that this process forked, has not reaped, and alone reaps.
//!
//! Its number, group and session stay pinned for as long as the `Leader` exists, so the value
//! is the licence for every signal to it, and `reap` takes the licence away.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foster_protocol::{Micros, Pid, Usage};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use super::proc;
use super::raw::{self, Changed, Who};
use super::signalable::signalable;

/// `PIDFD_SIGNAL_PROCESS_GROUP` of `pidfd_send_signal(2)`, since Linux 6.9.
pub(super) const PROCESS_GROUP: u32 = 4;

/// Set once the kernel has refused `PROCESS_GROUP`.
static GROUP_FLAG_MISSING: AtomicBool = AtomicBool::new(false);

/// An unreaped child of this process. Nothing else in the process waits for it.
#[derive(Debug)]
pub(crate) struct Leader {
    pid: i32,
    /// Of this very child; none where the kernel has no pidfds.
    pidfd: Option<OwnedFd>,
}

impl Leader {
    /// Takes charge of a child that was just forked.
    pub(super) fn new(pid: i32, pidfd: Option<OwnedFd>) -> Self {
        Self { pid, pidfd }
    }

    /// Its number.
    pub(crate) fn pid(&self) -> Pid {
        Pid(self.pid)
    }

    /// Its pidfd, where the kernel has pidfds. Readable once it is dead.
    pub(crate) fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// Whether it runs or waits for a processor, and neither sleeps nor is stopped.
    pub(crate) fn is_running(&self) -> bool {
        // The number is pinned; what cannot be read does not run.
        proc::stat(self.pid).is_ok_and(|stat| stat.state == b'R')
    }

    /// Signals the leader alone.
    ///
    /// # Errors
    ///
    /// What `kill(2)` says. Signalling a dead leader that is not reaped yet succeeds.
    pub(crate) fn signal(&self, number: i32) -> io::Result<()> {
        let pid = signalable(self.pid)?;
        match &self.pidfd {
            Some(pidfd) => raw::pidfd_send_signal(pidfd.as_fd(), number, 0),
            // The number is pinned: the child is ours and unreaped.
            None => raw::kill(pid, number),
        }
    }

    /// Signals the leader's group. It exists once the child has run `setsid`; `Ok` says that
    /// one member could be signalled, not that all were.
    ///
    /// # Errors
    ///
    /// `ESRCH` where the group has no member; otherwise what `kill(2)` says.
    pub(crate) fn signal_group(&self, number: i32) -> io::Result<()> {
        let group = signalable(self.pid)?;
        let Some(pidfd) = self.pidfd() else {
            return kill_group(group, number);
        };
        if GROUP_FLAG_MISSING.load(Ordering::Relaxed) {
            return kill_group(group, number);
        }
        match raw::pidfd_send_signal(pidfd, number, PROCESS_GROUP) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                // EINVAL is also the answer to a number that is no signal.
                let result = kill_group(group, number);
                let is_bad_number = matches!(
                    &result, Err(error) if error.raw_os_error() == Some(libc::EINVAL)
                );
                if !is_bad_number {
                    GROUP_FLAG_MISSING.store(true, Ordering::Relaxed);
                }
                result
            }
            other => other,
        }
    }

    /// Looks whether the leader is dead and leaves it unreaped (`waitid(2)`, `WNOWAIT`): its
    /// wait status as `wait(2)` lays it out and what it used, `None` while it lives.
    ///
    /// # Errors
    ///
    /// `ECHILD` where somebody else has reaped it.
    pub(crate) fn peek(&self) -> io::Result<Option<(i32, Usage)>> {
        let options = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG | libc::__WALL;
        let changed = raw::waitid(Who::Pid(self.pid), options)?;
        Ok(changed.map(|changed| (status(&changed), usage(&changed.usage))))
    }

    /// Whether its pidfd says that it is dead, reaped or not, traced or not.
    ///
    /// # Errors
    ///
    /// What `poll(2)` says.
    pub(crate) fn has_died(&self) -> io::Result<bool> {
        let Some(pidfd) = self.pidfd() else {
            return Ok(false);
        };
        let mut watched = [PollFd::new(pidfd, PollFlags::POLLIN)];
        match poll(&mut watched, 0_u16) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the leader is dead or the time is up, where it has a pidfd.
    ///
    /// # Errors
    ///
    /// What `poll(2)` says.
    pub(crate) fn wait(&self, limit: Duration) -> io::Result<()> {
        let Some(pidfd) = self.pidfd() else {
            return Ok(());
        };
        let millis = u16::try_from(limit.as_millis()).unwrap_or(u16::MAX);
        let mut watched = [PollFd::new(pidfd, PollFlags::POLLIN)];
        match poll(&mut watched, millis) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reaps a dead leader. From then on its number may belong to anybody, and nobody can
    /// signal it any more.
    ///
    /// # Errors
    ///
    /// The leader comes back with `WouldBlock` while it lives, or with what `waitid(2)` says.
    pub(crate) fn reap(self) -> Result<(), (Self, io::Error)> {
        let options = libc::WEXITED | libc::WNOHANG | libc::__WALL;
        match raw::waitid(Who::Pid(self.pid), options) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err((self, io::Error::from_raw_os_error(libc::EAGAIN))),
            Err(error) => Err((self, error)),
        }
    }
}

/// Signals a group whose leader is held unreaped.
fn kill_group(group: i32, number: i32) -> io::Result<()> {
    // `signalable` has let through numbers above 1 only, so this is neither 0 nor -1.
    raw::kill(-group, number)
}

/// The wait status that `wait(2)` would have given.
fn status(changed: &Changed) -> i32 {
    match changed.code {
        libc::CLD_EXITED => (changed.value & 0xff) << 8,
        libc::CLD_DUMPED => (changed.value & 0x7f) | 0x80,
        // CLD_KILLED; stops and continues were not asked for.
        _ => changed.value & 0x7f,
    }
}

fn usage(usage: &libc::rusage) -> Usage {
    Usage {
        user: micros(usage.ru_utime),
        system: micros(usage.ru_stime),
        max_rss: count(usage.ru_maxrss),
        minor_faults: count(usage.ru_minflt),
        major_faults: count(usage.ru_majflt),
        blocks_in: count(usage.ru_inblock),
        blocks_out: count(usage.ru_oublock),
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
    }
}

/// The kernel counts upwards from 0.
fn count(number: libc::c_long) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn micros(time: libc::timeval) -> Micros {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Micros(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

#[cfg(test)]
mod tests;
