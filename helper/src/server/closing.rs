//! The end of the helper: a hangup, a broken protocol, or a shutdown.
//!
//! Every session that was not released ends by its own terms, all at the same time. What
//! escaped from a session has been adopted by then, and goes too, unless a released session
//! lives whose it might be.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use foster_protocol::{Cause, Farewell, Member, Micros, Reply, RequestId, SessionId, Survivor};

use super::{Fault, Orders, Role, Server};
use nix::poll::{PollFd, PollFlags, poll};

use crate::contain::group::MOST_NAMED;
use crate::ending::{Force, HARD_LIMIT, Work};
use crate::session::State;

/// What is left to do before the helper exits.
#[derive(Debug)]
pub(crate) struct Closing {
    /// The link is dead: nothing is read or sent any more.
    hung_up: bool,
    /// The client broke the protocol.
    broken: bool,
    /// The shutdown that waits for its farewell.
    reply: Option<RequestId>,
    /// How many sessions it ends.
    sessions: u32,
    /// The last sweep is over.
    pub(super) swept: bool,
    pub(super) survivors: Vec<Survivor>,
    pub(super) orphans: Vec<Member>,
    farewell_sent: bool,
}

impl Server {
    /// The host is gone, or its end of the socket is.
    pub(super) fn hang_up(&mut self) -> Result<(), Fault> {
        self.cut_link(false)
    }

    /// The client broke the protocol, so nothing that it says can be trusted.
    pub(super) fn break_off(&mut self) -> Result<(), Fault> {
        self.cut_link(true)
    }

    fn cut_link(&mut self, broken: bool) -> Result<(), Fault> {
        if self.is_hung_up() {
            return Ok(());
        }
        let token = self.control_token;
        self.watches.remove(&token);
        self.epoll.remove(self.control.as_fd())?;
        tracing::debug!(broken, sessions = self.table.len(), "hangup");
        match &mut self.closing {
            Some(closing) => {
                closing.hung_up = true;
                closing.broken |= broken;
            }
            None => self.closing = Some(Closing::new(true, broken, None)),
        }
        // Terms of the sessions' own: a shutdown's longer grace is cut short by them.
        for session in self.table.ids() {
            self.change(session, |record| record.closed = true);
            self.end_by_spec(session, Cause::Hangup)?;
        }
        // A hangup has no terms of its own; escapees get the longest that a session has.
        let own = self.table.iter().map(|(_, record)| record.body.grace);
        let kept = self.relays.values().map(|relay| relay.grace);
        let grace = own.chain(kept).max().map_or(Duration::ZERO, Duration::from);
        self.hang_up_relays()?;
        self.kill_spares()?;
        self.begin_sweep(grace, None)
    }

    /// Ends everything and then the helper.
    pub(super) fn shut_down(&mut self, id: RequestId, grace: Duration) -> Result<(), Fault> {
        if self.closing.is_some() {
            return self.reject(id, foster_protocol::Reject::ShuttingDown);
        }
        self.closing = Some(Closing::new(false, false, Some(id)));
        for session in self.table.ids() {
            let Ok(record) = self.table.get(session) else {
                continue;
            };
            if record.state.is_terminal() {
                continue;
            }
            let first = record.body.first_signal;
            if let Some(closing) = &mut self.closing {
                closing.sessions += 1;
            }
            self.end(
                session,
                Orders {
                    cause: Cause::Shutdown,
                    first,
                    grace,
                },
            )?;
        }
        let kept = self.shut_down_relays(Micros::from(grace))?;
        self.kill_spares()?;
        if let Some(closing) = &mut self.closing {
            closing.sessions += kept;
        }
        self.begin_sweep(grace, None)
    }

    pub(super) fn is_hung_up(&self) -> bool {
        self.closing.as_ref().is_some_and(|closing| closing.hung_up)
    }

    /// Whether the protocol was broken.
    pub(crate) fn is_broken(&self) -> bool {
        self.closing.as_ref().is_some_and(|closing| closing.broken)
    }

    /// Everything has ended, and the farewell is on its way or nobody waits for it.
    pub(super) fn is_finished(&self) -> bool {
        self.closing.as_ref().is_some_and(|closing| {
            closing.swept
                && self.spares.is_empty()
                && self.all_terminal()
                && !self.keeps_released()
                && (closing.hung_up || (closing.farewell_sent && self.outbox.is_empty()))
        })
    }

    pub(super) fn all_terminal(&self) -> bool {
        self.table
            .iter()
            .all(|(_, record)| record.state.is_terminal())
            && self.relays_are_over()
    }

    /// The keeper of a released session stays until its tree is empty, whoever has died.
    fn keeps_released(&self) -> bool {
        self.role == Role::Keeper && !self.released.is_empty()
    }

    /// Goes on when the last session has ended.
    pub(super) fn go_on_closing(&mut self) -> Result<(), Fault> {
        if self.closing.is_none() || !self.all_terminal() {
            return Ok(());
        }
        self.go_on_sweeping()?;
        self.say_farewell()
    }

    fn say_farewell(&mut self) -> Result<(), Fault> {
        let Some(closing) = &mut self.closing else {
            return Ok(());
        };
        if !closing.swept || closing.farewell_sent {
            return Ok(());
        }
        closing.farewell_sent = true;
        for query in self.lists.keys().copied().collect::<Vec<_>>() {
            self.answer_list(query)?;
        }
        let Some(closing) = &mut self.closing else {
            return Ok(());
        };
        let Some(id) = closing.reply.take() else {
            return Ok(());
        };
        let mut report = Farewell {
            sessions: closing.sessions,
            orphans: std::mem::take(&mut closing.orphans),
            survivors: std::mem::take(&mut closing.survivors),
        };
        for (_, record) in self.table.iter() {
            if let Some(ending) = &record.ending {
                report.survivors.extend(ending.survivors.iter().cloned());
            }
        }
        report.survivors.truncate(MOST_NAMED);
        self.reply(id, Reply::Farewell { report })
    }

    // -- the last resort -----------------------------------------------------------------

    /// After a fault of our own: KILL to every group, and to whoever is adopted, without the
    /// rest of the machinery. It stops at the hard limit.
    pub(crate) fn abandon(&mut self) {
        self.now = Instant::now();
        let orders = Orders {
            cause: Cause::Hangup,
            first: libc::SIGKILL,
            grace: Duration::ZERO,
        };
        let ids: Vec<SessionId> = self.table.ids();
        for session in ids {
            let Ok(record) = self.table.get(session) else {
                continue;
            };
            if record.state == State::Released {
                continue;
            }
            if let Some(leader) = &record.body.leader {
                let hit = leader
                    .signal_group(orders.first)
                    .or_else(|_| leader.signal(orders.first));
                if let Err(error) = hit {
                    tracing::error!(%session, %error, "a leader was not reached");
                }
            }
        }
        self.kill_keepers_links();
        if self.role == Role::Helper && !self.released.is_empty() {
            return;
        }
        self.reserve.lift();
        let give_up = Instant::now() + HARD_LIMIT;
        let mut work = Work::new(self.now);
        while Instant::now() < give_up {
            self.leaders.clear();
            let look = self.with_ground(|ground| work.look_at_unclaimed(Force::Kill, ground));
            let leaders_are_dead = self.table.iter().all(|(_, record)| {
                let leader = record.body.leader.as_ref();
                leader.is_none_or(|leader| leader.peek().is_ok_and(|dead| dead.is_some()))
            });
            match look {
                // A leader's children come to us when it is dead.
                Ok(look) if look.is_empty && leaders_are_dead => return,
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "the tree cannot be looked at");
                    return;
                }
            }
            self.reaper.clear();
            if self.reap_strays().is_err() {
                return;
            }
            // The main thread says when it has reaped somebody; its word may be late.
            let mut watched = [PollFd::new(self.reaper.as_fd(), PollFlags::POLLIN)];
            if let Err(error) = poll(&mut watched, 10_u16) {
                tracing::debug!(%error, "cannot wait for the dead");
            }
        }
    }
}

impl Closing {
    fn new(hung_up: bool, broken: bool, reply: Option<RequestId>) -> Self {
        Self {
            hung_up,
            broken,
            reply,
            sessions: 0,
            swept: false,
            survivors: Vec::new(),
            orphans: Vec::new(),
            farewell_sent: false,
        }
    }
}
