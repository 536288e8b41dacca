#![expect(unsafe_code, reason = "system calls that neither std nor nix offers")]
//! System calls that neither std nor nix offers.
//!
//! Each wrapper is one call and names it. Nothing here decides, waits or keeps a number, and
//! only [`kill_group`] and [`kill_process`] signal by number.

mod child;
mod exit;
#[cfg(target_os = "linux")]
mod linux;
mod orders;
#[cfg(not(target_os = "linux"))]
mod pidless;
mod raw;

use std::io;
use std::mem;

pub(crate) use child::start;
pub(crate) use exit::{Exited, Who, look, reap};
#[cfg(target_os = "linux")]
pub(crate) use linux::{
    Removal, arm_death_signal, duplicate, eventfd, is_secure, open_pidfd, remove_variable,
    signal_group, signal_process, signal_whole_group,
};
pub(crate) use orders::{Orders, Progress, Strings, Wire};
#[cfg(not(target_os = "linux"))]
pub(crate) use pidless::{open_pidfd, signal_process, signal_whole_group};

/// Signals the process group of a leader by its number (`kill(2)`). The caller holds the leader
/// unreaped and has checked the number.
///
/// # Errors
///
/// `ESRCH` where there is no such group; otherwise what the kernel says.
pub(crate) fn kill_group(leader: i32, signal: i32) -> io::Result<()> {
    kill(-leader, signal)
}

/// Signals one process by its number (`kill(2)`). The caller holds it unreaped and has checked
/// the number.
///
/// # Errors
///
/// What the kernel says.
pub(crate) fn kill_process(pid: i32, signal: i32) -> io::Result<()> {
    kill(pid, signal)
}

fn kill(target: i32, signal: i32) -> io::Result<()> {
    // SAFETY: the call takes two integers.
    let code = unsafe { libc::kill(target, signal) };
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

    #[test]
    fn an_empty_mask_reads_as_zero() {
        assert_eq!(blocked_signals().expect("the mask can be read") & 1, 0);
    }
}
