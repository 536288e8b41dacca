//! Exits of this process's own children: looked at, and collected.

use std::io;
use std::mem;
use std::ptr;

/// Which child is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The one of this pidfd.
    Pidfd(i32),
    /// The one with this number.
    Number(i32),
}

/// A child that has exited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exited {
    /// The wait status as `wait(2)` lays it out.
    pub(crate) status: i32,
    /// What it and the children that it waited for used.
    pub(crate) usage: libc::rusage,
}

/// Looks whether a child has exited and leaves it unreaped (`waitid(2)` with `WNOWAIT`, whose
/// fifth argument gives the usage). None while it has not.
///
/// # Errors
///
/// `ECHILD` where it is no child of this process: somebody else has collected it.
pub(crate) fn look(who: Who) -> io::Result<Option<Exited>> {
    wait(who, libc::WNOWAIT)
}

/// Collects a child that has exited; its number is free after this (`waitid(2)`).
///
/// # Errors
///
/// As [`look`].
pub(crate) fn reap(who: Who) -> io::Result<Option<Exited>> {
    wait(who, 0)
}

#[cfg(target_os = "linux")]
fn wait(who: Who, option: i32) -> io::Result<Option<Exited>> {
    let (kind, id) = match who {
        Who::Pidfd(number) => (libc::P_PIDFD, number),
        Who::Number(number) => (libc::P_PID, number),
    };
    let options = libc::WEXITED | libc::WNOHANG | option;
    // SAFETY: siginfo_t is a plain C struct for which all-zero bytes are a valid value.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    // SAFETY: rusage is a plain C struct for which all-zero bytes are a valid value.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    let (to_info, to_usage) = (ptr::from_mut(&mut info), ptr::from_mut(&mut usage));
    // SAFETY: the kernel writes one siginfo and one rusage, which live here.
    let code = unsafe { libc::syscall(libc::SYS_waitid, kind, id, to_info, options, to_usage) };
    if code < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: of a siginfo that waitid has filled, the child's fields are the ones in use; of
    // one that it left alone they are zero.
    let pid = unsafe { info.si_pid() };
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: as above.
    let value = unsafe { info.si_status() };
    let status = status(info.si_code, value);
    Ok(Some(Exited { status, usage }))
}

/// The same through the C library, which gives no usage: it is all zero.
#[cfg(not(target_os = "linux"))]
fn wait(who: Who, option: i32) -> io::Result<Option<Exited>> {
    let id = match who {
        Who::Number(number) => number,
        Who::Pidfd(_) => return Err(io::Error::from_raw_os_error(libc::ENOSYS)),
    };
    // A process id is positive, and an id has another type on each platform.
    let id = id.unsigned_abs() as libc::id_t;
    let options = libc::WEXITED | libc::WNOHANG | option;
    // SAFETY: siginfo_t is a plain C struct for which all-zero bytes are a valid value.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    // SAFETY: the system writes one siginfo, which lives here.
    let code = unsafe { libc::waitid(libc::P_PID, id, ptr::from_mut(&mut info), options) };
    if code < 0 {
        return Err(io::Error::last_os_error());
    }
    if info.si_pid == 0 {
        return Ok(None);
    }
    // SAFETY: rusage is a plain C struct for which all-zero bytes are a valid value.
    let usage: libc::rusage = unsafe { mem::zeroed() };
    let status = status(info.si_code, info.si_status);
    Ok(Some(Exited { status, usage }))
}

/// The wait status as `wait(2)` lays it out.
fn status(code: i32, value: i32) -> i32 {
    match code {
        libc::CLD_EXITED => (value & 0xff) << 8,
        libc::CLD_DUMPED => value | 0x80,
        _ => value,
    }
}
