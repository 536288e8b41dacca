//! The calls between fork and exec, one wrapper each: nothing here allocates, locks or panics.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod posix;

use std::ffi::CStr;
use std::io;

use libc::{c_char, c_int};
#[cfg(target_os = "linux")]
pub(super) use linux::{
    close_range, restore_dispositions, set_death_signal, set_gid, set_groups, set_limit, set_mask,
    set_no_new_privs, set_uid, set_umask,
};
#[cfg(not(target_os = "linux"))]
pub(super) use posix::{
    close_range, restore_dispositions, set_death_signal, set_gid, set_groups, set_limit, set_mask,
    set_no_new_privs, set_uid, set_umask,
};

/// The request that makes a terminal the controlling one.
#[cfg(target_os = "linux")]
const TAKE_TERMINAL: libc::Ioctl = libc::TIOCSCTTY;
#[cfg(not(target_os = "linux"))]
const TAKE_TERMINAL: libc::c_ulong = libc::TIOCSCTTY as libc::c_ulong;

fn check(code: c_int) -> io::Result<c_int> {
    if code < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(code)
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

/// `ioctl(2)` with `TIOCSCTTY`, which steals nobody's terminal.
pub(super) fn take_terminal(number: i32) -> io::Result<()> {
    // SAFETY: the request takes an integer.
    let code = unsafe { libc::ioctl(number, TAKE_TERMINAL, 0) };
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
