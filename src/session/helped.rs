//! A session of a helper, by the requests and replies of its connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foster_protocol::{
    Containment, Ending, Exit, How, Micros, Pid, Reply, Request, SessionId, Target,
};

use nix::poll::{PollFd, PollFlags};

use crate::connection::{Connection, Key, Record, Refusal, Standing};
use crate::direct::Failed;
use crate::ended::Ended;
use crate::error::{During, Error, Loss, Result};
use crate::helper::Helper;
use crate::poll::{poll_until, time_left};

/// A handle on a helper's session. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Helped {
    inner: Arc<Inner>,
}

/// How long an ending may take beyond its grace and the time that any answer may: a helper
/// gives KILL 5 seconds, after it has given a keeper that many.
const END_LIMIT: Duration = Duration::from_secs(15);

#[derive(Debug)]
struct Inner {
    helper: Helper,
    id: SessionId,
    pid: Pid,
    containment: Containment,
    pidfd: Option<Arc<OwnedFd>>,
}

impl Helped {
    pub(crate) fn new(helper: Helper, id: SessionId, pid: Pid, containment: Containment) -> Self {
        let pidfd = helper
            .connection()
            .lock()
            .record(id)
            .and_then(|record| record.pidfd.clone());
        Self {
            inner: Arc::new(Inner {
                helper,
                id,
                pid,
                containment,
                pidfd,
            }),
        }
    }

    /// Returns the session's id.
    pub(crate) fn id(&self) -> SessionId {
        self.inner.id
    }

    /// Returns the leader's process id. It says who was meant; it is never a licence to
    /// signal.
    pub(crate) fn pid(&self) -> Pid {
        self.inner.pid
    }

    /// Returns what contains the session.
    pub(crate) fn containment(&self) -> &Containment {
        &self.inner.containment
    }

    /// Returns a pidfd of the leader (`pidfd_open(2)`), where the kernel has pidfds and this
    /// process had room for it.
    pub(crate) fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.pidfd.as_ref().map(|pidfd| pidfd.as_fd())
    }

    /// Sends one signal and returns how many processes it was sent to.
    ///
    /// # Errors
    ///
    /// Rejected where the number is no signal or the session is past its end.
    pub(crate) fn signal(&self, number: i32, to: Target) -> Result<u32> {
        let limit = self.inner.helper.limit();
        let reply = self.ask_kill(How::Signal { number, to }, During::Request, limit)?;
        let Reply::Signalled { reached } = reply else {
            return Err(self.breach(During::Request));
        };
        Ok(reached)
    }

    /// Ends the tree: the first signal to every member, KILL after the grace to those who are
    /// left. Returns when the tree has ended, or with the survivors named.
    ///
    /// A second call joins the first and can only shorten its grace. Where the session has
    /// ended already, its ending is returned.
    ///
    /// # Errors
    ///
    /// Rejected where the session was released.
    pub(crate) fn end(&self, first: i32, grace: Duration) -> Result<Ending> {
        if let Some(Ok(Ended::Ending(ending))) = self.known(|record| record.end.clone()) {
            return Ok(ending);
        }
        let how = How::End {
            first,
            grace: Micros::from(grace),
        };
        let limit = self.inner.helper.limit();
        let limit = limit.saturating_add(grace).saturating_add(END_LIMIT);
        let Reply::Ended { ending } = self.ask_kill(how, During::End, limit)? else {
            return Err(self.breach(During::End));
        };
        self.connection()
            .lock()
            .settle(self.id(), Ended::Ending(ending.clone()));
        Ok(ending)
    }

    /// Waits for the leader's exit; none where the time was up first.
    ///
    /// # Errors
    ///
    /// [`ExitUnknown`](crate::ErrorKind::ExitUnknown) where the helper is lost before, or says
    /// nothing for its time although the leader is dead.
    pub(crate) fn wait_exit(&self, timeout: Option<Duration>) -> Result<Option<Exit>> {
        let until = deadline(timeout);
        let limit = self.inner.helper.limit();
        // Whether the leader was dead already when the helper was last waited for.
        let mut was_dead = false;
        loop {
            let turn = deadline(Some(limit));
            let id = self.id();
            let exit = self
                .connection()
                .wait(
                    Key::Session(id),
                    until.into_iter().chain(turn).min(),
                    |state| state.record(id)?.exit.clone(),
                )
                .map_err(|loss| Error::lost(During::Exit, loss))?
                .transpose()
                .map_err(Error::rejected)?;
            if exit.is_some() || time_left(until) == Some(Duration::ZERO) {
                return Ok(exit);
            }
            if was_dead {
                return Err(Error::lost(During::Exit, Loss::Silent(limit)));
            }
            was_dead = self.is_leader_dead();
        }
    }

    /// Whether the leader's pidfd says that it is dead.
    fn is_leader_dead(&self) -> bool {
        let Some(pidfd) = self.pidfd() else {
            return false;
        };
        let mut polled = [PollFd::new(pidfd, PollFlags::POLLIN)];
        let looked = poll_until(&mut polled, Some(Duration::ZERO));
        looked.is_ok() && polled.iter().any(|one| one.any() == Some(true))
    }

    /// Waits for the session's end; none where the time was up first.
    ///
    /// # Errors
    ///
    /// [`EndUnknown`](crate::ErrorKind::EndUnknown) where the helper is lost before.
    pub(crate) fn wait_end(&self, timeout: Option<Duration>) -> Result<Option<Ended>> {
        let id = self.id();
        // After a loss the wait below gives out what came before it, or tells of it.
        if let Err(Refusal::Encode(_)) = self.connection().ask_end(id) {
            return Err(self.breach(During::End));
        }
        self.connection()
            .wait(Key::Session(id), deadline(timeout), |state| {
                state.record(id)?.end.clone()
            })
            .map_err(|loss| Error::lost(During::End, loss))?
            .transpose()
            .map_err(Error::rejected)
    }

    /// Lets the rest of the session go, and returns how many members still run, the leader
    /// included.
    ///
    /// # Errors
    ///
    /// Rejected where the leader runs and the command was not spawned
    /// [`detachable`](crate::Command::detachable), or where the session is being ended.
    pub(crate) fn release(&self) -> Result<u32> {
        let id = self.id();
        let before = self.stand(Standing::Released);
        let request = Request::Release { session: id };
        let limit = self.inner.helper.limit();
        let reply = self
            .ask(request, During::Release, limit)
            .inspect_err(|error| {
                if error.is_rejected() {
                    self.stand(before);
                }
            })?;
        let Reply::Released { still_running } = reply else {
            return Err(self.breach(During::Release));
        };
        self.connection()
            .lock()
            .settle(id, Ended::Released { still_running });
        Ok(still_running)
    }

    /// What hangs up when the helper is lost.
    pub(crate) fn supervisor(&self) -> BorrowedFd<'_> {
        self.connection().as_fd()
    }

    pub(crate) fn connection(&self) -> &Connection {
        self.inner.helper.connection()
    }

    /// Lets a gated child go, and waits until its program runs.
    ///
    /// # Errors
    ///
    /// [`SpawnFateUnknown`](crate::ErrorKind::SpawnFateUnknown) where the helper is lost
    /// meanwhile.
    pub(crate) fn open(&self, within: Option<Duration>) -> Result<std::result::Result<(), Failed>> {
        let lost = |loss| Error::lost(During::Spawn, loss);
        let ticket = match self.connection().open_gate(self.id()) {
            Ok(ticket) => ticket,
            // Not a byte has left, and the gate closes with the helper.
            Err(Refusal::Lost(loss)) => return Err(Error::lost(During::Unsent, loss)),
            Err(Refusal::Encode(_)) => return Err(self.breach(During::Spawn)),
        };
        match ticket.wait(deadline(within)).map_err(lost)? {
            // What it starts late, it ends: the session is closed when the gate is dropped.
            None => Err(lost(Loss::Silent(within.unwrap_or_default()))),
            Some(Reply::Spawned { .. }) => Ok(Ok(())),
            Some(Reply::SpawnFailed { step, errno }) => Ok(Err(Failed { step, errno })),
            Some(Reply::Rejected { reason }) => Err(Error::rejected(reason)),
            Some(_) => Err(self.breach(During::Spawn)),
        }
    }

    /// Closes the session without waiting. Handles that are still held learn of its end.
    pub(crate) fn close(&self) {
        let watched = Arc::strong_count(&self.inner) > 1;
        self.connection().close(self.inner.id, watched);
    }

    /// Whether the helper was lost before the exit came. What has come is read first.
    pub(crate) fn is_exit_lost(&self) -> bool {
        let lost = self.connection().loss().is_some();
        lost && self.exit().is_none()
    }

    /// The exit, if it has come.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.known(|record| record.exit.clone())?.ok()
    }

    fn known<T>(&self, read: impl FnOnce(&mut Record) -> Option<T>) -> Option<T> {
        if !self.connection().is_ours() {
            return None;
        }
        self.connection().lock().record(self.id()).and_then(read)
    }

    /// Notes where the session stands, and returns where it stood.
    fn stand(&self, standing: Standing) -> Standing {
        self.known(|record| Some(std::mem::replace(&mut record.standing, standing)))
            .unwrap_or(Standing::Over)
    }

    fn ask_kill(&self, how: How, during: During, limit: Duration) -> Result<Reply> {
        self.ask(
            Request::Kill {
                session: self.id(),
                how,
            },
            during,
            limit,
        )
    }

    fn ask(&self, request: Request, during: During, limit: Duration) -> Result<Reply> {
        self.inner.helper.ask_within(request, during, limit)
    }

    fn breach(&self, during: During) -> Error {
        let loss: Loss = self.connection().breach();
        Error::lost(during, loss)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let connection = self.helper.connection();
        if connection.is_ours() {
            connection.lock().abandon(self.id);
        }
    }
}

/// The moment at which a wait is over. A time that is out of range is no limit.
fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(timeout?)
}
