//! Passing requests down to keepers, and seeing to it that endings come about.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use foster_protocol::{
    Cause, How, Reject, Reply, Request, RequestId, SessionId, StateName, Until, send,
};

use super::super::link::SEND_AGAIN;
use super::super::{Fault, Server};
use super::{Asked, Lateness, MARGIN, SLOW};
use crate::ending::{HARD_LIMIT, Work};
use crate::survivors::explain_leader;
use crate::sys::epoll::Interest;
use crate::timers::{Alarm, Owner};

impl Server {
    /// Passes a client's request on to the keeper of its session. False where no keeper keeps
    /// it.
    pub(in crate::server) fn relay_request(
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
                if relay.is_parting() {
                    // Its keeper has been told, and has nothing left to end.
                    self.forget_relay_if_done(session)?;
                    return Ok(true);
                }
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
        if relay.link.is_none() || relay.is_parting() {
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
    pub(super) fn expect_end(&mut self, session: SessionId, grace: Duration) {
        let Some(relay) = self.relays.get_mut(&session) else {
            return;
        };
        if relay.lets_go() || (relay.is_over() && self.closing.is_none()) {
            return;
        }
        // The keeper of a session that is over has only to go.
        if !relay.is_over() {
            relay.state = StateName::Ending;
            self.pace.hasten();
        }
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
    pub(in crate::server) fn deadline_of_kept(&mut self, session: SessionId) {
        let grace = self.relays.get(&session).map(|relay| relay.grace);
        if let Some(grace) = grace {
            self.expect_end(session, grace.into());
        }
    }

    /// A keeper has not ended its session in time, or has not gone. It is killed.
    pub(in crate::server) fn give_up_keeper(&mut self, session: SessionId) -> Result<(), Fault> {
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        let Some(keeper) = &relay.keeper else {
            return Ok(());
        };
        // One that runs is slow beside its tree, and about to say who is left; one that was
        // stopped again and again says nothing.
        let pause = match relay.lateness {
            Lateness::InTime if keeper.is_running() => {
                relay.lateness = Lateness::Slow;
                SLOW
            }
            Lateness::InTime | Lateness::Slow => {
                tracing::warn!(%session, "a keeper does not end its session and is killed");
                keeper.signal(libc::SIGKILL)?;
                relay.lateness = Lateness::Killed;
                HARD_LIMIT
            }
            Lateness::Killed | Lateness::Stuck => return self.name_stuck(session),
        };
        self.timers
            .set(Owner::Session(session), Alarm::Hard, self.now, pause);
        Ok(())
    }

    /// A keeper that does not die of KILL keeps nobody waiting: process 1 of a namespace dies when
    /// everybody in it has died, which may be never.
    fn name_stuck(&mut self, session: SessionId) -> Result<(), Fault> {
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        let Some(keeper) = &relay.keeper else {
            return Ok(());
        };
        relay.lateness = Lateness::Stuck;
        let survivor = explain_leader(keeper, None);
        let is_over = relay.is_over();
        if let Some(closing) = &mut self.closing {
            closing.survivors.push(survivor.clone());
        }
        if is_over {
            return Ok(());
        }
        let cause = Cause::SupervisorLost;
        let work = Work::new(self.now);
        let ending = work.incomplete(cause, vec![survivor], self.now, Vec::new());
        self.end_lost(session, ending)
    }

    pub(super) fn ask(
        &mut self,
        session: SessionId,
        asked: Asked,
        request: Request,
    ) -> Result<(), Fault> {
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        relay.last_id += 1;
        let id = RequestId(relay.last_id);
        relay.asked.insert(id, asked);
        self.send_down(session, id, request)
    }

    pub(super) fn send_down(
        &mut self,
        session: SessionId,
        id: RequestId,
        request: Request,
    ) -> Result<(), Fault> {
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        relay.queue(id, request, Vec::new())?;
        self.flush_relay(session)
    }

    /// Sends what the keeper takes. The rest goes when its socket has room again.
    pub(in crate::server) fn flush_relay(&mut self, session: SessionId) -> Result<(), Fault> {
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
                if relay.interest != interest {
                    self.epoll.modify(link.as_fd(), *token, interest)?;
                    relay.interest = interest;
                }
                Ok(())
            }
            // Too many descriptors of this user are on their way; it passes.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ETOOMANYREFS | libc::ENOMEM | libc::ENOBUFS)
                ) =>
            {
                let owner = Owner::Session(session);
                self.timers.set(owner, Alarm::Linger, self.now, SEND_AGAIN);
                Ok(())
            }
            // Its death is about to be seen.
            Err(error) => {
                tracing::debug!(%session, %error, "a keeper does not read");
                Ok(())
            }
        }
    }
}
