//! The server thread: one loop that waits, and hands out what has happened.
//!
//! It forks every leader and is therefore the parent that reaps them. It never blocks but in
//! `epoll_wait(2)`, never execs, and never signals by a number that it does not pin. It must
//! not be joined by another thread that forks.

mod actions;
mod closing;
mod requests;
mod starting;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foster_protocol::{
    Answer, Capabilities, Cause, FrameError, Inbox, MAX_BODY, Micros, OnExit, Outbox, Received,
    Reject, Reply, RequestId, Seal, SessionId, Step, encode_answer, receive, send,
};

use crate::contain::group::{Claim, Ground};
use crate::dispatch::Own;
use crate::ending::Work;
use crate::orphans::Shared;
use crate::reserve::Reserve;
use crate::session::{Event, IllegalTransition, State, next};
use crate::startup::Ready;
use crate::sys::epoll::{Epoll, Events, Interest};
use crate::sys::leader::Leader;
use crate::sys::proc::Adopted;
use crate::sys::spawn::Context;
use crate::table::{Record, Table};
use crate::timers::{Alarm, Owner, Timers};
use closing::Closing;

/// Above this many bytes of replies that the client has not read, its requests are left
/// unread.
const MOST_UNREAD: usize = 1024 * 1024;

/// How long a send waits that failed for reasons that pass by themselves.
const SEND_AGAIN: Duration = Duration::from_millis(1);

/// How many reads of the control socket one turn of the loop makes at most.
const READS_PER_TURN: usize = 4;

/// What a descriptor in the epoll set stands for. Tokens are never used twice, so an event
/// for a descriptor that is gone finds nothing.
#[derive(Clone, Copy, Debug)]
enum Watch {
    Control,
    Host,
    Orphans,
    Leader(SessionId),
    Status(SessionId),
    Member(Owner),
}

/// The processes of a session.
#[derive(Debug)]
pub(crate) struct Body {
    leader: Option<Leader>,
    leader_token: Option<u64>,
    /// The pipe on which the child reports its way to exec.
    status: Option<(OwnedFd, u64)>,
    gate: Option<OwnedFd>,
    /// The child has said that it goes into exec.
    executing: bool,
    failure: Option<(Step, i32)>,
    born: Instant,
    on_exit: OnExit,
    grace: Micros,
    first_signal: i32,
    /// Why and how it is to end, from the first request for it.
    orders: Option<Orders>,
    /// What is known of the tree while it is watched or ended.
    work: Option<Work>,
    /// The leader is dead and unreaped.
    exited: bool,
}

/// Why and how a session is to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orders {
    pub(crate) cause: Cause,
    /// The first signal.
    pub(crate) first: i32,
    pub(crate) grace: Duration,
}

impl Orders {
    /// There is nothing to wait for between the first signal and KILL.
    fn is_at_once(self) -> bool {
        self.grace.is_zero() || self.first == libc::SIGKILL
    }
}

impl Body {
    /// The orders of an ending that brings no terms of its own.
    fn own_orders(&self, cause: Cause) -> Orders {
        Orders {
            cause,
            first: self.first_signal,
            grace: self.grace.into(),
        }
    }

    /// The orders of an ending that the leader's exit brings about.
    fn orders_at_exit(&self, cause: Cause) -> Orders {
        match self.on_exit {
            OnExit::End { grace } | OnExit::Linger { limit: _, grace } => Orders {
                cause,
                first: self.first_signal,
                grace: grace.into(),
            },
            OnExit::Hold | OnExit::Leave => self.own_orders(cause),
        }
    }
}

impl Record<Body> {
    /// Why the session ends: the first reason that was given, or else the leader's exit.
    fn ending_cause(&self) -> Cause {
        let by_exit = self.exit.map_or(Cause::Exit, |exit| exit.cause);
        self.body.orders.map_or(by_exit, |orders| orders.cause)
    }
}

/// Why the loop ends.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A rule of our own was broken.
    Invariant(IllegalTransition),
    /// A call failed that the loop cannot go on without.
    System(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// What the server starts with.
pub(crate) struct Start {
    pub(crate) ready: Ready,
    pub(crate) shared: Arc<Shared>,
}

/// Everything that the server thread knows.
pub(crate) struct Server {
    control: OwnedFd,
    host: Option<OwnedFd>,
    inbox: Inbox,
    outbox: Outbox,
    epoll: Epoll,
    watches: HashMap<u64, Watch>,
    last_token: u64,
    control_token: u64,
    /// What the control socket is watched for.
    control_interest: Interest,
    timers: Timers,
    table: Table<Body>,
    adopted: Option<Adopted>,
    context: Context,
    reserve: Reserve,
    capabilities: Capabilities,
    own: Own,
    seal: Option<Seal>,
    /// Only the first request after `Hello` may be `Restrict`.
    may_restrict: bool,
    /// The leaders whose sessions are the helper's to end. They are unreaped, so each number
    /// is pinned while it stands here.
    leaders: HashSet<i32>,
    /// Sessions whose tree is watched or ended.
    working: BTreeSet<SessionId>,
    /// Kernel sessions that were released and may have living members.
    released: Vec<i32>,
    closing: Option<Closing>,
    forks: u64,
    shared: Arc<Shared>,
    now: Instant,
}

impl Server {
    pub(crate) fn new(start: Start) -> io::Result<Self> {
        let Start { ready, shared } = start;
        let mut server = Self {
            control: ready.control,
            host: ready.host,
            inbox: ready.inbox,
            outbox: Outbox::new(),
            epoll: Epoll::new()?,
            watches: HashMap::new(),
            last_token: 0,
            control_token: 0,
            control_interest: Interest::Read,
            timers: Timers::default(),
            table: Table::default(),
            adopted: ready.adopted,
            context: ready.context,
            reserve: ready.reserve,
            capabilities: ready.capabilities,
            own: ready.own,
            seal: None,
            may_restrict: true,
            leaders: HashSet::new(),
            working: BTreeSet::new(),
            released: Vec::new(),
            closing: None,
            forks: 0,
            shared,
            now: Instant::now(),
        };
        server.control_token = server.new_token(Watch::Control);
        server
            .epoll
            .add(server.control.as_fd(), server.control_token, Interest::Read)?;
        if let Some(host) = server.host.take() {
            let token = server.new_token(Watch::Host);
            server.epoll.add(host.as_fd(), token, Interest::Read)?;
            server.host = Some(host);
        }
        let token = server.new_token(Watch::Orphans);
        server
            .epoll
            .add(server.shared.wake.as_fd(), token, Interest::Read)?;
        Ok(server)
    }

    /// Serves until every session has ended after a hangup or a shutdown.
    pub(crate) fn serve(&mut self) -> Result<(), Fault> {
        let mut events = Events::new();
        // Frames may have come together with the greeting.
        self.take_frames()?;
        loop {
            self.flush()?;
            // After the flush: a farewell that has gone is the last thing.
            if self.is_finished() {
                break;
            }
            self.watch_control()?;
            let timeout = self.timers.next(Instant::now());
            self.epoll.wait(&mut events, timeout)?;
            self.now = Instant::now();
            for event in events.iter() {
                // A token without a watch belongs to something that an earlier event of this
                // turn has dealt with.
                if let Some(watch) = self.watches.get(&event.token).copied() {
                    self.handle(watch, event.token)?;
                }
            }
            while let Some((owner, alarm)) = self.timers.pop(self.now) {
                self.ring(owner, alarm)?;
            }
            self.go_on_closing()?;
        }
        self.last_flush();
        Ok(())
    }

    fn handle(&mut self, watch: Watch, token: u64) -> Result<(), Fault> {
        match watch {
            Watch::Control => self.read_control(),
            Watch::Host => {
                if let Some(host) = self.host.take() {
                    self.forget(host.as_fd(), token);
                }
                self.hang_up()
            }
            Watch::Orphans => {
                self.shared.wake.clear();
                self.orphans_changed()
            }
            Watch::Leader(session) => self.leader_is_ready(session),
            Watch::Status(session) => self.read_status(session),
            Watch::Member(owner) => self.member_died(owner, token),
        }
    }

    fn ring(&mut self, owner: Owner, alarm: Alarm) -> Result<(), Fault> {
        match (owner, alarm) {
            (Owner::Session(session), alarm) => self.ring_session(session, alarm),
            (Owner::Sweep, alarm) => self.ring_sweep(alarm),
            // The loop sends at every turn.
            (Owner::Socket, _) => Ok(()),
        }
    }

    /// Puts an event through the transition function and carries out what follows.
    fn apply(&mut self, session: SessionId, event: Event) -> Result<(), Fault> {
        let Ok(record) = self.table.get(session) else {
            return Ok(());
        };
        let (state, actions) =
            next(record.state, event, record.after_exit).map_err(Fault::Invariant)?;
        tracing::trace!(%session, from = ?record.state, ?event, to = ?state, "step");
        self.change(session, |record| record.state = state);
        match state {
            State::Lingering | State::Graceful | State::Killing => self.working.insert(session),
            State::Starting
            | State::Prepared
            | State::Running
            | State::Exited
            | State::Aborting
            | State::Ended
            | State::Released
            | State::Failed => self.working.remove(&session),
        };
        if state.is_terminal() {
            self.timers.cancel_all(Owner::Session(session));
        }
        for action in actions {
            self.carry_out(session, *action)?;
        }
        self.forget_if_done(session)
    }

    fn change<T>(
        &mut self,
        session: SessionId,
        change: impl FnOnce(&mut Record<Body>) -> T,
    ) -> Option<T> {
        self.table.change(session, change).ok()
    }

    fn state(&self, session: SessionId) -> Option<State> {
        self.table.get(session).ok().map(|record| record.state)
    }

    /// A record goes when its session is terminal, closed, and has no leader to reap.
    fn forget_if_done(&mut self, session: SessionId) -> Result<(), Fault> {
        let Ok(record) = self.table.get(session) else {
            return Ok(());
        };
        let done = record.closed && record.state.is_terminal() && record.body.leader.is_none();
        if done && let Some(mut record) = self.table.remove(session) {
            let refusal = record.illegal();
            for id in record.take_waits() {
                self.reply(id, refusal.clone())?;
            }
        }
        Ok(())
    }

    // -- the control socket --------------------------------------------------------------

    fn read_control(&mut self) -> Result<(), Fault> {
        for _ in 0..READS_PER_TURN {
            if self.outbox.len() > MOST_UNREAD || self.is_hung_up() {
                return Ok(());
            }
            match receive(self.control.as_fd(), &mut self.inbox) {
                Ok(Received::Bytes(_)) => self.take_frames()?,
                Ok(Received::Closed) => return self.hang_up(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return self.hang_up();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn take_frames(&mut self) -> Result<(), Fault> {
        loop {
            match self.inbox.next_frame() {
                Ok(Some(frame)) => self.take_request(frame)?,
                Ok(None) => return Ok(()),
                Err(error) => return self.refuse_frame(&error),
            }
        }
    }

    fn refuse_frame(&mut self, error: &FrameError) -> Result<(), Fault> {
        tracing::warn!(%error, "the client broke the protocol");
        self.break_off()
    }

    /// Queues a reply. A reply that no frame can hold would be a fault of our own: every list
    /// in it is bounded.
    fn reply(&mut self, id: RequestId, reply: Reply) -> Result<(), Fault> {
        self.reply_with(id, reply, Vec::new())
    }

    fn reply_with(
        &mut self,
        id: RequestId,
        reply: Reply,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Fault> {
        if self.is_hung_up() {
            return Ok(());
        }
        let too_long = |_| io::Error::other(format!("a reply is above {MAX_BODY} bytes"));
        let body = encode_answer(&Answer { id, reply }).map_err(too_long)?;
        self.outbox.push(&body, descriptors).map_err(too_long)?;
        Ok(())
    }

    fn reject(&mut self, id: RequestId, reason: Reject) -> Result<(), Fault> {
        tracing::debug!(id = id.0, ?reason, "rejected");
        self.reply(id, Reply::Rejected { reason })
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if self.outbox.is_empty() || self.is_hung_up() {
            return Ok(());
        }
        match send(self.control.as_fd(), &mut self.outbox) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // Too many descriptors of this user are on their way; it passes.
                Some(libc::ETOOMANYREFS | libc::ENOMEM | libc::ENOBUFS) => {
                    self.timers
                        .set(Owner::Socket, Alarm::Look, self.now, SEND_AGAIN);
                    Ok(())
                }
                Some(libc::EPIPE | libc::ECONNRESET) => self.hang_up(),
                Some(_) | None => Err(error.into()),
            },
        }
    }

    /// Watches the control socket for what can be used: nothing is read from a client that
    /// does not read.
    fn watch_control(&mut self) -> io::Result<()> {
        if self.is_hung_up() {
            return Ok(());
        }
        let waits_for_time = self.timers.due(Owner::Socket, Alarm::Look).is_some();
        let interest = match (self.outbox.is_empty() || waits_for_time, self.outbox.len()) {
            (true, _) => Interest::Read,
            (false, length) if length > MOST_UNREAD => Interest::Write,
            (false, _) => Interest::ReadWrite,
        };
        if interest != self.control_interest {
            self.epoll
                .modify(self.control.as_fd(), self.control_token, interest)?;
            self.control_interest = interest;
        }
        Ok(())
    }

    /// Sends the last replies to a client that may no longer read: once, without waiting.
    fn last_flush(&mut self) {
        if !self.is_hung_up()
            && let Err(error) = send(self.control.as_fd(), &mut self.outbox)
        {
            tracing::debug!(%error, "the farewell did not reach the client");
        }
    }

    // -- watches -------------------------------------------------------------------------

    fn new_token(&mut self, watch: Watch) -> u64 {
        self.last_token += 1;
        self.watches.insert(self.last_token, watch);
        self.last_token
    }

    /// Takes a descriptor out of the epoll set before it is closed: a pidfd that was passed
    /// on is kept open by its receiver and would go on reporting.
    fn forget(&mut self, descriptor: std::os::fd::BorrowedFd<'_>, token: u64) {
        self.watches.remove(&token);
        if let Err(error) = self.epoll.remove(descriptor) {
            tracing::debug!(%error, "a descriptor was not in the epoll set");
        }
    }

    /// Runs something on the ground that every walk stands on.
    fn with_ground<T>(&self, run: impl FnOnce(&Ground<'_>) -> T) -> T {
        let claim = |sid: i32| self.claim(sid);
        run(&Ground {
            adopted: self.adopted.as_ref(),
            own: self.context.helper_pid,
            pidfds: self.context.features.pidfd,
            claim: &claim,
        })
    }

    /// Whose a kernel session id is. A child that is not yet isolated is in our own.
    fn claim(&self, sid: i32) -> Claim {
        if sid == self.context.helper_pid || self.leaders.contains(&sid) {
            Claim::Ours
        } else if self.released.contains(&sid) {
            Claim::Released
        } else {
            Claim::Nobody
        }
    }
}
