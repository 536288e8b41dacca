//! What runs between fork and exec in a command that this process starts itself.
//!
//! The child is a copy of the forking thread alone: whatever lock another thread held stays
//! locked for ever. So nothing here allocates, locks or panics, and these are all the calls
//! that it makes, through `raw`:
//!
//! `read`, `setsid`, `write`, `fcntl(F_DUPFD_CLOEXEC)`, `dup2`, `close_range`, `close`,
//! `ioctl(TIOCSCTTY)`, `fchdir`, `chdir`, `umask`, `open`, `prlimit64`, `setpriority`,
//! `setgroups`, `setresgid`, `geteuid`, `setresuid`, `prctl` (`PR_SET_NO_NEW_PRIVS`,
//! `PR_SET_PDEATHSIG`), `getppid`, `rt_sigaction`, `rt_sigprocmask`, `execve`, `faccessat`,
//! `_exit`.
//!
//! Every signal stays blocked until the command's own mask is set, right before exec.

use std::ffi::CStr;
use std::io;

use foster_protocol::Step;

use super::orders::{Orders, Progress, Wire};
use super::raw;

/// The file that takes the OOM score adjustment.
const OOM_SCORE_ADJ: &CStr = c"/proc/self/oom_score_adj";

/// What the child exits with when it fails. Nobody reads it: the status pipe says more.
const FAILED: i32 = 127;

/// The death signal of a child at its gate. Without one, the end of its pipe has to do.
const AT_GATE: i32 = if cfg!(target_os = "linux") {
    libc::SIGKILL
} else {
    0
};

/// A step that failed.
type Failure = (Step, io::Error);

/// Forks a child that carries out the orders, and gives its process id (`fork(2)`). The calling
/// thread has every signal blocked, so that no handler of this process runs in the child.
///
/// # Errors
///
/// `EAGAIN` and `ENOMEM` where there is no room for a process.
pub(crate) fn start(orders: &mut Orders) -> io::Result<i32> {
    // SAFETY: the child runs `run` alone, which makes only async-signal-safe calls and never
    // returns.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => run(orders),
        pid => Ok(pid),
    }
}

fn run(orders: &mut Orders) -> ! {
    let (step, error) = match prepare(orders) {
        Ok(()) => execute(orders),
        Err(failure) => failure,
    };
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    report(orders, Progress::Failed { step, errno });
    raw::exit(FAILED)
}

/// The order matters:
/// 1. Nothing happens before the parent has a pidfd: where it ignores SIGCHLD, a child that
///    exits loses its number at once.
/// 2. The session comes before anything that can fail: it is what a group signal goes to.
/// 3. Descriptors are laid out and all others closed before any call that can block, so that a
///    child that hangs holds nothing of its siblings or of the host.
/// 4. The terminal is one of the laid out descriptors.
/// 5. Credentials come after everything that needs privileges.
/// 6. The gate comes when nothing but exec can fail any more; the kernel disarms a death
///    signal when credentials change, so it is armed after them.
fn prepare(orders: &mut Orders) -> Result<(), Failure> {
    wait_at(orders).map_err(at(Step::Fork))?;
    raw::new_session().map_err(at(Step::Session))?;
    lay_out(orders).map_err(at(Step::Descriptors))?;
    if let Some(terminal) = orders.terminal {
        raw::take_terminal(terminal).map_err(at(Step::ControllingTerminal))?;
    }
    enter_directory(orders).map_err(at(Step::Directory))?;
    if let Some(mask) = orders.umask {
        raw::set_umask(mask);
    }
    limit(orders)?;
    change_credentials(orders)?;
    if orders.no_new_privs {
        raw::set_no_new_privs().map_err(at(Step::NoNewPrivs))?;
    }
    if orders.gated {
        // A stranger may hold a copy of the other end, so that end-of-file does not come.
        bind_to_parent(orders, AT_GATE).map_err(at(Step::Gate))?;
        report(orders, Progress::Waiting);
        wait_at(orders).map_err(at(Step::Gate))?;
    }
    bind_to_parent(orders, orders.death_signal).map_err(at(Step::DeathSignal))
}

fn at(step: Step) -> impl FnOnce(io::Error) -> Failure {
    move |error| (step, error)
}

/// The number of a place; -1 for one that does not exist, which every call refuses.
fn number(orders: &Orders, place: usize) -> i32 {
    orders.places.get(place).copied().unwrap_or(-1)
}

fn report(orders: &Orders, progress: Progress) {
    // A parent that no longer reads is dead: the next look at `go` or at the parent sees that.
    let _nobody_reads = raw::write(number(orders, orders.status), &progress.encode());
}

/// Waits for a byte. End-of-file says that the parent is dead or has given the child up.
fn wait_at(orders: &Orders) -> io::Result<()> {
    if raw::read_byte(number(orders, orders.go))? {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ECANCELED))
    }
}

/// Moves every place out of the way of the targets, then copies each to its target, then
/// closes the rest. Swaps, overlaps and a target at its own source need no care then.
fn lay_out(orders: &mut Orders) -> io::Result<()> {
    let mut highest = orders.open_max;
    for place in &mut orders.places {
        if is_target(&orders.wires, *place) {
            *place = move_away(*place, &orders.wires)?;
            highest = highest.max(*place);
        }
    }
    for wire in &orders.wires {
        raw::duplicate_to(number(orders, wire.place), wire.target)?;
        highest = highest.max(wire.target);
    }
    close_others(orders, highest)
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
fn close_others(orders: &Orders, highest: i32) -> io::Result<()> {
    let own = [Some(orders.status), Some(orders.go), orders.base]
        .map(|place| place.map_or(-1, |place| number(orders, place)));
    let mut start = 0;
    loop {
        let after = orders.wires.partition_point(|wire| wire.target < start);
        let target = orders.wires.get(after).map(|wire| wire.target);
        let kept = own.iter().copied().filter(|&number| number >= start).min();
        let next = match (target, kept) {
            (Some(target), Some(kept)) => target.min(kept),
            (Some(next), None) | (None, Some(next)) => next,
            (None, None) => return close_between(start, i32::MAX, highest),
        };
        close_between(start, next.saturating_sub(1), highest)?;
        start = next.saturating_add(1);
    }
}

fn close_between(first: i32, last: i32, highest: i32) -> io::Result<()> {
    if first > last {
        return Ok(());
    }
    match raw::close_range(first, last) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            (first..=last.min(highest)).for_each(raw::close);
            Ok(())
        }
        outcome => outcome,
    }
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
        Some(text) => {
            let file = raw::open_to_write(OOM_SCORE_ADJ).map_err(at(Step::OomScore))?;
            Some((file, text))
        }
        None => None,
    };
    for limit in &orders.limits {
        raw::set_limit(limit.resource, limit.soft, limit.hard).map_err(at(Step::ResourceLimits))?;
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

/// Groups, then gid, then uid: each needs the privileges that the next one gives up. Where a
/// uid is set and no groups are, the host's own are given up; an unprivileged host cannot, and
/// can then only become whom it is already.
fn change_credentials(orders: &Orders) -> Result<(), Failure> {
    let before = raw::effective_uid();
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

/// Arms the death signal, or disarms it where it is 0, then looks whether the parent had died
/// before: the signal comes only for a death that follows.
fn bind_to_parent(orders: &Orders, signal: i32) -> io::Result<()> {
    raw::set_death_signal(signal)?;
    if raw::parent() == orders.parent {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// Restores the dispositions, says so, sets the mask, and runs the first candidate that is
/// there. Returns only when none could be run.
fn execute(orders: &Orders) -> Failure {
    raw::restore_dispositions();
    report(orders, Progress::Executing);
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
            Some(_) | None => return (Step::Exec, error),
        }
    }
    remembered.unwrap_or((Step::Exec, io::Error::from_raw_os_error(missing)))
}
