//! The same calls where there is no Linux. What a platform does not have is `ENOSYS`, so that the
//! spawn fails at its step and nothing is left out in silence.

use std::io;
use std::mem;
use std::ptr;

use libc::c_int;

use super::check;

/// The highest signal number that every platform has.
const LAST_SIGNAL: c_int = 31;

/// The highest one that any has (`SIGRTMAX` of FreeBSD). Others refuse it.
const HIGHEST_SIGNAL: c_int = 126;

fn not_there() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSYS)
}

/// There is none on every platform: descriptors are closed one by one.
pub(in crate::sys) fn close_range(_first: i32, _last: i32) -> io::Result<()> {
    Err(not_there())
}

/// `setrlimit(2)`. `u64::MAX` is no limit.
pub(in crate::sys) fn set_limit(resource: u32, soft: u64, hard: u64) -> io::Result<()> {
    let number = |limit| match limit {
        u64::MAX => Ok(libc::RLIM_INFINITY),
        limit => libc::rlim_t::try_from(limit),
    };
    let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let limit = libc::rlimit {
        rlim_cur: number(soft).map_err(invalid)?,
        rlim_max: number(hard).map_err(invalid)?,
    };
    let resource =
        c_int::try_from(resource).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the structure is read, and lives here.
    let code = unsafe { libc::setrlimit(resource, &raw const limit) };
    check(code).map(drop)
}

/// `setgroups(2)`.
pub(in crate::sys) fn set_groups(groups: &[u32]) -> io::Result<()> {
    let count =
        c_int::try_from(groups.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the list is readable for its length.
    let code = unsafe { libc::setgroups(count, groups.as_ptr()) };
    check(code).map(drop)
}

/// `setgid(2)`, which sets all three for a privileged process, and asks whether it has.
pub(in crate::sys) fn set_gid(gid: u32) -> io::Result<()> {
    // SAFETY: the call takes an integer.
    let code = unsafe { libc::setgid(gid) };
    check(code)?;
    // SAFETY: the call takes nothing and cannot fail.
    let real = unsafe { libc::getgid() };
    // SAFETY: as above.
    let effective = unsafe { libc::getegid() };
    became(gid, real, effective)
}

/// `setuid(2)`, which sets all three for a privileged process, and asks whether it has.
pub(in crate::sys) fn set_uid(uid: u32) -> io::Result<()> {
    // SAFETY: the call takes an integer.
    let code = unsafe { libc::setuid(uid) };
    check(code)?;
    // SAFETY: the call takes nothing and cannot fail.
    let real = unsafe { libc::getuid() };
    // SAFETY: as above.
    let effective = unsafe { libc::geteuid() };
    became(uid, real, effective)
}

/// Whether the ids are those that were asked for. A program that keeps one could go back.
fn became(asked: u32, real: u32, effective: u32) -> io::Result<()> {
    if real == asked && effective == asked {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }
}

/// There is none on every platform.
pub(in crate::sys) fn set_no_new_privs() -> io::Result<()> {
    Err(not_there())
}

/// There is none on every platform. 0 disarms none.
pub(in crate::sys) fn set_death_signal(number: i32) -> io::Result<()> {
    match number {
        0 => Ok(()),
        _ => Err(not_there()),
    }
}

/// `sigaction(2)` for every signal. KILL and STOP refuse, and have the default anyway.
pub(in crate::sys) fn restore_dispositions() {
    // SAFETY: sigaction is a plain C struct; all zero it is the default, without flags and mask.
    let default: libc::sigaction = unsafe { mem::zeroed() };
    for number in 1..=HIGHEST_SIGNAL {
        // SAFETY: the structure is read, and lives here; nothing is written.
        let _kill_and_stop =
            unsafe { libc::sigaction(number, &raw const default, ptr::null_mut()) };
    }
}

/// `sigprocmask(2)`.
pub(in crate::sys) fn set_mask(mask: u64) -> io::Result<()> {
    // SAFETY: sigset_t is a plain C struct for which all-zero bytes are a valid value.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: the set lives here.
    let code = unsafe { libc::sigemptyset(&raw mut set) };
    check(code)?;
    for number in (1..=LAST_SIGNAL).filter(|number| mask & (1 << (number - 1)) != 0) {
        // SAFETY: the set was filled above, and the number is one of a signal.
        let code = unsafe { libc::sigaddset(&raw mut set, number) };
        check(code)?;
    }
    // SAFETY: the set is read, and lives here; nothing is written.
    let code = unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut()) };
    check(code).map(drop)
}

/// `umask(2)`, which cannot fail and looks at nine bits.
pub(in crate::sys) fn set_umask(mask: u32) {
    const LOOKED_AT: u32 = 0o777;
    let mask = libc::mode_t::try_from(mask & LOOKED_AT).unwrap_or(libc::mode_t::MAX);
    // SAFETY: the call takes an integer.
    let _before = unsafe { libc::umask(mask) };
}
