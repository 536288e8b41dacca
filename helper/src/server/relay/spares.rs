//! Spare keepers: what a session leaves behind that is over with a proof, for the next one.
//!
//! To fork a keeper costs more than everything else of a spawn together. A keeper whose session
//! is over, whose children are all gone and whose condition is the one that it was born in says
//! so by itself, and waits here for a few seconds. It is handed a session as a helper is: by a
//! `Spawn` over its link. Nothing is ever handed to one that is known to be dead, and nothing
//! that was handed over is given to another one: the first may have run it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use foster_protocol::{
    Inbox, Level, Outbox, Reply, Request, RequestId, SessionId, StateName, Verdict,
};

use super::super::starting::POLL;
use super::super::{Admitted, Fault, Role, Server, Watch};
use super::{Asked, Lateness, Parting, Relay};
use crate::keeper;
use crate::sys::epoll::Interest;
use crate::sys::leader::Leader;
use crate::timers::{Alarm, Owner};

/// How many keepers wait at most. A host that runs one command at a time needs one, a build with
/// as many jobs as small machines have processors a few; each costs less than 200 kB.
const MOST_SPARE: usize = 4;

/// How long one waits. It is longer than an agent or a test runner pauses between two commands,
/// and a host that has stopped spawning gets its memory back.
const SPARE_TIME: Duration = Duration::from_secs(10);

/// A keeper that has not answered what it was handed is continued and asked whether it lives.
const DOUBT: Duration = Duration::from_millis(500);

/// How long it may take to say so before it is killed, or to go once it was told to. A busy
/// machine is no reason to lose a session.
const PATIENCE: Duration = Duration::from_secs(5);

/// A keeper without a session. One without a link has been told to go.
#[derive(Debug)]
pub(in crate::server) struct Spare {
    keeper: Leader,
    keeper_token: u64,
    link: Option<(OwnedFd, u64)>,
    since: Instant,
}

impl Relay {
    /// Its keeper can keep another session, as far as this side knows.
    fn leaves_a_spare(&self) -> bool {
        let is_proven = match (&self.last, self.state) {
            (Some(Reply::Ended { ending }), StateName::Ended) => ending.verdict == Verdict::AllGone,
            // Nothing has run.
            (Some(Reply::Rejected { .. }), StateName::Failed) => true,
            (_, _) => false,
        };
        is_proven && self.keeper.as_ref().is_some_and(|it| it.pidfd().is_some())
    }
}

impl Server {
    fn has_room_for_a_spare(&self) -> bool {
        let waiting = self.spares.iter().filter(|spare| spare.link.is_some());
        self.closing.is_none() && self.role == Role::Helper && waiting.count() < MOST_SPARE
    }

    /// A keeper has told everything: it parts with its session, or goes. False where it goes.
    pub(super) fn part(&mut self, session: SessionId) -> Result<bool, Fault> {
        let has_room = self.has_room_for_a_spare();
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(false);
        };
        if !has_room || !relay.leaves_a_spare() {
            return Ok(false);
        }
        match relay.parting {
            Parting::Never => return Ok(false),
            Parting::Possible => relay.parting = Parting::Told,
            Parting::Told => return Ok(true),
            Parting::Blank => return self.park(session),
        }
        // The client's own `Close` is on its way already, or this one is in its place.
        if !relay.closed {
            self.send_down(session, RequestId(0), Request::Close { session })?;
        }
        Ok(true)
    }

    /// A keeper says that its session is forgotten. Without being blank it keeps no other one.
    pub(super) fn keeper_has_forgotten(
        &mut self,
        session: SessionId,
        reply: &Reply,
    ) -> Result<(), Fault> {
        if let Some(relay) = self.relays.get_mut(&session) {
            let is_blank = matches!(reply, Reply::Pong { .. });
            relay.parting = match is_blank && relay.parting != Parting::Never {
                true => Parting::Blank,
                false => Parting::Never,
            };
        }
        self.forget_relay_if_done(session)
    }

    fn park(&mut self, session: SessionId) -> Result<bool, Fault> {
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(false);
        };
        if relay.inbox.is_mid_frame() || !relay.outbox.is_empty() {
            return Ok(false);
        }
        let keeper_token = relay.keeper_token;
        let (Some(keeper), Some(link)) = (relay.keeper.take(), relay.link.take()) else {
            return Ok(false);
        };
        self.timers.cancel_all(Owner::Session(session));
        self.watches.insert(link.1, Watch::Spare);
        self.watches.insert(keeper_token, Watch::Spare);
        self.spares.push(Spare {
            keeper,
            keeper_token,
            link: Some(link),
            since: self.now,
        });
        self.wait_for_spares(SPARE_TIME);
        Ok(true)
    }

    fn wait_for_spares(&mut self, time: Duration) {
        if self.timers.due(Owner::Spares, Alarm::Look).is_none() {
            self.timers.set(Owner::Spares, Alarm::Look, self.now, time);
        }
    }

    /// Something has come from a spare keeper, or one is dead. It has nothing to say, so that
    /// any word means that it goes.
    pub(in crate::server) fn spare_stirs(&mut self, token: u64) -> Result<(), Fault> {
        let its = |spare: &Spare| {
            spare.keeper_token == token || spare.link.as_ref().is_some_and(|link| link.1 == token)
        };
        let Some(place) = self.spares.iter().position(its) else {
            self.watches.remove(&token);
            return Ok(());
        };
        self.dismiss(place);
        self.bury_spare(place)
    }

    /// Tells a spare keeper to go, by its link. It may have been stopped.
    fn dismiss(&mut self, place: usize) {
        let link = self.spares.get_mut(place).and_then(|it| it.link.take());
        if let Some((link, token)) = link {
            self.shut_link(link, token);
        }
        if let Some(spare) = self.spares.get(place)
            && let Err(error) = spare.keeper.signal(libc::SIGCONT)
        {
            tracing::debug!(%error, "a spare keeper cannot be continued");
        }
    }

    /// Reaps a spare keeper that is dead.
    fn bury_spare(&mut self, place: usize) -> Result<(), Fault> {
        let Some(spare) = self.spares.get(place) else {
            return Ok(());
        };
        if spare.keeper.peek()?.is_none() {
            if spare.keeper.has_died()? {
                // A tracer holds the dead one: its pidfd would be ready for ever.
                self.unwatch_spare(place);
                self.wait_for_spares(POLL);
            }
            return Ok(());
        }
        self.unwatch_spare(place);
        let spare = self.spares.swap_remove(place);
        let pid = spare.keeper.pid().0;
        if let Err((_, error)) = spare.keeper.reap() {
            return Err(error.into());
        }
        self.unreaped.remove(&pid);
        Ok(())
    }

    fn unwatch_spare(&mut self, place: usize) {
        if let Some(spare) = self.spares.get(place)
            && self.watches.remove(&spare.keeper_token).is_some()
            && let Some(pidfd) = spare.keeper.pidfd()
            && let Err(error) = self.epoll.remove(pidfd)
        {
            tracing::debug!(%error, "a spare keeper was not in the epoll set");
        }
    }

    /// The time of some spare keepers is up. One that has not gone since it was told to is killed:
    /// it keeps nothing.
    pub(in crate::server) fn look_at_spares(&mut self) -> Result<(), Fault> {
        for place in (0..self.spares.len()).rev() {
            let Some(spare) = self.spares.get(place) else {
                continue;
            };
            let (is_told, since) = (spare.link.is_none(), spare.since);
            if is_told {
                spare.keeper.signal(libc::SIGKILL)?;
                self.bury_spare(place)?;
            } else if self.now.saturating_duration_since(since) >= SPARE_TIME {
                self.dismiss(place);
            }
        }
        let is_leaving = self.spares.iter().any(|spare| spare.link.is_none());
        let first = self.spares.iter().map(|spare| spare.since).min();
        match (is_leaving, first) {
            (true, _) => self.wait_for_spares(PATIENCE),
            (false, Some(first)) => {
                let age = self.now.saturating_duration_since(first);
                self.wait_for_spares(SPARE_TIME.saturating_sub(age));
            }
            (false, None) => {}
        }
        Ok(())
    }

    /// The helper goes, and they keep nothing.
    pub(in crate::server) fn kill_spares(&mut self) -> Result<(), Fault> {
        for place in (0..self.spares.len()).rev() {
            self.dismiss(place);
            if let Some(spare) = self.spares.get(place) {
                spare.keeper.signal(libc::SIGKILL)?;
            }
        }
        Ok(())
    }

    /// The spare keeper that was used last, if one lives.
    fn take_spare(&mut self) -> Result<Option<Spare>, Fault> {
        for place in (0..self.spares.len()).rev() {
            let Some(spare) = self.spares.get(place).filter(|it| it.link.is_some()) else {
                continue;
            };
            if spare.keeper.has_died()? {
                self.dismiss(place);
                self.bury_spare(place)?;
                continue;
            }
            // The order is that of their use, but for those that have gone.
            return Ok(Some(self.spares.remove(place)));
        }
        Ok(None)
    }

    /// Hands a session to a spare keeper. Gives it back where there is none.
    pub(super) fn hand_over(&mut self, admitted: Admitted) -> Result<Option<Admitted>, Fault> {
        let Some(mut spare) = self.take_spare()? else {
            return Ok(Some(admitted));
        };
        let Some(link) = spare.link.take() else {
            return Ok(Some(admitted));
        };
        let session = admitted.session;
        // A command of the same user may have stopped it.
        if let Err(error) = spare.keeper.signal(libc::SIGCONT) {
            tracing::debug!(%session, %error, "a spare keeper cannot be continued");
        }
        self.watches.insert(link.1, Watch::Relay(session));
        self.watches
            .insert(spare.keeper_token, Watch::Keeper(session));
        self.timers
            .set(Owner::Session(session), Alarm::Look, self.now, DOUBT);
        let keeper = (spare.keeper, spare.keeper_token);
        let mut relay = Relay::new(&admitted, keeper, link, self.now);
        let spawn = Request::Spawn {
            session,
            spec: Box::new(admitted.spec),
        };
        relay.queue(keeper::BIRTH, spawn, admitted.descriptors)?;
        self.note_relay(admitted.id, session, relay)?;
        Ok(None)
    }

    /// A keeper has not yet answered what it was handed. The program may be slow to start, or the
    /// keeper stopped: it is asked, and killed where it does not answer that either.
    pub(in crate::server) fn doubt_keeper(&mut self, session: SessionId) -> Result<(), Fault> {
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        if !relay.asked.contains_key(&keeper::BIRTH) {
            return Ok(());
        }
        let Some(keeper) = &relay.keeper else {
            return Ok(());
        };
        let is_asked = relay.asked.values().any(|asked| *asked == Asked::Life);
        if is_asked {
            tracing::warn!(%session, "a keeper does not take its session and is killed");
            keeper.signal(libc::SIGKILL)?;
            return Ok(());
        }
        keeper.signal(libc::SIGCONT)?;
        self.timers
            .set(Owner::Session(session), Alarm::Look, self.now, PATIENCE);
        self.ask(session, Asked::Life, Request::Ping)
    }
}

/// What a relay begins with.
impl Relay {
    pub(super) fn new(
        admitted: &Admitted,
        (keeper, keeper_token): (Leader, u64),
        link: (OwnedFd, u64),
        now: Instant,
    ) -> Self {
        let Admitted {
            spec, containment, ..
        } = admitted;
        Self {
            keeper: Some(keeper),
            keeper_token,
            link: Some(link),
            interest: Interest::Read,
            inbox: Inbox::new(),
            outbox: Outbox::new(),
            last_id: keeper::BIRTH.0,
            asked: BTreeMap::new(),
            born: now,
            label: spec.label.clone(),
            deadline: spec.deadline,
            containment: containment.clone(),
            grace: spec.grace,
            leader: None,
            state: StateName::Starting,
            exit: None,
            last: None,
            closed: false,
            parting: match containment.level < Level::Namespace {
                true => Parting::Possible,
                false => Parting::Never,
            },
            lateness: Lateness::InTime,
        }
    }
}
