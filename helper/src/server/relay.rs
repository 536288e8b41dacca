//! The helper as its keepers' client: requests go down, replies come up.
//!
//! A keeper is the parent of one session and answers for it. The helper passes its client's
//! requests on under ids of its own, so that it can tell which reply is whose, and keeps two
//! standing waits, so that it knows when the session is over. It holds the keeper as it holds a
//! leader: unreaped, by pidfd. Nothing here waits for a keeper.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use foster_protocol::{
    Answer, Bytes, Call, Containment, Ending, Farewell, Frame, How, Inbox, Level, Micros, Outbox,
    Pid, Proof, Received, Reject, Reply, Request, RequestId, SessionId, SessionInfo, Spec,
    StateName, Step, Until, Verdict, decode_answer, encode_call, receive, send,
};

use super::starting::POLL;
use super::{Fault, Server, Watch};
use crate::ending::HARD_LIMIT;
use crate::keeper::{self, Birth};
use crate::sys::epoll::Interest;
use crate::sys::fork::{Forked, fork_isolated, fork_keeper};
use crate::sys::leader::Leader;
use crate::timers::{Alarm, Owner};

/// What a keeper may take beyond the limits of an ending before it is killed.
const MARGIN: Duration = Duration::from_secs(1);

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
}

/// A session that a keeper keeps.
#[derive(Debug)]
pub(crate) struct Relay {
    keeper: Option<Leader>,
    keeper_token: u64,
    /// None once the link has been closed from here.
    link: Option<(OwnedFd, u64)>,
    inbox: Inbox,
    outbox: Outbox,
    last_id: u64,
    asked: BTreeMap<RequestId, Asked>,
    born: Instant,
    label: Bytes,
    containment: Containment,
    pub(super) grace: Micros,
    pub(super) leader: Option<Pid>,
    state: StateName,
    /// The answer to every wait for the exit, once there is one.
    exit: Option<Reply>,
    /// The answer to every wait for the end, once there is one.
    pub(super) last: Option<Reply>,
    /// The client has closed the session.
    closed: bool,
}

impl Relay {
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

    /// Nothing of this keeps the helper from going.
    pub(super) fn lets_go(&self) -> bool {
        self.keeper.is_none() || self.state == StateName::Released
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
    pub(super) fn bear_keeper(
        &mut self,
        id: RequestId,
        session: SessionId,
        spec: Spec,
        frame: Frame,
        containment: Containment,
    ) -> Result<(), Fault> {
        let made = nix::sys::socket::socketpair(
            nix::sys::socket::AddressFamily::Unix,
            nix::sys::socket::SockType::Stream,
            None,
            nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        );
        let (link, keeper_end) = match made {
            Ok(pair) => pair,
            Err(errno) => {
                return self.note_stillborn(id, session, Step::Prepare, errno as i32);
            }
        };
        let isolation = (self.isolation).filter(|_| containment.level == Level::Namespace);
        // Room for the keeper's pidfd, below the reserve.
        let Ok(room) = self.context.null.try_clone() else {
            return self.note_stillborn(id, session, Step::Prepare, libc::EMFILE);
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
                    session,
                    spec,
                    frame,
                    containment,
                    nofile: self.context.nofile,
                    features: self.context.features,
                    reserve: self.reserve,
                    base: self.base.clone(),
                    isolation,
                    capabilities: self.capabilities.clone(),
                    identity: self.identity,
                })));
            }
            Ok(Forked::Helper(keeper)) => keeper,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
                return self.note_stillborn(id, session, Step::Fork, errno);
            }
        };
        drop(keeper_end);
        self.note_keeper(id, session, spec, keeper, link, containment)
    }

    fn note_keeper(
        &mut self,
        id: RequestId,
        session: SessionId,
        spec: Spec,
        keeper: Leader,
        link: OwnedFd,
        containment: Containment,
    ) -> Result<(), Fault> {
        self.unreaped.insert(keeper.pid().0);
        let link_token = self.new_token(Watch::Relay(session));
        let keeper_token = self.new_token(Watch::Keeper(session));
        let mut watched = self.epoll.add(link.as_fd(), link_token, Interest::Read);
        if let Some(pidfd) = keeper.pidfd() {
            watched = watched.and(self.epoll.add(pidfd, keeper_token, Interest::Read));
        }
        if watched.is_err() || keeper.pidfd().is_none() {
            // It is looked at instead.
            self.timers
                .set(Owner::Session(session), Alarm::Poll, self.now, POLL);
        }
        let mut relay = Relay {
            keeper: Some(keeper),
            keeper_token,
            link: Some((link, link_token)),
            inbox: Inbox::new(),
            outbox: Outbox::new(),
            last_id: keeper::BIRTH.0,
            asked: BTreeMap::new(),
            born: self.now,
            label: spec.label,
            containment,
            grace: spec.grace,
            leader: None,
            state: StateName::Starting,
            exit: None,
            last: None,
            closed: false,
        };
        // The keeper was born with the spawn and answers it first.
        if let Some(deadline) = spec.deadline {
            self.timers.set(
                Owner::Session(session),
                Alarm::Deadline,
                self.now,
                deadline.into(),
            );
        }
        relay.asked.insert(keeper::BIRTH, Asked::Client(id));
        self.relay_waiting += 1;
        self.relays.insert(session, relay);
        self.ask(
            session,
            Asked::Exit,
            Request::Wait {
                session,
                until: Until::Exit,
            },
        )?;
        self.ask(
            session,
            Asked::End,
            Request::Wait {
                session,
                until: Until::End,
            },
        )
    }

    /// Passes a client's request on to the keeper of its session. False where no keeper keeps
    /// it.
    pub(super) fn relay_request(
        &mut self,
        id: RequestId,
        session: SessionId,
        request: &Request,
    ) -> Result<bool, Fault> {
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(false);
        };
        let asked = match request {
            Request::Close { .. } => {
                relay.closed = true;
                let grace = Duration::from(relay.grace);
                self.expect_end(session, grace);
                // There is no reply to wait for.
                self.send_down(session, RequestId(0), request.clone())?;
                self.forget_relay_if_done(session)?;
                return Ok(true);
            }
            Request::Wait {
                until: Until::End, ..
            }
            | Request::Kill {
                how: How::End { .. },
                ..
            } => Asked::ClientEnd(id),
            Request::Wait {
                until: Until::Exit, ..
            }
            | Request::Kill {
                how: How::Signal { .. },
                ..
            }
            | Request::Open { .. }
            | Request::Release { .. }
            | Request::Hello { .. }
            | Request::Restrict { .. }
            | Request::Spawn { .. }
            | Request::List
            | Request::Ping
            | Request::Probe
            | Request::Shutdown { .. } => Asked::Client(id),
        };
        if relay.link.is_none() && !relay.is_over() && matches!(asked, Asked::ClientEnd(_)) {
            // What its dead keeper kept is being ended, and this waits for it.
            relay.last_id += 1;
            relay.asked.insert(RequestId(relay.last_id), asked);
            self.relay_waiting += 1;
            return Ok(true);
        }
        if relay.link.is_none() {
            let reply = match relay.is_over() {
                true => relay.answer_alone(request),
                false => Reply::Rejected {
                    reason: Reject::SupervisorLost,
                },
            };
            self.reply(id, reply)?;
            return Ok(true);
        }
        let may_last =
            matches!(asked, Asked::ClientEnd(_)) || matches!(request, Request::Wait { .. });
        if may_last && let Err(reason) = self.check_room() {
            self.reject(id, reason)?;
            return Ok(true);
        }
        self.relay_waiting += 1;
        if let Request::Kill {
            how: How::End { first: _, grace },
            ..
        } = request
        {
            self.expect_end(session, Duration::from(*grace));
        }
        self.ask(session, asked, request.clone())?;
        Ok(true)
    }

    /// An ending has been asked for. The command may have stopped its keeper, so it is continued,
    /// and one that has not ended its session long after it should have is killed: what it kept
    /// comes to us then.
    fn expect_end(&mut self, session: SessionId, grace: Duration) {
        let Some(relay) = self.relays.get_mut(&session) else {
            return;
        };
        if relay.is_over() {
            return;
        }
        relay.state = StateName::Ending;
        if let Some(keeper) = &relay.keeper
            && let Err(error) = keeper.signal(libc::SIGCONT)
        {
            tracing::debug!(%session, %error, "a keeper cannot be continued");
        }
        let owner = Owner::Session(session);
        let limit = grace.saturating_add(HARD_LIMIT).saturating_add(MARGIN);
        let sooner = |due: Instant| self.now.checked_add(limit).is_some_and(|at| at < due);
        if self.timers.due(owner, Alarm::Hard).is_none_or(sooner) {
            self.timers.set(owner, Alarm::Hard, self.now, limit);
        }
    }

    /// The keeper ends its session at the deadline; here it is only seen to that it does.
    pub(super) fn deadline_of_kept(&mut self, session: SessionId) {
        let grace = self.relays.get(&session).map(|relay| relay.grace);
        if let Some(grace) = grace {
            self.expect_end(session, grace.into());
        }
    }

    /// A keeper has not ended its session in time.
    pub(super) fn give_up_keeper(&mut self, session: SessionId) -> Result<(), Fault> {
        if let Some(relay) = self.relays.get(&session)
            && !relay.is_over()
            && let Some(keeper) = &relay.keeper
        {
            tracing::warn!(%session, "a keeper does not end its session and is killed");
            keeper.signal(libc::SIGKILL)?;
        }
        Ok(())
    }

    fn ask(&mut self, session: SessionId, asked: Asked, request: Request) -> Result<(), Fault> {
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        relay.last_id += 1;
        let id = RequestId(relay.last_id);
        relay.asked.insert(id, asked);
        self.send_down(session, id, request)
    }

    fn send_down(
        &mut self,
        session: SessionId,
        id: RequestId,
        request: Request,
    ) -> Result<(), Fault> {
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        let body = encode_call(&Call { id, request }).map_err(io::Error::other)?;
        relay
            .outbox
            .push(&body, Vec::new())
            .map_err(io::Error::other)?;
        self.flush_relay(session)
    }

    /// Sends what the keeper takes. The rest goes when its socket has room again.
    fn flush_relay(&mut self, session: SessionId) -> Result<(), Fault> {
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        let Some((link, token)) = &relay.link else {
            return Ok(());
        };
        match send(link.as_fd(), &mut relay.outbox) {
            Ok(all) => {
                let interest = if all {
                    Interest::Read
                } else {
                    Interest::ReadWrite
                };
                self.epoll.modify(link.as_fd(), *token, interest)?;
                Ok(())
            }
            // Its death is about to be seen.
            Err(error) => {
                tracing::debug!(%session, %error, "a keeper does not read");
                Ok(())
            }
        }
    }

    /// Reads what a keeper says.
    pub(super) fn read_relay(&mut self, session: SessionId) -> Result<(), Fault> {
        self.flush_relay(session)?;
        loop {
            let Some(relay) = self.relays.get_mut(&session) else {
                return Ok(());
            };
            let Some((link, _)) = &relay.link else {
                return Ok(());
            };
            match receive(link.as_fd(), &mut relay.inbox) {
                Ok(Received::Bytes(_)) => {}
                Ok(Received::Closed) => return self.lose_link(session),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    tracing::warn!(%session, %error, "a keeper's link broke");
                    return self.lose_link(session);
                }
            }
            self.take_answers_of(session)?;
        }
    }

    fn take_answers_of(&mut self, session: SessionId) -> Result<(), Fault> {
        loop {
            let Some(relay) = self.relays.get_mut(&session) else {
                return Ok(());
            };
            let frame = match relay.inbox.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(error) => {
                    tracing::error!(%session, %error, "a keeper broke the protocol");
                    return self.lose_link(session);
                }
            };
            match decode_answer(&frame.body) {
                Ok(answer) => self.take_answer(session, answer, frame.descriptors)?,
                Err(error) => {
                    tracing::error!(%session, %error, "a keeper broke the protocol");
                    return self.lose_link(session);
                }
            }
        }
    }

    fn take_answer(
        &mut self,
        session: SessionId,
        answer: Answer,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Fault> {
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        let Some(asked) = relay.asked.remove(&answer.id) else {
            return Ok(());
        };
        relay.mirror(asked, &answer.reply);
        match asked {
            Asked::Client(id) | Asked::ClientEnd(id) => {
                self.relay_waiting -= 1;
                self.reply_with(id, answer.reply, descriptors)?;
                self.forget_relay_if_done(session)
            }
            Asked::Exit => {
                relay.exit = Some(answer.reply);
                self.forget_relay_if_done(session)
            }
            Asked::End => {
                relay.last = Some(answer.reply);
                self.forget_relay_if_done(session)
            }
            Asked::Shutdown => {
                if let Reply::Farewell { report } = answer.reply {
                    self.note_farewell(report);
                }
                Ok(())
            }
            Asked::List(query) => {
                if let Reply::Sessions { sessions, .. } = answer.reply {
                    self.note_listed(query, session, sessions)?;
                }
                self.forget_relay_if_done(session)
            }
        }
    }

    /// A keeper that has told everything goes when its link does, and the record when the client
    /// has closed the session.
    fn forget_relay_if_done(&mut self, session: SessionId) -> Result<(), Fault> {
        let Some(relay) = self.relays.get(&session) else {
            return Ok(());
        };
        let (closed, has_link) = (relay.closed && relay.is_over(), relay.link.is_some());
        let all_asked_answered = relay.asked.is_empty();
        // What is still asked is answered by the keeper, also behind a `Close`.
        if has_link && (closed || relay.is_told()) && all_asked_answered {
            self.close_link(session);
            self.drop_from_lists(session)?;
        }
        if closed
            && self
                .relays
                .get(&session)
                .is_some_and(|relay| relay.keeper.is_none())
        {
            self.relays.remove(&session);
        }
        Ok(())
    }

    /// Requests that a keeper took with it when its session was over.
    fn answer_stranded(&mut self, session: SessionId) -> Result<(), Fault> {
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        let last = relay.last.clone();
        for asked in std::mem::take(&mut relay.asked).into_values() {
            let (id, reply) = match (asked, &last) {
                (Asked::ClientEnd(id), Some(last)) => (id, last.clone()),
                (Asked::Client(id) | Asked::ClientEnd(id), _) => {
                    let reason = Reject::SupervisorLost;
                    (id, Reply::Rejected { reason })
                }
                (Asked::Exit | Asked::End | Asked::Shutdown | Asked::List(_), _) => continue,
            };
            self.relay_waiting -= 1;
            self.reply(id, reply)?;
        }
        self.drop_from_lists(session)
    }

    fn close_link(&mut self, session: SessionId) {
        let link = self
            .relays
            .get_mut(&session)
            .and_then(|relay| relay.link.take());
        if let Some((link, token)) = link {
            self.forget(link.as_fd(), token);
        }
    }

    /// The keeper has closed its end: it is dead or about to be, and its pidfd will say so.
    fn lose_link(&mut self, session: SessionId) -> Result<(), Fault> {
        self.close_link(session);
        Ok(())
    }

    /// A keeper that could not be held by pidfd is looked at every so often.
    pub(super) fn poll_keeper(&mut self, session: SessionId) -> Result<(), Fault> {
        self.keeper_is_dead(session)?;
        let lives = |relay: &Relay| relay.keeper.is_some();
        if self.relays.get(&session).is_some_and(lives) {
            self.timers
                .set(Owner::Session(session), Alarm::Poll, self.now, POLL);
        }
        Ok(())
    }

    /// A keeper's pidfd is readable. What it said last is read first.
    pub(super) fn keeper_is_dead(&mut self, session: SessionId) -> Result<(), Fault> {
        self.read_relay(session)?;
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        let Some(keeper) = relay.keeper.take() else {
            return Ok(());
        };
        let token = relay.keeper_token;
        let Some((status, _)) = keeper.peek()? else {
            // A tracer holds the dead one: its pidfd would be ready for ever.
            if let Some(pidfd) = keeper.pidfd().filter(|_| self.watches.contains_key(&token)) {
                self.forget(pidfd, token);
                self.timers
                    .set(Owner::Session(session), Alarm::Poll, self.now, POLL);
            }
            if let Some(relay) = self.relays.get_mut(&session) {
                relay.keeper = Some(keeper);
            }
            return Ok(());
        };
        if let Some(pidfd) = keeper.pidfd().filter(|_| self.watches.contains_key(&token)) {
            self.forget(pidfd, token);
        }
        let pid = keeper.pid().0;
        if let Err((_, error)) = keeper.reap() {
            return Err(error.into());
        }
        self.unreaped.remove(&pid);
        self.timers.cancel_all(Owner::Session(session));
        self.close_link(session);
        self.bury_keeper(session, status == 0)
    }

    /// What a dead keeper leaves: nothing, where its session is over; else everything that it
    /// kept has come to us and is ended.
    fn bury_keeper(&mut self, session: SessionId, clean: bool) -> Result<(), Fault> {
        self.kill_cgroup_of_lost(session);
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        if relay.state == StateName::Released
            && let Some(leader) = relay.leader
        {
            // What it kept was let go, and stays so here.
            self.released.push(leader.0);
        }
        let hung_up = self.is_hung_up();
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        // A hangup closes the link, and its keeper goes when it has ended the session.
        let went_by_itself = relay.closed && clean && hung_up;
        if relay.is_over() || went_by_itself {
            self.answer_stranded(session)?;
            if went_by_itself {
                self.relays.remove(&session);
            }
            return self.forget_relay_if_done(session);
        }
        tracing::warn!(%session, "a keeper died; what it kept is ended");
        relay.state = StateName::Ending;
        // Waits for the end are answered by the sweep; nothing else has an answer any more.
        let lost: Vec<RequestId> = relay
            .asked
            .values()
            .filter_map(|asked| match *asked {
                Asked::Client(id) => Some(id),
                Asked::ClientEnd(_)
                | Asked::Exit
                | Asked::End
                | Asked::Shutdown
                | Asked::List(_) => None,
            })
            .collect();
        relay
            .asked
            .retain(|_, asked| !matches!(asked, Asked::Client(_)));
        for id in lost {
            self.relay_waiting -= 1;
            self.reject(id, Reject::SupervisorLost)?;
        }
        self.drop_from_lists(session)?;
        self.begin_sweep(Duration::ZERO, Some(session))
    }

    /// A dead keeper's cgroup outlives it, and reaches those who have not come to us.
    fn kill_cgroup_of_lost(&self, session: SessionId) {
        let over = self.relays.get(&session).is_none_or(Relay::is_over);
        let leaf = (self.base.as_ref().filter(|_| !over)).map(|base| base.reopen(session));
        if let Some(Ok(leaf)) = leaf
            && let Err(error) = leaf.kill()
        {
            tracing::warn!(%session, %error, "a cgroup cannot be killed");
        }
    }

    /// A session without a keeper has ended with the sweep.
    pub(super) fn end_lost(&mut self, session: SessionId, mut ending: Ending) -> Result<(), Fault> {
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        // The kernel ends a namespace before its first process is seen to be dead.
        if relay.containment.level == Level::Namespace && ending.verdict == Verdict::AllGone {
            ending.proof = Some(Proof::NamespaceDead);
        }
        relay.state = StateName::Ended;
        if let Some(Ok(leaf)) = self.base.as_ref().map(|base| base.reopen(session)) {
            leaf.remove();
        }
        let last = Reply::Ended { ending };
        relay.last = Some(last.clone());
        let waits: Vec<Asked> = std::mem::take(&mut relay.asked).into_values().collect();
        for asked in waits {
            match asked {
                Asked::ClientEnd(id) => {
                    self.relay_waiting -= 1;
                    self.reply(id, last.clone())?;
                }
                Asked::Client(id) => {
                    self.relay_waiting -= 1;
                    self.reject(id, Reject::SupervisorLost)?;
                }
                Asked::Exit | Asked::End | Asked::Shutdown | Asked::List(_) => {}
            }
        }
        self.forget_relay_if_done(session)
    }

    // -- everything at once --------------------------------------------------------------

    /// A hangup: each keeper sees its link close and ends its session by its own terms.
    pub(super) fn hang_up_relays(&mut self) -> Result<(), Fault> {
        for session in self.relays.keys().copied().collect::<Vec<_>>() {
            let grace = self.relays.get_mut(&session).map(|relay| {
                relay.closed = true;
                Duration::from(relay.grace)
            });
            self.expect_end(session, grace.unwrap_or_default());
            self.close_link(session);
        }
        Ok(())
    }

    /// A shutdown: each keeper is asked for the same, and its farewell becomes part of ours.
    pub(super) fn shut_down_relays(&mut self, grace: Micros) -> Result<u32, Fault> {
        let mut count = 0;
        for session in self.relays.keys().copied().collect::<Vec<_>>() {
            let over = self.relays.get(&session).is_none_or(Relay::is_over);
            if over {
                // Its keeper stays for a session that was released, and has no other reason.
                self.close_link(session);
            } else {
                count += 1;
                self.expect_end(session, Duration::from(grace));
                self.ask(session, Asked::Shutdown, Request::Shutdown { grace })?;
            }
        }
        Ok(count)
    }

    fn note_farewell(&mut self, report: Farewell) {
        if let Some(closing) = &mut self.closing {
            closing.orphans.extend(report.orphans);
            closing.survivors.extend(report.survivors);
        }
    }

    /// Every session that a keeper keeps is over or let go, and its keeper is gone.
    pub(super) fn relays_are_over(&self) -> bool {
        self.relays.values().all(Relay::lets_go)
    }

    /// Asks every keeper for a list, for its adopted orphans. Gives back what to wait for.
    pub(super) fn ask_for_lists(&mut self, query: u64) -> Result<Vec<SessionId>, Fault> {
        let mut asked = Vec::new();
        for session in self.relays.keys().copied().collect::<Vec<_>>() {
            let has_link = self
                .relays
                .get(&session)
                .is_some_and(|relay| relay.link.is_some());
            if has_link {
                self.ask(session, Asked::List(query), Request::List)?;
                asked.push(session);
            }
        }
        Ok(asked)
    }

    /// What is known here of every kept session.
    pub(super) fn relay_infos(&self, now: Instant) -> Vec<SessionInfo> {
        self.relays
            .iter()
            .filter(|(_, relay)| relay.is_listed())
            .map(|(session, relay)| relay.info(*session, now))
            .collect()
    }

    /// For the last resort: a keeper that is told to go ends its session.
    pub(super) fn kill_keepers_links(&mut self) {
        for relay in self.relays.values_mut() {
            relay.link = None;
        }
    }
}

impl Relay {
    /// Follows the session by what its keeper answers.
    fn mirror(&mut self, asked: Asked, reply: &Reply) {
        match reply {
            // A standing wait is refused where there is nothing to wait for.
            Reply::Rejected {
                reason: Reject::IllegalState { state },
            } if matches!(asked, Asked::Exit | Asked::End) => self.state = *state,
            Reply::Prepared { pid, containment } => {
                self.leader = Some(*pid);
                self.containment = containment.clone();
                self.state = StateName::Prepared;
            }
            Reply::Spawned { pid, containment } => {
                self.leader = Some(*pid);
                self.containment = containment.clone();
                if matches!(self.state, StateName::Starting | StateName::Prepared) {
                    self.state = StateName::Running;
                }
            }
            Reply::SpawnFailed { .. } => self.state = StateName::Failed,
            Reply::Exited { exit: _ } => {
                if matches!(
                    self.state,
                    StateName::Starting | StateName::Prepared | StateName::Running
                ) {
                    self.state = StateName::Exited;
                }
            }
            Reply::Ended { .. } => self.state = StateName::Ended,
            Reply::Released { .. } => self.state = StateName::Released,
            Reply::Welcome { .. }
            | Reply::Restricted
            | Reply::Rejected { .. }
            | Reply::Signalled { .. }
            | Reply::Sessions { .. }
            | Reply::Pong { .. }
            | Reply::Capabilities { .. }
            | Reply::Farewell { .. } => {}
        }
    }
}
