#![expect(
    unsafe_code,
    reason = "pidfds, forks, dispositions and filters of the fixtures"
)]
//! The only unsafe code of the tests.
//!
//! Forking is for fixtures, which have one thread. Nothing here signals by number.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;

/// Which side of a fork this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// The parent, with the child's process id.
    Parent(i32),
    /// The child.
    Child,
}

/// A system call that a filter refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its number.
    pub number: libc::c_long,
    /// The error that it fails with.
    pub errno: i32,
    /// Only where the low half of this argument is not zero; always without it.
    pub unless_zero: Option<u8>,
}

/// Opens a pidfd (`pidfd_open(2)`).
///
/// # Errors
///
/// What the kernel says; `ESRCH` where there is no such process.
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and touches no memory.
    let number = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let number = RawFd::try_from(number).map_err(io::Error::other)?;
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just installed this descriptor and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Signals one process (`pidfd_send_signal(2)`).
///
/// # Errors
///
/// What the kernel says; `ESRCH` where the process is dead and reaped.
pub fn pidfd_signal(pidfd: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    let nothing: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: the descriptor is open while it is borrowed, and a null siginfo is allowed.
    let done = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            number,
            nothing,
            0,
        )
    };
    check(done)
}

/// The wait status that a process ended with, once somebody has reaped it (`PIDFD_GET_INFO` with
/// `PIDFD_INFO_EXIT`, Linux 6.15). None where it cannot be told: it is not reaped, or the kernel
/// does not keep it.
#[must_use]
pub fn wait_status(pidfd: BorrowedFd<'_>) -> Option<i32> {
    // SAFETY: the struct is made of integers alone, for all of which zero is a value.
    let mut info: libc::pidfd_info = unsafe { mem::zeroed() };
    info.mask = u64::from(libc::PIDFD_INFO_EXIT);
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes no more than the
    // struct, whose size is part of the request.
    let done = unsafe { libc::ioctl(pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) };
    let is_told = done == 0 && info.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0;
    is_told.then_some(info.exit_code)
}

/// Forks (`fork(2)`). Only for a process with one thread: both sides may then do anything.
///
/// # Errors
///
/// What the kernel says.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: the caller has one thread, so that no lock is held by a thread that is missing
    // in the child.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Makes a sibling: a child of this process's parent, with no exit signal (`clone(2)` with
/// `CLONE_PARENT`). Only for a process with one thread.
///
/// # Errors
///
/// What the kernel says; `EINVAL` for the first process of a pid namespace.
pub fn clone_sibling() -> io::Result<Fork> {
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: without CLONE_VM and with a null stack this is a fork; the caller has one thread.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::CLONE_PARENT,
            nothing,
            nothing,
            nothing,
            nothing,
        )
    };
    match i32::try_from(pid).map_err(io::Error::other)? {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Ignores a signal in this process (`signal(2)`).
///
/// # Errors
///
/// What the kernel says; `EINVAL` for KILL and STOP.
pub fn ignore(number: i32) -> io::Result<()> {
    dispose(number, libc::SIG_IGN)
}

/// Gives a signal its default disposition (`signal(2)`).
///
/// # Errors
///
/// What the kernel says; `EINVAL` for KILL and STOP.
pub fn default(number: i32) -> io::Result<()> {
    dispose(number, libc::SIG_DFL)
}

fn dispose(number: i32, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: SIG_IGN and SIG_DFL run no code of this process.
    let before = unsafe { libc::signal(number, handler) };
    if before == libc::SIG_ERR {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Has a command's process get a signal when the thread that forks it ends (`prctl(2)`), as
/// plainly as it is often done.
pub fn with_death_signal(command: &mut std::process::Command, number: i32) {
    let arm = move || {
        // SAFETY: this prctl takes integers only.
        let done = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, number, 0, 0, 0) };
        check(done.into())
    };
    arm_before_exec(command, arm);
}

#[expect(
    clippy::disallowed_methods,
    reason = "a control does what the library does not"
)]
fn arm_before_exec(
    command: &mut std::process::Command,
    arm: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: the closure of the one caller makes one async-signal-safe call.
    unsafe { command.pre_exec(arm) };
}

/// Ends the calling thread alone (`exit(2)`): where it is the main thread and others run, the
/// process is a zombie by `/proc` and alive. The process ends when the last thread does.
pub fn exit_thread() -> ! {
    // SAFETY: the thread ends here and its stack stays mapped, so no destructor is awaited
    // and no reference of another thread dangles.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("exit does not return")
}

/// Makes system calls fail in this process and everything that it starts (`seccomp(2)`).
///
/// # Errors
///
/// What the kernel says.
pub fn refuse_syscalls(refused: &[Refused]) -> io::Result<()> {
    let mut program = filter(refused)?;
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let filter = libc::sock_fprog {
        len: length,
        filter: program.as_mut_ptr(),
    };
    if install(&filter).is_ok() {
        return Ok(());
    }
    // Without CAP_SYS_ADMIN the kernel asks for no_new_privs first (seccomp(2)).
    // SAFETY: this prctl takes integers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    install(&filter)
}

fn install(filter: &libc::sock_fprog) -> io::Result<()> {
    let filter: *const libc::sock_fprog = filter;
    // SAFETY: the filter and its program are alive during the call; the kernel copies them.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, filter) })
}

/// Loads the number of the call and compares it with each refused one; the offsets are those
/// of `struct seccomp_data`.
fn filter(refused: &[Refused]) -> io::Result<Vec<libc::sock_filter>> {
    let load = to_u16(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS)?;
    let compare = to_u16(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K)?;
    let give = to_u16(libc::BPF_RET | libc::BPF_K)?;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let number =
        u32::try_from(mem::offset_of!(libc::seccomp_data, nr)).map_err(io::Error::other)?;
    let args = mem::offset_of!(libc::seccomp_data, args);
    let mut program = Vec::new();
    for call in refused {
        let refuse =
            libc::SECCOMP_RET_ERRNO | u32::try_from(call.errno).map_err(io::Error::other)?;
        let wanted = u32::try_from(call.number).map_err(io::Error::other)?;
        program.push(step(load, 0, 0, number));
        match call.unless_zero {
            None => program.push(step(compare, 0, 1, wanted)),
            Some(argument) => {
                let offset =
                    u32::try_from(args + usize::from(argument) * 8).map_err(io::Error::other)?;
                program.push(step(compare, 0, 3, wanted));
                program.push(step(load, 0, 0, offset));
                program.push(step(compare, 1, 0, 0));
            }
        }
        program.push(step(give, 0, 0, refuse));
    }
    program.push(step(give, 0, 0, libc::SECCOMP_RET_ALLOW));
    Ok(program)
}

fn to_u16(code: u32) -> io::Result<u16> {
    u16::try_from(code).map_err(io::Error::other)
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Lets the calling thread run before all the ordinary ones (`SCHED_FIFO`), or as they do, so that
/// what a peer takes is told from what this thread waits for a processor. It takes root.
///
/// # Errors
///
/// What the kernel says.
pub fn run_before_everybody(before: bool) -> io::Result<()> {
    let (policy, priority) = match before {
        true => (libc::SCHED_FIFO, 2),
        false => (libc::SCHED_OTHER, 0),
    };
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the parameters live for the call; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
