//! Answering a list: what is known here, and what each keeper has adopted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use foster_protocol::{Micros, Orphan, Reply, RequestId, SessionId, SessionInfo};

use super::{Fault, Role, Server};
use crate::contain::group::unattributed;
use crate::timers::{Alarm, Owner};

/// A list is answered without the keepers that have not said anything by then.
const KEEPER_LIMIT: Duration = Duration::from_secs(1);

/// A list that waits for keepers.
#[derive(Debug)]
pub(super) struct PendingList {
    id: RequestId,
    waits_for: BTreeSet<SessionId>,
    adopted: BTreeMap<SessionId, Vec<Orphan>>,
}

impl Server {
    pub(super) fn list(&mut self, id: RequestId) -> Result<(), Fault> {
        self.last_list += 1;
        let query = self.last_list;
        let waits_for: BTreeSet<SessionId> = self.ask_for_lists(query)?.into_iter().collect();
        let adopted = BTreeMap::new();
        self.lists.insert(
            query,
            PendingList {
                id,
                waits_for,
                adopted,
            },
        );
        self.timers
            .set(Owner::List(query), Alarm::Look, self.now, KEEPER_LIMIT);
        self.answer_list_if_whole(query)
    }

    pub(super) fn note_listed(
        &mut self,
        query: u64,
        session: SessionId,
        infos: Vec<SessionInfo>,
    ) -> Result<(), Fault> {
        if let Some(list) = self.lists.get_mut(&query) {
            list.waits_for.remove(&session);
            let adopted = infos.into_iter().flat_map(|info| info.adopted).collect();
            list.adopted.insert(session, adopted);
        }
        self.answer_list_if_whole(query)
    }

    /// A keeper that died has nothing more to say.
    pub(super) fn drop_from_lists(&mut self, session: SessionId) -> Result<(), Fault> {
        for query in self.lists.keys().copied().collect::<Vec<_>>() {
            if let Some(list) = self.lists.get_mut(&query) {
                list.waits_for.remove(&session);
            }
            self.answer_list_if_whole(query)?;
        }
        Ok(())
    }

    fn answer_list_if_whole(&mut self, query: u64) -> Result<(), Fault> {
        let is_whole = self
            .lists
            .get(&query)
            .is_some_and(|list| list.waits_for.is_empty());
        if is_whole {
            self.answer_list(query)
        } else {
            Ok(())
        }
    }

    /// Answers with what has come.
    pub(super) fn answer_list(&mut self, query: u64) -> Result<(), Fault> {
        let Some(mut list) = self.lists.remove(&query) else {
            return Ok(());
        };
        self.timers.cancel(Owner::List(query), Alarm::Look);
        let now = Instant::now();
        let loose = self.with_ground(unattributed)?;
        // A keeper's orphans are its session's.
        let (own, unattributed) = match self.role {
            Role::Keeper => (loose, Vec::new()),
            Role::Helper => (Vec::new(), loose),
        };
        let kept_here = self.table.iter().map(|(session, record)| SessionInfo {
            session,
            leader: record.shown,
            state: record.state.name(),
            level: record.containment.level,
            age: Micros::from(now.saturating_duration_since(record.body.born)),
            label: record.label.clone(),
            adopted: own.clone(),
        });
        let mut sessions: Vec<SessionInfo> = kept_here.collect();
        for mut info in self.relay_infos(now) {
            info.adopted = list.adopted.remove(&info.session).unwrap_or_default();
            sessions.push(info);
        }
        sessions.sort_by_key(|info| info.session);
        self.reply(
            list.id,
            Reply::Sessions {
                sessions,
                unattributed,
            },
        )
    }
}
