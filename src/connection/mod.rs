//! The client's end of the control socket.
//!
//! Sends requests and takes replies, in any order, without a thread of its own: of the
//! threads that wait, one has the reader's role and polls for all; one whose reply has come
//! or whose time is up hands the role on. Partial frames belong to the connection. Sending
//! never blocks: what does not fit is queued and goes out while somebody polls.
//!
//! It must never write from a process that was forked from the host, and never hold its lock
//! across a call that can block.

mod poll;
mod state;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foster_protocol::{
    Call, EncodeError, Received, Reply, Request, RequestId, SessionId, Spec, Until, encode_call,
    receive, send,
};
use nix::poll::{PollFd, PollFlags};

pub(crate) use poll::{poll_until, time_left};
pub use state::Ended;
use state::Slot;
pub(crate) use state::{Key, Record, Standing, State};

use crate::error::Loss;
use crate::sys;

/// How long a sender waits before it tries again to send descriptors that the kernel had no
/// room for: nothing announces that there is room (`ETOOMANYREFS`, `unix(7)`).
const RETRY: Duration = Duration::from_millis(5);

/// The most reads in a row of one call, so that a helper that never stops sending cannot keep
/// a caller whose time is up.
const READS: usize = 64;

/// The client's end of one control socket.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: UnixStream,
    /// Wakes the reader when there is something to send that it does not know of.
    wake: File,
    /// The process that may use the socket: the one that launched the helper.
    owner: u32,
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
            state: Mutex::default(),
        })
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
        self.pump(&mut state);
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
        let session = state.new_session();
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
    /// pidfd. `watched` says whether somebody still holds a handle and may wait for its end.
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
        let asked = if watched {
            self.ask_end_locked(&mut state, session)
        } else {
            Ok(())
        };
        let id = state.new_request();
        let closed = push(&mut state, id, Request::Close { session }, Vec::new());
        debug_assert!(asked.is_ok() && closed.is_ok(), "a close fits into a frame");
        self.start_sending(&mut state);
    }

    /// Waits until `ready` gives something, the helper is lost or the deadline has passed
    /// (none). What has come before the loss is still given out.
    pub(crate) fn wait<T>(
        &self,
        key: Key,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>, Loss> {
        if !self.is_ours() {
            return Err(Loss::Forked);
        }
        let mut state = self.lock();
        let mut looked = false;
        let outcome = loop {
            if let Some(value) = ready(&mut state) {
                break Ok(Some(value));
            }
            if let Some(loss) = &state.loss {
                break Err(loss.clone());
            }
            let left = time_left(deadline);
            if left == Some(Duration::ZERO) {
                if looked {
                    break Ok(None);
                }
                looked = true;
                self.pump(&mut state);
            } else if state.reading {
                state = self.follow(state, key, left);
            } else {
                state = self.lead(state, left);
            }
        };
        state.hand_over();
        outcome
    }

    /// Gives the link up: the helper sent a reply that does not answer its request.
    pub(crate) fn breach(&self) -> Loss {
        let mut state = self.lock();
        self.lose(&mut state, Loss::Unexpected);
        state.loss.clone().unwrap_or(Loss::Unexpected)
    }

    /// Ends the link on purpose: what still waits is told so, and nothing is signalled.
    pub(crate) fn retire(&self) {
        let mut state = self.lock();
        for record in state.records() {
            record.standing = Standing::Over;
        }
        self.lose(&mut state, Loss::ShutDown);
    }

    /// Sleeps until the reader has something for this thread or hands its role over.
    fn follow<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        key: Key,
        left: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        let bell = state.follow(key);
        let mut state = match left {
            Some(left) => {
                bell.wait_timeout(state, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
            None => bell.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        state.unfollow(&bell);
        state
    }

    /// Takes the reader's role for one poll.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        left: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        state.reading = true;
        let mut interest = PollFlags::POLLIN;
        let mut limit = left;
        if state.throttled {
            limit = Some(left.map_or(RETRY, |left| left.min(RETRY)));
        } else if !state.outbox.is_empty() {
            interest |= PollFlags::POLLOUT;
        }
        drop(state);
        let mut polled = [
            PollFd::new(self.socket.as_fd(), interest),
            PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
        ];
        let outcome = poll_until(&mut polled, limit);
        let woken = polled.get(1).is_some_and(|wake| wake.any().unwrap_or(true));
        let mut state = self.lock();
        state.reading = false;
        if woken {
            // Emptying the counter; there is nothing to do where another thread was faster.
            let _already_empty = (&self.wake).read(&mut [0; 8]);
        }
        match outcome {
            Ok(()) => self.pump(&mut state),
            Err(error) => self.lose(&mut state, Loss::Socket(Arc::new(error))),
        }
        state
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

    /// Sends what fits, and leaves the rest to whoever polls.
    fn start_sending(&self, state: &mut State) {
        if let Err(loss) = self.flush(state) {
            self.lose(state, loss);
        }
        if !state.outbox.is_empty() && state.reading {
            // A full counter wakes just as well.
            let _full = (&self.wake).write(&1_u64.to_ne_bytes());
        }
    }

    /// Reads and sends what can be read and sent without blocking.
    fn pump(&self, state: &mut State) {
        if state.loss.is_some() {
            return;
        }
        let outcome = self.read_all(state).and_then(|()| self.flush(state));
        if let Err(loss) = outcome {
            self.lose(state, loss);
        }
    }

    fn read_all(&self, state: &mut State) -> Result<(), Loss> {
        for _ in 0..READS {
            match receive(self.socket.as_fd(), &mut state.inbox) {
                Ok(Received::Bytes(_)) => {}
                Ok(Received::Closed) => return Err(Loss::Closed),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(Loss::Closed);
                }
                Err(error) => return Err(Loss::Socket(Arc::new(error))),
            }
            while let Some(frame) = state
                .inbox
                .next_frame()
                .map_err(|error| Loss::Frame(Arc::new(error)))?
            {
                state.deliver(frame)?;
            }
        }
        Ok(())
    }

    fn flush(&self, state: &mut State) -> Result<(), Loss> {
        state.throttled = false;
        let Err(error) = send(self.socket.as_fd(), &mut state.outbox) else {
            return Ok(());
        };
        match error.raw_os_error() {
            Some(libc::ETOOMANYREFS | libc::ENOBUFS | libc::ENOMEM) => {
                state.throttled = true;
                Ok(())
            }
            Some(libc::EPIPE | libc::ECONNRESET) => {
                // What the helper said last is still there to be read.
                self.read_all(state)?;
                Err(Loss::Closed)
            }
            Some(_) | None => Err(Loss::Socket(Arc::new(error))),
        }
    }

    /// Notes that the helper is lost, tells everybody and ends what it can.
    fn lose(&self, state: &mut State, loss: Loss) {
        if state.loss.is_some() {
            return;
        }
        tracing::debug!(cause = %loss, "helper lost");
        state.sent_at_loss = state.sent();
        state.loss = Some(loss);
        // 1. Descriptors in the queue go, so that whoever reads their other ends sees it.
        state.outbox = foster_protocol::Outbox::new();
        // 2. The hangup shows to those who poll the socket beside other things; where the
        //    socket is closed already it has shown.
        let _closed_already = self.socket.shutdown(Shutdown::Both);
        // 3. Every session is ended once.
        for record in state.records() {
            strike(record);
        }
        state.ring_all();
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

/// Kills a session's group by its leader's pidfd, once, where it is ours to end.
fn strike(record: &mut Record) {
    if record.standing != Standing::Ours {
        return;
    }
    let Some(pidfd) = &record.pidfd else { return };
    record.standing = Standing::Over;
    if let Err(error) = sys::signal_group(pidfd.as_fd(), libc::SIGKILL) {
        // ESRCH: nobody is left, which is what was wanted.
        tracing::debug!(%error, "session could not be killed after the helper was lost");
    }
}
