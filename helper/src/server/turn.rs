//! The loop: one turn is a wait, and handing out what has happened meanwhile.

use std::os::fd::AsFd;
use std::time::Instant;

use foster_protocol::SessionId;

use super::relay::Relay;
use super::{Fault, Server, Watch};
use crate::session::State;
use crate::sys::epoll::Events;
use crate::timers::{Alarm, Owner};

impl Server {
    /// Serves until every session has ended after a hangup or a shutdown.
    pub(crate) fn serve(&mut self) -> Result<(), Fault> {
        let mut events = Events::new();
        // Frames may have come together with the greeting.
        self.take_frames()?;
        loop {
            self.flush()?;
            // After the flush: a farewell that has gone is the last thing.
            if self.is_finished() {
                break;
            }
            self.watch_control()?;
            let timeout = self.timers.next(Instant::now());
            self.epoll.wait(&mut events, timeout)?;
            self.now = Instant::now();
            for event in events.iter() {
                // A token without a watch belongs to something that an earlier event of this
                // turn has dealt with.
                if let Some(watch) = self.watches.get(&event.token).copied() {
                    self.handle(watch, event.token)?;
                }
            }
            while let Some((owner, alarm)) = self.timers.pop(self.now) {
                self.ring(owner, alarm)?;
            }
            self.go_on_closing()?;
            if self.pace.is_in_haste() && !self.is_ending() {
                self.pace.calm_down();
            }
            self.rest_if_done()?;
        }
        Ok(())
    }

    /// Whether KILL is at work, here or in a keeper.
    fn is_ending(&self) -> bool {
        let kills = |session: &SessionId| self.state(*session) == Some(State::Killing);
        let is_killing = self.working.iter().any(kills);
        let keeper_ends = |relay: &Relay| relay.is_ending();
        is_killing || self.is_sweeping() || self.relays.values().any(keeper_ends)
    }

    fn handle(&mut self, watch: Watch, token: u64) -> Result<(), Fault> {
        match watch {
            Watch::Control => self.read_control(),
            Watch::Host => {
                let gone = self.guards.iter().position(|(_, guard)| *guard == token);
                if let Some(gone) = gone {
                    let (guard, _) = self.guards.swap_remove(gone);
                    self.forget(guard.as_fd(), token);
                }
                self.hang_up()
            }
            Watch::Orphans => {
                self.reaper.clear();
                self.reap_strays()?;
                self.orphans_changed()
            }
            Watch::Relay(session) => self.read_relay(session),
            Watch::Keeper(session) => self.keeper_is_dead(session),
            Watch::Spare => self.spare_stirs(token),
            Watch::Leader(session) => self.leader_is_ready(session),
            Watch::Status(session) => self.read_status(session),
            Watch::Member(owner) => self.member_died(owner, token),
        }
    }

    fn ring(&mut self, owner: Owner, alarm: Alarm) -> Result<(), Fault> {
        match (owner, alarm) {
            (Owner::Session(session), alarm) => self.ring_session(session, alarm),
            (Owner::Sweep, alarm) => self.ring_sweep(alarm),
            (Owner::List(query), _) => self.answer_list(query),
            (Owner::Spares, _) => self.look_at_spares(),
            // The loop sends at every turn.
            (Owner::Socket, _) => Ok(()),
        }
    }
}
