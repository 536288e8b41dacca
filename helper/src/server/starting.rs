//! From a spawn request to a running program, and to the leader's exit.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use foster_protocol::{
    Attached, Cause, Containment, Exit, Frame, Level, Micros, Missing, OnExit, Pid, Reject, Reply,
    RequestId, SessionId, Spec, Step, TreeLimits,
};

use super::{Body, Fault, Role, Server, Watch};
use crate::contain::cgroup::Leaf;
use crate::dispatch::{check_namespace, check_sealed_level, check_spec, choose_level};
use crate::session::{AfterExit, Event, State};
use crate::sys::epoll::Interest;
use crate::sys::fork::Isolation;
use crate::sys::outer::shown;
use crate::sys::spawn::{Born, Plan, Progress, Reading, read_progress, spawn};
use crate::table::Record;
use crate::timers::{Alarm, Owner};

/// How often a session is looked at that cannot be watched.
pub(super) const POLL: Duration = Duration::from_millis(10);

/// A session that was admitted, on its way to its start.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// The spawn that is to be answered.
    pub(crate) id: RequestId,
    pub(crate) session: SessionId,
    pub(crate) spec: Spec,
    /// The descriptors that came with the spec.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// What it gets, as far as it is known before the start.
    pub(crate) containment: Containment,
}

impl Server {
    /// Starts a session. The answer is sent when the child has reached exec, the gate, or its
    /// end.
    pub(super) fn start(
        &mut self,
        id: RequestId,
        session: SessionId,
        mut spec: Spec,
        frame: Frame,
    ) -> Result<(), Fault> {
        let containment = match self.admit(session, &spec, &frame) {
            Ok(containment) => containment,
            Err(reason) => return self.reject(id, reason),
        };
        if self.seal.as_ref().is_some_and(|seal| seal.no_new_privs) {
            spec.no_new_privs = true;
        }
        self.forks += 1;
        let is_kept = containment.level > Level::Group && self.role == Role::Helper;
        let admitted = Admitted {
            id,
            session,
            spec,
            descriptors: frame.descriptors,
            containment,
        };
        match is_kept {
            true => self.bear_keeper(admitted),
            false => self.start_here(admitted),
        }
    }

    /// Starts a session as its leader's parent.
    pub(super) fn start_here(&mut self, mut admitted: Admitted) -> Result<(), Fault> {
        let session = admitted.session;
        if self.role == Role::Keeper {
            self.kept = Some(session);
            self.has_forgotten = false;
        }
        let cgroup = match self.make_cgroup(&mut admitted) {
            Ok(cgroup) => cgroup,
            Err(errno) => return self.note_stillborn(&admitted, Step::Prepare, errno),
        };
        let inside = cgroup.as_ref().map(Leaf::directory);
        let mark = self.instance.limit(session);
        let usual = self.pace.to_give_back();
        let descriptors = std::mem::take(&mut admitted.descriptors);
        let born = Plan::new(&admitted.spec, descriptors, &self.context)
            .and_then(|plan| spawn(plan.marked(mark).scheduled(usual), &self.context, inside));
        match born {
            Ok(born) => {
                self.adopt(admitted, born)?;
                self.change(session, |record| record.body.cgroup = cgroup);
                Ok(())
            }
            Err((step, errno)) => {
                if let Some(cgroup) = cgroup {
                    cgroup.remove();
                }
                self.note_stillborn(&admitted, step, errno)
            }
        }
    }

    fn admit(
        &mut self,
        session: SessionId,
        spec: &Spec,
        frame: &Frame,
    ) -> Result<Containment, Reject> {
        if self.closing.is_some() {
            return Err(Reject::ShuttingDown);
        }
        if frame.descriptors_lost {
            return Err(Reject::DescriptorsLost);
        }
        let seal = self.seal.as_ref();
        check_spec(spec, frame.descriptors.len(), seal, self.identity)?;
        let containment = choose_level(spec, &self.capabilities.levels)?;
        check_sealed_level(containment.level, seal)?;
        let user = self.isolation == Some(Isolation::UserAndPid);
        check_namespace(spec, containment.level, user)?;
        self.check_room()?;
        self.table.admit(session, self.relays.len())?;
        Ok(containment)
    }

    /// Makes the session's cgroup, if it gets one. Where that fails, the session goes on without
    /// it and says so, unless it was required.
    fn make_cgroup(&self, admitted: &mut Admitted) -> Result<Option<Leaf>, i32> {
        let (spec, containment) = (&admitted.spec, &mut admitted.containment);
        let has_cgroup = containment.level >= Level::Cgroup
            && containment
                .missing
                .iter()
                .all(|one| one.level != Level::Cgroup);
        let Some(base) = self.base.as_ref().filter(|_| has_cgroup) else {
            return Ok(None);
        };
        match base.create(admitted.session, spec.limits) {
            Ok(leaf) => Ok(Some(leaf)),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                let needed = spec.require.is_some_and(|level| level >= Level::Cgroup)
                    || spec.limits != TreeLimits::default();
                if needed {
                    return Err(errno);
                }
                if containment.level == Level::Cgroup {
                    containment.level = Level::Tree;
                }
                containment.missing.push(Missing {
                    level: Level::Cgroup,
                    errno,
                });
                Ok(None)
            }
        }
    }

    /// Nothing was forked: the record only says so until it is closed.
    pub(super) fn note_stillborn(
        &mut self,
        admitted: &Admitted,
        step: Step,
        errno: i32,
    ) -> Result<(), Fault> {
        let mut record = Record::new(admitted.id, Body::new(&Spec::default()));
        record.body.failure = Some((step, errno));
        self.table.insert(admitted.session, record);
        self.apply(admitted.session, Event::NeverRan)
    }

    fn adopt(&mut self, admitted: Admitted, born: Born) -> Result<(), Fault> {
        let Admitted {
            id,
            session,
            spec,
            descriptors: _,
            containment,
        } = admitted;
        let pid = born.leader.pid();
        let leader_token = self.new_token(Watch::Leader(session));
        let status_token = self.new_token(Watch::Status(session));
        let mut watched = self
            .epoll
            .add(born.status.as_fd(), status_token, Interest::Read);
        if let Some(pidfd) = born.leader.pidfd() {
            watched = watched.and(self.epoll.add(pidfd, leader_token, Interest::Read));
        }
        if let Err(error) = watched {
            // The program may run by now, so this is no failure: it is looked at instead.
            tracing::warn!(%session, %error, "no room to watch a session");
            self.timers
                .set(Owner::Session(session), Alarm::Poll, self.now, POLL);
        }
        let mut record = Record::new(id, Body::new(&spec));
        record.after_exit = match spec.on_exit {
            OnExit::Hold => AfterExit::Hold,
            OnExit::End { .. } => AfterExit::End,
            OnExit::Linger { .. } => AfterExit::Linger,
            OnExit::Leave => AfterExit::Leave,
        };
        record.detachable = spec.detachable;
        record.pid = Some(pid);
        record.shown = Some(shown(pid.0));
        record.body.leader = Some(born.leader);
        record.body.leader_token = Some(leader_token);
        record.body.status = Some((born.status, status_token));
        record.body.gate = born.gate;
        record.containment = containment;
        record.label = spec.label;
        self.leaders.insert(pid.0);
        self.unreaped.insert(pid.0);
        // A released session that had this number is over, or the number would not be free.
        self.released.retain(|sid| *sid != pid.0);
        self.table.insert(session, record);
        if let Some(deadline) = spec.deadline {
            let after = Duration::from(deadline);
            self.timers
                .set(Owner::Session(session), Alarm::Deadline, self.now, after);
        }
        tracing::debug!(%session, %pid, "forked");
        Ok(())
    }

    /// Reads what a child reports on its way to exec.
    pub(super) fn read_status(&mut self, session: SessionId) -> Result<(), Fault> {
        loop {
            let Ok(record) = self.table.get(session) else {
                return Ok(());
            };
            let Some((status, _)) = &record.body.status else {
                return Ok(());
            };
            // Whoever may write into the child's pipes can say what it likes; it harms its own
            // session alone.
            let reading = read_progress(status.as_fd()).unwrap_or_else(|error| {
                tracing::warn!(%session, %error, "a child reports nonsense");
                Reading::Record(Progress::Failed {
                    step: Step::Prepare,
                    errno: libc::EPROTO,
                })
            });
            match reading {
                Reading::Nothing => return Ok(()),
                Reading::Closed => {
                    // A child at the gate has not been let through.
                    let ran = record.body.executing && record.state != State::Prepared;
                    self.drop_status(session);
                    if ran {
                        return self.apply(session, Event::Executed);
                    }
                    return self.never_ran(session);
                }
                Reading::Record(Progress::Waiting) => self.child_waits(session)?,
                Reading::Record(Progress::Executing) => {
                    self.change(session, |record| record.body.executing = true);
                }
                Reading::Record(Progress::Failed { step, errno }) => {
                    self.change(session, |record| record.body.failure = Some((step, errno)));
                    self.drop_status(session);
                    return self.never_ran(session);
                }
            }
        }
    }

    /// The program did not run, and never will.
    fn never_ran(&mut self, session: SessionId) -> Result<(), Fault> {
        let killed = self.change(session, |record| {
            record.body.gate = None;
            let leader = record.body.leader.as_ref();
            leader.map(|leader| leader.signal(libc::SIGKILL))
        });
        if let Some(Some(Err(error))) = killed {
            tracing::debug!(%session, %error, "the child is gone already");
        }
        self.apply(session, Event::NeverRan)
    }

    /// A child that is being ended already is not announced.
    fn child_waits(&mut self, session: SessionId) -> Result<(), Fault> {
        match self.state(session) {
            Some(State::Starting) => self.apply(session, Event::Waiting),
            Some(_) | None => Ok(()),
        }
    }

    fn drop_status(&mut self, session: SessionId) {
        if let Some(Some((status, token))) =
            self.change(session, |record| record.body.status.take())
        {
            self.forget(status.as_fd(), token);
        }
    }

    /// A session that cannot be watched is looked at every so often.
    pub(super) fn poll_session(&mut self, session: SessionId) -> Result<(), Fault> {
        self.read_status(session)?;
        self.leader_is_ready(session)?;
        if self
            .table
            .get(session)
            .is_ok_and(|record| !record.body.exited)
        {
            self.timers
                .set(Owner::Session(session), Alarm::Poll, self.now, POLL);
        }
        Ok(())
    }

    /// The leader's pidfd is readable, or without one, something has been reaped or died.
    pub(super) fn leader_is_ready(&mut self, session: SessionId) -> Result<(), Fault> {
        let Ok(record) = self.table.get(session) else {
            return Ok(());
        };
        if record.body.exited {
            return Ok(());
        }
        let Some(leader) = &record.body.leader else {
            return Ok(());
        };
        let Some((status, usage)) = leader.peek()? else {
            return self.leader_is_held(session);
        };
        let ended = record.body.orders.map(|orders| orders.cause);
        let by_itself = match libc::WIFSIGNALED(status) {
            true if record.body.is_out_of_memory(status) => Cause::OutOfMemory,
            true => Cause::Signal,
            false => Cause::Exit,
        };
        let exit = Exit {
            status,
            usage,
            wall: Micros::from(Instant::now().saturating_duration_since(record.body.born)),
            cause: ended.unwrap_or(by_itself),
        };
        // What the child reported comes before its exit, in whatever order they were seen.
        self.read_status(session)?;
        self.drop_status(session);
        self.change(session, |record| {
            record.body.exited = true;
            record.body.gate = None;
            if has_run(record.state) && !record.never_ran {
                record.exit = Some(exit);
            }
        });
        self.stop_watching_leader(session);
        self.apply(session, Event::LeaderExited)
    }

    /// A tracer holds the dead leader, whose pidfd would be ready for ever: it is looked at every
    /// so often instead.
    fn leader_is_held(&mut self, session: SessionId) -> Result<(), Fault> {
        let is_ready = match self.table.get(session).map(|record| &record.body.leader) {
            Ok(Some(leader)) => leader.has_died()?,
            Ok(None) | Err(_) => false,
        };
        if is_ready {
            self.stop_watching_leader(session);
            self.timers
                .set(Owner::Session(session), Alarm::Poll, self.now, POLL);
        }
        Ok(())
    }

    fn stop_watching_leader(&mut self, session: SessionId) {
        let token = self
            .change(session, |record| record.body.leader_token.take())
            .flatten();
        let Ok(record) = self.table.get(session) else {
            return;
        };
        if let (Some(token), Some(pidfd)) = (
            token,
            record
                .body
                .leader
                .as_ref()
                .and_then(|leader| leader.pidfd()),
        ) {
            if let Err(error) = self.epoll.remove(pidfd) {
                tracing::debug!(%error, "a leader was not in the epoll set");
            }
            self.watches.remove(&token);
        }
    }

    /// The answer to a spawn whose program runs or whose child waits, with the descriptors that
    /// its client can end it by. A helper without room for one more still answers: they are
    /// extras.
    pub(super) fn reply_started(
        &mut self,
        session: SessionId,
        reply: impl FnOnce(Pid, Containment, Vec<Attached>) -> Reply,
    ) -> Result<(), Fault> {
        let Ok(record) = self.table.get(session) else {
            return Ok(());
        };
        let (Some(pid), containment) = (record.shown, record.containment.clone()) else {
            return Ok(());
        };
        let leader = record.body.leader.as_ref();
        let pidfd = leader.and_then(|leader| leader.pidfd());
        let kill = record.body.cgroup.as_ref().map(Leaf::kill_file);
        let copy = |(what, open): (Attached, Option<BorrowedFd<'_>>)| {
            Some((what, open?.try_clone_to_owned().ok()?))
        };
        let (attached, descriptors) = [(Attached::Pidfd, pidfd), (Attached::CgroupKill, kill)]
            .into_iter()
            .filter_map(copy)
            .unzip();
        if let Some(id) = self
            .change(session, |record| record.starter.take())
            .flatten()
        {
            self.reply_with(id, reply(pid, containment, attached), descriptors)?;
        }
        Ok(())
    }
}

/// Whether the program was seen to run.
fn has_run(state: State) -> bool {
    match state {
        State::Running
        | State::Exited
        | State::Lingering
        | State::Graceful
        | State::Killing
        | State::Ended
        | State::Released => true,
        State::Starting | State::Prepared | State::Aborting | State::Failed => false,
    }
}
