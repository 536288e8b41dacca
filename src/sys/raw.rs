//! The calls between fork and exec, one wrapper each: nothing here allocates, locks or panics.

use std::ffi::CStr;
use std::io;
use std::ptr;

use libc::{c_char, c_int, c_long};

/// The highest signal number.
const LAST_SIGNAL: i32 = 64;

/// The kernel's own layout of a disposition, all zero: the default, no flags, an empty mask.
const DEFAULT_DISPOSITION: [u64; 4] = [0; 4];

/// The size of the kernel's signal set in bytes.
const SIGNAL_SET: usize = 8;

fn check(code: c_int) -> io::Result<c_int> {
    if code < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(code)
    }
}

fn check_long(code: c_long) -> io::Result<()> {
    if code < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// `setsid(2)`.
pub(super) fn new_session() -> io::Result<()> {
    // SAFETY: the call takes nothing.
    let code = unsafe { libc::setsid() };
    check(code).map(drop)
}

/// `fcntl(2)` with `F_DUPFD_CLOEXEC`: a copy at this number or above.
pub(super) fn duplicate_from(number: i32, lowest: i32) -> io::Result<i32> {
    // SAFETY: the call takes integers.
    let code = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, lowest) };
    check(code)
}

/// `dup2(2)`. Source and target differ, so that the copy is open across exec.
pub(super) fn duplicate_to(source: i32, target: i32) -> io::Result<()> {
    // SAFETY: the call takes integers. The child owns its whole table.
    let code = unsafe { libc::dup2(source, target) };
    check(code).map(drop)
}

/// `close(2)`. A number that is not open is closed.
pub(super) fn close(number: i32) {
    // SAFETY: the call takes an integer. The child owns its whole table.
    let _closed_already = unsafe { libc::close(number) };
}

/// `close_range(2)`.
pub(super) fn close_range(first: i32, last: i32) -> io::Result<()> {
    let (first, last) = (first.cast_unsigned(), last.cast_unsigned());
    // SAFETY: the call takes integers. The child owns its whole table.
    let code = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    check_long(code)
}

/// `ioctl(2)` with `TIOCSCTTY`, which steals nobody's terminal.
pub(super) fn take_terminal(number: i32) -> io::Result<()> {
    // SAFETY: the request takes an integer.
    let code = unsafe { libc::ioctl(number, libc::TIOCSCTTY, 0) };
    check(code).map(drop)
}

/// `fchdir(2)`.
pub(super) fn change_directory_to(number: i32) -> io::Result<()> {
    // SAFETY: the call takes an integer.
    let code = unsafe { libc::fchdir(number) };
    check(code).map(drop)
}

/// `chdir(2)`.
pub(super) fn change_directory(path: &CStr) -> io::Result<()> {
    // SAFETY: the path is a C string for the length of the call.
    let code = unsafe { libc::chdir(path.as_ptr()) };
    check(code).map(drop)
}

/// `umask(2)`, which cannot fail.
pub(super) fn set_umask(mask: u32) {
    // SAFETY: the call takes an integer.
    let _before = unsafe { libc::umask(mask) };
}

/// `prlimit(2)` of this process, raw: `u64::MAX` is no limit on every platform.
pub(super) fn set_limit(resource: u32, soft: u64, hard: u64) -> io::Result<()> {
    let limit = [soft, hard];
    let nothing = ptr::null::<u64>();
    // SAFETY: the kernel reads two 64-bit numbers, which live here, and writes nothing.
    let code = unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, limit.as_ptr(), nothing) };
    check_long(code)
}

/// `setpriority(2)` of this process.
pub(super) fn set_nice(value: i32) -> io::Result<()> {
    // SAFETY: the call takes integers.
    let code = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, value) };
    check(code).map(drop)
}

/// `open(2)` for writing.
pub(super) fn open_to_write(path: &CStr) -> io::Result<i32> {
    // SAFETY: the path is a C string for the length of the call.
    let code = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    check(code)
}

/// `write(2)`. What is written here fits into a pipe at once.
pub(super) fn write(number: i32, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the buffer is readable for its length.
    let code = unsafe { libc::write(number, bytes.as_ptr().cast(), bytes.len()) };
    if code < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// `read(2)` of one byte; false at end-of-file. No signal interrupts it: all are blocked.
pub(super) fn read_byte(number: i32) -> io::Result<bool> {
    let mut byte = 0_u8;
    // SAFETY: one byte is writable there.
    let count = unsafe { libc::read(number, (&raw mut byte).cast(), 1) };
    match count {
        0 => Ok(false),
        1.. => Ok(true),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `setgroups(2)`.
pub(super) fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the list is readable for its length.
    let code = unsafe { libc::setgroups(groups.len(), groups.as_ptr()) };
    check(code).map(drop)
}

/// `setresgid(2)`.
pub(super) fn set_gid(gid: u32) -> io::Result<()> {
    // SAFETY: the call takes integers.
    let code = unsafe { libc::setresgid(gid, gid, gid) };
    check(code).map(drop)
}

/// `setresuid(2)`.
pub(super) fn set_uid(uid: u32) -> io::Result<()> {
    // SAFETY: the call takes integers.
    let code = unsafe { libc::setresuid(uid, uid, uid) };
    check(code).map(drop)
}

/// `geteuid(2)`.
pub(super) fn effective_uid() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// `getppid(2)`.
pub(super) fn parent() -> i32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::getppid() }
}

/// `prctl(2)` with `PR_SET_NO_NEW_PRIVS`.
pub(super) fn set_no_new_privs() -> io::Result<()> {
    // SAFETY: the option takes integers.
    let code = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1_u64, 0_u64, 0_u64, 0_u64) };
    check(code).map(drop)
}

/// `prctl(2)` with `PR_SET_PDEATHSIG`.
pub(super) fn set_death_signal(number: i32) -> io::Result<()> {
    // SAFETY: the option takes an integer.
    let code = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, number) };
    check(code).map(drop)
}

/// `rt_sigaction(2)` for every signal, raw: the C library hides two of its own, which can be
/// ignored all the same. KILL and STOP refuse, and have the default anyway.
pub(super) fn restore_dispositions() {
    for number in 1..=LAST_SIGNAL {
        let (new, old) = (DEFAULT_DISPOSITION.as_ptr(), ptr::null_mut::<u64>());
        // SAFETY: the kernel reads at most four words, which are there, and writes nothing.
        let _kill_and_stop =
            unsafe { libc::syscall(libc::SYS_rt_sigaction, number, new, old, SIGNAL_SET) };
    }
}

/// `rt_sigprocmask(2)` of the calling thread, raw.
pub(super) fn set_mask(mask: u64) -> io::Result<()> {
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

/// `faccessat(2)`: whether a file is there.
pub(super) fn is_there(path: &CStr) -> bool {
    // SAFETY: the path is a C string for the length of the call.
    let code = unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::F_OK, 0) };
    code == 0
}

/// `execve(2)`. Returns only where it failed.
///
/// # Safety
///
/// Both arrays are null-terminated arrays of C strings.
pub(super) unsafe fn execute(
    program: &CStr,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> io::Error {
    // SAFETY: the program is a C string, and the arrays are the caller's promise.
    let _failed = unsafe { libc::execve(program.as_ptr(), arguments, environment) };
    io::Error::last_os_error()
}

/// `_exit(2)`.
pub(super) fn exit(code: i32) -> ! {
    // SAFETY: the call takes an integer, runs no handler and does not return.
    unsafe { libc::_exit(code) }
}
