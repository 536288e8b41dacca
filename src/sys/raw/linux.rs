//! The calls between fork and exec that only Linux has, or has in a way of its own.

use std::io;
use std::ptr;

use libc::c_long;

use super::check;

/// The highest signal number.
const LAST_SIGNAL: i32 = 64;

/// The kernel's own layout of a disposition, all zero: the default, no flags, an empty mask.
const DEFAULT_DISPOSITION: [u64; 4] = [0; 4];

/// The size of the kernel's signal set in bytes.
const SIGNAL_SET: usize = 8;

fn check_long(code: c_long) -> io::Result<()> {
    if code < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// `close_range(2)`.
pub(in crate::sys) fn close_range(first: i32, last: i32) -> io::Result<()> {
    let (first, last) = (first.cast_unsigned(), last.cast_unsigned());
    // SAFETY: the call takes integers. The child owns its whole table.
    let code = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    check_long(code)
}

/// `prlimit(2)` of this process, raw: `u64::MAX` is no limit on every platform.
pub(in crate::sys) fn set_limit(resource: u32, soft: u64, hard: u64) -> io::Result<()> {
    let limit = [soft, hard];
    let nothing = ptr::null::<u64>();
    // SAFETY: the kernel reads two 64-bit numbers, which live here, and writes nothing.
    let code = unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, limit.as_ptr(), nothing) };
    check_long(code)
}

/// `setgroups(2)`.
pub(in crate::sys) fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the list is readable for its length.
    let code = unsafe { libc::setgroups(groups.len(), groups.as_ptr()) };
    check(code).map(drop)
}

/// `setresgid(2)`.
pub(in crate::sys) fn set_gid(gid: u32) -> io::Result<()> {
    // SAFETY: the call takes integers.
    let code = unsafe { libc::setresgid(gid, gid, gid) };
    check(code).map(drop)
}

/// `setresuid(2)`.
pub(in crate::sys) fn set_uid(uid: u32) -> io::Result<()> {
    // SAFETY: the call takes integers.
    let code = unsafe { libc::setresuid(uid, uid, uid) };
    check(code).map(drop)
}

/// `prctl(2)` with `PR_SET_NO_NEW_PRIVS`.
pub(in crate::sys) fn set_no_new_privs() -> io::Result<()> {
    // SAFETY: the option takes integers.
    let code = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1_u64, 0_u64, 0_u64, 0_u64) };
    check(code).map(drop)
}

/// `prctl(2)` with `PR_SET_PDEATHSIG`.
pub(in crate::sys) fn set_death_signal(number: i32) -> io::Result<()> {
    // SAFETY: the option takes an integer.
    let code = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, number) };
    check(code).map(drop)
}

/// `rt_sigaction(2)` for every signal, raw: the C library hides two of its own, which can be
/// ignored all the same. KILL and STOP refuse, and have the default anyway.
pub(in crate::sys) fn restore_dispositions() {
    for number in 1..=LAST_SIGNAL {
        let (new, old) = (DEFAULT_DISPOSITION.as_ptr(), ptr::null_mut::<u64>());
        // SAFETY: the kernel reads at most four words, which are there, and writes nothing.
        let _kill_and_stop =
            unsafe { libc::syscall(libc::SYS_rt_sigaction, number, new, old, SIGNAL_SET) };
    }
}

/// `rt_sigprocmask(2)` of the calling thread, raw.
pub(in crate::sys) fn set_mask(mask: u64) -> io::Result<()> {
    let (new, old) = (&raw const mask, ptr::null_mut::<u64>());
    // SAFETY: the kernel reads eight bytes, which live here, and writes nothing.
    let code = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            new,
            old,
            SIGNAL_SET,
        )
    };
    check_long(code)
}

/// `umask(2)`, which cannot fail.
pub(in crate::sys) fn set_umask(mask: u32) {
    // SAFETY: the call takes an integer.
    let _before = unsafe { libc::umask(mask) };
}
