//! The helper as a child process of the host: collected without ever blocking the host.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{self, Child, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use crate::poll::{poll_until, time_left};
use crate::sys;

/// Helpers that have been told to go and have not been collected yet.
static PARKED: Mutex<Vec<HelperProcess>> = Mutex::new(Vec::new());

/// The time between two looks for an exit that nothing announces.
const LOOK: Duration = Duration::from_millis(1);

/// A helper's process.
#[derive(Debug)]
pub(crate) struct HelperProcess {
    child: Child,
    /// Of this very child, where there are pidfds and it was not lost at once.
    pidfd: Option<OwnedFd>,
    /// The process whose child it is: a fork of the host must not wait for its pid.
    owner: u32,
}

/// Takes a pidfd of a child that was just started. A host that ignores SIGCHLD, or reaps
/// whatever there is, may have lost it by now and its number with it, so what was opened must be
/// our child still (`waitid(2)`, which collects nothing here).
fn pin(child: &Child) -> Option<OwnedFd> {
    let pidfd = sys::open_pidfd(child.id()).ok()?;
    let looked = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::PIDFd(pidfd.as_fd()), looked).ok()?;
    Some(pidfd)
}

impl HelperProcess {
    pub(crate) fn new(child: Child) -> Self {
        let pidfd = pin(&child);
        Self {
            child,
            pidfd,
            owner: process::id(),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// A copy of its pidfd.
    pub(super) fn pidfd(&self) -> Option<OwnedFd> {
        self.pidfd.as_ref()?.try_clone().ok()
    }

    /// Waits for its exit for a time. None where it has not exited, or where somebody else in
    /// this process has taken its status.
    pub(crate) fn exit_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now().checked_add(limit);
        let pidfd = self.pidfd.take();
        while !self.is_collected() {
            let mut polled: Vec<PollFd<'_>> = pidfd
                .iter()
                .map(|pidfd| PollFd::new(pidfd.as_fd(), PollFlags::POLLIN))
                .collect();
            let left = time_left(deadline);
            // Without a pidfd nothing announces the exit, and it is looked for.
            let look = match polled.is_empty() {
                true => left.map(|left| left.min(LOOK)),
                false => left,
            };
            let outcome = poll_until(&mut polled, look);
            let exited = polled.iter().any(|helper| helper.any().unwrap_or(true));
            if exited || outcome.is_err() || left == Some(Duration::ZERO) {
                break;
            }
        }
        self.pidfd = pidfd;
        self.child.try_wait().ok().flatten()
    }

    /// Kills it. It must hold no sessions. Without a pidfd it is left to the end of its control
    /// socket: its number may be somebody else's by now.
    pub(super) fn kill(&mut self) {
        if let Some(pidfd) = &self.pidfd
            && let Err(error) = sys::signal_process(pidfd.as_fd(), libc::SIGKILL)
        {
            tracing::debug!(%error, "helper could not be killed");
        }
    }

    /// Leaves it to be collected later.
    pub(crate) fn park(mut self) {
        let mut parked = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
        parked.retain_mut(|helper| !helper.is_collected());
        if !self.is_collected() {
            parked.push(self);
        }
    }

    /// Whether there is nothing left to collect.
    fn is_collected(&mut self) -> bool {
        if self.owner != process::id() {
            return true;
        }
        match self.child.try_wait() {
            Ok(Some(_)) => true,
            Ok(None) => false,
            // Somebody else in this process waits for every child, or the kernel does.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => true,
            Err(error) => error.kind() != io::ErrorKind::Interrupted,
        }
    }
}

/// Collects parked helpers that have exited.
pub(super) fn sweep() {
    let mut parked = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
    parked.retain_mut(|helper| !helper.is_collected());
}
