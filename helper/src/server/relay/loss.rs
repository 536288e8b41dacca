//! What becomes of a session and its record when a keeper goes: told everything, or lost.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use foster_protocol::{
    Ending, Level, Proof, Reject, Reply, RequestId, SessionId, StateName, Verdict,
};

use super::super::starting::POLL;
use super::super::{Fault, Server};
use super::{Asked, Relay};
use crate::timers::{Alarm, Owner};

impl Server {
    /// A keeper that has told everything becomes a spare one, or goes when its link does; the
    /// record goes when the client has closed the session.
    pub(super) fn forget_relay_if_done(&mut self, session: SessionId) -> Result<(), Fault> {
        let Some(relay) = self.relays.get(&session) else {
            return Ok(());
        };
        let (closed, has_link) = (relay.closed && relay.is_over(), relay.link.is_some());
        let all_asked_answered = relay.asked.is_empty();
        // What is still asked is answered by the keeper, also behind a `Close`.
        if has_link && (closed || relay.is_told()) && all_asked_answered {
            if !self.part(session)? {
                self.close_link(session);
            }
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
    pub(super) fn answer_stranded(&mut self, session: SessionId) -> Result<(), Fault> {
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
                (Asked::Exit | Asked::End | Asked::Shutdown | Asked::List(_) | Asked::Life, _) => {
                    continue;
                }
            };
            self.relay_waiting -= 1;
            self.reply(id, reply)?;
        }
        self.drop_from_lists(session)
    }

    pub(super) fn close_link(&mut self, session: SessionId) {
        let Some(relay) = self.relays.get_mut(&session) else {
            return;
        };
        let link = relay.link.take();
        // A command may have stopped it, and it is to see that its link is closed.
        if let Some(Err(error)) = relay.keeper.as_ref().map(|it| it.signal(libc::SIGCONT)) {
            tracing::debug!(%session, %error, "a keeper cannot be continued");
        }
        if let Some((link, token)) = link {
            self.shut_link(link, token);
        }
    }

    /// Closes a link so that its keeper sees it: also where another fork still has a copy of
    /// this end, because it has not yet come to close what it was born with.
    pub(super) fn shut_link(&mut self, link: OwnedFd, token: u64) {
        self.forget(link.as_fd(), token);
        let both = nix::sys::socket::Shutdown::Both;
        if let Err(error) = nix::sys::socket::shutdown(link.as_raw_fd(), both) {
            tracing::debug!(%error, "a keeper's link cannot be shut down");
        }
        drop(link);
    }

    /// A keeper that could not be held by pidfd is looked at every so often.
    pub(in crate::server) fn poll_keeper(&mut self, session: SessionId) -> Result<(), Fault> {
        self.keeper_is_dead(session)?;
        let lives = |relay: &Relay| relay.keeper.is_some();
        if self.relays.get(&session).is_some_and(lives) {
            self.timers
                .set(Owner::Session(session), Alarm::Poll, self.now, POLL);
        }
        Ok(())
    }

    /// A keeper's pidfd is readable. What it said last is read first.
    pub(in crate::server) fn keeper_is_dead(&mut self, session: SessionId) -> Result<(), Fault> {
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
    pub(super) fn bury_keeper(&mut self, session: SessionId, clean: bool) -> Result<(), Fault> {
        self.kill_cgroup_of_lost(session);
        let hung_up = self.is_hung_up();
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        // A keeper that leaves by itself has nobody left. What a lost one kept was let go, and
        // stays so here.
        if relay.state == StateName::Released && !clean {
            self.released.extend(relay.leader.map(|leader| leader.0));
        }
        // A hangup closes the link, and its keeper goes when it has ended the session.
        let went_by_itself = relay.closed && clean && hung_up;
        if relay.is_over() || went_by_itself {
            self.remove_cgroup_of(session);
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
                | Asked::List(_)
                | Asked::Life => None,
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
    pub(super) fn kill_cgroup_of_lost(&self, session: SessionId) {
        let over = self.relays.get(&session).is_none_or(Relay::is_over);
        let leaf = (self.base.as_ref().filter(|_| !over)).map(|base| base.reopen(session));
        if let Some(Ok(leaf)) = leaf
            && let Err(error) = leaf.kill()
        {
            tracing::warn!(%session, %error, "a cgroup cannot be killed");
        }
    }

    /// Removes the cgroup that a session has left behind, or notes that it is still in use: a
    /// member that nothing could end outlives its keeper, and its death is seen here.
    fn remove_cgroup_of(&mut self, session: SessionId) {
        let relay = self.relays.get(&session);
        let has_one = relay.is_some_and(|relay| relay.containment.level >= Level::Cgroup);
        let base = self.base.as_ref().filter(|_| has_one);
        if base.is_some_and(|base| !base.remove_of(session)) {
            self.in_use.insert(session);
        }
    }

    /// Somebody has died: cgroups that were in use may be empty now.
    pub(in crate::server) fn remove_empty_cgroups(&mut self) {
        if let Some(base) = &self.base {
            self.in_use.retain(|session| !base.remove_of(*session));
        }
    }

    /// A session without a keeper has ended with the sweep.
    pub(in crate::server) fn end_lost(
        &mut self,
        session: SessionId,
        mut ending: Ending,
    ) -> Result<(), Fault> {
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        // The kernel ends a namespace before its first process is seen to be dead.
        if relay.containment.level == Level::Namespace && ending.verdict == Verdict::AllGone {
            ending.proof = Some(Proof::NamespaceDead);
        }
        relay.state = StateName::Ended;
        let last = Reply::Ended { ending };
        relay.last = Some(last.clone());
        let waits: Vec<Asked> = std::mem::take(&mut relay.asked).into_values().collect();
        self.remove_cgroup_of(session);
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
                Asked::Exit | Asked::End | Asked::Shutdown | Asked::List(_) | Asked::Life => {}
            }
        }
        self.forget_relay_if_done(session)
    }
}
