//! Taking what keepers answer, and following their sessions by it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use foster_protocol::{
    Answer, Received, Reject, Reply, SessionId, StateName, decode_answer, receive,
};

use super::super::{Fault, Server};
use super::{Asked, Relay};
use crate::keeper;
use crate::timers::{Alarm, Owner};

impl Server {
    /// Reads what a keeper says.
    pub(in crate::server) fn read_relay(&mut self, session: SessionId) -> Result<(), Fault> {
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
                // It is dead or about to be, and its pidfd will say so.
                Ok(Received::Closed) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    tracing::warn!(%session, %error, "a keeper's link broke");
                    break;
                }
            }
            self.take_answers_of(session)?;
        }
        self.close_link(session);
        Ok(())
    }

    pub(super) fn take_answers_of(&mut self, session: SessionId) -> Result<(), Fault> {
        loop {
            let Some(relay) = self.relays.get_mut(&session) else {
                return Ok(());
            };
            let frame = match relay.inbox.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(error) => {
                    tracing::error!(%session, %error, "a keeper broke the protocol");
                    break;
                }
            };
            match decode_answer(&frame.body) {
                Ok(mut answer) => {
                    if frame.descriptors_lost {
                        forget_attached(&mut answer.reply);
                    }
                    self.take_answer(session, answer, frame.descriptors)?;
                }
                Err(error) => {
                    tracing::error!(%session, %error, "a keeper broke the protocol");
                    break;
                }
            }
        }
        self.close_link(session);
        Ok(())
    }

    pub(super) fn take_answer(
        &mut self,
        session: SessionId,
        answer: Answer,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Fault> {
        let Some(relay) = self.relays.get_mut(&session) else {
            return Ok(());
        };
        if answer.id == keeper::FORGOTTEN {
            return self.keeper_has_forgotten(session, &answer.reply);
        }
        let Some(asked) = relay.asked.remove(&answer.id) else {
            return Ok(());
        };
        if answer.id == keeper::BIRTH {
            self.timers.cancel(Owner::Session(session), Alarm::Look);
            // A keeper that was handed a session and refuses it has no record of it, and neither
            // has the client.
            relay.closed |= matches!(answer.reply, Reply::Rejected { .. });
        }
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
            Asked::Life => Ok(()),
            Asked::List(query) => {
                if let Reply::Sessions { sessions, .. } = answer.reply {
                    self.note_listed(query, session, sessions)?;
                }
                self.forget_relay_if_done(session)
            }
        }
    }
}

impl Relay {
    /// Follows the session by what its keeper answers.
    pub(super) fn mirror(&mut self, asked: Asked, reply: &Reply) {
        match reply {
            // A standing wait is refused where there is nothing to wait for.
            Reply::Rejected {
                reason: Reject::IllegalState { state },
            } if matches!(asked, Asked::Exit | Asked::End) => self.state = *state,
            Reply::Prepared {
                pid, containment, ..
            } => {
                self.leader = Some(*pid);
                self.containment = containment.clone();
                self.state = StateName::Prepared;
            }
            Reply::Spawned {
                pid, containment, ..
            } => {
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

/// There was no room for what came with it, and the client must not wait for it.
fn forget_attached(reply: &mut Reply) {
    if let Reply::Prepared { attached, .. } | Reply::Spawned { attached, .. } = reply {
        attached.clear();
    }
}
