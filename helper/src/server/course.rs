//! The course of an ending: who asks for it, and what each look at the tree leads to.

use std::io;
use std::time::{Duration, Instant};

use foster_protocol::{Cause, OnExit, Pid, Proof, SessionId, Survivor};

use super::{Fault, Orders, Server, Watch};
use crate::contain::group::{Census, Ground, Scope, census, unattributed};
use crate::ending::{Force, HARD_LIMIT, Look, Tree, Work};
use crate::session::{Event, State};
use crate::survivors::{explain_leader, explain_unpinned};
use crate::sys::epoll::Interest;
use crate::sys::process::Process;
use crate::timers::{Alarm, Owner};

/// How often those are looked at who outlived their ending.
pub(super) const LATE: Duration = Duration::from_millis(500);

impl Server {
    /// Asks for a session's end. The first reason stays, and a second one can only shorten
    /// the grace.
    pub(super) fn end(&mut self, session: SessionId, orders: Orders) -> Result<(), Fault> {
        let is_first = self.change(session, |record| {
            let is_first = record.body.orders.is_none() && !record.state.is_terminal();
            if is_first {
                record.body.orders = Some(orders);
            }
            is_first
        });
        if is_first == Some(false) {
            self.shorten(session, orders.grace);
        }
        self.apply(
            session,
            if orders.is_at_once() {
                Event::EndNow
            } else {
                Event::End
            },
        )
    }

    /// Ends a session for a reason that brings no terms of its own.
    pub(super) fn end_by_spec(&mut self, session: SessionId, cause: Cause) -> Result<(), Fault> {
        let Ok(record) = self.table.get(session) else {
            return Ok(());
        };
        let orders = record.body.own_orders(cause);
        self.end(session, orders)
    }

    pub(super) fn shorten(&mut self, session: SessionId, grace: Duration) {
        let owner = Owner::Session(session);
        if let Some(due) = self.timers.due(owner, Alarm::Grace)
            && self
                .now
                .checked_add(grace)
                .is_some_and(|sooner| sooner < due)
        {
            self.timers.set(owner, Alarm::Grace, self.now, grace);
        }
    }

    /// Takes up the orders of an ending: those of a request, or of the leader's exit.
    pub(super) fn take_up(&mut self, session: SessionId) -> Option<Orders> {
        self.timers.cancel(Owner::Session(session), Alarm::Linger);
        let now = self.now;
        self.change(session, |record| {
            let cause = record.exit.map_or(Cause::Exit, |exit| exit.cause);
            let by_exit = record.body.orders_at_exit(cause);
            let orders = *record.body.orders.get_or_insert(by_exit);
            record
                .body
                .work
                .get_or_insert_with(|| Work::new(now))
                .begin(now);
            orders
        })
    }

    pub(super) fn begin_grace(&mut self, session: SessionId) -> Result<(), Fault> {
        let Some(orders) = self.take_up(session) else {
            return Ok(());
        };
        // Who is there is noted before a signal ends them; often nobody is.
        if self.look_with(session, Force::None)? {
            return Ok(());
        }
        if orders.is_at_once() {
            return self.apply(session, Event::EndNow);
        }
        self.timers.set(
            Owner::Session(session),
            Alarm::Grace,
            self.now,
            orders.grace,
        );
        self.look_with(session, Force::Signal(orders.first))
            .map(|_| ())
    }

    pub(super) fn begin_kill(&mut self, session: SessionId) -> Result<(), Fault> {
        if self.take_up(session).is_none() {
            return Ok(());
        }
        // Before the first look: it is the one that meets the most.
        self.pace.hasten();
        let owner = Owner::Session(session);
        self.timers.cancel(owner, Alarm::Grace);
        self.timers.set(owner, Alarm::Hard, self.now, HARD_LIMIT);
        let is_new = self.table.get(session).is_ok_and(|record| {
            let work = record.body.work.as_ref();
            work.is_some_and(Work::has_not_looked)
        });
        if is_new && self.look_with(session, Force::None)? {
            return Ok(());
        }
        self.look_with(session, Force::Kill).map(|_| ())
    }

    pub(super) fn begin_linger(&mut self, session: SessionId) -> Result<(), Fault> {
        let now = self.now;
        let limit = self.change(session, |record| {
            record.body.work = Some(Work::new(now));
            match record.body.on_exit {
                OnExit::Linger { limit, grace: _ } => Duration::from(limit),
                OnExit::Hold | OnExit::End { .. } | OnExit::Leave => Duration::ZERO,
            }
        });
        let Some(limit) = limit else { return Ok(()) };
        self.timers
            .set(Owner::Session(session), Alarm::Linger, self.now, limit);
        self.look_with(session, Force::None).map(|_| ())
    }

    /// Looks again, with the force of the state.
    pub(super) fn look(&mut self, session: SessionId) -> Result<(), Fault> {
        let force = match self.state(session) {
            Some(State::Killing) => {
                let work = self.table.get(session).ok();
                let work = work.and_then(|record| record.body.work.as_ref());
                work.map_or(Force::Kill, Work::force_to_kill)
            }
            Some(State::Graceful) => return self.look_gracefully(session),
            Some(State::Lingering) => Force::None,
            Some(
                State::Starting
                | State::Prepared
                | State::Running
                | State::Exited
                | State::Aborting
                | State::Ended
                | State::Released
                | State::Failed,
            )
            | None => return Ok(()),
        };
        self.look_with(session, force).map(|_| ())
    }

    /// Looks during a grace. Where everybody is gone who had the first signal, whoever is there
    /// was forked too late for it, and gets it now.
    pub(super) fn look_gracefully(&mut self, session: SessionId) -> Result<(), Fault> {
        if self.look_with(session, Force::None)? {
            return Ok(());
        }
        let Ok(record) = self.table.get(session) else {
            return Ok(());
        };
        let is_rest = record.body.work.as_ref().is_some_and(Work::is_rest);
        match record.body.orders {
            Some(orders) if is_rest && record.body.exited => self
                .look_with(session, Force::Rest(orders.first))
                .map(|_| ()),
            Some(_) | None => Ok(()),
        }
    }

    /// Looks once. True where nobody was left and the session has ended by that.
    pub(super) fn look_with(&mut self, session: SessionId, force: Force) -> Result<bool, Fault> {
        let owner = Owner::Session(session);
        self.reap_strays()?;
        let taken = self.change(session, |record| record.body.work.take());
        let Some(Some(mut work)) = taken else {
            return Ok(false);
        };
        self.unwatch(&work);
        let look = self.walk(session, |tree, ground| {
            let look = work.look_at_session(tree, force, ground)?;
            Ok((look, !tree.leader_lives))
        });
        let Some((look, exited)) = look? else {
            return Ok(false);
        };
        let (is_empty, proof) = self.watch_members(owner, &mut work, look, force);
        self.change(session, |record| record.body.work = Some(work));
        if !(is_empty && exited) {
            return Ok(false);
        }
        let loose = self.with_ground(unattributed)?;
        let now = Instant::now();
        self.change(session, |record| {
            let cause = record.ending_cause();
            let work = record.body.work.take();
            let mut ending = work.map(|work| work.all_gone(cause, proof, now, loose));
            if let (Some(ending), Some(cgroup)) = (&mut ending, record.body.cgroup.take()) {
                ending.peaks = cgroup.peaks();
                cgroup.remove();
            }
            record.ending = ending;
        });
        self.apply(session, Event::TreeEmpty)?;
        Ok(true)
    }

    /// Watches those who live and sets the time of the next look.
    pub(super) fn watch_members(
        &mut self,
        owner: Owner,
        work: &mut Work,
        look: Look,
        force: Force,
    ) -> (bool, Proof) {
        let (members, mut all) = work.to_watch(look.members);
        for member in members {
            let token = self.new_token(Watch::Member(owner));
            match self.epoll.add(member.pidfd(), token, Interest::Read) {
                Ok(()) => work.watched.push((token, member)),
                Err(error) => {
                    tracing::debug!(%error, "no room to watch a member");
                    self.watches.remove(&token);
                    all = false;
                }
            }
        }
        let nobody = work.watched.is_empty();
        // Dead members that wait for the main thread are announced by it.
        let told_by_events = all && (look.is_empty || !nobody);
        match work.next_look(force, told_by_events) {
            Some(pause) => self.timers.set(owner, Alarm::Look, self.now, pause),
            None => self.timers.cancel(owner, Alarm::Look),
        }
        (look.is_empty, look.proof)
    }

    /// A watched member has died. When it was the last one that is watched, or the last one that
    /// had the first signal, it is time to look again.
    pub(super) fn member_died(&mut self, owner: Owner, token: u64) -> Result<(), Fault> {
        let take = |work: &mut Work| {
            let dead = work.take_dead(token)?;
            Some((dead, work.watched.is_empty() || work.is_rest()))
        };
        let taken: Option<(Process, bool)> = match owner {
            Owner::Session(session) => self
                .change(session, |record| record.body.work.as_mut().and_then(take))
                .flatten(),
            Owner::Sweep => self.sweep_work().and_then(take),
            Owner::Socket | Owner::List(_) | Owner::Spares => None,
        };
        let Some((process, is_time)) = taken else {
            self.watches.remove(&token);
            return Ok(());
        };
        self.forget(process.pidfd(), token);
        match owner {
            Owner::Session(session) if is_time => self.look(session),
            Owner::Sweep if is_time => self.look_at_unclaimed(),
            Owner::Session(_) | Owner::Sweep | Owner::Socket | Owner::List(_) | Owner::Spares => {
                Ok(())
            }
        }
    }

    /// Stops the watch on members. They stay held, so that the next look knows who died.
    pub(super) fn unwatch(&mut self, work: &Work) {
        for (token, process) in &work.watched {
            self.forget(process.pidfd(), *token);
        }
    }

    /// The hard limit: who is left is named, and watched no longer.
    pub(super) fn give_up(&mut self, session: SessionId) -> Result<(), Fault> {
        let now = self.now;
        let taken = self.change(session, |record| {
            let leader = record.body.leader.take()?;
            let work = record.body.work.take().unwrap_or_else(|| Work::new(now));
            Some((work, leader, record.body.exited, record.ending_cause()))
        });
        let Some(Some((mut work, leader, exited, cause))) = taken else {
            return Ok(());
        };
        self.unwatch(&work);
        let mut found = self.count(leader.pid(), !exited)?;
        let known: Vec<Pid> = found.members.iter().map(Process::pid).collect();
        let held = work.take_living()?.into_iter();
        found
            .members
            .extend(held.filter(|one| !known.contains(&one.pid())));
        let cgroup = (self.table.get(session).ok()).and_then(|record| record.body.cgroup.as_ref());
        let mut survivors: Vec<Survivor> = work.explain(&found.members, cgroup);
        survivors.extend(found.unpinned.iter().map(explain_unpinned));
        if !exited {
            survivors.push(explain_leader(&leader, cgroup));
        }
        let loose = self.with_ground(unattributed)?;
        let ending = work.incomplete(cause, survivors, Instant::now(), loose);
        self.instance.leave(Some(session));
        self.change(session, |record| {
            record.body.leader = Some(leader);
            record.ending = Some(ending);
        });
        // Who is left is nobody's now: a hangup sweeps it with the rest.
        if let Some(pid) = self.table.get(session).ok().and_then(|record| record.pid) {
            self.leaders.remove(&pid.0);
        }
        self.apply(session, Event::HardLimit)?;
        self.timers
            .set(Owner::Session(session), Alarm::Poll, self.now, LATE);
        Ok(())
    }

    /// After an incomplete ending: KILL to who is left, from time to time, and the leader is
    /// reaped when nobody is.
    pub(super) fn look_late(&mut self, session: SessionId) -> Result<(), Fault> {
        self.leader_is_ready(session)?;
        let is_over = self.walk(session, |tree, ground| {
            let look = Work::new(self.now).look_at_session(tree, Force::Kill, ground)?;
            Ok(look.is_empty && !tree.leader_lives)
        });
        let Some(is_over) = is_over? else {
            return Ok(());
        };
        if is_over {
            if let Some(Some(cgroup)) = self.change(session, |record| record.body.cgroup.take()) {
                cgroup.remove();
            }
            self.reap(session)?;
            return self.forget_if_done(session);
        }
        self.timers
            .set(Owner::Session(session), Alarm::Poll, self.now, LATE);
        Ok(())
    }

    /// Walks over a session's tree. None where its leader is reaped.
    pub(super) fn walk<T>(
        &self,
        session: SessionId,
        walk: impl FnOnce(&Tree<'_>, &Ground<'_>) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let body = self.table.get(session).ok().map(|record| &record.body);
        let Some((body, leader)) = body.and_then(|body| Some((body, body.leader.as_ref()?))) else {
            return Ok(None);
        };
        let tree = Tree {
            leader,
            leader_lives: !body.exited,
            cgroup: body.cgroup.as_ref(),
        };
        let on_ground = || self.with_ground(|ground| walk(&tree, ground));
        self.reserve.with_room(on_ground).map(Some)
    }

    /// Looks who is there, and does nothing to anyone.
    pub(super) fn count(&self, leader: Pid, leader_lives: bool) -> io::Result<Census> {
        let scope = Scope::Session {
            leader,
            leader_lives,
        };
        let look = || self.with_ground(|ground| census(scope, ground, &mut |_| {}));
        self.reserve.with_room(look)
    }
}
