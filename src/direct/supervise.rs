//! The thread of one direct session: it forks the leader, watches it, keeps its times, ends its
//! tree and reaps it.
//!
//! One thread a session, and not one for all: a walk of the process table or a child that
//! hangs delays nobody else, and the leader's death signal, which fires when the thread that
//! forked it ends, means what it says. The thread has every signal blocked, so that no handler
//! of the host's runs on it. It must never touch a child that is not its own.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foster_protocol::{Cause, Exit, Micros, OnExit, Reject, Spec, StateName, Target, Usage};
use nix::poll::{PollFd, PollFlags};

use super::TICK;
use super::leader::{Leader, Sight};
use super::shared::{Order, Shared, Stolen};
use super::start::start;
use super::work::{HARD_LIMIT, Look, Work};
use crate::connection::{Ended, poll_until, time_left};

/// How often those are looked at who outlived their ending.
const LATE: Duration = Duration::from_millis(500);

/// How long an ending sleeps at most before it looks again: a member that was forked since is
/// watched by nobody.
const LOOK: Duration = Duration::from_millis(50);

/// The shortest time between two looks: each is a walk of the whole process table.
const PAUSE: Duration = Duration::from_millis(2);

/// Where the session stands.
#[derive(Clone, Copy, Debug)]
enum Course {
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

/// A session whose program runs.
struct Session<'a> {
    shared: &'a Shared,
    spec: &'a Spec,
    leader: Leader,
    forked: Instant,
    due: Option<Instant>,
    exited: bool,
    /// Whether it is dead and a tracer keeps its exit from us: its pidfd tells nothing new.
    is_withheld: bool,
    /// Why the leader exited, once it has.
    exit_cause: Cause,
    /// Why the session is being ended.
    cause: Option<Cause>,
    course: Course,
    work: Work,
}

/// Marks the session as gone where the thread leaves without a verdict.
struct Last(Arc<Shared>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.change(|state| state.is_gone = true);
    }
}

/// Runs one session from its fork to its last member.
pub(super) fn supervise(shared: Arc<Shared>, spec: &Spec, descriptors: Vec<OwnedFd>) {
    let last = Last(shared);
    let shared = &*last.0;
    let forked = match start(shared, spec, descriptors) {
        Ok(forked) => forked,
        Err(failed) => return fail(shared, failed),
    };
    let mut session = Session {
        shared,
        spec,
        leader: forked.leader,
        forked: forked.at,
        due: spec
            .deadline
            .and_then(|after| forked.at.checked_add(after.into())),
        exited: false,
        is_withheld: false,
        exit_cause: Cause::Exit,
        cause: None,
        course: Course::Idle,
        work: Work::new(),
    };
    match forked.outcome {
        Ok(aborted) => {
            shared.change(|state| state.name = StateName::Running);
            if let Some(cause) = aborted {
                session.end(libc::SIGKILL, Duration::ZERO, cause);
            }
        }
        Err(failed) => {
            fail(shared, failed);
            session.course = Course::LetGo;
        }
    }
    session.run();
}

fn fail(shared: &Shared, failed: super::Failed) {
    shared.change(|state| state.failed = Some(failed));
    shared.finish(StateName::Failed, None);
}

impl Session<'_> {
    /// Serves the session until nothing of it is left to do, and reaps the leader last.
    fn run(mut self) {
        let mut is_over = false;
        while !is_over {
            self.look_at_leader();
            self.obey();
            self.keep_time();
            is_over = self.look();
            if !is_over {
                self.sleep();
            }
        }
        self.leader.reap();
    }

    fn sleep(&self) {
        let mut limit = match self.course {
            Course::Idle => time_left(self.due.filter(|_| self.cause.is_none())),
            Course::Lingering { until } | Course::Graceful { until, .. } => {
                let until = [until, self.due].into_iter().flatten().min();
                Some(time_left(until).map_or(LOOK, |left| left.min(LOOK)))
            }
            Course::Killing { .. } => Some(LOOK),
            Course::Late => Some(LATE),
            Course::LetGo => None,
        };
        let mut polled = vec![PollFd::new(self.shared.wake(), PollFlags::POLLIN)];
        if !self.exited {
            match self.leader.as_fd() {
                Some(pidfd) if !self.is_withheld => {
                    polled.push(PollFd::new(pidfd, PollFlags::POLLIN));
                }
                // Nothing tells of its exit.
                Some(_) | None => limit = Some(limit.map_or(TICK, |limit| limit.min(TICK))),
            }
        }
        // The first of those who live is watched: when it is gone, it is time to look again.
        polled.extend(self.work.living().first().and_then(|one| one.poll_fd()));
        if self.is_looking() && polled.len() < 2 {
            limit = Some(limit.map_or(PAUSE, |limit| limit.min(PAUSE)));
        }
        if let Err(error) = poll_until(&mut polled, limit) {
            tracing::debug!(%error, "session cannot be polled");
        }
    }

    fn is_looking(&self) -> bool {
        match self.course {
            Course::Lingering { .. } | Course::Graceful { .. } | Course::Killing { .. } => true,
            Course::Idle | Course::Late | Course::LetGo => false,
        }
    }

    /// Notes the leader's exit, once.
    fn look_at_leader(&mut self) {
        if self.exited {
            return;
        }
        let exit = match self.leader.look() {
            Ok(Sight::Running) => {
                self.is_withheld = self.leader.is_dead();
                return;
            }
            Ok(Sight::Exited(exited)) => {
                self.exit_cause = match self.cause {
                    Some(cause) => cause,
                    None if libc::WIFSIGNALED(exited.status) => Cause::Signal,
                    None => Cause::Exit,
                };
                Ok(Exit {
                    status: exited.status,
                    usage: usage(&exited.usage),
                    wall: Micros::from(self.forked.elapsed()),
                    cause: self.exit_cause,
                })
            }
            Ok(Sight::Stolen) => Err(Stolen),
            Err(error) => {
                tracing::debug!(%error, "leader cannot be looked at");
                Err(Stolen)
            }
        };
        self.exited = true;
        let idle = matches!(self.course, Course::Idle);
        self.shared.change(|state| {
            state.exit = Some(exit);
            if idle {
                state.name = StateName::Exited;
            }
        });
        if idle {
            self.follow_exit();
        }
    }

    /// What the command says about its rest.
    fn follow_exit(&mut self) {
        match self.spec.on_exit {
            OnExit::Hold => {}
            OnExit::End { grace } => {
                let first = self.spec.first_signal.unwrap_or(libc::SIGTERM);
                self.end(first, grace.into(), self.exit_cause);
            }
            OnExit::Linger { limit, .. } => {
                self.course = Course::Lingering {
                    until: after(limit.into()),
                };
            }
            OnExit::Leave => {
                self.let_go();
            }
        }
    }

    /// Carries out what handles have asked for.
    fn obey(&mut self) {
        self.shared.quiet();
        while let Some(order) = self.shared.take_order() {
            match order {
                // The gate was passed.
                Order::Open => {}
                Order::End {
                    first,
                    grace,
                    cause,
                } => self.end(first, grace, cause),
                Order::Signal { number, to, answer } => {
                    let _nobody_waits = answer.send(self.signal(number, to));
                }
                Order::Release { answer } => {
                    let released = self.release();
                    let _nobody_waits = answer.send(released);
                }
            }
        }
    }

    fn keep_time(&mut self) {
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
    fn end(&mut self, first: i32, grace: Duration, cause: Cause) {
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
    fn look(&mut self) -> bool {
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

    fn signal(&mut self, number: i32, to: Target) -> Result<u32, Reject> {
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

    fn release(&mut self) -> Result<u32, Reject> {
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
    fn let_go(&mut self) -> u32 {
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
fn after(time: Duration) -> Option<Instant> {
    Instant::now().checked_add(time)
}

fn usage(usage: &libc::rusage) -> Usage {
    let time = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let rest = u64::try_from(time.tv_usec).unwrap_or(0);
        Micros(seconds.saturating_mul(1_000_000).saturating_add(rest))
    };
    let number = |number: libc::c_long| u64::try_from(number).unwrap_or(0);
    Usage {
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
        max_rss: number(usage.ru_maxrss),
        minor_faults: number(usage.ru_minflt),
        major_faults: number(usage.ru_majflt),
        blocks_in: number(usage.ru_inblock),
        blocks_out: number(usage.ru_oublock),
        voluntary_switches: number(usage.ru_nvcsw),
        involuntary_switches: number(usage.ru_nivcsw),
    }
}
