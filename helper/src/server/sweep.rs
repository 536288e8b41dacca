//! The sweep: ending adopted orphans that no session can be shown to own.
//!
//! It runs when the helper goes, and when a keeper has died and what it kept has come to the
//! helper. While a released session lives whose they might be, they are left alone.

use std::time::{Duration, Instant};

use foster_protocol::{Cause, Ending, Proof, SessionId};

use super::course::LATE;
use super::{Fault, Role, Server};
use crate::contain::group::{Claim, Ground, Scope, census, unattributed};
use crate::ending::{Force, HARD_LIMIT, Work};
use crate::timers::{Alarm, Owner};

/// A sweep under way.
#[derive(Debug)]
pub(crate) struct Sweep {
    work: Option<Work>,
    /// KILL is at work.
    killing: bool,
    /// Sessions whose keepers have died: they end with this sweep.
    lost: Vec<SessionId>,
}

impl Server {
    /// Starts a sweep, or joins the one that is under way and shortens its grace.
    pub(super) fn begin_sweep(
        &mut self,
        grace: Duration,
        lost: Option<SessionId>,
    ) -> Result<(), Fault> {
        let now = self.now;
        let sweep = self.sweep.get_or_insert_with(|| Sweep {
            work: Some(Work::new(now)),
            killing: false,
            lost: Vec::new(),
        });
        sweep.lost.extend(lost);
        if grace.is_zero() || sweep.killing {
            return self.sweep_by_force();
        }
        self.timers.set(Owner::Sweep, Alarm::Grace, now, grace);
        self.look_at_unclaimed()
    }

    fn sweep_by_force(&mut self) -> Result<(), Fault> {
        if let Some(sweep) = &mut self.sweep {
            sweep.killing = true;
        }
        self.pace.hasten();
        self.timers.cancel(Owner::Sweep, Alarm::Grace);
        self.timers
            .set(Owner::Sweep, Alarm::Hard, self.now, HARD_LIMIT);
        self.look_at_unclaimed()
    }

    /// KILL is at work on orphans.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep.as_ref().is_some_and(|sweep| sweep.killing)
    }

    pub(super) fn sweep_work(&mut self) -> Option<&mut Work> {
        self.sweep.as_mut().and_then(|sweep| sweep.work.as_mut())
    }

    /// Escapees may be those of a released session while one lives, and are left alone then.
    /// A keeper's orphans are its session's, and never the sweep's.
    fn may_sweep(&self) -> bool {
        self.role == Role::Helper && self.released.is_empty()
    }

    /// Walks over the orphans that a sweep may end: while a released session lives, an orphan may
    /// be its, so that only those are nobody's that are of a lost leader's own session.
    fn walk_unclaimed<T>(&self, walk: impl FnOnce(&Ground<'_>) -> T) -> T {
        let may_sweep = self.may_sweep();
        let lost: Vec<i32> = self.lost_leaders();
        let claim = |sid: i32| match self.claim(sid) {
            Claim::Nobody if !may_sweep && !lost.contains(&sid) => Claim::Released,
            Claim::Nobody => Claim::Nobody,
            Claim::Ours => Claim::Ours,
            Claim::Released => Claim::Released,
        };
        let on_ground = |ground: &Ground<'_>| {
            walk(&Ground {
                claim: &claim,
                ..*ground
            })
        };
        self.reserve.with_room(|| self.with_ground(on_ground))
    }

    fn lost_leaders(&self) -> Vec<i32> {
        let lost = self.sweep.iter().flat_map(|sweep| &sweep.lost);
        lost.filter_map(|session| self.relays.get(session)?.leader)
            .map(|leader| leader.0)
            .collect()
    }

    /// Looks at the orphans that nobody owns. More may come while sessions end.
    pub(super) fn look_at_unclaimed(&mut self) -> Result<(), Fault> {
        let Some(sweep) = &mut self.sweep else {
            return Ok(());
        };
        let killing = sweep.killing;
        let Some(mut work) = sweep.work.take() else {
            return Ok(());
        };
        let force = match killing {
            true => work.force_to_kill(),
            false => Force::Signal(libc::SIGTERM),
        };
        self.unwatch(&work);
        let look = self.walk_unclaimed(|ground| work.look_at_unclaimed(force, ground))?;
        let (is_empty, _) = self.watch_members(Owner::Sweep, &mut work, look, force);
        if let Some(sweep) = &mut self.sweep {
            sweep.work = Some(work);
        }
        // While the helper goes, an empty look is the last one only when no session can lose
        // another escapee.
        let is_last = self.closing.is_none() || self.all_terminal();
        if is_last && is_empty {
            self.finish_sweep()?;
        }
        Ok(())
    }

    /// Looks again where no watched member will say when to.
    pub(super) fn go_on_sweeping(&mut self) -> Result<(), Fault> {
        let waits = self
            .sweep_work()
            .is_some_and(|work| work.watched.is_empty());
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
            Alarm::Poll => self.sweep_late(),
            Alarm::Deadline | Alarm::Linger => Ok(()),
        }
    }

    fn give_up_sweep(&mut self) -> Result<(), Fault> {
        if self.closing.is_some() && !self.all_terminal() {
            // Sessions have their own limit; the sweep's runs from the last of them.
            self.timers
                .set(Owner::Sweep, Alarm::Hard, self.now, HARD_LIMIT);
            return Ok(());
        }
        let found = self.walk_unclaimed(|ground| census(Scope::Unclaimed, ground, &mut |_| {}))?;
        if found.is_empty() {
            return self.finish_sweep();
        }
        let Some((work, lost)) = self.take_sweep() else {
            return Ok(());
        };
        // The last look may have been cut short, so that nobody is named and somebody lives.
        let survivors = work.explain(&found.members, None);
        self.instance.leave(None);
        let loose = self.with_ground(unattributed)?;
        let now = Instant::now();
        let ending = work.incomplete(Cause::SupervisorLost, survivors, now, loose);
        self.note_swept(lost, ending)?;
        if self.closing.is_none() {
            self.timers.set(Owner::Sweep, Alarm::Poll, self.now, LATE);
        }
        Ok(())
    }

    /// Nobody is left.
    fn finish_sweep(&mut self) -> Result<(), Fault> {
        let Some((work, lost)) = self.take_sweep() else {
            return Ok(());
        };
        let loose = self.with_ground(unattributed)?;
        // Beside a released session only the lost leader's own session is ended, and no more
        // than that is claimed.
        let proof = match self.may_sweep() && loose.is_empty() {
            true => Proof::NoOrphans,
            false => Proof::SessionEmpty,
        };
        let ending = work.all_gone(Cause::SupervisorLost, proof, Instant::now(), loose);
        self.note_swept(lost, ending)
    }

    /// Stops the sweep, and gives what it knows and the sessions that end with it.
    fn take_sweep(&mut self) -> Option<(Work, Vec<SessionId>)> {
        let Sweep { work, lost, .. } = self.sweep.take()?;
        let work = work?;
        self.unwatch(&work);
        self.timers.cancel_all(Owner::Sweep);
        Some((work, lost))
    }

    /// After a sweep that left somebody: KILL, from time to time, until nobody is left.
    fn sweep_late(&mut self) -> Result<(), Fault> {
        if self.sweep.is_some() || self.closing.is_some() {
            return Ok(());
        }
        let mut once = Work::new(self.now);
        let look = self.walk_unclaimed(|ground| once.look_at_unclaimed(Force::Kill, ground));
        if !look?.is_empty {
            self.timers.set(Owner::Sweep, Alarm::Poll, self.now, LATE);
        }
        Ok(())
    }

    /// Ends the sessions that were lost. The sweep was the helper's last one, if it is going and
    /// every session has ended.
    fn note_swept(&mut self, lost: Vec<SessionId>, ending: Ending) -> Result<(), Fault> {
        for session in lost {
            self.end_lost(session, ending.clone())?;
        }
        let all_terminal = self.all_terminal();
        if let Some(closing) = &mut self.closing
            && all_terminal
        {
            closing.swept = true;
            closing.orphans.extend(ending.members);
            closing.survivors.extend(ending.survivors);
        }
        Ok(())
    }
}
