//! The course of a direct session: its times, its ending, its release.
//!
//! Everything here runs on the session's own thread. What a look at the tree leads to is
//! decided here, and who is looked at is not.

use std::time::{Duration, Instant};

use foster_protocol::{Cause, OnExit, Reject, StateName, Target};

use super::supervise::Session;
use super::work::{HARD_LIMIT, Look, Work};
use crate::ended::Ended;

/// Where the session stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Course {
    /// The leader runs, or has exited and the host decides.
    Idle,
    /// The leader has exited, and the rest may finish by itself.
    Lingering { until: Option<Instant> },
    /// Everybody has had the first signal.
    Graceful { first: i32, until: Option<Instant> },
    /// Everybody gets KILL.
    Killing { until: Option<Instant> },
    /// The time was up; who is left is looked after.
    Late,
    /// The rest was let go, and only the leader is waited for.
    LetGo,
}

impl Session<'_> {
    pub(super) fn keep_time(&mut self) {
        let now = Instant::now();
        let is_past = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        let (first, grace) = (self.first(), Duration::from(self.spec.grace));
        if is_past(self.due) {
            self.due = None;
            self.end(first, grace, Cause::Deadline);
        }
        match self.course {
            Course::Lingering { until } if is_past(until) => {
                let grace = match self.spec.on_exit {
                    OnExit::Linger { grace, .. } => grace.into(),
                    OnExit::Hold | OnExit::End { .. } | OnExit::Leave => grace,
                };
                self.end(first, grace, Cause::Linger);
            }
            Course::Graceful { until, .. } if is_past(until) => self.kill(),
            Course::Idle
            | Course::Lingering { .. }
            | Course::Graceful { .. }
            | Course::Killing { .. }
            | Course::Late
            | Course::LetGo => {}
        }
    }

    fn first(&self) -> i32 {
        self.spec.first_signal.unwrap_or(libc::SIGTERM)
    }

    /// Begins the ending, or shortens the one that has begun.
    pub(super) fn end(&mut self, first: i32, grace: Duration, cause: Cause) {
        let at_once = first == libc::SIGKILL || grace.is_zero();
        match self.course {
            Course::Idle | Course::Lingering { .. } => {
                self.cause = Some(cause);
                self.shared.change(|state| state.name = StateName::Ending);
                self.work.begin();
                self.work.note(&self.leader);
                if at_once {
                    self.kill();
                } else {
                    self.work.begin_grace(&self.leader, first);
                    self.course = Course::Graceful {
                        first,
                        until: after(grace),
                    };
                }
            }
            Course::Graceful { .. } if at_once => self.kill(),
            Course::Graceful { first, until } => {
                let until = [until, after(grace)].into_iter().flatten().min();
                self.course = Course::Graceful { first, until };
            }
            // It cannot be sooner, or is over.
            Course::Killing { .. } | Course::Late | Course::LetGo => {}
        }
    }

    fn kill(&mut self) {
        self.work.kill(&self.leader);
        self.course = Course::Killing {
            until: after(HARD_LIMIT),
        };
    }

    /// Looks who is left, and says whether the session is over and its leader can be reaped.
    pub(super) fn look(&mut self) -> bool {
        match self.course {
            Course::Idle => false,
            Course::LetGo => self.exited,
            Course::Lingering { .. } => {
                let found = self.work.look(&self.leader);
                found == Look::Nobody && self.is_ended(found)
            }
            Course::Graceful { first, .. } => {
                let found = self.work.look(&self.leader);
                if self.exited && self.work.is_rest() {
                    self.work.begin_grace(&self.leader, first);
                }
                found == Look::Nobody && self.is_ended(found)
            }
            Course::Killing { until } => {
                let found = self.work.kill(&self.leader);
                self.is_ended(found) || self.is_given_up(until)
            }
            Course::Late => {
                let found = self.work.kill(&self.leader);
                self.exited && found != Look::Somebody
            }
        }
    }

    /// Gives the verdict where there is one: nobody was met, or nothing more can be known.
    fn is_ended(&mut self, found: Look) -> bool {
        if !self.exited || found == Look::Somebody {
            return false;
        }
        let cause = self.cause.unwrap_or(self.exit_cause);
        let work = std::mem::replace(&mut self.work, Work::new());
        let ending = match found {
            Look::Nobody => work.all_gone(cause),
            Look::Somebody | Look::Unknown => work.incomplete(cause, None),
        };
        self.shared
            .finish(StateName::Ended, Some(Ended::Ending(ending)));
        true
    }

    /// Names who is left when the time is up. The leader stays held while somebody is.
    fn is_given_up(&mut self, until: Option<Instant>) -> bool {
        if until.is_none_or(|until| until > Instant::now()) {
            return false;
        }
        let cause = self.cause.unwrap_or(self.exit_cause);
        let work = std::mem::replace(&mut self.work, Work::new());
        let leader = Some(&self.leader).filter(|_| !self.exited);
        let ending = work.incomplete(cause, leader);
        self.shared
            .finish(StateName::Ended, Some(Ended::Ending(ending)));
        self.course = Course::Late;
        false
    }

    pub(super) fn signal(&mut self, number: i32, to: Target) -> Result<u32, Reject> {
        self.work.note(&self.leader);
        let leader = u32::from(!self.exited);
        match to {
            Target::Leader => {
                let sent = self.leader.signal(number).is_ok();
                Ok(if sent { leader } else { 0 })
            }
            Target::Tree => {
                self.work.send(&self.leader, number);
                Ok(leader + count(&self.work))
            }
        }
    }

    pub(super) fn release(&mut self) -> Result<u32, Reject> {
        match self.course {
            Course::Idle if !self.exited && !self.spec.detachable => Err(Reject::NotDetachable),
            Course::Idle | Course::Lingering { .. } => Ok(self.let_go()),
            Course::Graceful { .. } | Course::Killing { .. } | Course::Late | Course::LetGo => {
                let state = self.shared.lock().name;
                Err(Reject::IllegalState { state })
            }
        }
    }

    /// From here on nobody is signalled.
    pub(super) fn let_go(&mut self) -> u32 {
        self.work.note(&self.leader);
        let still_running = u32::from(!self.exited) + count(&self.work);
        self.course = Course::LetGo;
        self.due = None;
        // Nobody is watched any more either.
        self.work = Work::new();
        let end = Some(Ended::Released { still_running });
        self.shared.finish(StateName::Released, end);
        still_running
    }
}

fn count(work: &Work) -> u32 {
    u32::try_from(work.count()).unwrap_or(u32::MAX)
}

/// A moment from now; none where it is out of range, which is no limit.
pub(super) fn after(time: Duration) -> Option<Instant> {
    Instant::now().checked_add(time)
}
