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

use foster_protocol::{Cause, Exit, Micros, OnExit, Spec, StateName, Usage};
use nix::poll::{PollFd, PollFlags};

use super::TICK;
use super::course::{Course, after};
use super::leader::{Leader, Sight};
use super::shared::{Order, Shared, Stolen};
use super::start::start;
use super::work::Work;
use crate::poll::{poll_until, time_left};

/// How often those are looked at who outlived their ending.
const LATE: Duration = Duration::from_millis(500);

/// How long an ending sleeps at most before it looks again: a member that was forked since is
/// watched by nobody.
const LOOK: Duration = Duration::from_millis(50);

/// The shortest time between two looks: each is a walk of the whole process table.
const PAUSE: Duration = Duration::from_millis(2);

/// A session whose program runs.
pub(super) struct Session<'a> {
    pub(super) shared: &'a Shared,
    pub(super) spec: &'a Spec,
    pub(super) leader: Leader,
    pub(super) forked: Instant,
    pub(super) due: Option<Instant>,
    pub(super) exited: bool,
    /// Whether it is dead and a tracer keeps its exit from us: its pidfd tells nothing new.
    pub(super) is_withheld: bool,
    /// Why the leader exited, once it has.
    pub(super) exit_cause: Cause,
    /// Why the session is being ended.
    pub(super) cause: Option<Cause>,
    pub(super) course: Course,
    pub(super) work: Work,
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
