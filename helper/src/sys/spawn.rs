//! Forks a leader from a prepared plan.
//!
//! The fork is copy-on-write. It never shares memory (`CLONE_VM`) or waits for exec (vfork):
//! an exec that hangs on a dead file system would hang the helper with it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use foster_protocol::Step;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, poll};
use nix::unistd::{pipe2, read};

use super::child::{self, Surroundings};
use super::kernel::Features;
use super::leader::Leader;
use super::proc::highest_open_descriptor;
use super::raw::{self, Forked};

pub(crate) use super::plan::Plan;
pub(crate) use super::progress::{Progress, Reading, read_progress};

/// What every spawn of this helper shares.
#[derive(Debug)]
pub(crate) struct Context {
    /// What the kernel offers.
    pub(crate) features: Features,
    /// `/dev/null`, for reading and writing.
    pub(crate) null: OwnedFd,
    /// The soft and hard limit of descriptors that the helper was started with.
    pub(crate) nofile: (u64, u64),
    /// The OOM score adjustment that the helper was started with, where it has lowered its own.
    pub(crate) oom_score: Option<i32>,
    /// The helper's own number.
    pub(crate) helper_pid: i32,
}

/// A child on its way to exec.
#[derive(Debug)]
pub(crate) struct Born {
    /// The child.
    pub(crate) leader: Leader,
    /// What it says on its way; does not block. See [`read_progress`].
    pub(crate) status: OwnedFd,
    /// Where the spec is gated: one byte opens the gate, closing it cancels.
    pub(crate) gate: Option<OwnedFd>,
}

/// Forks the child of a plan, inside a cgroup where one is given (with `clone3` alone), and
/// closes what the plan held. Every signal is blocked in the
/// calling thread, so that no handler runs in the child; the child belongs to that thread.
///
/// # Errors
///
/// `Prepare` or `Fork` with the error number. Nothing has been started then.
pub(crate) fn spawn(
    mut plan: Plan,
    context: &Context,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<Born, (Step, i32)> {
    let prepare = |error: io::Error| (Step::Prepare, error.raw_os_error().unwrap_or(libc::EIO));
    let (status, status_end) = pipe(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(prepare)?;
    let (gate_end, gate) = if plan.orders.gated {
        let (gate_end, gate) = pipe(OFlag::O_CLOEXEC).map_err(prepare)?;
        (Some(gate_end), Some(gate))
    } else {
        (None, None)
    };
    let highest = if context.features.close_range {
        0
    } else {
        highest_open_descriptor().map_err(prepare)?
    };
    let orders = &mut plan.orders;
    let surroundings = Surroundings {
        status: orders.add_place(status_end.as_raw_fd()),
        gate: gate_end
            .as_ref()
            .map(|end| orders.add_place(end.as_raw_fd())),
        features: context.features,
        highest,
        helper_pid: context.helper_pid,
    };
    // Nothing between here and `child::run` may allocate, lock or panic.
    let forked = if context.features.clone3 {
        raw::clone3(cgroup)
    } else {
        raw::clone_plain(context.features.pidfd)
    };
    match forked {
        Ok(Forked::Child) => child::run(orders, &surroundings),
        Ok(Forked::Parent { pid, pidfd }) => Ok(Born {
            leader: Leader::new(pid, pidfd),
            status,
            gate,
        }),
        Err(error) => Err((Step::Fork, error.raw_os_error().unwrap_or(libc::EIO))),
    }
}

/// A child that sleeps inside a cgroup until it is killed.
#[derive(Debug)]
pub(crate) struct Sleeper {
    /// The child.
    pub(crate) leader: Leader,
    /// Where it says that it runs.
    word: OwnedFd,
}

/// Forks a child that sleeps inside a cgroup until it is killed.
///
/// # Errors
///
/// What `pipe2(2)` and `clone3(2)` say.
pub(crate) fn spawn_sleeper(cgroup: BorrowedFd<'_>) -> io::Result<Sleeper> {
    let (word, word_end) = pipe(OFlag::O_CLOEXEC)?;
    match raw::clone3(Some(cgroup))? {
        Forked::Child => child::sleep(word_end.as_fd()),
        Forked::Parent { pid, pidfd } => Ok(Sleeper {
            leader: Leader::new(pid, pidfd),
            word,
        }),
    }
}

impl Sleeper {
    /// Waits until it says that it runs, or is dead, or the time is up. True where it has run.
    ///
    /// # Errors
    ///
    /// What `poll(2)` and `read(2)` say; `TimedOut` where it says nothing and lives.
    pub(crate) fn has_run(&self, limit: Duration) -> io::Result<bool> {
        let give_up = Instant::now() + limit;
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            let millis = u16::try_from(left.as_millis()).unwrap_or(u16::MAX);
            match poll(
                &mut [PollFd::new(self.word.as_fd(), PollFlags::POLLIN)],
                millis,
            ) {
                Ok(0) if left.is_zero() => {
                    return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
                }
                Ok(0) | Err(Errno::EINTR) => {}
                // The end of file is its death: nobody else holds the other end.
                Ok(_) => return Ok(read(&self.word, &mut [0_u8])? == 1),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn pipe(flags: OFlag) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe2(flags)?)
}
