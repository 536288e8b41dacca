//! Forks a keeper: a copy of this process that goes on running this code.
//!
//! It is the C library's `fork`, so that its locks are in order in the copy. The copy has one
//! thread, the caller's, and everything that the caller had: descriptors, an epoll set, signal
//! handlers. Every signal is blocked in the caller, so that no handler runs before the copy has
//! let go of what is not its own.

use std::io;

use super::leader::Leader;
use super::raw;

/// Which of the two processes this is.
#[derive(Debug)]
pub(crate) enum Forked {
    /// The copy.
    Keeper,
    /// The caller, with its new child.
    Helper(Leader),
}

/// Forks (`fork(2)`). No other thread of this process may hold a lock.
///
/// # Errors
///
/// What `fork(2)` says. There is no copy then.
pub(crate) fn fork_keeper(pidfds: bool) -> io::Result<Forked> {
    // SAFETY: the only other thread allocates nothing and takes no lock after its start, and
    // every signal is blocked, so the copy finds no lock held and runs no handler.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Keeper),
        pid => {
            // The child is unreaped, so the number is its own. Without room for a pidfd it is
            // still held as what it is: our child.
            let pidfd = if pidfds {
                raw::pidfd_open(pid).ok()
            } else {
                None
            };
            Ok(Forked::Helper(Leader::new(pid, pidfd)))
        }
    }
}

/// Forks into namespaces of its own (`clone3(2)`), where the copy is process 1.
///
/// The C library does not know of this copy: it takes its thread for the caller's. That is of no
/// matter to a process with one thread, which a keeper is.
///
/// # Errors
///
/// What `clone3(2)` says. There is no copy then.
pub(crate) fn fork_isolated(kind: Isolation) -> io::Result<Forked> {
    let user = match kind {
        Isolation::Pid => 0,
        Isolation::UserAndPid => libc::CLONE_NEWUSER,
    };
    match raw::clone3_isolated(libc::CLONE_NEWPID | libc::CLONE_NEWNS | user)? {
        raw::Forked::Child => Ok(Forked::Keeper),
        raw::Forked::Parent { pid, pidfd } => Ok(Forked::Helper(Leader::new(pid, pidfd))),
    }
}

/// The namespaces of a keeper that is process 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// A pid namespace, with a mount namespace for its `/proc`.
    Pid,
    /// These in a user namespace, which an unprivileged user needs.
    UserAndPid,
}

/// Ends this process at once, without running what the copied program would run at its end.
pub(crate) fn leave(code: u8) -> ! {
    // SAFETY: the call takes a number and does not return.
    unsafe { libc::_exit(i32::from(code)) }
}
