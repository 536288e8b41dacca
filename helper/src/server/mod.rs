//! The server thread: one loop that waits, and hands out what has happened.
//!
//! It forks every leader and is therefore the parent that reaps them. It never blocks but in
//! `epoll_wait(2)`, never execs, and never signals by a number that it does not pin. It must
//! not be joined by another thread that forks.

mod actions;
mod body;
mod closing;
mod course;
mod ground;
mod link;
mod listing;
mod relay;
mod requests;
mod resting;
mod starting;
mod sweep;
mod turn;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use foster_protocol::{Capabilities, Inbox, Outbox, Seal, SessionId};

use crate::contain::cgroup::Base;
use crate::dispatch::Own;
use crate::instance::Instance;
use crate::keeper::Birth;
use crate::orphans::Reaper;
use crate::reserve::Reserve;
use crate::session::{Event, IllegalTransition, State, next};
use crate::startup::Ready;
use crate::sys::condition::Condition;
use crate::sys::epoll::{Epoll, Interest};
use crate::sys::fork::Isolation;
use crate::sys::own;
use crate::sys::pace::Pace;
use crate::sys::proc::Adopted;
use crate::sys::spawn::Context;
use crate::table::{Record, Table};
use crate::timers::{Owner, Timers};
use body::{Body, Orders};
use closing::Closing;
use listing::PendingList;
use relay::{Relay, Spare};
pub(crate) use starting::Admitted;
use sweep::Sweep;

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
    Relay(SessionId),
    Keeper(SessionId),
    /// A keeper without a session, or its link.
    Spare,
}

/// Why the loop ends.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A rule of our own was broken.
    Invariant(IllegalTransition),
    /// A call failed that the loop cannot go on without.
    System(io::Error),
    /// No fault: this is a fork that will keep one session. It leaves the server behind.
    Born(Box<Birth>),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// What the server starts with.
pub(crate) struct Start {
    pub(crate) ready: Ready,
    pub(crate) reaper: Reaper,
    pub(crate) role: Role,
}

/// What a server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A host's helper: many sessions, and keepers for some of them.
    Helper,
    /// The keeper of one session at a time: every orphan is its.
    Keeper,
}

/// Everything that the server thread knows.
pub(crate) struct Server {
    role: Role,
    control: OwnedFd,
    /// Pidfds whose owners' deaths are hangups, with their tokens.
    guards: Vec<(OwnedFd, u64)>,
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
    /// Sessions that a keeper keeps.
    relays: BTreeMap<SessionId, Relay>,
    /// Keepers that wait for a session.
    spares: Vec<Spare>,
    /// Sessions whose keepers are gone and whose cgroups were still in use then.
    in_use: BTreeSet<SessionId>,
    /// Requests of the client's that wait for keepers.
    relay_waiting: usize,
    /// The adopted orphans.
    adopted: Option<Adopted>,
    /// The children of this thread: leaders, keepers, and what leaders made siblings of
    /// themselves.
    own_children: Option<Adopted>,
    /// Leaders and keepers that are not reaped.
    unreaped: HashSet<i32>,
    context: Context,
    reserve: Reserve,
    capabilities: Capabilities,
    /// Where cgroups are made.
    base: Option<Base>,
    isolation: Option<Isolation>,
    instance: Instance,
    pace: Pace,
    /// A keeper's session, until nothing can be left of it.
    kept: Option<SessionId>,
    /// A keeper has said that its session is forgotten.
    has_forgotten: bool,
    /// What a keeper was born as.
    condition: Option<Condition>,
    identity: Own,
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
    sweep: Option<Sweep>,
    /// A pidfd of this process, for its keepers to watch.
    own_pidfd: Option<OwnedFd>,
    /// Lists that wait for keepers.
    lists: BTreeMap<u64, PendingList>,
    last_list: u64,
    forks: u64,
    reaper: Reaper,
    now: Instant,
}

impl Server {
    pub(crate) fn new(start: Start) -> io::Result<Self> {
        let Start {
            ready,
            reaper,
            role,
        } = start;
        let own_children = match ready.context.features.children_files {
            true => Some(Adopted::open_own()?),
            false => None,
        };
        let pace = match role {
            Role::Helper => Pace::Calm { usual: None },
            Role::Keeper => Pace::Steady,
        };
        let mut server = Self {
            role,
            pace,
            control: ready.control,
            guards: Vec::new(),
            inbox: ready.inbox,
            outbox: Outbox::new(),
            epoll: Epoll::new()?,
            watches: HashMap::new(),
            last_token: 0,
            control_token: 0,
            control_interest: Interest::Read,
            timers: Timers::default(),
            table: Table::default(),
            relays: BTreeMap::new(),
            spares: Vec::new(),
            in_use: BTreeSet::new(),
            relay_waiting: 0,
            adopted: ready.adopted,
            own_children,
            unreaped: HashSet::new(),
            context: ready.context,
            reserve: ready.reserve,
            capabilities: ready.capabilities,
            base: ready.base,
            isolation: ready.isolation,
            instance: ready.instance,
            kept: None,
            has_forgotten: true,
            condition: None,
            identity: ready.own,
            seal: None,
            may_restrict: true,
            leaders: HashSet::new(),
            working: BTreeSet::new(),
            released: Vec::new(),
            closing: None,
            sweep: None,
            own_pidfd: None,
            lists: BTreeMap::new(),
            last_list: 0,
            forks: 0,
            reaper,
            now: Instant::now(),
        };
        server.control_token = server.new_token(Watch::Control);
        server
            .epoll
            .add(server.control.as_fd(), server.control_token, Interest::Read)?;
        for guard in ready.guards {
            let token = server.new_token(Watch::Host);
            server.epoll.add(guard.as_fd(), token, Interest::Read)?;
            server.guards.push((guard, token));
        }
        let token = server.new_token(Watch::Orphans);
        server
            .epoll
            .add(server.reaper.as_fd(), token, Interest::Read)?;
        if role == Role::Helper && server.context.features.pidfd {
            server.own_pidfd = Some(own::open_pidfd(server.context.helper_pid)?);
        }
        Ok(server)
    }

    /// Keeps the session that a keeper was forked for, and those that it is handed later.
    pub(crate) fn keep(&mut self, admitted: Admitted) -> Result<(), Fault> {
        self.may_restrict = false;
        self.condition = Some(Condition::read()?);
        self.start_here(admitted)?;
        self.serve()
    }

    /// Removes the cgroups that nobody uses any more.
    pub(crate) fn tidy(&self) {
        let Some(base) = &self.base else { return };
        match (self.role, self.kept) {
            (Role::Helper, _) => base.remove_all(),
            (Role::Keeper, Some(session)) => drop(base.remove_of(session)),
            // A spare keeper has removed its last one.
            (Role::Keeper, None) => {}
        }
    }

    /// Takes the record away where nothing is left that the janitor could end.
    pub(crate) fn retire(&self) {
        if self.role == Role::Helper {
            self.instance.retire();
        }
    }

    /// Puts an event through the transition function and carries out what follows.
    fn apply(&mut self, session: SessionId, event: Event) -> Result<(), Fault> {
        let Ok(record) = self.table.get(session) else {
            return Ok(());
        };
        let before = record.state;
        let (state, actions) = next(before, event, record.after_exit).map_err(Fault::Invariant)?;
        tracing::trace!(%session, from = ?before, ?event, to = ?state, "step");
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
        // Once: whoever outlived the ending is looked at from then on, whatever is asked.
        if state.is_terminal() && state != before {
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
}
