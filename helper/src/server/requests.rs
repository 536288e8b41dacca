//! Answering requests. A bad request is rejected and nothing has happened; a body that is no
//! request breaks the link.

use foster_protocol::{
    Cause, Counters, DecodeError, Frame, How, Reject, Reply, Request, RequestId, Seal, SessionId,
    Target, Until, decode_call,
};
use std::time::Duration;

use super::{Fault, Orders, Server};
use crate::dispatch::{Verb, check_signal, permit};
use crate::ending::{Force, Tree, Work};
use crate::session::{Event, State};

impl Server {
    pub(super) fn take_request(&mut self, frame: Frame) -> Result<(), Fault> {
        let call = match decode_call(&frame.body) {
            Ok(call) => call,
            Err(error) => return self.refuse_body(&error),
        };
        let id = call.id;
        let may_restrict = std::mem::replace(&mut self.may_restrict, false);
        let carries = matches!(call.request, Request::Spawn { .. });
        if !carries && (frame.descriptors_lost || !frame.descriptors.is_empty()) {
            return self.refuse_descriptors(id, &frame);
        }
        if let Some(session) = session_of(&call.request)
            && self.relay_request(id, session, &call.request)?
        {
            return Ok(());
        }
        match call.request {
            Request::Hello { .. } => self.reject(id, Reject::HelloRepeated),
            Request::Restrict { seal } => self.restrict(id, seal, may_restrict),
            Request::Spawn { session, spec } => self.start(id, session, *spec, frame),
            Request::Open { session } => self.open(id, session),
            Request::Wait { session, until } => self.wait(id, session, until),
            Request::Kill { session, how } => self.kill(id, session, how),
            Request::Release { session } => self.release(id, session),
            Request::Close { session } => self.close(session),
            Request::List => self.list(id),
            Request::Ping => {
                let counters = self.counters();
                self.reply(id, Reply::Pong { counters })
            }
            Request::Probe => {
                let capabilities = self.capabilities.clone();
                self.reply(id, Reply::Capabilities { capabilities })
            }
            Request::Shutdown { grace } => self.shut_down(id, Duration::from(grace)),
        }
    }

    fn refuse_body(&mut self, error: &DecodeError) -> Result<(), Fault> {
        tracing::warn!(%error, "the client broke the protocol");
        self.break_off()
    }

    fn refuse_descriptors(&mut self, id: RequestId, frame: &Frame) -> Result<(), Fault> {
        let reason = if frame.descriptors_lost {
            Reject::DescriptorsLost
        } else {
            let came = u32::try_from(frame.descriptors.len()).unwrap_or(u32::MAX);
            Reject::WrongDescriptorCount { expected: 0, came }
        };
        self.reject(id, reason)
    }

    fn restrict(&mut self, id: RequestId, seal: Seal, may: bool) -> Result<(), Fault> {
        if !may {
            return self.reject(id, Reject::RestrictTooLate);
        }
        self.seal = Some(seal);
        self.reply(id, Reply::Restricted)
    }

    /// Checks a request that needs a session in a fitting state, and rejects it otherwise.
    fn permits(
        &mut self,
        id: RequestId,
        session: SessionId,
        verb: Verb,
    ) -> Result<Option<State>, Fault> {
        let checked = self.table.get(session).and_then(|record| {
            permit(
                record.state,
                verb,
                record.detachable,
                record.containment.level,
            )
            .map(|()| record.state)
        });
        match checked {
            Ok(state) => Ok(Some(state)),
            Err(reason) => self.reject(id, reason).map(|()| None),
        }
    }

    fn open(&mut self, id: RequestId, session: SessionId) -> Result<(), Fault> {
        if self.permits(id, session, Verb::Open)?.is_none() {
            return Ok(());
        }
        self.change(session, |record| record.starter = Some(id));
        self.apply(session, Event::Opened)
    }

    fn wait(&mut self, id: RequestId, session: SessionId, until: Until) -> Result<(), Fault> {
        let waits = self.check_room().and_then(|()| {
            self.table.change(session, |record| match until {
                Until::Exit => record.wait_for_exit(id),
                Until::End => record.wait_for_end(id),
            })
        });
        match waits {
            Ok(()) => self.answer(session),
            Err(reason) => self.reject(id, reason),
        }
    }

    fn kill(&mut self, id: RequestId, session: SessionId, how: How) -> Result<(), Fault> {
        let (number, verb) = match how {
            How::Signal {
                number,
                to: Target::Leader,
            } => (number, Verb::SignalLeader),
            How::Signal {
                number,
                to: Target::Tree,
            } => (number, Verb::SignalTree),
            How::End { first, grace: _ } => (first, Verb::End),
        };
        if let Err(reason) = check_signal(number) {
            return self.reject(id, reason);
        }
        if self.permits(id, session, verb)?.is_none() {
            return Ok(());
        }
        match how {
            How::Signal {
                number,
                to: Target::Leader,
            } => self.signal_leader(id, session, number),
            How::Signal {
                number,
                to: Target::Tree,
            } => self.signal_tree(id, session, number),
            How::End { first, grace } => {
                if let Err(reason) = self.check_room() {
                    return self.reject(id, reason);
                }
                self.change(session, |record| record.wait_for_end(id));
                self.answer(session)?;
                self.end(
                    session,
                    Orders {
                        cause: Cause::Kill,
                        first,
                        grace: grace.into(),
                    },
                )
            }
        }
    }

    fn signal_leader(
        &mut self,
        id: RequestId,
        session: SessionId,
        number: i32,
    ) -> Result<(), Fault> {
        let Ok(record) = self.table.get(session) else {
            return Ok(());
        };
        let reached = match record
            .body
            .leader
            .as_ref()
            .map(|leader| leader.signal(number))
        {
            Some(Ok(())) => 1,
            // It is dead and its exit is about to be seen, or it is another user's by now.
            Some(Err(error)) => {
                tracing::debug!(%session, %error, "the leader was not reached");
                0
            }
            None => 0,
        };
        self.reply(id, Reply::Signalled { reached })
    }

    fn signal_tree(&mut self, id: RequestId, session: SessionId, number: i32) -> Result<(), Fault> {
        let reached = self.walk(session, |tree, ground| {
            let mut once = Work::new(self.now);
            let tree = Tree {
                cgroup: None,
                ..*tree
            };
            // Who is there is counted before the signal ends them.
            once.look_at_session(&tree, Force::None, ground)?;
            once.look_at_session(&tree, Force::Plain(number), ground)?;
            Ok(once.reached() + u32::from(tree.leader_lives))
        });
        let reached = reached?.unwrap_or(0);
        self.reply(id, Reply::Signalled { reached })
    }

    fn release(&mut self, id: RequestId, session: SessionId) -> Result<(), Fault> {
        let Some(state) = self.permits(id, session, Verb::Release)? else {
            return Ok(());
        };
        self.change(session, |record| record.wait_for_end(id));
        match state {
            State::Released => self.answer(session),
            State::Starting
            | State::Prepared
            | State::Running
            | State::Exited
            | State::Lingering
            | State::Aborting
            | State::Graceful
            | State::Killing
            | State::Ended
            | State::Failed => self.apply(session, Event::Release),
        }
    }

    /// Ends a session if it lives and forgets it when it has ended. An unknown one may have
    /// been forgotten already, and the request has no reply.
    fn close(&mut self, session: SessionId) -> Result<(), Fault> {
        if self
            .change(session, |record| record.closed = true)
            .is_none()
        {
            return Ok(());
        }
        self.end_by_spec(session, Cause::Close)
    }

    pub(super) fn counters(&self) -> Counters {
        let (orphans_reaped, signals_noted) = self.reaper.counts();
        let held = self
            .table
            .iter()
            .filter(|(_, record)| record.body.exited && record.body.leader.is_some())
            .count();
        Counters {
            sessions: (self.table.len() + self.relays.len()) as u64,
            held: (held + self.relays.values().filter(|relay| relay.holds()).count()) as u64,
            waiting: (self.table.waiting() + self.relay_waiting) as u64,
            forks: self.forks,
            orphans_reaped,
            signals_noted,
        }
    }
}

/// The existing session that a request is about.
fn session_of(request: &Request) -> Option<SessionId> {
    match request {
        Request::Open { session }
        | Request::Wait { session, .. }
        | Request::Kill { session, .. }
        | Request::Release { session }
        | Request::Close { session } => Some(*session),
        Request::Hello { .. }
        | Request::Restrict { .. }
        | Request::Spawn { .. }
        | Request::List
        | Request::Ping
        | Request::Probe
        | Request::Shutdown { .. } => None,
    }
}
