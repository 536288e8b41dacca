//! What ends a contained program from outside: signals, its parent's death, a control descriptor.
//!
//! Signals are blocked and read from a descriptor, so that one poll waits for everything and no
//! thread is needed. Dropping the triggers gives the thread its mask back, and what is pending
//! takes effect then, as it would have before. Nothing here decides.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::libc::{POLLRDHUP, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{SFlag, fstat};

use crate::error::{Error, Result};
use crate::parent::{self, Parent};
use crate::poll::{poll_until, time_left};
use crate::sys;

/// The signals that mean something to a starter.
const HANDLED: [i32; 8] = [
    SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCONT, SIGTSTP,
];

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// This process was sent a signal.
    Signal(i32),
    /// The parent died.
    ParentGone,
    /// Nobody has the other end of the control descriptor any more.
    ControlGone,
}

/// What is waited for.
#[derive(Debug)]
pub(super) struct Triggers {
    signals: SignalFd,
    /// The mask to go back to.
    before: SigSet,
    parent: Option<OwnedFd>,
    is_parent_gone: bool,
    control: Option<OwnedFd>,
    is_for_good: bool,
}

impl Triggers {
    /// Blocks the signals, and takes hold of the parent and the control descriptor where they are
    /// to be watched. HUP stays ignored where it was, as `nohup` has it.
    pub(super) fn install(watch_parent: bool, control: Option<RawFd>) -> Result<Self> {
        let control = control.map(hold_control).transpose()?;
        let parent = match watch_parent {
            true => parent::hold()
                .map_err(|error| Error::system("death of the parent cannot be seen", error))?,
            false => Parent::First,
        };
        let keeps_hup = is_ignored(SIGHUP);
        let mut set = SigSet::empty();
        for number in HANDLED {
            if number != SIGHUP || !keeps_hup {
                set.add(Signal::try_from(number).map_err(unseen)?);
            }
        }
        // Made before anything is blocked: what follows cannot fail half-way.
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&set, flags).map_err(unseen)?;
        let before = SigSet::thread_get_mask().map_err(unseen)?;
        set.thread_block().map_err(unseen)?;
        let (parent, is_parent_gone) = match parent {
            Parent::Watched(pidfd) => (Some(pidfd), false),
            Parent::First => (None, false),
            Parent::Gone => (None, true),
        };
        Ok(Self {
            signals,
            before,
            parent,
            is_parent_gone,
            control,
            is_for_good: false,
        })
    }

    /// Waits until something happens, one of `others` is ready or the time is up, and gives what
    /// happened, and of each of the others whether it is ready.
    pub(super) fn wait(
        &mut self,
        others: &[(BorrowedFd<'_>, PollFlags)],
        due: Option<Instant>,
    ) -> Result<(Vec<Trigger>, Vec<bool>)> {
        // The end of a stream is all that is looked at: nothing is read from it.
        let hangup = PollFlags::from_bits_retain(POLLRDHUP);
        let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let own = [(&self.parent, PollFlags::POLLIN), (&self.control, hangup)];
        for (descriptor, interest) in own {
            let held = descriptor.as_ref().map(AsFd::as_fd);
            polled.extend(held.map(|fd| PollFd::new(fd, interest)));
        }
        polled.extend(
            others
                .iter()
                .map(|(fd, interest)| PollFd::new(*fd, *interest)),
        );
        let left = match self.is_parent_gone {
            true => Some(Duration::ZERO),
            false => time_left(due),
        };
        poll_until(&mut polled, left).map_err(unseen)?;
        let mut ready = polled.iter().map(|fd| fd.any().unwrap_or(true)).skip(1);
        let is_parent_ready = self.parent.is_some() && ready.next() == Some(true);
        let is_control_ready = self.control.is_some() && ready.next() == Some(true);
        let ready = ready.collect();
        let mut batch = self.pending()?;
        if is_parent_ready || self.is_parent_gone {
            self.parent = None;
            self.is_parent_gone = false;
            batch.push(Trigger::ParentGone);
        }
        if is_control_ready {
            self.control = None;
            batch.push(Trigger::ControlGone);
        }
        Ok((batch, ready))
    }

    /// Leaves the signals blocked for the rest of the process's life.
    pub(super) fn keep(&mut self) {
        self.is_for_good = true;
    }

    /// The signals that have come.
    fn pending(&mut self) -> Result<Vec<Trigger>> {
        let mut numbers = Vec::new();
        while let Some(info) = self.signals.read_signal().map_err(unseen)? {
            numbers.extend(i32::try_from(info.ssi_signo));
        }
        // Their order is lost where both came at once, and going on is the side that ends.
        if numbers.contains(&SIGCONT) {
            numbers.retain(|number| *number != SIGTSTP);
        }
        Ok(numbers.into_iter().map(Trigger::Signal).collect())
    }
}

impl Drop for Triggers {
    fn drop(&mut self) {
        if self.is_for_good {
            return;
        }
        // It was this thread's mask a moment ago, so that it is a valid one.
        let restored = self.before.thread_set_mask();
        debug_assert!(restored.is_ok(), "{restored:?}");
    }
}

/// Takes a copy of a control descriptor that this process was started with. Of anything that has
/// no other end, the end never comes.
fn hold_control(number: RawFd) -> Result<OwnedFd> {
    let what = "control descriptor cannot be watched";
    let control = sys::duplicate(number).map_err(|error| Error::system(what, error))?;
    let status = fstat(&control).map_err(|errno| Error::system(what, errno.into()))?;
    let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
    if kind == SFlag::S_IFIFO || kind == SFlag::S_IFSOCK {
        Ok(control)
    } else {
        let text = "it is neither a pipe nor a socket";
        let source = io::Error::new(io::ErrorKind::InvalidInput, text);
        Err(Error::system(what, source))
    }
}

fn unseen(error: impl Into<io::Error>) -> Error {
    Error::system("signals cannot be seen", error.into())
}

/// Whether a signal was ignored when this program started (`/proc/self/status`, `proc(5)`); no
/// where that cannot be read.
pub(crate) fn is_ignored(number: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    has_ignored(&status, number)
}

fn has_ignored(status: &str, number: i32) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (number - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_read_from_its_mask() {
        let status = "Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n";
        assert!(has_ignored(status, SIGHUP));
        assert!(has_ignored(status, 13));
        assert!(!has_ignored(status, SIGINT));
        assert!(!has_ignored("", SIGHUP));
        assert!(!has_ignored("SigIgn:\tnothing\n", SIGHUP));
    }

    #[test]
    fn a_control_descriptor_without_another_end_is_refused() {
        let null = fs::File::open("/dev/null").expect("it is there");
        let error = hold_control(std::os::fd::AsRawFd::as_raw_fd(&null)).expect_err("no pipe");
        assert!(error.to_string().contains("control descriptor"), "{error}");
        let error = hold_control(-1).expect_err("no descriptor");
        assert_eq!(error.raw_os_error(), Some(nix::libc::EBADF));
    }
}
