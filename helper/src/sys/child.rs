//! What runs between fork and exec.
//!
//! The child is a copy of the forking thread alone: whatever lock another thread held stays
//! locked for ever. So nothing here allocates, locks or panics, and these are all the calls
//! that it makes, through `raw` and `nix`:
//!
//! `setsid`, `write`, `fcntl(F_DUPFD_CLOEXEC)`, `dup2`, `close_range`, `close`,
//! `ioctl(TIOCSCTTY)`, `prctl` (`PR_SET_DUMPABLE`, `PR_SET_NO_NEW_PRIVS`, `PR_SET_PDEATHSIG`),
//! `fchdir`, `chdir`, `umask`, `open`, `prlimit64`, `sched_setattr`, `setpriority`, `setgroups`,
//! `setresgid`, `geteuid`, `setresuid`, `read`, `getppid`, `rt_sigaction`, `rt_sigprocmask`,
//! `execve`, `faccessat`, `pause`, `_exit`.
//!
//! Every signal stays blocked until the command's own mask is set, right before exec.

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

use foster_protocol::Step;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{geteuid, getppid, setsid, write};

use super::kernel::Features;
use super::plan::{Orders, Wire};
use super::progress::Progress;
use super::raw::{self, Disposition};

/// The file that takes the OOM score adjustment.
const OOM_SCORE_ADJ: &CStr = c"/proc/self/oom_score_adj";

/// What the child exits with when it fails. Nobody reads it: the status pipe says more.
const FAILED: i32 = 127;

/// What a spawn knows beside its plan.
pub(super) struct Surroundings {
    /// The place of the status pipe.
    pub(super) status: usize,
    /// The place of the gate.
    pub(super) gate: Option<usize>,
    /// What the kernel offers.
    pub(super) features: Features,
    /// The highest descriptor that was open at the fork; needed without `close_range`.
    pub(super) highest: i32,
    /// The helper.
    pub(super) helper_pid: i32,
}

/// Says by one byte that it runs, and sleeps until it is killed, no longer than its parent lives.
pub(super) fn sleep(word: BorrowedFd<'_>) -> ! {
    // Without a death signal it still dies with its cgroup, which is what it is for.
    let _second_line = prctl::set_pdeathsig(Signal::SIGKILL);
    // Unsaid, it counts as one that has not run.
    let _unsaid = write(word, b"1");
    loop {
        raw::pause();
    }
}

/// A step that failed.
type Failure = (Step, io::Error);

/// Runs the child's steps and the program.
pub(super) fn run(orders: &mut Orders, surroundings: &Surroundings) -> ! {
    let (step, error) = match prepare(orders, surroundings) {
        Ok(()) => execute(orders, surroundings),
        Err(failure) => failure,
    };
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    report(orders, surroundings, Progress::Failed { step, errno });
    raw::exit(FAILED)
}

/// The order matters:
/// 1. The session comes first and is reported at once: until then its group cannot be
///    signalled.
/// 2. Descriptors are laid out and all others closed before any call that can block, so that a
///    child that hangs holds nothing of its siblings or of the helper.
/// 3. The terminal is one of the laid out descriptors.
/// 4. Dumpable comes after the helper's descriptors are gone, and before files of
///    `/proc/self`, which belong to root until then.
/// 5. Credentials come after everything that needs privileges.
/// 6. The gate comes when nothing but exec can fail any more; the kernel disarms a death
///    signal when credentials change, so it is armed after them.
fn prepare(orders: &mut Orders, surroundings: &Surroundings) -> Result<(), Failure> {
    setsid().map_err(|errno| (Step::Session, errno.into()))?;
    lay_out(orders, surroundings).map_err(at(Step::Descriptors))?;
    if let Some(terminal) = orders.controlling_terminal {
        raw::set_controlling_terminal(terminal).map_err(at(Step::ControllingTerminal))?;
    }
    prctl::set_dumpable(true).map_err(|errno| (Step::Descriptors, errno.into()))?;
    enter_directory(orders).map_err(at(Step::Directory))?;
    if let Some(mask) = orders.umask {
        raw::set_umask(mask);
    }
    limit(orders)?;
    change_credentials(orders)?;
    if orders.no_new_privs {
        prctl::set_no_new_privs().map_err(|errno| (Step::NoNewPrivs, errno.into()))?;
    }
    if let Some(gate) = surroundings.gate {
        report(orders, surroundings, Progress::Waiting);
        wait_at(number(orders, gate)).map_err(at(Step::Gate))?;
    }
    bind_to_helper(orders, surroundings).map_err(at(Step::DeathSignal))
}

fn at(step: Step) -> impl FnOnce(io::Error) -> Failure {
    move |error| (step, error)
}

/// The number of a place; -1 for one that does not exist, which every call refuses.
fn number(orders: &Orders, place: usize) -> i32 {
    orders.places.get(place).copied().unwrap_or(-1)
}

fn report(orders: &Orders, surroundings: &Surroundings, progress: Progress) {
    // A helper that no longer reads is dead: `bind_to_helper` and the gate see that.
    let _ = raw::write(number(orders, surroundings.status), &progress.encode());
}

/// Moves every place out of the way of the targets, then copies each to its target, then
/// closes the rest. Swaps, overlaps and a target at its own source need no care then.
fn lay_out(orders: &mut Orders, surroundings: &Surroundings) -> io::Result<()> {
    let mut highest = surroundings.highest;
    for place in &mut orders.places {
        if is_target(&orders.wires, *place) {
            *place = move_away(*place, &orders.wires)?;
            highest = highest.max(*place);
        }
    }
    for wire in &orders.wires {
        raw::dup2(number(orders, wire.place), wire.target)?;
        highest = highest.max(wire.target);
    }
    close_others(orders, surroundings, highest)
}

fn is_target(wires: &[Wire], number: i32) -> bool {
    wires
        .binary_search_by_key(&number, |wire| wire.target)
        .is_ok()
}

/// Copies a descriptor to a number that is no target. Copies that landed on one are
/// overwritten when the target is made.
fn move_away(source: i32, wires: &[Wire]) -> io::Result<i32> {
    let mut number = raw::duplicate_from(source, 0)?;
    while is_target(wires, number) {
        number = raw::duplicate_from(source, number.saturating_add(1))?;
    }
    Ok(number)
}

/// Closes everything but the targets and the child's own three.
fn close_others(orders: &Orders, surroundings: &Surroundings, highest: i32) -> io::Result<()> {
    let own = [Some(surroundings.status), surroundings.gate, orders.base]
        .map(|place| place.map_or(-1, |place| number(orders, place)));
    let mut start = 0;
    loop {
        let after = orders.wires.partition_point(|wire| wire.target < start);
        let target = orders.wires.get(after).map(|wire| wire.target);
        let kept = own.iter().copied().filter(|&number| number >= start).min();
        let next = match (target, kept) {
            (Some(target), Some(kept)) => target.min(kept),
            (Some(next), None) | (None, Some(next)) => next,
            (None, None) => return close_between(start, i32::MAX, surroundings, highest),
        };
        close_between(start, next.saturating_sub(1), surroundings, highest)?;
        start = next.saturating_add(1);
    }
}

fn close_between(
    first: i32,
    last: i32,
    surroundings: &Surroundings,
    highest: i32,
) -> io::Result<()> {
    if first > last {
        return Ok(());
    }
    if surroundings.features.close_range {
        return raw::close_range(first.cast_unsigned(), last.cast_unsigned());
    }
    (first..=last.min(highest)).for_each(raw::close);
    Ok(())
}

fn enter_directory(orders: &Orders) -> io::Result<()> {
    if let Some(base) = orders.base {
        let base = number(orders, base);
        raw::change_directory_to(base)?;
        raw::close(base);
    }
    match &orders.directory {
        Some(directory) => raw::change_directory(directory),
        None => Ok(()),
    }
}

/// The OOM file is opened before the limits, which may leave no descriptor for it.
fn limit(orders: &Orders) -> Result<(), Failure> {
    let oom = match &orders.oom_score_adj {
        Some(oom) => match raw::open_to_write(OOM_SCORE_ADJ) {
            Ok(file) => Some((file, &oom.text)),
            // Without `/proc` the command keeps the helper's, and lives on.
            Err(error) if oom.is_reset && error.raw_os_error() == Some(libc::ENOENT) => None,
            Err(error) => return Err((Step::OomScore, error)),
        },
        None => None,
    };
    for limit in &orders.resource_limits {
        raw::set_limit(limit.resource, limit.soft, limit.hard).map_err(at(Step::ResourceLimits))?;
    }
    if let Some(scheduling) = &orders.scheduling {
        raw::set_scheduling(scheduling).map_err(at(Step::Nice))?;
    }
    if let Some(nice) = orders.nice {
        raw::set_nice(nice).map_err(at(Step::Nice))?;
    }
    if let Some((file, text)) = oom {
        raw::write(file, text).map_err(at(Step::OomScore))?;
        raw::close(file);
    }
    Ok(())
}

/// Groups, then gid, then uid: each needs the privileges that the next one gives up.
///
/// Where a uid is set and no groups are, the helper's own are given up, so that a command does
/// not keep those of a more privileged user. An unprivileged helper cannot, and can then only
/// become whom it is already.
fn change_credentials(orders: &Orders) -> Result<(), Failure> {
    let before = geteuid().as_raw();
    let mut kept_groups = None;
    match (&orders.groups, orders.uid) {
        (Some(groups), _) => raw::set_groups(groups).map_err(at(Step::Groups))?,
        (None, Some(_)) => kept_groups = raw::set_groups(&[]).err(),
        (None, None) => {}
    }
    if let Some(gid) = orders.gid {
        raw::set_gid(gid).map_err(at(Step::Gid))?;
    }
    let Some(uid) = orders.uid else { return Ok(()) };
    raw::set_uid(uid).map_err(at(Step::Uid))?;
    match kept_groups {
        Some(error) if uid != before => Err((Step::Groups, error)),
        Some(_) | None => Ok(()),
    }
}

/// Waits for the byte that opens the gate.
fn wait_at(gate: i32) -> io::Result<()> {
    match raw::read(gate, &mut [0_u8])? {
        0 => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
        _ => Ok(()),
    }
}

/// Arms the death signal, then looks whether the helper had died before: the signal comes only
/// for a death that follows.
fn bind_to_helper(orders: &Orders, surroundings: &Surroundings) -> io::Result<()> {
    if orders.death_signal != 0 {
        raw::set_death_signal(orders.death_signal)?;
    }
    if getppid().as_raw() == surroundings.helper_pid {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// Restores the dispositions, says so, sets the mask, and runs the first candidate that is
/// there. Returns only when none could be run.
fn execute(orders: &Orders, surroundings: &Surroundings) -> Failure {
    if let Err(error) = restore_dispositions(surroundings) {
        return (Step::Exec, error);
    }
    report(orders, surroundings, Progress::Executing);
    if let Err(error) = raw::set_mask(orders.blocked) {
        return (Step::Exec, error);
    }
    let mut remembered = None;
    let mut missing = libc::ENOENT;
    for candidate in &orders.candidates {
        let (arguments, environment) = (orders.arguments.as_ptr(), orders.environment.as_ptr());
        // SAFETY: both are null-terminated arrays of C strings, by the type `Strings`.
        let error = unsafe { raw::execute(candidate, arguments, environment) };
        match error.raw_os_error() {
            Some(libc::ENOENT) if raw::is_there(candidate) => {
                remembered = remembered.or(Some((Step::Interpreter, error)));
            }
            Some(libc::EACCES) => remembered = remembered.or(Some((Step::Exec, error))),
            // The next candidate may be there. Where there is none, this is the answer.
            Some(errno @ (libc::ENOENT | libc::ENOTDIR)) if orders.candidates.len() == 1 => {
                missing = errno;
            }
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            _ => return (Step::Exec, error),
        }
    }
    remembered.unwrap_or((Step::Exec, io::Error::from_raw_os_error(missing)))
}

/// The helper ignores SIGPIPE, and exec keeps what is ignored. Handlers are gone already where
/// `CLONE_CLEAR_SIGHAND` was there; elsewhere they must not run in the child.
fn restore_dispositions(surroundings: &Surroundings) -> io::Result<()> {
    if surroundings.features.clone3 {
        return raw::set_disposition(libc::SIGPIPE, Disposition::Default);
    }
    for number in 1..=raw::LAST_SIGNAL {
        if number != libc::SIGKILL && number != libc::SIGSTOP {
            raw::set_disposition(number, Disposition::Default)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
