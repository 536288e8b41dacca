#![expect(unsafe_code, reason = "system calls that neither std nor nix offers")]
//! System calls that neither std nor nix offers.
//!
//! Each wrapper is one call and names it. Nothing here decides, waits or keeps a number, and
//! only [`kill_group`] and [`kill_process`] signal by number.

mod child;
mod exit;
mod orders;
mod raw;

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub(crate) use child::start;
pub(crate) use exit::{Exited, Who, look, reap};
pub(crate) use orders::{Orders, Progress, Strings, Wire};

/// The flag that sends to the whole process group of the pidfd's process (Linux 6.9).
const PROCESS_GROUP: libc::c_uint = 1 << 2;

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

/// Signals a pidfd's process alone (`pidfd_send_signal(2)`).
///
/// # Errors
///
/// `ESRCH` where it is gone; otherwise what the kernel says.
pub(crate) fn signal_process(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    signal_pidfd(pidfd, signal, 0)
}

/// Signals the process group of a pidfd's process, and nobody where the kernel does not know
/// the flag (`pidfd_send_signal(2)`).
///
/// # Errors
///
/// `EINVAL` where the kernel does not know the flag, `ENOSYS` where it has no pidfds, `ESRCH`
/// where nobody is left; otherwise what the kernel says.
pub(crate) fn signal_group_strictly(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    signal_pidfd(pidfd, signal, PROCESS_GROUP)
}

/// Signals the process group of a leader by its number (`kill(2)`). The caller holds the leader
/// unreaped and has checked the number.
///
/// # Errors
///
/// `ESRCH` where there is no such group; otherwise what the kernel says.
pub(crate) fn kill_group(leader: i32, signal: i32) -> io::Result<()> {
    // SAFETY: the call takes two integers.
    let code = unsafe { libc::kill(-leader, signal) };
    if code < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Signals one process by its number (`kill(2)`). The caller holds it unreaped and has checked
/// the number.
///
/// # Errors
///
/// What the kernel says.
pub(crate) fn kill_process(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: the call takes two integers.
    let code = unsafe { libc::kill(pid, signal) };
    if code < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The first descriptor number that cannot be open (`sysconf(3)`), bounded for those who close
/// one after the other.
pub(crate) fn open_max() -> i32 {
    /// The most descriptors that a process has by the kernel's own default (`fs.nr_open`).
    const MOST: libc::c_long = 1 << 20;
    // SAFETY: the call takes an integer.
    let most = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
    i32::try_from(if most < 0 { MOST } else { most.min(MOST) }).unwrap_or(i32::MAX)
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
#[cfg(feature = "cli")]
pub(crate) fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers and checks the number itself.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    own(copy)
}

fn own(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Whether the program runs with more rights than who started it (`AT_SECURE`, `getauxval(3)`).
pub(crate) fn is_secure() -> bool {
    // SAFETY: the call takes an integer and reads the process's own vector.
    let value = unsafe { libc::getauxval(libc::AT_SECURE) };
    value != 0
}

/// The calling thread's blocked signals, bit `n - 1` for signal `n` (`pthread_sigmask(3)`).
///
/// # Errors
///
/// What the call says; none is documented for reading.
pub(crate) fn blocked_signals() -> io::Result<u64> {
    // SAFETY: sigset_t is a plain C struct for which all-zero bytes are a valid value.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: with a null new set the call only writes the old one, which lives here.
    let code = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set) };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(code));
    }
    let mut mask = 0_u64;
    for signal in 1..=64 {
        // SAFETY: the set was filled above; a number that is no signal gives -1.
        let member = unsafe { libc::sigismember(&raw const set, signal) };
        if member == 1 {
            mask |= 1 << (signal - 1);
        }
    }
    Ok(mask)
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

    #[test]
    fn an_empty_mask_reads_as_zero() {
        assert_eq!(blocked_signals().expect("the mask can be read") & 1, 0);
    }
}
