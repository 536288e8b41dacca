//! What a connection remembers: open requests, sessions, and who waits for what.
//!
//! Pure bookkeeping under the connection's lock. Nothing here calls the system, but for the
//! descriptors that it holds.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar};

use foster_protocol::{
    Attached, Exit, Frame, Inbox, OnExit, Outbox, Reject, Reply, RequestId, SessionId, VERSION,
    decode_answer,
};

use crate::ended::Ended;
use crate::error::Loss;

/// What a waiting thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// The reply to a request.
    Request(RequestId),
    /// Anything new about a session.
    Session(SessionId),
}

/// Where a session stands for the client, as far as a lost helper is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is to be ended when the helper is lost.
    Ours,
    /// Its release was asked for or acknowledged: it is no longer for us to end.
    Released,
    /// Its tree has been ended, or was ended by us after the loss.
    Over,
}

/// What is known of one session.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) pidfd: Option<Arc<OwnedFd>>,
    /// `cgroup.kill` of its cgroup; none where it has none, and once it is not ours to end.
    pub(super) kill: Option<OwnedFd>,
    /// No handle is left: it is kept until its end is known, to be ended if the helper is lost
    /// before.
    abandoned: bool,
    pub(crate) exit: Option<Result<Exit, Reject>>,
    pub(crate) end: Option<Result<Ended, Reject>>,
    /// Whether the rest is released at the leader's exit.
    pub(crate) leaves: bool,
    /// Whether `Wait` for the end has been sent.
    pub(crate) end_asked: bool,
    pub(crate) standing: Standing,
}

impl Record {
    /// Whether it is ours to end and there is something to do it by.
    pub(super) fn can_be_struck(&self) -> bool {
        self.standing == Standing::Ours && (self.pidfd.is_some() || self.kill.is_some())
    }

    /// Notes that it is over or let go, for certain: nothing is kept that could end it.
    fn settle(&mut self, standing: Standing) {
        self.standing = standing;
        self.kill = None;
    }
}

/// Who a reply is for.
#[derive(Debug)]
pub(super) enum Slot {
    /// A caller that has not come for it yet.
    Call(Option<Reply>),
    /// A spawn's caller; the pidfd goes to the session's record.
    Spawn(SessionId, Option<Reply>),
    /// Everybody who waits for a session's exit.
    Exit(SessionId),
    /// Everybody who waits for a session's end.
    End(SessionId),
}

/// A follower: a thread that sleeps while another one reads.
#[derive(Debug)]
struct Follower {
    key: Key,
    bell: Arc<Condvar>,
}

/// Everything under the connection's lock.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    /// Bytes that were ever queued; those that were sent are these less the outbox's.
    pub(super) queued: u64,
    /// The kernel has no room for more descriptors on their way: try again after a while.
    pub(super) throttled: bool,
    /// A thread polls the socket on behalf of all.
    pub(super) reading: bool,
    pub(super) slots: HashMap<RequestId, Slot>,
    pub(super) loss: Option<Loss>,
    /// Bytes that were sent when the helper was lost.
    pub(super) sent_at_loss: u64,
    sessions: HashMap<SessionId, Record>,
    followers: Vec<Follower>,
    next_request: u64,
    next_session: u64,
}

impl State {
    /// Makes a request id that was never used.
    pub(super) fn new_request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    /// Makes a session id that was never used, with an empty record.
    pub(super) fn new_session(&mut self, on_exit: OnExit) -> SessionId {
        self.next_session += 1;
        let session = SessionId(self.next_session);
        let record = Record {
            pidfd: None,
            kill: None,
            abandoned: false,
            exit: None,
            end: None,
            leaves: on_exit == OnExit::Leave,
            end_asked: false,
            standing: Standing::Ours,
        };
        self.sessions.insert(session, record);
        session
    }

    /// The record of a session.
    pub(crate) fn record(&mut self, session: SessionId) -> Option<&mut Record> {
        self.sessions.get_mut(&session)
    }

    /// Forgets a session. Replies about it that still come are dropped.
    pub(crate) fn forget(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// Forgets a session of which no handle is left, once nothing is left to end.
    pub(crate) fn abandon(&mut self, session: SessionId) {
        let is_lost = self.loss.is_some();
        let Some(record) = self.sessions.get_mut(&session) else {
            return;
        };
        if !is_lost && record.end_asked && record.end.is_none() && record.can_be_struck() {
            record.abandoned = true;
        } else {
            self.sessions.remove(&session);
        }
    }

    /// Every record.
    pub(super) fn records(&mut self) -> impl Iterator<Item = &mut Record> {
        self.sessions.values_mut()
    }

    /// How many bytes have been sent.
    pub(super) fn sent(&self) -> u64 {
        self.queued - self.outbox.len() as u64
    }

    /// Takes the reply to a call, if it has come.
    pub(super) fn take_reply(&mut self, id: RequestId) -> Option<Reply> {
        let reply = match self.slots.get_mut(&id)? {
            Slot::Call(reply) | Slot::Spawn(_, reply) => reply.take()?,
            Slot::Exit(_) | Slot::End(_) => return None,
        };
        self.slots.remove(&id);
        Some(reply)
    }

    /// Takes one frame from the helper to whom it is for.
    pub(super) fn deliver(&mut self, frame: Frame) -> Result<(), Loss> {
        let answer = match decode_answer(&frame.body) {
            Ok(answer) => answer,
            Err(error) => {
                return Err(match foreign_version(&frame.body) {
                    Some(version) => Loss::Version(version),
                    None => Loss::Decode(Arc::new(error)),
                });
            }
        };
        let reply = answer.reply;
        match self.slots.get_mut(&answer.id) {
            Some(Slot::Call(place)) => *place = Some(reply),
            Some(Slot::Spawn(session, place)) => {
                let session = *session;
                if let Reply::Prepared { attached, .. } | Reply::Spawned { attached, .. } = &reply
                    && let Some(record) = self.sessions.get_mut(&session)
                {
                    // Without them (no such kernel, or lost on the way) the session works all
                    // the same.
                    for (what, descriptor) in attached.iter().zip(frame.descriptors) {
                        match what {
                            Attached::Pidfd => record.pidfd = Some(Arc::new(descriptor)),
                            Attached::CgroupKill => record.kill = Some(descriptor),
                        }
                    }
                }
                *place = Some(reply);
            }
            Some(Slot::Exit(session)) => {
                let session = *session;
                self.slots.remove(&answer.id);
                return self.note_exit(session, reply);
            }
            Some(Slot::End(session)) => {
                let session = *session;
                self.slots.remove(&answer.id);
                return self.note_end(session, reply);
            }
            // Nobody waits for it any more: its caller's time was up.
            None if answer.id.0 <= self.next_request => return Ok(()),
            None => return Err(Loss::Unexpected),
        }
        self.ring(Key::Request(answer.id));
        Ok(())
    }

    fn note_exit(&mut self, session: SessionId, reply: Reply) -> Result<(), Loss> {
        let exit = match reply {
            Reply::Exited { exit } => Ok(exit),
            Reply::Rejected { reason } => Err(reason),
            Reply::Welcome { .. }
            | Reply::Restricted
            | Reply::Prepared { .. }
            | Reply::Spawned { .. }
            | Reply::SpawnFailed { .. }
            | Reply::Ended { .. }
            | Reply::Signalled { .. }
            | Reply::Released { .. }
            | Reply::Sessions { .. }
            | Reply::Pong { .. }
            | Reply::Capabilities { .. }
            | Reply::Farewell { .. } => return Err(Loss::Unexpected),
        };
        if let Some(record) = self.sessions.get_mut(&session) {
            if record.leaves && exit.is_ok() {
                record.settle(Standing::Released);
            }
            record.exit = Some(exit);
        }
        self.ring(Key::Session(session));
        Ok(())
    }

    fn note_end(&mut self, session: SessionId, reply: Reply) -> Result<(), Loss> {
        let (end, standing) = match reply {
            Reply::Ended { ending } => (Ok(Ended::Ending(ending)), Some(Standing::Over)),
            Reply::Released { still_running } => (
                Ok(Ended::Released { still_running }),
                Some(Standing::Released),
            ),
            Reply::Rejected { reason } => (Err(reason), None),
            Reply::Welcome { .. }
            | Reply::Restricted
            | Reply::Prepared { .. }
            | Reply::Spawned { .. }
            | Reply::SpawnFailed { .. }
            | Reply::Exited { .. }
            | Reply::Signalled { .. }
            | Reply::Sessions { .. }
            | Reply::Pong { .. }
            | Reply::Capabilities { .. }
            | Reply::Farewell { .. } => return Err(Loss::Unexpected),
        };
        if let Some(record) = self.sessions.get_mut(&session) {
            record.end = Some(end);
            if let Some(standing) = standing {
                record.settle(standing);
            }
            if record.abandoned {
                self.sessions.remove(&session);
            }
        }
        self.ring(Key::Session(session));
        Ok(())
    }

    /// Notes the end that the reply to a `Kill` or a `Release` tells of.
    pub(crate) fn settle(&mut self, session: SessionId, end: Ended) {
        if let Some(record) = self.sessions.get_mut(&session) {
            record.settle(match &end {
                Ended::Ending(_) => Standing::Over,
                Ended::Released { .. } => Standing::Released,
            });
            record.end.get_or_insert(Ok(end));
        }
        self.ring(Key::Session(session));
    }

    /// Enters a follower and gives the bell that wakes it.
    pub(super) fn follow(&mut self, key: Key) -> Arc<Condvar> {
        let bell = Arc::new(Condvar::new());
        self.followers.push(Follower {
            key,
            bell: Arc::clone(&bell),
        });
        bell
    }

    /// Takes a follower out again.
    pub(super) fn unfollow(&mut self, bell: &Arc<Condvar>) {
        self.followers
            .retain(|follower| !Arc::ptr_eq(&follower.bell, bell));
    }

    /// Wakes those who wait for this.
    fn ring(&self, key: Key) {
        for follower in self.followers.iter().filter(|follower| follower.key == key) {
            follower.bell.notify_one();
        }
    }

    /// Wakes everybody.
    pub(super) fn ring_all(&self) {
        for follower in &self.followers {
            follower.bell.notify_one();
        }
    }

    /// Wakes one follower to take the reader's role, where nobody has it.
    pub(super) fn hand_over(&self) {
        if !self.reading
            && let Some(follower) = self.followers.first()
        {
            follower.bell.notify_one();
        }
    }
}

/// The version in the welcome of a helper whose welcome does not decode.
///
/// A welcome begins with the request's id, its own tag 0 and the version in every version of
/// the protocol.
fn foreign_version(body: &[u8]) -> Option<u32> {
    let (_id, rest) = body.split_first_chunk::<8>()?;
    let (tag, rest) = rest.split_first_chunk::<4>()?;
    let (version, _rest) = rest.split_first_chunk::<4>()?;
    let version = u32::from_le_bytes(*version);
    (u32::from_le_bytes(*tag) == 0 && version != VERSION).then_some(version)
}
