//! The helper as its keepers' client: requests go down, replies come up.
//!
//! A keeper is the parent of one session and answers for it. The helper passes its client's
//! requests on under ids of its own, so that it can tell which reply is whose, and keeps two
//! standing waits, so that it knows when the session is over. It holds the keeper as it holds a
//! leader: unreaped, by pidfd. Nothing here waits for a keeper.

mod answers;
mod asking;
mod everyone;
mod loss;
mod spares;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use foster_protocol::{
    Bytes, Call, Containment, How, Inbox, Level, Micros, Outbox, Pid, Reject, Reply, Request,
    RequestId, SessionId, SessionInfo, StateName, Step, Until, Verdict, encode_call,
};

use super::starting::POLL;
use super::{Admitted, Fault, Server, Watch};
use crate::keeper::{self, Birth};
use crate::sys::epoll::Interest;
use crate::sys::fork::{Forked, fork_isolated, fork_keeper};
use crate::sys::leader::Leader;
use crate::timers::{Alarm, Owner};
pub(super) use spares::Spare;

/// What a keeper may take beyond the limits of an ending before it is killed.
const MARGIN: Duration = Duration::from_secs(1);

/// What one that runs may take beyond that: a look beside a thousand others is slow.
const SLOW: Duration = Duration::from_secs(4);

/// Whose request it is that a keeper answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The client's, under its id.
    Client(RequestId),
    /// The client's wait for the end, or kill by ending: its reply may be the session's ending.
    ClientEnd(RequestId),
    /// The standing wait for the exit.
    Exit,
    /// The standing wait for the end.
    End,
    /// The shutdown's.
    Shutdown,
    /// A list's.
    List(u64),
    /// Ours: whether it serves at all.
    Life,
}

/// A session that a keeper keeps.
#[derive(Debug)]
pub(crate) struct Relay {
    keeper: Option<Leader>,
    keeper_token: u64,
    /// None once the link has been closed from here.
    link: Option<(OwnedFd, u64)>,
    /// What the link is watched for.
    interest: Interest,
    inbox: Inbox,
    outbox: Outbox,
    last_id: u64,
    asked: BTreeMap<RequestId, Asked>,
    born: Instant,
    label: Bytes,
    containment: Containment,
    pub(super) grace: Micros,
    deadline: Option<Micros>,
    pub(super) leader: Option<Pid>,
    state: StateName,
    /// The answer to every wait for the exit, once there is one.
    exit: Option<Reply>,
    /// The answer to every wait for the end, once there is one.
    pub(super) last: Option<Reply>,
    /// The client has closed the session.
    closed: bool,
    parting: Parting,
    lateness: Lateness,
}

/// How a keeper parts with a session that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parting {
    /// It goes with it.
    Never,
    /// It may keep another session afterwards.
    Possible,
    /// It has been told to forget the session.
    Told,
    /// It has said that it can keep another one.
    Blank,
}

/// How late a keeper is that is to end its session, or to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lateness {
    InTime,
    /// It was late and ran.
    Slow,
    /// It was killed because it did not go.
    Killed,
    /// It does not die of that either.
    Stuck,
}

impl Relay {
    /// Queues a request for the keeper.
    fn queue(
        &mut self,
        id: RequestId,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Fault> {
        let body = encode_call(&Call { id, request }).map_err(io::Error::other)?;
        let queued = self.outbox.push(&body, descriptors);
        Ok(queued.map_err(io::Error::other)?)
    }

    /// Its session is being ended.
    pub(super) fn is_ending(&self) -> bool {
        self.state == StateName::Ending && !self.is_over()
    }

    fn is_over(&self) -> bool {
        self.last.is_some()
    }

    /// The keeper has nothing left to keep or to tell.
    fn is_told(&self) -> bool {
        match (&self.last, self.state) {
            (None, _) => false,
            // The leader's exit may be waited for.
            (Some(_), StateName::Released) => self.exit.is_some(),
            // Somebody is left, and may yet go.
            (Some(Reply::Ended { ending }), _) => ending.verdict == Verdict::AllGone,
            (Some(_), _) => true,
        }
    }

    /// What a session that is over answers without its keeper.
    fn answer_alone(&self, request: &Request) -> Reply {
        let illegal = || Reply::Rejected {
            reason: Reject::IllegalState { state: self.state },
        };
        let known = match (request, self.state) {
            (
                Request::Wait {
                    until: Until::Exit, ..
                },
                _,
            ) => self.exit.clone(),
            (
                Request::Wait {
                    until: Until::End, ..
                },
                _,
            )
            | (
                Request::Kill {
                    how: How::End { .. },
                    ..
                },
                StateName::Ended,
            )
            | (Request::Release { .. }, StateName::Released) => self.last.clone(),
            (_, _) => None,
        };
        known.unwrap_or_else(illegal)
    }

    /// A leader that is dead is held by the keeper.
    pub(super) fn holds(&self) -> bool {
        self.state == StateName::Exited
    }

    /// The client knows of it.
    fn is_listed(&self) -> bool {
        !(self.closed && self.is_over())
    }

    /// The keeper has been told to forget the session, or has forgotten it.
    fn is_parting(&self) -> bool {
        match self.parting {
            Parting::Never | Parting::Possible => false,
            Parting::Told | Parting::Blank => true,
        }
    }

    /// Nothing of this keeps the helper from going.
    pub(super) fn lets_go(&self) -> bool {
        let is_stuck = self.lateness == Lateness::Stuck;
        self.keeper.is_none() || is_stuck || self.state == StateName::Released
    }

    fn info(&self, session: SessionId, now: Instant) -> SessionInfo {
        SessionInfo {
            session,
            leader: self.leader,
            state: self.state,
            level: self.containment.level,
            age: Micros::from(now.saturating_duration_since(self.born)),
            label: self.label.clone(),
            adopted: Vec::new(),
        }
    }
}

impl Server {
    /// Forks a keeper for a session. In the fork this returns [`Fault::Born`].
    pub(super) fn bear_keeper(&mut self, admitted: Admitted) -> Result<(), Fault> {
        let level = admitted.containment.level;
        let left = match level {
            Level::Namespace => Some(admitted),
            Level::Direct | Level::Group | Level::Tree | Level::Cgroup => {
                self.hand_over(admitted)?
            }
        };
        let Some(admitted) = left else { return Ok(()) };
        let made = nix::sys::socket::socketpair(
            nix::sys::socket::AddressFamily::Unix,
            nix::sys::socket::SockType::Stream,
            None,
            nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        );
        let (link, keeper_end) = match made {
            Ok(pair) => pair,
            Err(errno) => {
                return self.note_stillborn(&admitted, Step::Prepare, errno as i32);
            }
        };
        let isolation = (self.isolation).filter(|_| level == Level::Namespace);
        // Room for the keeper's pidfd, below the reserve.
        let Ok(room) = self.context.null.try_clone() else {
            return self.note_stillborn(&admitted, Step::Prepare, libc::EMFILE);
        };
        drop(room);
        let forked = match isolation {
            Some(kind) => fork_isolated(kind),
            None => fork_keeper(self.context.features.pidfd),
        };
        let keeper = match forked {
            Ok(Forked::Keeper) => {
                let guards = self.guards.drain(..).map(|(guard, _)| guard).collect();
                return Err(Fault::Born(Box::new(Birth {
                    link: keeper_end,
                    guards,
                    own_pidfd: self.own_pidfd.take(),
                    admitted: Admitted {
                        id: keeper::BIRTH,
                        ..admitted
                    },
                    nofile: self.context.nofile,
                    oom_score: self.context.oom_score,
                    scheduling: self.pace.to_give_back(),
                    features: self.context.features,
                    reserve: self.reserve,
                    base: self.base.clone(),
                    isolation,
                    capabilities: self.capabilities.clone(),
                    identity: self.identity,
                    instance: self.instance.hand_over(),
                })));
            }
            Ok(Forked::Helper(keeper)) => keeper,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
                return self.note_stillborn(&admitted, Step::Fork, errno);
            }
        };
        drop(keeper_end);
        self.note_keeper(&admitted, keeper, link)
    }

    fn note_keeper(
        &mut self,
        admitted: &Admitted,
        keeper: Leader,
        link: OwnedFd,
    ) -> Result<(), Fault> {
        let session = admitted.session;
        self.unreaped.insert(keeper.pid().0);
        let link_token = self.new_token(Watch::Relay(session));
        let keeper_token = self.new_token(Watch::Keeper(session));
        let mut watched = self.epoll.add(link.as_fd(), link_token, Interest::Read);
        if let Some(pidfd) = keeper.pidfd() {
            watched = watched.and(self.epoll.add(pidfd, keeper_token, Interest::Read));
        }
        let is_watched = watched.is_ok() && keeper.pidfd().is_some();
        if !is_watched {
            // It is looked at instead.
            self.timers
                .set(Owner::Session(session), Alarm::Poll, self.now, POLL);
        }
        let link = (link, link_token);
        let mut relay = Relay::new(admitted, (keeper, keeper_token), link, self.now);
        if !is_watched {
            relay.parting = Parting::Never;
        }
        self.note_relay(admitted.id, session, relay)
    }

    /// Takes up a session whose keeper has its spawn already, or has it before it in the queue.
    fn note_relay(
        &mut self,
        id: RequestId,
        session: SessionId,
        mut relay: Relay,
    ) -> Result<(), Fault> {
        if let Some(deadline) = relay.deadline {
            let owner = Owner::Session(session);
            self.timers
                .set(owner, Alarm::Deadline, self.now, deadline.into());
        }
        // The keeper answers the spawn first.
        relay.asked.insert(keeper::BIRTH, Asked::Client(id));
        self.relay_waiting += 1;
        for (asked, until) in [(Asked::Exit, Until::Exit), (Asked::End, Until::End)] {
            relay.last_id += 1;
            let id = RequestId(relay.last_id);
            relay.asked.insert(id, asked);
            relay.queue(id, Request::Wait { session, until }, Vec::new())?;
        }
        self.relays.insert(session, relay);
        self.flush_relay(session)
    }
}
