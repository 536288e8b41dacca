//! Carrying out what the transition function asks for, and the course of an ending.

use std::collections::HashSet;

use foster_protocol::{Cause, Reply, SessionId, Step};

use super::{Fault, Server};
use crate::ending::HARD_LIMIT;
use crate::session::{Action, Event, State};
use crate::timers::{Alarm, Owner};

impl Server {
    pub(super) fn carry_out(&mut self, session: SessionId, action: Action) -> Result<(), Fault> {
        match action {
            Action::ReplyPrepared => {
                self.reply_started(session, |pid, containment, attached| Reply::Prepared {
                    pid,
                    containment,
                    attached,
                })
            }
            Action::OpenGate => self.open_gate(session),
            Action::ReplySpawned => {
                self.reply_started(session, |pid, containment, attached| Reply::Spawned {
                    pid,
                    containment,
                    attached,
                })
            }
            Action::ReplyFailed => self.reply_failed(session),
            Action::AnswerExit | Action::AnswerEnd => self.answer(session),
            Action::KillChild => self.kill_child(session),
            Action::BeginGrace => self.begin_grace(session),
            Action::BeginKill => self.begin_kill(session),
            Action::BeginLinger => self.begin_linger(session),
            Action::Look => self.look(session),
            Action::LetGo => self.let_go(session),
            Action::Reap => self.reap(session),
        }
    }

    /// Sends every wait its answer that has one now.
    pub(super) fn answer(&mut self, session: SessionId) -> Result<(), Fault> {
        let answers = self
            .change(session, |record| record.take_answers())
            .unwrap_or_default();
        for (id, reply) in answers {
            self.reply(id, reply)?;
        }
        Ok(())
    }

    fn open_gate(&mut self, session: SessionId) -> Result<(), Fault> {
        let gate = self
            .change(session, |record| record.body.gate.take())
            .flatten();
        if let Some(gate) = gate
            && let Err(error) = nix::unistd::write(&gate, &[1])
        {
            // The child is dead, and its status pipe is about to say so.
            tracing::debug!(%session, %error, "the gate has nobody behind it");
        }
        Ok(())
    }

    fn reply_failed(&mut self, session: SessionId) -> Result<(), Fault> {
        let starter = self.change(session, |record| {
            record.never_ran = true;
            let (step, errno) = record
                .body
                .failure
                .unwrap_or((Step::Ended, libc::ECANCELED));
            record
                .starter
                .take()
                .map(|id| (id, Reply::SpawnFailed { step, errno }))
        });
        if let Some((id, reply)) = starter.flatten() {
            self.reply(id, reply)?;
        }
        self.answer(session)
    }

    fn kill_child(&mut self, session: SessionId) -> Result<(), Fault> {
        self.timers
            .set(Owner::Session(session), Alarm::Hard, self.now, HARD_LIMIT);
        let Ok(record) = self.table.get(session) else {
            return Ok(());
        };
        if let Some(leader) = &record.body.leader
            && let Err(error) = leader.signal(libc::SIGKILL)
        {
            // The verdict rests on its death, which is awaited, and not on this.
            tracing::debug!(%session, %error, "the child could not be killed");
        }
        Ok(())
    }

    /// Lets go what is left: from here on nothing signals it, a hangup included.
    fn let_go(&mut self, session: SessionId) -> Result<(), Fault> {
        self.instance.release(session);
        let work = self
            .change(session, |record| record.body.work.take())
            .flatten();
        if let Some(work) = work {
            self.unwatch(&work);
        }
        let Ok(record) = self.table.get(session) else {
            return Ok(());
        };
        let (Some(pid), exited) = (record.pid, record.body.exited) else {
            return Ok(());
        };
        let found = self.count(pid, !exited)?;
        let members = found.members.len() + found.unpinned.len() + usize::from(!exited);
        self.leaders.remove(&pid.0);
        if members > 0 || !found.orphan_free {
            self.released.push(pid.0);
        }
        let still_running = u32::try_from(members).unwrap_or(u32::MAX);
        self.change(session, |record| record.released = Some(still_running));
        self.answer(session)
    }

    /// Collects the leader's status. Its number is free after this, so nothing of its session
    /// may be signalled through it any more: the type is gone.
    pub(super) fn reap(&mut self, session: SessionId) -> Result<(), Fault> {
        let Some(leader) = self
            .change(session, |record| record.body.leader.take())
            .flatten()
        else {
            return Ok(());
        };
        let pid = leader.pid();
        match leader.reap() {
            Ok(()) => {
                // A session that never ran has an empty cgroup; a released one is using it.
                let cgroup = self.change(session, |record| {
                    let is_unused = record.state == State::Failed;
                    is_unused.then(|| record.body.cgroup.take()).flatten()
                });
                if let Some(Some(cgroup)) = cgroup {
                    cgroup.remove();
                }
                self.leaders.remove(&pid.0);
                self.unreaped.remove(&pid.0);
                // Its tree may have been empty before, and then nothing else will say so.
                self.forget_empty_trees()
            }
            Err((leader, error)) => {
                self.change(session, |record| record.body.leader = Some(leader));
                Err(error.into())
            }
        }
    }

    /// An alarm of a session.
    pub(super) fn ring_session(&mut self, session: SessionId, alarm: Alarm) -> Result<(), Fault> {
        if self.relays.contains_key(&session) {
            match alarm {
                Alarm::Deadline => self.deadline_of_kept(session),
                Alarm::Hard => return self.give_up_keeper(session),
                Alarm::Poll => return self.poll_keeper(session),
                Alarm::Look => return self.doubt_keeper(session),
                Alarm::Linger => return self.flush_relay(session),
                Alarm::Grace => {}
            }
            return Ok(());
        }
        match alarm {
            Alarm::Deadline => self.end_by_spec(session, Cause::Deadline),
            Alarm::Linger => {
                let Ok(record) = self.table.get(session) else {
                    return Ok(());
                };
                let orders = record.body.orders_at_exit(Cause::Linger);
                self.end(session, orders)
            }
            Alarm::Grace => self.apply(session, Event::GraceOver),
            Alarm::Hard => self.give_up(session),
            Alarm::Look => self.look(session),
            Alarm::Poll if self.state(session) == Some(State::Ended) => self.look_late(session),
            Alarm::Poll => self.poll_session(session),
        }
    }

    /// The main thread has reaped orphans, or without pidfds, somebody has died.
    pub(super) fn orphans_changed(&mut self) -> Result<(), Fault> {
        if !self.context.features.pidfd {
            for session in self.table.ids() {
                self.leader_is_ready(session)?;
            }
        }
        // Whoever watches members is told by them.
        let waiting: Vec<SessionId> = self
            .working
            .iter()
            .copied()
            .filter(|session| {
                self.table.get(*session).is_ok_and(|record| {
                    record
                        .body
                        .work
                        .as_ref()
                        .is_some_and(|work| work.watched.is_empty())
                })
            })
            .collect();
        for session in waiting {
            self.look(session)?;
        }
        self.remove_empty_cgroups();
        self.forget_empty_trees()?;
        self.go_on_sweeping()
    }

    /// Where no orphan is left, no released session with a dead leader has a member.
    fn forget_empty_trees(&mut self) -> Result<(), Fault> {
        if !self.released.is_empty() && self.adopted.is_some() && self.orphans()?.is_empty() {
            let running = self.released_leaders();
            self.released.retain(|sid| running.contains(sid));
        }
        Ok(())
    }

    /// The leaders of released sessions that still run.
    fn released_leaders(&self) -> HashSet<i32> {
        self.table
            .iter()
            .filter(|(_, record)| record.state == State::Released)
            .filter_map(|(_, record)| record.body.leader.as_ref())
            .map(|leader| leader.pid().0)
            .collect()
    }
}
