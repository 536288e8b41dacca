//! The helper as a child process of the host: collected without ever blocking the host.

use std::io;
use std::os::fd::AsFd;
use std::process::{self, Child, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};

use crate::connection::{poll_until, time_left};
use crate::sys;

/// Helpers that have been told to go and have not been collected yet.
static PARKED: Mutex<Vec<HelperProcess>> = Mutex::new(Vec::new());

/// A helper's process.
#[derive(Debug)]
pub(crate) struct HelperProcess {
    child: Child,
    /// The process whose child it is: a fork of the host must not wait for its pid.
    owner: u32,
}

impl HelperProcess {
    pub(crate) fn new(child: Child) -> Self {
        Self {
            child,
            owner: process::id(),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its exit for a time. None where it has not exited, or where somebody else in
    /// this process has taken its status.
    pub(crate) fn exit_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now().checked_add(limit);
        // It is a child that nobody has reaped, so the number is its own. Without pidfds
        // there is no waiting with a limit, and the status is taken if it is there.
        if let Ok(pidfd) = sys::open_pidfd(self.child.id()) {
            while !self.is_collected() {
                let mut polled = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
                let left = time_left(deadline);
                let outcome = poll_until(&mut polled, left);
                let exited = polled.iter().any(|helper| helper.any().unwrap_or(true));
                if exited || outcome.is_err() || left == Some(Duration::ZERO) {
                    break;
                }
            }
        }
        self.child.try_wait().ok().flatten()
    }

    /// Kills it. It must hold no sessions.
    pub(super) fn kill(&mut self) {
        if let Err(error) = self.child.kill() {
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
