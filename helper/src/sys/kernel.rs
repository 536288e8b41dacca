//! What this kernel lets the helper do, found out by doing it once.
//!
//! A version number says little: a container's seccomp filter can take any of these away.

use std::io;
use std::os::fd::AsFd;

use nix::unistd::getpid;

use super::leader::{Leader, PROCESS_GROUP};
use super::proc::has_children_files;
use super::raw::{self, Forked, Who};

/// What is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    /// `clone3(2)` with `CLONE_PIDFD` and `CLONE_CLEAR_SIGHAND`: Linux 5.5.
    pub(crate) clone3: bool,
    /// `pidfd_open(2)` and `pidfd_send_signal(2)`: Linux 5.3.
    pub(crate) pidfd: bool,
    /// `PIDFD_SIGNAL_PROCESS_GROUP`: Linux 6.9.
    pub(crate) pidfd_group: bool,
    /// `/proc/PID/task/TID/children`: `CONFIG_PROC_CHILDREN`.
    pub(crate) children_files: bool,
    /// `close_range(2)`: Linux 5.9.
    pub(crate) close_range: bool,
}

/// Whether an error says that the kernel, or a seccomp filter before it, does not offer a
/// call.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

/// Tries everything once. It forks one child and reaps it.
pub(crate) fn probe() -> Features {
    let pidfd = probe_pidfd();
    Features {
        clone3: pidfd && probe_clone3(),
        pidfd,
        pidfd_group: pidfd && probe_group(),
        children_files: has_children_files(),
        close_range: raw::close_range(u32::MAX, u32::MAX).is_ok(),
    }
}

/// Signal 0 to ourselves is delivered to nobody.
fn probe_pidfd() -> bool {
    raw::pidfd_open(getpid().as_raw())
        .and_then(|pidfd| raw::pidfd_send_signal(pidfd.as_fd(), 0, 0))
        .is_ok()
}

/// Signal 0 to the group of our own number is delivered to nobody. Where we do not lead one
/// the answer is `ESRCH`, and the flag is known all the same.
fn probe_group() -> bool {
    let result = raw::pidfd_open(getpid().as_raw())
        .and_then(|pidfd| raw::pidfd_send_signal(pidfd.as_fd(), 0, PROCESS_GROUP));
    match result {
        Ok(()) => true,
        Err(error) => error.raw_os_error() == Some(libc::ESRCH),
    }
}

/// Forks a child that exits at once.
fn probe_clone3() -> bool {
    match raw::clone3(None) {
        Ok(Forked::Child) => raw::exit(0),
        Ok(Forked::Parent { pid, pidfd }) => {
            let has_pidfd = pidfd.is_some();
            // Held until it is reaped, so that nothing else takes the number for its own.
            let _child = Leader::new(pid, pidfd);
            let reaped = raw::waitid(Who::Pid(pid), libc::WEXITED | libc::__WALL);
            has_pidfd && reaped.is_ok()
        }
        Err(_) => false,
    }
}
