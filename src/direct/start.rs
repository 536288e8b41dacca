//! From an order to spawn to a program that runs: the fork, the gate, exec.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use foster_protocol::{Cause, Reject, Spec, StateName, Step};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags};

use super::leader::{Leader, Sight};
use super::plan::orders;
use super::shared::{Order, Shared};
use super::table::has_executed;
use super::work::HARD_LIMIT;
use super::{Failed, TICK};
use crate::poll::{poll_until, time_left};
use crate::sys::{self, Progress};

/// A child on its way to exec.
#[derive(Debug)]
struct Start<'a> {
    shared: &'a Shared,
    leader: &'a Leader,
    status: File,
    /// The end of the pipe that lets the child go: a byte to begin, and one for the gate.
    /// Dropping it ends a child that waits.
    go: Option<PipeWriter>,
    /// The deadline, if there is one.
    due: Option<Instant>,
    /// Why the child is being ended, if it is, and when that is given up.
    aborted: Option<(Cause, Instant)>,
    /// What was read and is no whole record yet.
    record: Vec<u8>,
}

/// What the status pipe has.
enum News {
    Progress(Progress),
    Nothing,
    End,
}

/// A child that was forked, and how far it has come.
#[derive(Debug)]
pub(super) struct Forked {
    pub(super) leader: Leader,
    pub(super) at: Instant,
    /// Whether the program runs, and why it is to be ended at once, if somebody asked for that
    /// before it did.
    pub(super) outcome: Result<Option<Cause>, Failed>,
}

/// Forks the child and follows it to exec. Waits for its gate, for orders and for the deadline
/// meanwhile.
///
/// # Errors
///
/// The step that failed before there was a child.
pub(super) fn start(
    shared: &Shared,
    spec: &Spec,
    descriptors: Vec<OwnedFd>,
) -> Result<Forked, Failed> {
    let prepare = |error: io::Error| Failed::of(Step::Prepare, &error);
    let (status, their_status) = pipe().map_err(prepare)?;
    let (their_go, go) = pipe().map_err(prepare)?;
    set_nonblocking(&status).map_err(prepare)?;
    let mut orders = orders(spec, descriptors, their_status.as_fd(), their_go.as_fd())?;
    let at = Instant::now();
    let pid = sys::start(&mut orders).map_err(|error| Failed::of(Step::Fork, &error))?;
    // The child's ends go here: with a copy left, neither end-of-file would come.
    drop((orders, their_status, their_go));
    let leader = Leader::new(pid);
    shared.change(|state| {
        state.pid = pid;
        state.pidfd = leader.pidfd().cloned();
    });
    let mut start = Start {
        shared,
        leader: &leader,
        status: File::from(OwnedFd::from(status)),
        go: Some(go),
        due: spec.deadline.and_then(|after| at.checked_add(after.into())),
        aborted: None,
        record: Vec::new(),
    };
    // It begins now that it is held.
    start.let_go();
    let outcome = start.follow();
    Ok(Forked {
        leader,
        at,
        outcome,
    })
}

impl Start<'_> {
    /// Follows the child until it has become the program, or has failed.
    fn follow(&mut self) -> Result<Option<Cause>, Failed> {
        let mut executing = false;
        loop {
            match self.read() {
                News::Progress(Progress::Waiting) => self.note(StateName::Prepared),
                News::Progress(Progress::Executing) => executing = true,
                News::Progress(Progress::Failed { step, errno }) => {
                    return Err(self.ended_or(Failed::at(step, errno)));
                }
                // After the announcement it is exec that has closed the pipe. Without it the
                // child was killed, and the program has surely not run.
                News::End if executing => return Ok(self.aborted.map(|(cause, _)| cause)),
                News::End => {
                    return Err(self.ended_or(Failed::at(Step::Prepare, libc::ECHILD)));
                }
                News::Nothing if executing && has_executed(self.leader.pid()) => {
                    return Ok(self.aborted.map(|(cause, _)| cause));
                }
                News::Nothing => {
                    if self.is_over() {
                        return Err(Failed::at(Step::Ended, libc::ECANCELED));
                    }
                    self.sleep(executing);
                    self.obey();
                }
            }
        }
    }

    /// The failure of a child that was being ended is that it was ended.
    fn ended_or(&self, failed: Failed) -> Failed {
        match self.aborted {
            Some(_) => Failed::at(Step::Ended, libc::ECANCELED),
            None => failed,
        }
    }

    fn note(&self, name: StateName) {
        if self.aborted.is_none() {
            self.shared.change(|state| state.name = name);
        }
    }

    fn let_go(&mut self) {
        if let Some(go) = &mut self.go {
            // EPIPE: it has died meanwhile, which its own pipe shows.
            let _died = go.write(&[1]);
        }
    }

    /// Whether a child that was being ended is dead, or is given up. Its pipe does not tell
    /// where a stranger holds a copy of it.
    fn is_over(&self) -> bool {
        self.aborted.is_some_and(|(_, until)| {
            until <= Instant::now() || !matches!(self.leader.look(), Ok(Sight::Running))
        })
    }

    fn sleep(&self, executing: bool) {
        let mut polled = [
            PollFd::new(self.status.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.shared.wake(), PollFlags::POLLIN),
        ];
        let until = self.aborted.map(|(_, until)| until).or(self.due);
        let mut limit = time_left(until);
        if executing || self.aborted.is_some() {
            limit = Some(limit.map_or(TICK, |limit| limit.min(TICK)));
        }
        if let Err(error) = poll_until(&mut polled, limit) {
            tracing::debug!(%error, "child on its way cannot be polled");
        }
    }

    /// Carries out what was asked meanwhile, and the deadline.
    fn obey(&mut self) {
        self.shared.quiet();
        while let Some(order) = self.shared.take_order() {
            match order {
                Order::Open => {
                    self.note(StateName::Starting);
                    self.let_go();
                }
                Order::End { cause, .. } => self.abort(cause),
                Order::Signal { answer, .. } | Order::Release { answer } => {
                    let state = self.shared.lock().name;
                    // Whoever asked may have gone.
                    let _nobody_waits = answer.send(Err(Reject::IllegalState { state }));
                }
            }
        }
        if self.due.is_some_and(|due| due <= Instant::now()) {
            self.due = None;
            self.abort(Cause::Deadline);
        }
    }

    /// KILL to the child alone: its group may not be there yet.
    fn abort(&mut self, cause: Cause) {
        if self.aborted.is_some() {
            return;
        }
        self.note(StateName::Ending);
        let now = Instant::now();
        self.aborted = Some((cause, now.checked_add(HARD_LIMIT).unwrap_or(now)));
        self.go = None;
        if let Err(error) = self.leader.signal(libc::SIGKILL) {
            tracing::debug!(%error, "child on its way could not be killed");
        }
    }

    /// Reads what is there.
    fn read(&mut self) -> News {
        let mut part = [0; 4 * Progress::LENGTH];
        let count = match (&self.status).read(&mut part) {
            Ok(count) => count,
            Err(_) if self.record.len() < Progress::LENGTH => return News::Nothing,
            Err(_) => 0,
        };
        self.record
            .extend_from_slice(part.get(..count).unwrap_or_default());
        let Some((record, rest)) = self.record.split_first_chunk::<{ Progress::LENGTH }>() else {
            return News::End;
        };
        let progress = Progress::decode(*record);
        self.record = rest.to_vec();
        progress.map_or(News::Nothing, News::Progress)
    }
}

fn set_nonblocking(pipe: &PipeReader) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(pipe, FcntlArg::F_GETFL)?);
    fcntl(pipe, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}
