//! Calls that only Linux has.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;

/// The flag that sends to the whole process group of the pidfd's process (Linux 6.9).
const PROCESS_GROUP: libc::c_uint = 1 << 2;

/// The code of a child whose parent went before its death signal was armed. Nobody sees it but
/// whoever reaps orphans.
const UNPARENTED: libc::c_int = 111;

/// Signals the process group that a pidfd's process leads; the process alone where the kernel
/// does not know the flag (`pidfd_send_signal(2)`).
///
/// # Errors
///
/// `ESRCH` where nobody is left; otherwise what the kernel says.
pub(crate) fn signal_group(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    match signal_pidfd(pidfd, signal, PROCESS_GROUP) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => signal_pidfd(pidfd, signal, 0),
        outcome => outcome,
    }
}

/// Signals the process group that a pidfd's process leads, and nobody else
/// (`pidfd_send_signal(2)`).
///
/// # Errors
///
/// `ESRCH` where it leads none or nobody is left, `EINVAL` where the kernel does not know the
/// flag, `ENOSYS` where it has no pidfds; otherwise what the kernel says.
pub(crate) fn signal_whole_group(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    signal_pidfd(pidfd, signal, PROCESS_GROUP)
}

/// Signals a pidfd's process alone (`pidfd_send_signal(2)`).
///
/// # Errors
///
/// `ESRCH` where it is gone; otherwise what the kernel says.
pub(crate) fn signal_process(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    signal_pidfd(pidfd, signal, 0)
}

fn signal_pidfd(pidfd: BorrowedFd<'_>, signal: i32, flags: libc::c_uint) -> io::Result<()> {
    let info = std::ptr::null::<libc::siginfo_t>();
    let number = pidfd.as_raw_fd();
    // SAFETY: the descriptor is borrowed and so open; a null siginfo is allowed.
    let code = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, number, signal, info, flags) };
    if code < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Opens a pidfd (`pidfd_open(2)`). The caller sees to it that the number is whose it thinks:
/// a child that nobody has reaped, or a parent that is still the parent afterwards.
///
/// # Errors
///
/// `ENOSYS` where the kernel has no pidfds; otherwise what the kernel says.
pub(crate) fn open_pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers.
    let number = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let number = RawFd::try_from(number).map_err(io::Error::other)?;
    own(number)
}

/// Creates a counter that wakes a poll (`eventfd(2)`), non-blocking and close-on-exec.
///
/// # Errors
///
/// `EMFILE` and `ENFILE` where no descriptor is free; otherwise what the kernel says.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers.
    let number = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    own(number)
}

/// Duplicates a descriptor that the program was started with, close-on-exec and above the
/// standard three (`fcntl(2)`, `F_DUPFD_CLOEXEC`).
///
/// # Errors
///
/// `EBADF` where no descriptor has the number; otherwise what the kernel says.
pub(crate) fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers and checks the number itself.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    own(copy)
}

/// Has a command's process get a signal when the thread that forks it ends
/// (`PR_SET_PDEATHSIG`, `prctl(2)`). `parent` is the process of that thread.
///
/// Where the signal cannot be armed, the spawn fails. Where the parent is gone by then, so that
/// no signal would come, the child exits before it runs anything.
#[expect(
    clippy::disallowed_methods,
    reason = "three async-signal-safe calls for hosts that want no helper"
)]
pub(crate) fn arm_death_signal(command: &mut std::process::Command, signal: i32, parent: u32) {
    let arm = move || {
        // SAFETY: the calls of `death_signal` are prctl, getppid and _exit; it allocates
        // nothing and takes no lock.
        unsafe { death_signal(signal, parent) }
    };
    // SAFETY: between fork and exec, the closure makes the async-signal-safe calls of
    // `death_signal` and no other.
    unsafe { command.pre_exec(arm) };
}

/// Arms the signal, then looks whether the parent is still the one that it is armed for.
///
/// # Safety
///
/// Only between fork and exec, where `_exit` ends a child that has run nothing.
unsafe fn death_signal(signal: i32, parent: u32) -> io::Result<()> {
    // SAFETY: this prctl takes integers only.
    let code = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes nothing and always succeeds.
    let now = unsafe { libc::getppid() };
    if now == 0 {
        // The parent is in another pid namespace, where nobody can tell whether it lives.
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    if now.unsigned_abs() != parent {
        // SAFETY: the call ends this child and runs no destructor.
        unsafe { libc::_exit(UNPARENTED) };
    }
    Ok(())
}

fn own(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// What came of the removal of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It is not in the environment any more.
    Done,
    /// Nothing was changed: the process has this many threads.
    Threads(usize),
}

/// Removes a variable from the environment of this process (`unsetenv(3)`), where the process has
/// no other thread that could read the environment meanwhile.
///
/// # Errors
///
/// `InvalidInput` where no variable can have the name; what the system says where the threads
/// cannot be counted.
pub(crate) fn remove_variable(name: &OsStr) -> io::Result<Removal> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.contains(&b'=') || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let count = fs::read_dir("/proc/self/task")?.count();
    if count != 1 {
        return Ok(Removal::Threads(count));
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "the threads were counted: there is only this one"
    )]
    // SAFETY: this is the only thread, as was just seen, and no other can start before the call
    // returns, because only this one could start it. So nobody reads the environment meanwhile.
    unsafe {
        env::remove_var(name);
    }
    Ok(Removal::Done)
}

/// Whether the program runs with more rights than who started it (`AT_SECURE`, `getauxval(3)`).
pub(crate) fn is_secure() -> bool {
    // SAFETY: the call takes an integer and reads the process's own vector.
    let value = unsafe { libc::getauxval(libc::AT_SECURE) };
    value != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_is_signalled_by_its_pidfd() {
        let mut child = Command::new("sleep")
            .arg("61.7")
            .stdin(Stdio::null())
            .spawn()
            .expect("sleep starts");
        let pidfd = open_pidfd(child.id()).expect("pidfds are there");
        // The child leads no group, so the group form reaches nobody; the plain form does.
        signal_pidfd(pidfd.as_fd(), libc::SIGKILL, 0).expect("the child is alive");
        let status = child.wait().expect("the child is ours");
        assert!(!status.success());
        let error = signal_group(pidfd.as_fd(), libc::SIGKILL).expect_err("nobody is left");
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }
}
