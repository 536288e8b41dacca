//! Commands without a helper: spawned and supervised by this process itself.
//!
//! This is what is left where no helper can be had. Each session has a thread of its own,
//! which forks the leader, keeps its times and ends its tree: the leader's group while the
//! leader is unreaped, and whoever else is in its kernel session, by pidfd. The host gets no
//! signal handler.
//!
//! It must never signal its own group, nor by a number that it does not hold. What it cannot
//! do is outlive the host: with the host dead, a leader has its death signal, and the rest of
//! its tree lives on. A descendant that makes a session of its own is not reached.

mod course;
mod leader;
mod plan;
mod shared;
mod signalable;
mod start;
mod supervise;
mod table;
mod wake;
mod work;

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use foster_protocol::{
    Cause, Containment, Ending, Exit, Level, LevelChoice, Missing, Pid, Reject, Spec, StateName,
    Step, Target,
};
use nix::sys::signal::{SigSet, SigmaskHow};

use crate::ended::Ended;
use crate::error::{Error, Repr, Result, Subject, spawn_failed};
use crate::size::Size;
use shared::{Order, Shared, is_over};

/// How often a leader without a pidfd is looked at.
const TICK: Duration = Duration::from_millis(20);

/// Every signal number that can be asked for.
const SIGNALS: RangeInclusive<i32> = 1..=if cfg!(target_os = "linux") { 64 } else { 31 };

/// A step that failed, with its error number. The program did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) step: Step,
    pub(crate) errno: i32,
}

impl Failed {
    fn at(step: Step, errno: i32) -> Self {
        Self { step, errno }
    }

    fn of(step: Step, error: &io::Error) -> Self {
        Self::at(step, error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Why a command was not spawned. The program did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// What was asked cannot be done.
    Rejected(Reject),
    /// A step failed.
    Failed(Failed),
}

impl From<Failed> for Refusal {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

impl Refusal {
    /// The error that names the thing.
    pub(crate) fn into_error(self, subject: &Subject<'_>, size: &Size) -> Error {
        match self {
            Self::Rejected(reason) => refused(reason),
            Self::Failed(failed) => spawn_failed(subject, size, failed.step, failed.errno),
        }
    }
}

/// A handle on a direct session. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Direct {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    /// The process whose thread serves the session: a fork of it has none.
    owner: u32,
    pid: Pid,
    pidfd: Option<Arc<OwnedFd>>,
    containment: Containment,
    first: i32,
    grace: Duration,
}

/// Spawns a command. Returns when its program runs, or waits at its gate where it is gated.
///
/// # Errors
///
/// The step that failed; the program did not run.
pub(crate) fn spawn(spec: Spec, descriptors: Vec<OwnedFd>) -> std::result::Result<Direct, Refusal> {
    let first = spec.first_signal.unwrap_or(libc::SIGTERM);
    for number in [Some(first), spec.death_signal.filter(|&number| number != 0)] {
        if let Some(number) = number.filter(|number| !SIGNALS.contains(number)) {
            return Err(Refusal::Rejected(Reject::BadSignal { number }));
        }
    }
    let grace = spec.grace.into();
    let missing = missing(spec.level);
    let shared =
        supervised(spec, descriptors).map_err(|error| Failed::of(Step::Prepare, &error))?;
    wait_for_start(&shared)?;
    let (pid, pidfd) = {
        let state = shared.lock();
        (Pid(state.pid), state.pidfd.clone())
    };
    Ok(Direct {
        inner: Arc::new(Inner {
            shared,
            owner: process::id(),
            pid,
            pidfd,
            containment: Containment {
                level: Level::Direct,
                missing,
            },
            first,
            grace,
        }),
    })
}

/// Starts the thread of a session.
fn supervised(spec: Spec, descriptors: Vec<OwnedFd>) -> io::Result<Arc<Shared>> {
    let shared = Arc::new(Shared::new()?);
    let served = Arc::clone(&shared);
    // A thread is born with the mask of its maker, so that no handler runs in it from the start.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let started = thread::Builder::new()
        .name("foster-direct".into())
        .spawn(move || supervise::supervise(served, &spec, descriptors));
    before.thread_set_mask()?;
    started.map(|_| shared)
}

/// The level that was asked for by its name and cannot be had without a helper.
fn missing(asked: LevelChoice) -> Vec<Missing> {
    match asked {
        LevelChoice::Auto | LevelChoice::Exactly(Level::Direct) => Vec::new(),
        LevelChoice::Exactly(level) => vec![Missing {
            level,
            errno: libc::ENOSYS,
        }],
    }
}

/// Waits until the child is at its gate, runs, or has failed.
fn wait_for_start(shared: &Shared) -> std::result::Result<(), Failed> {
    shared
        .wait(None, |state| match state.name {
            StateName::Starting => None,
            StateName::Failed => Some(Err(state
                .failed
                .unwrap_or(Failed::at(Step::Prepare, libc::EIO)))),
            // It is being ended on its way: whether the program ran is not known yet.
            StateName::Ending if state.exit.is_none() && state.end.is_none() => {
                state.failed.map(Err)
            }
            StateName::Prepared
            | StateName::Running
            | StateName::Exited
            | StateName::Ending
            | StateName::Ended
            | StateName::Released => Some(Ok(())),
        })
        // The thread has panicked before there was a child, or with it.
        .unwrap_or(Err(Failed::at(Step::Prepare, libc::EIO)))
}

impl Direct {
    /// Lets a gated child go, and waits until its program runs.
    ///
    /// # Errors
    ///
    /// The step that failed; the program did not run.
    pub(crate) fn open(&self) -> std::result::Result<(), Failed> {
        self.inner.shared.change(|state| {
            if state.name == StateName::Prepared {
                state.name = StateName::Starting;
            }
        });
        self.inner.shared.order(Order::Open);
        wait_for_start(&self.inner.shared)
    }

    pub(crate) fn pid(&self) -> Pid {
        self.inner.pid
    }

    pub(crate) fn containment(&self) -> &Containment {
        &self.inner.containment
    }

    pub(crate) fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.pidfd.as_ref().map(|pidfd| pidfd.as_fd())
    }

    pub(crate) fn signal(&self, number: i32, to: Target) -> Result<u32> {
        if !SIGNALS.contains(&number) {
            return Err(refused(Reject::BadSignal { number }));
        }
        self.ask(|answer| Order::Signal { number, to, answer })
    }

    pub(crate) fn end(&self, first: i32, grace: Duration) -> Result<Ending> {
        if !SIGNALS.contains(&first) {
            return Err(refused(Reject::BadSignal { number: first }));
        }
        self.check()?;
        let state = self.inner.shared.order(Order::End {
            first,
            grace,
            cause: Cause::Kill,
        });
        if state == StateName::Failed {
            return Err(refused(Reject::IllegalState { state }));
        }
        match self.wait_end(None)? {
            Some(Ended::Ending(ending)) => Ok(ending),
            Some(Ended::Released { .. }) => Err(refused(Reject::IllegalState {
                state: StateName::Released,
            })),
            None => Err(refused(Reject::IllegalState { state })),
        }
    }

    pub(crate) fn wait_exit(&self, timeout: Option<Duration>) -> Result<Option<Exit>> {
        self.check()?;
        match self
            .inner
            .shared
            .wait(deadline(timeout), |state| state.exit)
        {
            Some(Ok(exit)) => Ok(Some(exit)),
            Some(Err(_)) => Err(Repr::Stolen.into()),
            None if self.is_gone() => Err(Repr::Unsupervised.into()),
            None => Ok(None),
        }
    }

    pub(crate) fn wait_end(&self, timeout: Option<Duration>) -> Result<Option<Ended>> {
        self.check()?;
        let ended = self
            .inner
            .shared
            .wait(deadline(timeout), |state| state.end.clone());
        match ended {
            Some(ended) => Ok(Some(ended)),
            None if self.is_gone() => Err(Repr::Unsupervised.into()),
            None => Ok(None),
        }
    }

    pub(crate) fn release(&self) -> Result<u32> {
        if let Some(Ended::Released { still_running }) = self.inner.shared.lock().end {
            return Ok(still_running);
        }
        self.ask(|answer| Order::Release { answer })
    }

    /// Ends what lives, without waiting.
    pub(crate) fn close(&self) {
        if self.inner.owner == process::id() {
            self.inner.shared.order(Order::End {
                first: self.inner.first,
                grace: self.inner.grace,
                cause: Cause::Close,
            });
        }
    }

    /// The exit, if it is known.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.inner.shared.lock().exit?.ok()
    }

    fn ask(&self, order: impl FnOnce(Sender<Answer>) -> Order) -> Result<u32> {
        self.check()?;
        let (sender, receiver) = channel();
        let state = self.inner.shared.order(order(sender));
        match receiver.recv() {
            Ok(Ok(count)) => Ok(count),
            Ok(Err(reason)) => Err(refused(reason)),
            // The order was not taken: the session was over.
            Err(_) if is_over(state) => Err(refused(Reject::IllegalState { state })),
            Err(_) => Err(Repr::Unsupervised.into()),
        }
    }

    /// A process that was forked from the host has no thread that would answer.
    fn check(&self) -> Result<()> {
        if self.inner.owner == process::id() {
            Ok(())
        } else {
            Err(Repr::Unsupervised.into())
        }
    }

    /// Whether the thread has left without a verdict.
    fn is_gone(&self) -> bool {
        let state = self.inner.shared.lock();
        state.is_gone && state.end.is_none()
    }
}

/// What a request with a count is answered with.
type Answer = std::result::Result<u32, Reject>;

fn refused(reason: Reject) -> Error {
    Repr::Refused(reason).into()
}

/// The moment at which a wait is over. A time that is out of range is no limit.
fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(timeout?)
}
