//! The records of sessions: who waits for what, and what is already known.
//!
//! A record lives until its session is terminal *and* closed, so every wait gets exactly one
//! reply and all of them the same one. Ids only rise, so a forgotten id never comes back.
//! What belongs to the processes of a session is opaque here.

use std::collections::BTreeMap;

use foster_protocol::{
    Bytes, Containment, Ending, Exit, Level, MAX_SESSIONS, MAX_WAITING, Pid, Reject, Reply,
    RequestId, SessionId,
};

use crate::session::{AfterExit, State};

/// What is known of one session.
#[derive(Debug)]
pub(crate) struct Record<B> {
    pub(crate) state: State,
    pub(crate) after_exit: AfterExit,
    pub(crate) detachable: bool,
    pub(crate) closed: bool,
    pub(crate) label: Bytes,
    pub(crate) containment: Containment,
    pub(crate) pid: Option<Pid>,
    /// The leader's number as the host knows it.
    pub(crate) shown: Option<Pid>,
    /// The spawn or opening that has had no answer.
    pub(crate) starter: Option<RequestId>,
    exit_waits: Vec<RequestId>,
    end_waits: Vec<RequestId>,
    /// The program did not run and never will, so that there is no exit.
    pub(crate) never_ran: bool,
    pub(crate) exit: Option<Exit>,
    pub(crate) ending: Option<Ending>,
    /// How many members ran at the release.
    pub(crate) released: Option<u32>,
    pub(crate) body: B,
}

impl<B> Record<B> {
    /// Creates the record of a session whose child has just been forked.
    pub(crate) fn new(starter: RequestId, body: B) -> Self {
        Self {
            state: State::Starting,
            after_exit: AfterExit::Hold,
            detachable: false,
            closed: false,
            label: Bytes::default(),
            containment: Containment {
                level: Level::Group,
                missing: Vec::new(),
            },
            pid: None,
            shown: None,
            starter: Some(starter),
            exit_waits: Vec::new(),
            end_waits: Vec::new(),
            never_ran: false,
            exit: None,
            ending: None,
            released: None,
            body,
        }
    }

    /// What a wait for the exit is told now, if anything.
    pub(crate) fn exit_reply(&self) -> Option<Reply> {
        if let Some(exit) = self.exit {
            return Some(Reply::Exited { exit });
        }
        (self.never_ran && self.state.is_terminal()).then(|| self.illegal())
    }

    /// What a wait for the end is told now, if anything.
    pub(crate) fn end_reply(&self) -> Option<Reply> {
        if let Some(still_running) = self.released {
            return Some(Reply::Released { still_running });
        }
        if let Some(ending) = &self.ending {
            return Some(Reply::Ended {
                ending: ending.clone(),
            });
        }
        (self.state == State::Failed).then(|| self.illegal())
    }

    /// The refusal of a request that this state does not allow.
    pub(crate) fn illegal(&self) -> Reply {
        Reply::Rejected {
            reason: Reject::IllegalState {
                state: self.state.name(),
            },
        }
    }

    /// Adds a wait for the exit.
    pub(crate) fn wait_for_exit(&mut self, id: RequestId) {
        self.exit_waits.push(id);
    }

    /// Adds a wait for the end.
    pub(crate) fn wait_for_end(&mut self, id: RequestId) {
        self.end_waits.push(id);
    }

    /// Takes every wait that has its answer now.
    pub(crate) fn take_answers(&mut self) -> Vec<(RequestId, Reply)> {
        let mut answers = Vec::new();
        if let Some(reply) = self.exit_reply() {
            answers.extend(self.exit_waits.drain(..).map(|id| (id, reply.clone())));
        }
        if let Some(reply) = self.end_reply() {
            answers.extend(self.end_waits.drain(..).map(|id| (id, reply.clone())));
        }
        answers
    }

    /// Takes every wait, answered or not: the record goes, and the session with it.
    pub(crate) fn take_waits(&mut self) -> Vec<RequestId> {
        let mut waits = std::mem::take(&mut self.exit_waits);
        waits.append(&mut self.end_waits);
        waits
    }

    /// How many requests wait here.
    pub(crate) fn waiting(&self) -> usize {
        self.exit_waits.len() + self.end_waits.len() + usize::from(self.starter.is_some())
    }
}

/// Every record, by session id.
#[derive(Debug)]
pub(crate) struct Table<B> {
    records: BTreeMap<SessionId, Record<B>>,
    /// The highest id that was ever used.
    highest: Option<SessionId>,
    /// How many requests wait in all records.
    waiting: usize,
}

impl<B> Default for Table<B> {
    fn default() -> Self {
        Self {
            records: BTreeMap::new(),
            highest: None,
            waiting: 0,
        }
    }
}

impl<B> Table<B> {
    /// Checks that a session with this id may be made, with those that are kept elsewhere, and
    /// uses the id up.
    pub(crate) fn admit(&mut self, session: SessionId, elsewhere: usize) -> Result<(), Reject> {
        if self.highest.is_some_and(|highest| session <= highest) {
            return Err(Reject::DuplicateSession);
        }
        if self.records.len() + elsewhere >= MAX_SESSIONS {
            return Err(Reject::TooManySessions {
                limit: MAX_SESSIONS as u64,
            });
        }
        self.highest = Some(session);
        Ok(())
    }

    /// Checks that one more request may wait, with those that wait elsewhere.
    pub(crate) fn check_room(&self, elsewhere: usize) -> Result<(), Reject> {
        if self.waiting() + elsewhere >= MAX_WAITING {
            return Err(Reject::TooManyRequests {
                limit: MAX_WAITING as u64,
            });
        }
        Ok(())
    }

    /// Adds a record under an admitted id.
    pub(crate) fn insert(&mut self, session: SessionId, record: Record<B>) {
        self.waiting += record.waiting();
        self.records.insert(session, record);
    }

    /// The record of a session.
    pub(crate) fn get(&self, session: SessionId) -> Result<&Record<B>, Reject> {
        self.records.get(&session).ok_or(Reject::UnknownSession)
    }

    /// The record of a session, to change. What it changes in the number of waiting requests
    /// is counted.
    pub(crate) fn change<T>(
        &mut self,
        session: SessionId,
        change: impl FnOnce(&mut Record<B>) -> T,
    ) -> Result<T, Reject> {
        let record = self
            .records
            .get_mut(&session)
            .ok_or(Reject::UnknownSession)?;
        let before = record.waiting();
        let result = change(record);
        self.waiting = self.waiting + record.waiting() - before;
        Ok(result)
    }

    /// Takes a record out.
    pub(crate) fn remove(&mut self, session: SessionId) -> Option<Record<B>> {
        let record = self.records.remove(&session)?;
        self.waiting -= record.waiting();
        Some(record)
    }

    /// Every record in the order of the ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &Record<B>)> {
        self.records
            .iter()
            .map(|(session, record)| (*session, record))
    }

    /// Every id, in order.
    pub(crate) fn ids(&self) -> Vec<SessionId> {
        self.records.keys().copied().collect()
    }

    /// How many records there are.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record<()> {
        Record::new(RequestId(1), ())
    }

    #[test]
    fn ids_only_rise() {
        let mut table = Table::<()>::default();
        assert_eq!(table.admit(SessionId(5), 0), Ok(()));
        for id in [5, 4, 0] {
            assert_eq!(table.admit(SessionId(id), 0), Err(Reject::DuplicateSession));
        }
        assert_eq!(table.admit(SessionId(6), 0), Ok(()));
    }

    #[test]
    fn a_full_table_uses_no_id_up() {
        let mut table = Table::default();
        let full = Reject::TooManySessions {
            limit: MAX_SESSIONS as u64,
        };
        for id in 0..MAX_SESSIONS as u64 {
            assert_eq!(table.admit(SessionId(id), 0), Ok(()));
            table.insert(SessionId(id), record());
        }
        let next = SessionId(MAX_SESSIONS as u64);
        assert_eq!(table.admit(next, 0), Err(full));
        table.remove(SessionId(0));
        assert_eq!(table.admit(next, 0), Ok(()));
    }

    #[test]
    fn waiting_requests_are_counted_wherever_they_go() {
        let mut table = Table::default();
        table.insert(SessionId(1), record());
        assert_eq!(table.waiting(), 1);
        table
            .change(SessionId(1), |record| {
                record.wait_for_exit(RequestId(2));
                record.wait_for_end(RequestId(3));
                record.starter = None;
            })
            .unwrap();
        assert_eq!(table.waiting(), 2);
        table.remove(SessionId(1));
        assert_eq!(table.waiting(), 0);
    }

    #[test]
    fn every_wait_is_answered_once_and_alike() {
        let mut record = record();
        record.wait_for_end(RequestId(2));
        record.wait_for_end(RequestId(3));
        assert_eq!(record.take_answers(), []);
        record.released = Some(4);
        let reply = Reply::Released { still_running: 4 };
        assert_eq!(
            record.take_answers(),
            [(RequestId(2), reply.clone()), (RequestId(3), reply.clone())]
        );
        assert_eq!(record.take_answers(), []);
        record.wait_for_end(RequestId(5));
        assert_eq!(record.take_answers(), [(RequestId(5), reply)]);
    }
}
