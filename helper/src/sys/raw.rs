//! System calls that `nix` has no safe wrapper for, or whose wrapper must not be used.
//!
//! No function here allocates, locks or panics, so that each may run between fork and exec.
//! The credential calls go to the kernel directly: those of the C library signal every other
//! thread, and a forked child has none.

use std::ffi::CStr;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use libc::{c_char, c_int, c_long, c_ulong, c_void};

/// `CLONE_CLEAR_SIGHAND` of `clone3(2)`, since Linux 5.5.
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;

/// `CLONE_INTO_CGROUP` of `clone3(2)`.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The size in bytes of the kernel's signal set.
const SIGNAL_SET: usize = mem::size_of::<u64>();

/// The highest signal number.
pub(super) const LAST_SIGNAL: c_int = 64;

/// `struct sched_attr` of `sched_setattr(2)`, in its first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scheduling {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// The slice in nanoseconds, for the ordinary policies since Linux 6.12; 0 is the usual one.
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl Scheduling {
    const EMPTY: Self = Self {
        size: 48,
        policy: 0,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime: 0,
        deadline: 0,
        period: 0,
    };

    /// The lowest place of those before all the ordinary ones (`SCHED_FIFO`).
    pub(super) fn before_everybody() -> Self {
        Self {
            policy: libc::SCHED_FIFO.unsigned_abs(),
            priority: 1,
            ..Self::EMPTY
        }
    }

    /// Whether it is `SCHED_OTHER`.
    pub(super) fn is_ordinary(&self) -> bool {
        self.policy == libc::SCHED_OTHER.unsigned_abs()
    }

    pub(super) fn slice(&self) -> u64 {
        self.runtime
    }

    #[cfg(test)]
    pub(super) fn with_policy(self, policy: c_int) -> Self {
        Self {
            policy: policy.unsigned_abs(),
            ..self
        }
    }

    pub(super) fn with_slice(self, nanoseconds: u64) -> Self {
        Self {
            runtime: nanoseconds,
            ..self
        }
    }
}

/// What a signal does to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    Default,
    Ignore,
}

/// `struct sigaction` as the kernel takes it.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: c_ulong,
    restorer: usize,
    mask: u64,
}

/// Who a fork returned to.
pub(super) enum Forked {
    /// The child.
    Child,
    /// The parent, with the child's number, and its pidfd where one was asked for.
    Parent { pid: i32, pidfd: Option<OwnedFd> },
}

/// What `waitid(2)` waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Who {
    /// Any child.
    Any,
    /// This child.
    Pid(i32),
}

/// A child that changed its state.
pub(super) struct Changed {
    /// `CLD_EXITED`, `CLD_KILLED` or `CLD_DUMPED`.
    pub(super) code: c_int,
    /// The exit code or the signal.
    pub(super) value: c_int,
    /// What it used.
    pub(super) usage: libc::rusage,
}

/// Turns -1 into the error that `errno` holds.
pub(super) fn check(result: c_long) -> io::Result<c_long> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn check_int(result: c_int) -> io::Result<c_int> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Repeats a call for as long as a signal interrupts it.
pub(super) fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            other => return other,
        }
    }
}

fn number_of(result: c_long) -> io::Result<i32> {
    i32::try_from(result).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))
}

/// `clone3(2)`, copy-on-write, with a pidfd and every handled signal back at its default;
/// inside a cgroup where one is given (`CLONE_INTO_CGROUP`, Linux 5.7).
pub(super) fn clone3(cgroup: Option<BorrowedFd<'_>>) -> io::Result<Forked> {
    let mut pidfd: c_int = -1;
    // SAFETY: clone_args is a plain C struct for which all-zero bytes are a valid value.
    let mut arguments: libc::clone_args = unsafe { mem::zeroed() };
    arguments.flags = u64::from(libc::CLONE_PIDFD.unsigned_abs()) | CLONE_CLEAR_SIGHAND;
    arguments.pidfd = (&raw mut pidfd).expose_provenance() as u64;
    arguments.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
    if let Some(cgroup) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = u64::from(cgroup.as_raw_fd().unsigned_abs());
    }
    let size = mem::size_of::<libc::clone_args>();
    // SAFETY: arguments is valid for its size; without CLONE_VM the child has memory and a
    // stack of its own, and it makes async-signal-safe calls only.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size) };
    forked(check(result)?, pidfd)
}

/// `clone3(2)` into namespaces of its own, with a pidfd; handlers stay as they are.
pub(super) fn clone3_isolated(namespaces: c_int) -> io::Result<Forked> {
    let mut pidfd: c_int = -1;
    // SAFETY: clone_args is a plain C struct for which all-zero bytes are a valid value.
    let mut arguments: libc::clone_args = unsafe { mem::zeroed() };
    arguments.flags = u64::from((libc::CLONE_PIDFD | namespaces).unsigned_abs());
    arguments.pidfd = (&raw mut pidfd).expose_provenance() as u64;
    arguments.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
    let size = mem::size_of::<libc::clone_args>();
    // SAFETY: arguments is valid for its size; without CLONE_VM the child has memory and a
    // stack of its own. The caller sees to it that no other thread holds a lock.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size) };
    forked(check(result)?, pidfd)
}

/// `clone(2)` as `fork(2)` does it, without the handlers of `pthread_atfork(3)`; with a pidfd
/// where `with_pidfd` is true (`CLONE_PIDFD`, Linux 5.2).
pub(super) fn clone_plain(with_pidfd: bool) -> io::Result<Forked> {
    let mut pidfd: c_int = -1;
    let wanted = if with_pidfd { libc::CLONE_PIDFD } else { 0 };
    let flags = c_long::from(libc::SIGCHLD | wanted);
    let place = &raw mut pidfd;
    let none = ptr::null_mut::<c_void>();
    // SAFETY: place is valid for one number; without CLONE_VM the child has memory and a stack
    // of its own, and it makes async-signal-safe calls only.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags, none, place, none, none) };
    forked(check(result)?, pidfd)
}

fn forked(result: c_long, pidfd: c_int) -> io::Result<Forked> {
    if result == 0 {
        return Ok(Forked::Child);
    }
    let pidfd = if pidfd < 0 {
        None
    } else {
        // SAFETY: the kernel has just made this descriptor for this call.
        Some(unsafe { OwnedFd::from_raw_fd(pidfd) })
    };
    Ok(Forked::Parent {
        pid: number_of(result)?,
        pidfd,
    })
}

/// `pause(2)`.
pub(super) fn pause() {
    // SAFETY: the call takes nothing.
    unsafe { libc::pause() };
}

/// `pidfd_open(2)`.
pub(super) fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers only.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, c_long::from(pid), 0_u64) };
    let number = number_of(check(result)?)?;
    // SAFETY: the kernel has just made this descriptor for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// `pidfd_send_signal(2)`, without siginfo.
pub(super) fn pidfd_send_signal(pidfd: BorrowedFd<'_>, number: i32, flags: u32) -> io::Result<()> {
    let target = c_long::from(pidfd.as_raw_fd());
    let signal = c_long::from(number);
    let none = ptr::null::<c_void>();
    let flags = c_long::from(flags);
    // SAFETY: a null siginfo is allowed; the other arguments are numbers.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, target, signal, none, flags) };
    check(result).map(drop)
}

/// `kill(2)`. The caller has checked `id` with `signalable`.
pub(super) fn kill(id: i32, number: i32) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    check_int(unsafe { libc::kill(id, number) }).map(drop)
}

/// `waitid(2)` with its fifth argument, which the C library does not pass on. `None` where
/// nothing has changed.
pub(super) fn waitid(who: Who, options: c_int) -> io::Result<Option<Changed>> {
    let (kind, id) = match who {
        Who::Any => (libc::P_ALL, 0),
        Who::Pid(pid) => (libc::P_PID, pid),
    };
    // SAFETY: siginfo_t is a plain C struct for which all-zero bytes are a valid value.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    // SAFETY: rusage is a plain C struct for which all-zero bytes are a valid value.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    retry(|| {
        let (info, usage) = (&raw mut info, &raw mut usage);
        let (kind, id) = (c_long::from(kind), c_long::from(id));
        let options = c_long::from(options);
        // SAFETY: info and usage are valid for what the kernel writes.
        check(unsafe { libc::syscall(libc::SYS_waitid, kind, id, info, options, usage) })
    })?;
    // SAFETY: the kernel has filled in the fields of a child, or left them zero.
    let pid = unsafe { info.si_pid() };
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel has filled in the fields of a child.
    let value = unsafe { info.si_status() };
    Ok(Some(Changed {
        code: info.si_code,
        value,
        usage,
    }))
}

/// `close_range(2)`: closes every descriptor from `first` to `last`.
pub(super) fn close_range(first: u32, last: u32) -> io::Result<()> {
    let (first, last) = (c_long::from(first), c_long::from(last));
    // SAFETY: the call takes numbers only; the caller owns or has given up what it closes.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0 as c_long) }).map(drop)
}

/// `close(2)`. Its result says nothing that can be acted on: the number is free either way.
pub(super) fn close(number: i32) {
    // SAFETY: the caller owns or has given up what it closes.
    let _ = unsafe { libc::close(number) };
}

/// `dup2(2)`: the copy stays open across exec.
pub(super) fn dup2(source: i32, target: i32) -> io::Result<()> {
    // SAFETY: the call takes numbers only; the caller has given up what `target` was.
    retry(|| check_int(unsafe { libc::dup2(source, target) })).map(drop)
}

/// `F_DUPFD_CLOEXEC`: a copy at the lowest free number from `floor` on, closed by exec.
pub(super) fn duplicate_from(source: i32, floor: i32) -> io::Result<i32> {
    // SAFETY: the call takes numbers only.
    check_int(unsafe { libc::fcntl(source, libc::F_DUPFD_CLOEXEC, floor) })
}

/// Opens a file for writing, closed by exec (`open(2)`).
pub(super) fn open_to_write(path: &CStr) -> io::Result<i32> {
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    // SAFETY: path ends with a NUL.
    retry(|| check_int(unsafe { libc::open(path.as_ptr(), flags) }))
}

/// `write(2)`.
pub(super) fn write(number: i32, bytes: &[u8]) -> io::Result<usize> {
    let start = bytes.as_ptr().cast::<c_void>();
    retry(|| {
        // SAFETY: start is valid for the length of bytes.
        let count = unsafe { libc::write(number, start, bytes.len()) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    })
}

/// `read(2)`.
pub(super) fn read(number: i32, bytes: &mut [u8]) -> io::Result<usize> {
    retry(|| {
        let start = bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: start is valid for the length of bytes.
        let count = unsafe { libc::read(number, start, bytes.len()) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    })
}

/// `rt_sigaction(2)`: also the two signals that the C library keeps for itself.
pub(super) fn set_disposition(number: c_int, disposition: Disposition) -> io::Result<()> {
    let handler = match disposition {
        Disposition::Default => libc::SIG_DFL,
        Disposition::Ignore => libc::SIG_IGN,
    };
    let action = KernelAction {
        handler,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    let action = &raw const action;
    let old = ptr::null_mut::<c_void>();
    let number = c_long::from(number);
    // SAFETY: action is what the kernel takes; without a handler it needs no restorer.
    let result = unsafe { libc::syscall(libc::SYS_rt_sigaction, number, action, old, SIGNAL_SET) };
    check(result).map(drop)
}

/// `rt_sigprocmask(2)`: sets the mask of the calling thread, bit `n - 1` for signal `n`.
pub(super) fn set_mask(mask: u64) -> io::Result<()> {
    let set = &raw const mask;
    let old = ptr::null_mut::<c_void>();
    let how = c_long::from(libc::SIG_SETMASK);
    // SAFETY: set is valid for the size of the kernel's set.
    let result = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, set, old, SIGNAL_SET) };
    check(result).map(drop)
}

/// `prlimit64(2)` on this process.
pub(super) fn set_limit(resource: u32, soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit64 {
        rlim_cur: soft,
        rlim_max: hard,
    };
    let limit = &raw const limit;
    let old = ptr::null_mut::<c_void>();
    let resource = c_long::from(resource);
    // SAFETY: limit is valid for reading.
    let result = unsafe { libc::syscall(libc::SYS_prlimit64, 0 as c_long, resource, limit, old) };
    check(result).map(drop)
}

/// `setpriority(2)` on this process.
pub(super) fn set_nice(nice: i32) -> io::Result<()> {
    let (which, nice) = (0 as c_long, c_long::from(nice));
    // SAFETY: the call takes numbers only; 0 is PRIO_PROCESS, then the calling process.
    check(unsafe { libc::syscall(libc::SYS_setpriority, which, 0 as c_long, nice) }).map(drop)
}

/// `sched_getattr(2)` of the calling thread.
pub(super) fn scheduling() -> io::Result<Scheduling> {
    let mut found = Scheduling::EMPTY;
    let (own, flags) = (0 as c_long, 0 as c_long);
    let (place, size) = (&raw mut found, c_long::from(found.size));
    // SAFETY: the kernel writes at most `size` bytes, and `found` has as many.
    check(unsafe { libc::syscall(libc::SYS_sched_getattr, own, place, size, flags) })?;
    // A flag of its own would be set again with the rest.
    Ok(Scheduling { size: 48, ..found })
}

/// `sched_setattr(2)` of the calling thread.
pub(super) fn set_scheduling(wanted: &Scheduling) -> io::Result<()> {
    let (own, flags) = (0 as c_long, 0 as c_long);
    let place = ptr::from_ref(wanted);
    // SAFETY: the kernel reads `size` bytes of it, which is its size.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, own, place, flags) }).map(drop)
}

/// `setgroups(2)`.
pub(super) fn set_groups(groups: &[u32]) -> io::Result<()> {
    let start = groups.as_ptr();
    // SAFETY: start is valid for the length of groups.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), start) }).map(drop)
}

/// `setresgid(2)`, all three.
pub(super) fn set_gid(gid: u32) -> io::Result<()> {
    let id = c_long::from(gid);
    // SAFETY: the call takes numbers only.
    check(unsafe { libc::syscall(libc::SYS_setresgid, id, id, id) }).map(drop)
}

/// `setresuid(2)`, all three.
pub(super) fn set_uid(uid: u32) -> io::Result<()> {
    let id = c_long::from(uid);
    // SAFETY: the call takes numbers only.
    check(unsafe { libc::syscall(libc::SYS_setresuid, id, id, id) }).map(drop)
}

/// `PR_SET_PDEATHSIG`.
pub(super) fn set_death_signal(number: i32) -> io::Result<()> {
    let number = c_long::from(number);
    // SAFETY: the call takes numbers only.
    check_int(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, number) }).map(drop)
}

/// Makes a terminal the controlling one of this session (`TIOCSCTTY`, never stolen).
pub(super) fn set_controlling_terminal(number: i32) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    check_int(unsafe { libc::ioctl(number, libc::TIOCSCTTY, 0) }).map(drop)
}

/// `fchdir(2)`.
pub(super) fn change_directory_to(number: i32) -> io::Result<()> {
    // SAFETY: the call takes a number only.
    retry(|| check_int(unsafe { libc::fchdir(number) })).map(drop)
}

/// `chdir(2)`.
pub(super) fn change_directory(path: &CStr) -> io::Result<()> {
    // SAFETY: path ends with a NUL.
    retry(|| check_int(unsafe { libc::chdir(path.as_ptr()) })).map(drop)
}

/// `umask(2)`.
pub(super) fn set_umask(mask: u32) {
    // SAFETY: the call takes a number only. The old mask is of no use.
    let _ = unsafe { libc::umask(mask) };
}

/// Whether a file is there (`faccessat(2)`, `F_OK`).
pub(super) fn is_there(path: &CStr) -> bool {
    // SAFETY: path ends with a NUL.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::F_OK, 0) == 0 }
}

/// `execve(2)`: returns only when it failed.
///
/// # Safety
///
/// `arguments` and `environment` are null-terminated arrays of C strings.
pub(super) unsafe fn execute(
    path: &CStr,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> io::Error {
    // SAFETY: path ends with a NUL, and the caller vouches for the arrays.
    let _ = unsafe { libc::execve(path.as_ptr(), arguments, environment) };
    io::Error::last_os_error()
}

/// `_exit(2)`.
pub(super) fn exit(code: c_int) -> ! {
    // SAFETY: the call ends the process at once and runs nothing of it.
    unsafe { libc::_exit(code) }
}
