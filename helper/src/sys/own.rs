//! What the helper does to its own process, and what it asks about it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{getpid, getppid, getsid, setsid};

use super::kernel::is_missing;
use super::proc::highest_open_descriptor;
use super::raw::{self, Disposition, Who};

/// The first descriptor behind the standard ones.
const FIRST: i32 = 3;

/// Whether this process runs with more privileges than its caller (`AT_SECURE`).
pub(crate) fn is_secure() -> bool {
    // SAFETY: the call takes a number only.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether a descriptor is a socket.
pub(crate) fn is_socket(fd: BorrowedFd<'_>) -> bool {
    fstat(fd).is_ok_and(|stat| {
        SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFSOCK
    })
}

/// The process that made a connected socket pair (`SO_PEERCRED`).
///
/// # Errors
///
/// What `getsockopt(2)` says.
pub(crate) fn peer_pid(fd: BorrowedFd<'_>) -> io::Result<i32> {
    Ok(getsockopt(&fd, sockopt::PeerCredentials)?.pid())
}

/// The parent, 0 where it is outside this pid namespace.
pub(crate) fn parent_pid() -> i32 {
    getppid().as_raw()
}

/// Takes a copy of the standard input to a number behind the standard ones, closed by exec.
/// The standard input itself stays.
///
/// # Errors
///
/// What `fcntl(2)` says.
pub(crate) fn take_stdin() -> io::Result<OwnedFd> {
    let number = raw::duplicate_from(libc::STDIN_FILENO, FIRST)?;
    // SAFETY: the kernel has just made this descriptor for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Points standard descriptors at `/dev/null`.
///
/// # Errors
///
/// What `open(2)` and `dup2(2)` say.
pub(crate) fn point_at_null(targets: &[i32]) -> io::Result<()> {
    let null = open_null()?;
    targets
        .iter()
        .try_for_each(|&target| raw::dup2(null.as_raw_fd(), target))
}

/// Points the standard error at a log, or at `/dev/null`.
///
/// # Errors
///
/// What `open(2)` and `dup2(2)` say.
pub(crate) fn replace_stderr(log: Option<OwnedFd>) -> io::Result<()> {
    match log {
        Some(log) => raw::dup2(log.as_raw_fd(), libc::STDERR_FILENO),
        None => point_at_null(&[libc::STDERR_FILENO]),
    }
}

/// Opens `/dev/null` for reading and writing, closed by exec.
///
/// # Errors
///
/// What `open(2)` says.
pub(crate) fn open_null() -> io::Result<OwnedFd> {
    File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map(OwnedFd::from)
}

/// Closes every descriptor behind the standard ones but those in `keep`. No other thread may
/// hold one.
///
/// # Errors
///
/// What `/proc` says where the kernel has no `close_range(2)`.
pub(crate) fn close_all_but(keep: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut keep: Vec<i32> = keep.iter().map(AsRawFd::as_raw_fd).collect();
    keep.sort_unstable();
    let mut start = FIRST;
    for number in keep.into_iter().filter(|&number| number >= FIRST) {
        close_between(start, number.saturating_sub(1))?;
        start = number.saturating_add(1);
    }
    close_between(start, i32::MAX)
}

/// Closes from `first` to `last`, both included.
fn close_between(first: i32, last: i32) -> io::Result<()> {
    if first > last {
        return Ok(());
    }
    match raw::close_range(first.cast_unsigned(), last.cast_unsigned()) {
        Err(error) if is_missing(&error) => {
            let last = last.min(highest_open_descriptor()?);
            (first..=last).for_each(raw::close);
            Ok(())
        }
        other => other,
    }
}

/// Gives every signal its default disposition, but for SIGPIPE, which is ignored, and empties
/// the mask of the calling thread.
///
/// SIGCHLD is the one that matters: ignored ones are inherited, and a process that ignores it
/// cannot hold a dead child.
///
/// # Errors
///
/// What `rt_sigaction(2)` and `pthread_sigmask(3)` say.
pub(crate) fn reset_signals() -> io::Result<()> {
    for number in
        (1..=raw::LAST_SIGNAL).filter(|number| ![libc::SIGKILL, libc::SIGSTOP].contains(number))
    {
        let disposition = if number == libc::SIGPIPE {
            Disposition::Ignore
        } else {
            Disposition::Default
        };
        raw::set_disposition(number, disposition)?;
    }
    unblock_all_signals()
}

/// Blocks every signal in the calling thread.
///
/// # Errors
///
/// What `pthread_sigmask(3)` says.
pub(crate) fn block_all_signals() -> io::Result<()> {
    Ok(pthread_sigmask(
        SigmaskHow::SIG_SETMASK,
        Some(&SigSet::all()),
        None,
    )?)
}

/// Lets every signal in again in the calling thread.
///
/// # Errors
///
/// What `pthread_sigmask(3)` says.
pub(crate) fn unblock_all_signals() -> io::Result<()> {
    Ok(pthread_sigmask(
        SigmaskHow::SIG_SETMASK,
        Some(&SigSet::empty()),
        None,
    )?)
}

/// Makes this process the leader of a session of its own.
///
/// # Errors
///
/// `EPERM` where it leads a group of another session.
pub(crate) fn new_session() -> io::Result<()> {
    match setsid() {
        Err(Errno::EPERM) if getsid(None) == Ok(getpid()) => Ok(()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Lets orphans of this process's descendants come to it (`PR_SET_CHILD_SUBREAPER`).
///
/// # Errors
///
/// What `prctl(2)` says.
pub(crate) fn become_subreaper() -> io::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}

/// Sets whether others of the same user may look into this process (`PR_SET_DUMPABLE`).
///
/// # Errors
///
/// What `prctl(2)` says.
pub(crate) fn set_dumpable(dumpable: bool) -> io::Result<()> {
    Ok(prctl::set_dumpable(dumpable)?)
}

/// Opens a pidfd to watch a process (`pidfd_open(2)`).
///
/// # Errors
///
/// `ESRCH` where it is gone; `ENOSYS` where the kernel has no pidfds.
pub(crate) fn open_pidfd(pid: i32) -> io::Result<OwnedFd> {
    raw::pidfd_open(pid)
}

/// Raises the soft limit of descriptors to the hard one, and gives the pair that was in force:
/// children get it back.
///
/// # Errors
///
/// What `setrlimit(2)` says.
pub(crate) fn raise_descriptor_limit() -> io::Result<(u64, u64)> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok((soft, hard))
}

/// Reaps every dead child of the calling thread and gives their number. On the main thread
/// these are the adopted orphans, and never a leader: those belong to the thread that forked
/// them (`__WNOTHREAD`). Allocates nothing.
///
/// # Errors
///
/// What `waitid(2)` says; having no children is none.
pub(crate) fn reap_adopted() -> io::Result<u32> {
    let options = libc::WEXITED | libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD;
    let mut reaped = 0_u32;
    loop {
        match raw::waitid(Who::Any, options) {
            Ok(Some(_)) => reaped = reaped.saturating_add(1),
            Ok(None) => return Ok(reaped),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(reaped),
            Err(error) => return Err(error),
        }
    }
}

/// Whether this process has a child of any kind, dead or alive. Exact where it has one thread.
///
/// # Errors
///
/// What `waitid(2)` says; having no children is none.
pub(crate) fn has_children() -> io::Result<bool> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    match raw::waitid(Who::Any, options) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reaps one dead child of this process; false where it lives or is none.
///
/// # Errors
///
/// What `waitid(2)` says; that it is no child of ours is none.
pub(crate) fn reap_one(pid: i32) -> io::Result<bool> {
    let options = libc::WEXITED | libc::WNOHANG | libc::__WALL;
    match raw::waitid(Who::Pid(pid), options) {
        Ok(reaped) => Ok(reaped.is_some()),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
