//! One command with everything that it starts: its leader, its job, and what is known of both.
//!
//! Every handle of a session shares one of these, and every call works on it directly: the leader
//! is meant by its handle, which is nobody else's whatever becomes of its number, and the job by
//! its own. It must never end anybody once the session was released.

use std::io;
use std::os::windows::io::{AsHandle, BorrowedHandle, OwnedHandle};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foster_protocol::{Cause, Containment, Exit, Micros, Reject, StateName, Usage};

use super::ending::Begun;
use crate::ended::Ended;
use crate::error::{Error, Repr, Result};
use crate::notice::Notice;
use crate::on_exit::OnExit;
use crate::sys::{self, Event, Job};

/// A command with everything that it starts.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) leader: OwnedHandle,
    pub(super) pid: u32,
    /// None where the command could not be put into one.
    pub(super) job: Option<Job>,
    pub(super) containment: Containment,
    pub(super) detachable: bool,
    pub(super) on_exit: OnExit,
    /// Set when the tree is being ended, has ended or was released.
    pub(super) stir: Event,
    pub(super) state: Mutex<State>,
    pub(super) bell: Condvar,
}

/// What is known of the session.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) exit: Option<Exit>,
    /// The ending that has begun. Only one does.
    pub(super) begun: Option<Begun>,
    /// How the session ended. Nobody is touched any more then.
    pub(super) end: Option<Ended>,
    pub(super) notice: Option<Notice>,
}

impl Tree {
    /// Locks the state. A panic elsewhere leaves it usable: each change is whole.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the tree is being ended, has ended or was released.
    pub(super) fn is_stirred(&self) -> bool {
        let state = self.lock();
        state.begun.is_some() || state.end.is_some()
    }

    /// Waits for the leader's exit; none where the time was up first.
    pub(super) fn wait_exit(&self, timeout: Option<Duration>) -> Result<Option<Exit>> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let waited = sys::wait_any(&[self.leader.as_handle()], left)
                .map_err(|error| Error::system("leader cannot be waited for", error))?;
            if waited.is_some() {
                return self
                    .note_exit(&mut self.lock())
                    .map(Some)
                    .map_err(|error| Error::system("exit of the leader cannot be read", error));
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
        }
    }

    /// Notes the leader's exit if it has exited, and says whether it has.
    pub(super) fn look_at_leader(&self, state: &mut State) -> bool {
        let has_exited = state.exit.is_some() || is_over(self.leader.as_handle());
        if has_exited && let Err(error) = self.note_exit(state) {
            tracing::error!(%error, "exit of the leader cannot be read");
        }
        has_exited
    }

    /// Notes the exit of a leader that has exited, once, and gives it. Whoever is the first to
    /// see it lets the rest go where the command says so, so that no drop comes in between.
    fn note_exit(&self, state: &mut State) -> io::Result<Exit> {
        if let Some(exit) = state.exit {
            return Ok(exit);
        }
        let begun = state.begun.as_ref();
        let cause = begun.map_or(Cause::Exit, |begun| begun.cause);
        let exit = exit_of(self.leader.as_handle(), cause)?;
        state.exit = Some(exit);
        if self.on_exit == OnExit::Leave
            && state.begun.is_none()
            && state.end.is_none()
            && let Err(error) = self.let_go(state)
        {
            tracing::error!(%error, "rest was not released, and ends with its handle");
        }
        Ok(exit)
    }

    /// Lets the rest of the tree go, and gives how many members still run.
    pub(super) fn release(&self) -> Result<u32> {
        let mut state = self.lock();
        let has_exited = self.look_at_leader(&mut state);
        let refused = |state| Err(Repr::Refused(Reject::IllegalState { state }).into());
        match (&state.end, &state.begun) {
            (Some(Ended::Released { still_running }), _) => return Ok(*still_running),
            (Some(Ended::Ending(_)), _) => return refused(StateName::Ended),
            (None, Some(_)) => return refused(StateName::Ending),
            (None, None) => {}
        }
        if !has_exited && !self.detachable {
            return Err(Repr::Refused(Reject::NotDetachable).into());
        }
        self.let_go(&mut state)
            .map_err(|error| Error::system("job cannot be told to let go", error))
    }

    fn let_go(&self, state: &mut State) -> io::Result<u32> {
        let still_running = match &self.job {
            Some(job) => {
                // 1. From here on the last handle may be closed, whoever does it.
                job.kill_on_close(false)?;
                // 2. Who is counted now lives on.
                job.active()?
            }
            None => u32::from(!is_over(self.leader.as_handle())),
        };
        self.finish(state, Ended::Released { still_running });
        Ok(still_running)
    }

    /// Notes how the session ended, and wakes whoever waits for it.
    pub(super) fn finish(&self, state: &mut State, end: Ended) {
        state.end = Some(end);
        self.bell.notify_all();
        self.stir.set();
    }
}

/// Whether a process has exited. False where that cannot be told.
fn is_over(process: BorrowedHandle<'_>) -> bool {
    matches!(sys::wait_any(&[process], Some(Duration::ZERO)), Ok(Some(_)))
}

fn exit_of(leader: BorrowedHandle<'_>, cause: Cause) -> io::Result<Exit> {
    let code = sys::exit_code(leader)?;
    let times = sys::times(leader)?;
    Ok(Exit {
        status: code.cast_signed(),
        usage: Usage {
            user: Micros::from(times.user),
            system: Micros::from(times.system),
            ..Usage::default()
        },
        wall: Micros::from(times.wall),
        cause,
    })
}
