//! What another process of the same user can change of this one, and whom it forks inherits.
//!
//! A keeper that serves one session after the other compares it between them: what one session
//! has done to its keeper must not reach the next.

use std::fs;
use std::io;
use std::mem;

use libc::c_long;

use super::raw::check;

/// The limits that Linux has (`getrlimit(2)`), by number.
const LIMITS: u32 = 16;

/// `IOPRIO_WHO_PROCESS` of `ioprio_get(2)`; the C library has no wrapper.
const IOPRIO_WHO_PROCESS: c_long = 1;

/// The condition of a process. What cannot be read counts as a value of its own, so that it is
/// equal to itself alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// `prlimit(2)`.
    limits: Vec<(u64, u64)>,
    /// `setpriority(2)`, `sched_setscheduler(2)`, `ioprio_set(2)`.
    priorities: [Option<c_long>; 3],
    /// `sched_setaffinity(2)`.
    cpus: [u64; 128],
    /// Which cgroups it is in.
    cgroups: Vec<u8>,
}

impl Condition {
    /// Reads the condition of this process.
    ///
    /// # Errors
    ///
    /// What the kernel says of its limits.
    pub(crate) fn read() -> io::Result<Self> {
        let limits = (0..LIMITS).map(limit).collect::<io::Result<_>>()?;
        let mut cpus = [0_u64; 128];
        let size = mem::size_of_val(&cpus);
        let place = cpus.as_mut_ptr();
        // SAFETY: the kernel writes at most `size` bytes, and `cpus` has as many. A kernel with
        // more processors refuses, which leaves zeros.
        let _unread =
            unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0 as c_long, size, place) };
        Ok(Self {
            limits,
            priorities: priorities(),
            cpus,
            // A kernel without cgroups has none to change.
            cgroups: fs::read("/proc/self/cgroup").unwrap_or_default(),
        })
    }
}

fn limit(number: u32) -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let (number, none) = (c_long::from(number), 0 as c_long);
    let place = &raw mut limit;
    // SAFETY: place is valid for what the kernel writes; no new limit is given.
    check(unsafe { libc::syscall(libc::SYS_prlimit64, 0 as c_long, number, none, place) })?;
    Ok((limit.rlim_cur, limit.rlim_max))
}

fn priorities() -> [Option<c_long>; 3] {
    let (own, process) = (0 as c_long, c_long::from(libc::PRIO_PROCESS));
    // SAFETY: the call takes numbers only.
    let nice = unsafe { libc::syscall(libc::SYS_getpriority, process, own) };
    // SAFETY: the call takes a number only.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, own) };
    // SAFETY: the call takes numbers only.
    let io = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, own) };
    [nice, policy, io].map(|value| (value >= 0).then_some(value))
}

#[cfg(test)]
mod tests {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    use super::*;

    #[test]
    fn a_limit_that_is_changed_is_another_condition() {
        let before = Condition::read().unwrap();
        assert_eq!(Condition::read().unwrap(), before);
        let (soft, hard) = getrlimit(Resource::RLIMIT_CORE).unwrap();
        setrlimit(Resource::RLIMIT_CORE, soft ^ 1, hard.max(1)).unwrap();
        let after = Condition::read().unwrap();
        setrlimit(Resource::RLIMIT_CORE, soft, hard).unwrap();
        assert_ne!(after, before);
    }
}
