//! The client's end of the control socket.
//!
//! Sends requests and takes replies, in any order, without a thread of its own: of the
//! threads that wait, one has the reader's role and polls for all; one whose reply has come
//! or whose time is up hands the role on. Partial frames belong to the connection. Sending
//! never blocks: what does not fit is queued and goes out while somebody polls.
//!
//! It must never write from a process that was forked from the host, and never hold its lock
//! across a call that can block.

mod reader;
mod state;
mod traffic;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod loss_tests;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use foster_protocol::{
    Call, EncodeError, Reply, Request, RequestId, SessionId, Spec, Until, encode_call,
};

use state::Slot;
pub(crate) use state::{Key, Record, Standing, State};
use traffic::strike;

use crate::error::Loss;
use crate::sys;

/// The client's end of one control socket.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: UnixStream,
    /// Wakes the reader when there is something to send that it does not know of.
    wake: File,
    /// The process that may use the socket: the one that launched the helper.
    owner: u32,
    /// The helper's process: its death is a loss also where a stranger holds the socket open.
    peer: Option<OwnedFd>,
    state: Mutex<State>,
}

/// A request that has been queued. Dropping it means that nobody waits for its reply.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    connection: &'a Connection,
    id: RequestId,
    /// The stream position of its first byte.
    start: u64,
}

/// Why a request was not queued.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The helper is lost; nothing was sent.
    Lost(Loss),
    /// The request is above a limit of the frame.
    Encode(EncodeError),
}

impl Connection {
    /// Takes the client's end of a control socket.
    pub(crate) fn new(socket: UnixStream) -> io::Result<Self> {
        let wake = File::from(sys::eventfd()?);
        Ok(Self {
            socket,
            wake,
            owner: process::id(),
            peer: None,
            state: Mutex::default(),
        })
    }

    /// Takes the death of the helper's process for a loss too.
    pub(crate) fn watch_peer(&mut self, pidfd: Option<OwnedFd>) {
        self.peer = pidfd;
    }

    /// Whether this process is the one that launched the helper, and not a fork of it.
    pub(crate) fn is_ours(&self) -> bool {
        self.owner == process::id()
    }

    /// The socket, to be polled for its hangup.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Locks the state. A panic elsewhere leaves it usable: each change is whole.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the helper is lost, if it is. Reads what is there first.
    pub(crate) fn loss(&self) -> Option<Loss> {
        if !self.is_ours() {
            return Some(Loss::Forked);
        }
        let mut state = self.lock();
        self.pump_and_look(&mut state);
        state.loss.clone()
    }

    /// Queues a request and sends what can be sent.
    pub(crate) fn request(
        &self,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Ticket<'_>, Refusal> {
        let mut state = self.usable()?;
        let id = state.new_request();
        let start = push(&mut state, id, request, descriptors)?;
        state.slots.insert(id, Slot::Call(None));
        self.start_sending(&mut state);
        Ok(Ticket {
            connection: self,
            id,
            start,
        })
    }

    /// Queues a spawn and the wait for its exit, which leave in one write.
    pub(crate) fn spawn(
        &self,
        spec: Spec,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(SessionId, Ticket<'_>), Refusal> {
        let mut state = self.usable()?;
        let session = state.new_session(spec.on_exit);
        let id = state.new_request();
        let request = Request::Spawn {
            session,
            spec: Box::new(spec),
        };
        let start = match push(&mut state, id, request, descriptors) {
            Ok(start) => start,
            Err(error) => {
                state.forget(session);
                return Err(error.into());
            }
        };
        state.slots.insert(id, Slot::Spawn(session, None));
        let wait = state.new_request();
        push(
            &mut state,
            wait,
            Request::Wait {
                session,
                until: Until::Exit,
            },
            Vec::new(),
        )?;
        state.slots.insert(wait, Slot::Exit(session));
        self.start_sending(&mut state);
        Ok((
            session,
            Ticket {
                connection: self,
                id,
                start,
            },
        ))
    }

    /// Lets a gated session go. The answer is that of a spawn.
    pub(crate) fn open_gate(&self, session: SessionId) -> Result<Ticket<'_>, Refusal> {
        let mut state = self.usable()?;
        let id = state.new_request();
        let start = push(&mut state, id, Request::Open { session }, Vec::new())?;
        state.slots.insert(id, Slot::Spawn(session, None));
        self.start_sending(&mut state);
        Ok(Ticket {
            connection: self,
            id,
            start,
        })
    }

    /// Asks for a session's end, once for everybody who waits for it.
    pub(crate) fn ask_end(&self, session: SessionId) -> Result<(), Refusal> {
        let mut state = self.usable()?;
        self.ask_end_locked(&mut state, session)?;
        self.start_sending(&mut state);
        Ok(())
    }

    fn ask_end_locked(&self, state: &mut State, session: SessionId) -> Result<(), Refusal> {
        let Some(record) = state.record(session) else {
            return Ok(());
        };
        if record.end.is_some() || record.end_asked {
            return Ok(());
        }
        record.end_asked = true;
        let id = state.new_request();
        push(
            state,
            id,
            Request::Wait {
                session,
                until: Until::End,
            },
            Vec::new(),
        )?;
        state.slots.insert(id, Slot::End(session));
        Ok(())
    }

    /// Closes a session without waiting for anything. With the helper lost, ends it by its
    /// descriptors. `watched` says whether somebody still holds a handle and may wait for its end.
    pub(crate) fn close(&self, session: SessionId, watched: bool) {
        if !self.is_ours() {
            return;
        }
        let mut state = self.lock();
        if state.loss.is_some() {
            if let Some(record) = state.record(session) {
                strike(record);
            }
            return;
        }
        // Neither request can be above a limit, so both are queued.
        let ours = |record: &mut Record| record.can_be_struck();
        let asked = if watched || state.record(session).is_some_and(ours) {
            self.ask_end_locked(&mut state, session)
        } else {
            Ok(())
        };
        let id = state.new_request();
        let closed = push(&mut state, id, Request::Close { session }, Vec::new());
        debug_assert!(asked.is_ok() && closed.is_ok(), "a close fits into a frame");
        self.start_sending(&mut state);
    }

    /// Gives the link up: the helper sent a reply that does not answer its request.
    pub(crate) fn breach(&self) -> Loss {
        let mut state = self.lock();
        self.lose(&mut state, Loss::Unexpected);
        state.loss.clone().unwrap_or(Loss::Unexpected)
    }

    /// Ends the link with its last handle. The socket is shut, and not only closed: whoever
    /// holds a copy of it would keep the helper.
    pub(crate) fn hang_up(&self) {
        if self.is_ours() {
            // Where it is closed already, the helper knows.
            let _closed_already = self.socket.shutdown(Shutdown::Both);
        }
    }

    /// Copies of what tells of a loss: the socket, whose hangup it is, and the helper's process.
    pub(crate) fn watched(&self) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
        let peer = self.peer.as_ref().map(OwnedFd::try_clone).transpose()?;
        Ok((self.socket.as_fd().try_clone_to_owned()?, peer))
    }

    /// Ends the link on purpose: what still waits is told so, and nothing is signalled.
    pub(crate) fn retire(&self) {
        let mut state = self.lock();
        for record in state.records() {
            record.standing = Standing::Over;
        }
        self.lose(&mut state, Loss::ShutDown);
    }

    /// Locks the state of a link that can still be used.
    fn usable(&self) -> Result<MutexGuard<'_, State>, Refusal> {
        if !self.is_ours() {
            return Err(Refusal::Lost(Loss::Forked));
        }
        let state = self.lock();
        match &state.loss {
            Some(loss) => Err(Refusal::Lost(loss.clone())),
            None => Ok(state),
        }
    }
}

impl Ticket<'_> {
    /// Waits for the reply until the deadline (none).
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Result<Option<Reply>, Loss> {
        self.connection
            .wait(Key::Request(self.id), deadline, |state| {
                state.take_reply(self.id)
            })
    }

    /// Whether the helper was lost before a single byte of the request had left.
    pub(crate) fn is_unsent(&self) -> bool {
        let state = self.connection.lock();
        state.loss.is_some() && state.sent_at_loss <= self.start
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.connection.is_ours() {
            self.connection.lock().slots.remove(&self.id);
        }
    }
}

impl From<EncodeError> for Refusal {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

/// Queues a frame and gives the stream position of its first byte.
fn push(
    state: &mut State,
    id: RequestId,
    request: Request,
    descriptors: Vec<OwnedFd>,
) -> Result<u64, EncodeError> {
    let body = encode_call(&Call { id, request })?;
    let start = state.queued;
    let before = state.outbox.len();
    state.outbox.push(&body, descriptors)?;
    state.queued += (state.outbox.len() - before) as u64;
    Ok(start)
}
