//! The end of the helper: a hangup, a broken protocol, or a shutdown.
//!
//! Every session that was not released ends by its own terms, all at the same time. What
//! escaped from a session has been adopted by then, and goes too, unless a released session
//! lives whose it might be.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use foster_protocol::{Cause, Farewell, Member, Reply, RequestId, SessionId, Survivor};

use super::{Fault, Orders, Server};
use nix::poll::{PollFd, PollFlags, poll};

use crate::contain::group::{MOST_NAMED, Scope, census};
use crate::ending::{Force, HARD_LIMIT, Work};
use crate::session::State;
use crate::timers::{Alarm, Owner};

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
    /// The sweep of adopted orphans.
    sweep: Option<Work>,
    /// KILL is at work in the sweep.
    killing: bool,
    /// The sweep is over.
    swept: bool,
    survivors: Vec<Survivor>,
    orphans: Vec<Member>,
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
        self.begin_sweep(None)
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
        self.begin_sweep(Some(grace))
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
                && self.all_terminal()
                && (closing.hung_up || (closing.farewell_sent && self.outbox.is_empty()))
        })
    }

    fn all_terminal(&self) -> bool {
        self.table
            .iter()
            .all(|(_, record)| record.state.is_terminal())
    }

    // -- the sweep -----------------------------------------------------------------------

    fn begin_sweep(&mut self, grace: Option<Duration>) -> Result<(), Fault> {
        // A hangup has no terms of its own; escapees get the longest that a session has.
        let grace = grace.unwrap_or_else(|| {
            let longest = self.table.iter().map(|(_, record)| record.body.grace).max();
            longest.map_or(Duration::ZERO, Duration::from)
        });
        let now = self.now;
        let Some(closing) = &mut self.closing else {
            return Ok(());
        };
        if closing.sweep.is_none() {
            closing.sweep = Some(Work::new(now));
        }
        if grace.is_zero() {
            return self.sweep_by_force();
        }
        self.timers.set(Owner::Sweep, Alarm::Grace, now, grace);
        self.look_at_unclaimed()
    }

    fn sweep_by_force(&mut self) -> Result<(), Fault> {
        if let Some(closing) = &mut self.closing {
            closing.killing = true;
        }
        self.timers.cancel(Owner::Sweep, Alarm::Grace);
        self.timers
            .set(Owner::Sweep, Alarm::Hard, self.now, HARD_LIMIT);
        self.look_at_unclaimed()
    }

    pub(super) fn sweep_mut(&mut self) -> Option<&mut Work> {
        self.closing
            .as_mut()
            .and_then(|closing| closing.sweep.as_mut())
    }

    /// Escapees may be those of a released session while one lives, and are left alone then.
    fn may_sweep(&self) -> bool {
        self.released.is_empty()
    }

    /// Looks at the orphans that nobody owns. More may come while sessions end.
    pub(super) fn look_at_unclaimed(&mut self) -> Result<(), Fault> {
        let Some(closing) = &mut self.closing else {
            return Ok(());
        };
        if closing.swept {
            return Ok(());
        }
        let killing = closing.killing;
        let Some(mut work) = closing.sweep.take() else {
            return Ok(());
        };
        let force = match (self.may_sweep(), killing) {
            (false, _) => Force::None,
            (true, true) => Force::Kill,
            (true, false) => Force::Signal(libc::SIGTERM),
        };
        self.unwatch(&work);
        self.reserve.lift();
        let look = self.with_ground(|ground| work.look_at_unclaimed(force, ground));
        let watched = look.map(|look| self.watch_members(Owner::Sweep, &mut work, look, force));
        self.reserve.restore();
        let (is_empty, _) = watched?;
        if let Some(closing) = &mut self.closing {
            closing.sweep = Some(work);
        }
        // Only when no session can lose another escapee is an empty look the last one.
        if self.all_terminal() && (is_empty || !self.may_sweep()) {
            self.finish_sweep(Vec::new());
        }
        Ok(())
    }

    pub(super) fn sweep_after_reaping(&mut self) -> Result<(), Fault> {
        let waits = self.sweep_mut().is_some_and(|work| work.watched.is_empty());
        if waits {
            self.look_at_unclaimed()
        } else {
            Ok(())
        }
    }

    pub(super) fn ring_sweep(&mut self, alarm: Alarm) -> Result<(), Fault> {
        match alarm {
            Alarm::Grace => self.sweep_by_force(),
            Alarm::Look => self.look_at_unclaimed(),
            Alarm::Hard => self.give_up_sweep(),
            Alarm::Deadline | Alarm::Linger | Alarm::Poll => Ok(()),
        }
    }

    fn give_up_sweep(&mut self) -> Result<(), Fault> {
        if !self.all_terminal() {
            // Sessions have their own limit; the sweep's runs from the last of them.
            self.timers
                .set(Owner::Sweep, Alarm::Hard, self.now, HARD_LIMIT);
            return Ok(());
        }
        let found = self.with_ground(|ground| census(Scope::Unclaimed, ground, &mut |_| {}))?;
        let survivors = self.sweep_mut().map(|work| work.explain(&found.members));
        self.finish_sweep(survivors.unwrap_or_default());
        Ok(())
    }

    fn finish_sweep(&mut self, survivors: Vec<Survivor>) {
        let taken = self
            .closing
            .as_mut()
            .and_then(|closing| closing.sweep.take());
        let Some(work) = taken else { return };
        self.unwatch(&work);
        self.timers.cancel_all(Owner::Sweep);
        let ending = work.all_gone(
            Cause::Shutdown,
            foster_protocol::Proof::NoOrphans,
            Instant::now(),
            Vec::new(),
        );
        if let Some(closing) = &mut self.closing {
            closing.orphans = ending.members;
            closing.survivors = survivors;
            closing.swept = true;
        }
    }

    /// Goes on when the last session has ended.
    pub(super) fn go_on_closing(&mut self) -> Result<(), Fault> {
        let Some(closing) = &self.closing else {
            return Ok(());
        };
        if !self.all_terminal() {
            return Ok(());
        }
        if !closing.swept {
            let waits = closing
                .sweep
                .as_ref()
                .is_some_and(|work| work.watched.is_empty());
            if waits {
                self.look_at_unclaimed()?;
            }
        }
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
        if !self.may_sweep() {
            return;
        }
        let give_up = Instant::now() + HARD_LIMIT;
        let mut work = Work::new(self.now);
        while Instant::now() < give_up {
            self.leaders.clear();
            let look = self.with_ground(|ground| work.look_at_unclaimed(Force::Kill, ground));
            match look {
                Ok(look) if look.is_empty => return,
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "the tree cannot be looked at");
                    return;
                }
            }
            self.shared.wake.clear();
            // The main thread says when it has reaped somebody; its word may be late.
            let mut watched = [PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN)];
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
            sweep: None,
            killing: false,
            swept: false,
            survivors: Vec::new(),
            orphans: Vec::new(),
            farewell_sent: false,
        }
    }
}
