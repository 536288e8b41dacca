//! What concerns every keeper at once: hangup, shutdown, lists.

use std::time::{Duration, Instant};

use foster_protocol::{Farewell, Micros, Request, SessionId, SessionInfo};

use super::super::{Fault, Server};
use super::{Asked, Relay};

impl Server {
    /// A hangup: each keeper sees its link close and ends its session by its own terms.
    pub(in crate::server) fn hang_up_relays(&mut self) -> Result<(), Fault> {
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
    pub(in crate::server) fn shut_down_relays(&mut self, grace: Micros) -> Result<u32, Fault> {
        let mut count = 0;
        for session in self.relays.keys().copied().collect::<Vec<_>>() {
            let over = self.relays.get(&session).is_none_or(Relay::is_over);
            if over {
                // Its keeper stays for a session that was released, and has no other reason.
                self.expect_end(session, Duration::ZERO);
                self.close_link(session);
            } else {
                count += 1;
                self.expect_end(session, Duration::from(grace));
                self.ask(session, Asked::Shutdown, Request::Shutdown { grace })?;
            }
        }
        Ok(count)
    }

    pub(super) fn note_farewell(&mut self, report: Farewell) {
        if let Some(closing) = &mut self.closing {
            closing.orphans.extend(report.orphans);
            closing.survivors.extend(report.survivors);
        }
    }

    /// Every session that a keeper keeps is over or let go, and its keeper is gone.
    pub(in crate::server) fn relays_are_over(&self) -> bool {
        self.relays.values().all(Relay::lets_go)
    }

    /// Asks every keeper for a list, for its adopted orphans. Gives back what to wait for.
    pub(in crate::server) fn ask_for_lists(&mut self, query: u64) -> Result<Vec<SessionId>, Fault> {
        let mut asked = Vec::new();
        for session in self.relays.keys().copied().collect::<Vec<_>>() {
            let has_link = self
                .relays
                .get(&session)
                .is_some_and(|relay| relay.link.is_some() && !relay.is_parting());
            if has_link {
                self.ask(session, Asked::List(query), Request::List)?;
                asked.push(session);
            }
        }
        Ok(asked)
    }

    /// What is known here of every kept session.
    pub(in crate::server) fn relay_infos(&self, now: Instant) -> Vec<SessionInfo> {
        self.relays
            .iter()
            .filter(|(_, relay)| relay.is_listed())
            .map(|(session, relay)| relay.info(*session, now))
            .collect()
    }

    /// For the last resort: a keeper that is told to go ends its session.
    pub(in crate::server) fn kill_keepers_links(&mut self) {
        for relay in self.relays.values_mut() {
            relay.link = None;
        }
    }
}
