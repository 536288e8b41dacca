//! The ending of a tree: from the order to the verdict.
//!
//! The order comes from one place and is carried out at once; who is left is looked at by whoever
//! waits, until nobody is.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::windows::io::AsHandle;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use foster_protocol::{
    Bytes, Cause, Ended as MemberEnd, Ending, Member, Micros, Pid, Proof, Reject, StateName,
    Survivor, Verdict, Why,
};

use super::taskkill::kill_by_number;
use super::tree::{State, Tree};
use crate::ended::Ended;
use crate::error::{Repr, Result};
use crate::notice::Notice;
use crate::sys;

/// How long an ending is repeated before those who are left are named.
pub(super) const HARD_LIMIT: Duration = Duration::from_secs(5);

/// How often those who are left are looked at: nothing wakes whoever waits for an empty job
/// without fail.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// What members exit with that are ended, as those that std kills.
const ENDED: u32 = 1;

/// An ending that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) cause: Cause,
    at: Instant,
    /// Whoever was in the job then.
    members: Vec<u32>,
    names: HashMap<u32, OsString>,
    rounds: u32,
    /// Whether a tree without a job had its `taskkill`.
    is_told: bool,
}

/// What a look at the job shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Nobody,
    Somebody,
    /// There is no job, or it cannot be looked at.
    Unknown,
}

impl Tree {
    /// Begins the ending, where none has begun and the session is not over. It does not wait.
    pub(super) fn begin(&self, cause: Cause) {
        let mut state = self.lock();
        // A leader that has exited before was not ended by this, and may have released its rest.
        self.look_at_leader(&mut state);
        if state.end.is_some() || state.begun.is_some() {
            return;
        }
        state.begun = Some(Begun {
            cause,
            at: Instant::now(),
            members: self.members(),
            names: sys::names().unwrap_or_default(),
            rounds: 0,
            is_told: false,
        });
        self.terminate();
        self.bell.notify_all();
        self.stir.set();
    }

    fn members(&self) -> Vec<u32> {
        let members = self.job.as_ref().map(sys::Job::members);
        members
            .and_then(std::result::Result::ok)
            .unwrap_or_default()
    }

    /// Ends whoever is in the job now. A process that a member is about to create is in it, too,
    /// and is met by the next call.
    fn terminate(&self) {
        if let Some(job) = &self.job
            && let Err(error) = job.terminate(ENDED)
        {
            tracing::debug!(%error, "job was not ended");
        }
    }

    /// Ends the tree, and waits for the verdict.
    pub(super) fn end(&self, cause: Cause) -> Result<Ending> {
        self.begin(cause);
        match self.settle(None) {
            Some(Ended::Ending(ending)) => Ok(ending),
            Some(Ended::Released { .. }) => Err(illegal(StateName::Released)),
            None => Err(illegal(StateName::Ending)),
        }
    }

    /// Waits for the session's end, and carries an ending on that has begun; none where the time
    /// was up first.
    pub(super) fn settle(&self, until: Option<Instant>) -> Option<Ended> {
        loop {
            if let Some(end) = self.advance() {
                return Some(end);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            let state = self.lock();
            if state.end.is_some() {
                continue;
            }
            let limit = match (&state.begun, left) {
                (Some(_), left) => Some(left.map_or(TICK, |left| left.min(TICK))),
                (None, left) => left,
            };
            match limit {
                Some(limit) => drop(self.bell.wait_timeout(state, limit)),
                None => drop(
                    self.bell
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner),
                ),
            }
        }
    }

    /// One round of an ending that has begun. Gives the end if there is one.
    fn advance(&self) -> Option<Ended> {
        let mut state = self.lock();
        if let Some(end) = &state.end {
            return Some(end.clone());
        }
        let begun = state.begun.as_mut()?;
        begun.rounds = begun.rounds.saturating_add(1);
        let is_late = begun.at.elapsed() >= HARD_LIMIT;
        if self.job.is_none() && !begun.is_told {
            begun.is_told = true;
            drop(state);
            self.kill_without_job();
            return None;
        }
        let has_exited = self.look_at_leader(&mut state);
        match self.look() {
            Look::Nobody if has_exited => return self.conclude(&mut state, Verdict::AllGone),
            Look::Unknown if has_exited => return self.conclude(&mut state, Verdict::Incomplete),
            Look::Nobody | Look::Somebody | Look::Unknown if is_late => {
                return self.conclude(&mut state, Verdict::Incomplete);
            }
            Look::Nobody | Look::Somebody | Look::Unknown => self.terminate(),
        }
        None
    }

    fn look(&self) -> Look {
        match self.job.as_ref().map(sys::Job::active) {
            Some(Ok(0)) => Look::Nobody,
            Some(Ok(_)) => Look::Somebody,
            Some(Err(error)) => {
                tracing::debug!(%error, "job cannot be looked at");
                Look::Unknown
            }
            None => Look::Unknown,
        }
    }

    /// Whether nobody is in the job. False where that cannot be told.
    pub(super) fn is_empty(&self) -> bool {
        self.look() == Look::Nobody
    }

    /// The leader, and what `taskkill` finds below it. The leader is held, so that its number is
    /// its own.
    fn kill_without_job(&self) {
        let has_exited = self.look_at_leader(&mut self.lock());
        if has_exited {
            return;
        }
        if let Err(error) = kill_by_number(self.pid) {
            tracing::warn!(%error, "taskkill did not end the tree: only its leader is ended");
        }
        if let Err(error) = sys::terminate(self.leader.as_handle(), ENDED) {
            // ERROR_ACCESS_DENIED: it has exited.
            tracing::debug!(%error, "leader was not ended once more");
        }
    }

    /// Ends the session without an ending: nobody is left. For a tree that finished by itself.
    pub(super) fn finish_empty(&self) {
        let mut state = self.lock();
        if state.end.is_none() && state.begun.is_none() {
            let ending = report(Cause::Exit, Verdict::AllGone);
            self.finish(&mut state, Ended::Ending(ending));
        }
    }

    fn conclude(&self, state: &mut State, verdict: Verdict) -> Option<Ended> {
        let begun = state.begun.as_ref()?;
        let left = match verdict {
            Verdict::AllGone => Vec::new(),
            Verdict::Incomplete => self.members(),
        };
        let name = |pid: u32| {
            let name = begun.names.get(&pid).map(|name| name.to_string_lossy());
            Bytes(name.unwrap_or_default().into_owned().into_bytes())
        };
        let members = begun.members.iter().filter(|&&pid| pid != self.pid);
        let ending = Ending {
            members: members
                .map(|&pid| Member {
                    pid: Pid(pid.cast_signed()),
                    name: name(pid),
                    ended: match left.contains(&pid) {
                        true => MemberEnd::Not,
                        false => MemberEnd::ByKill,
                    },
                })
                .collect(),
            survivors: left
                .iter()
                .map(|&pid| Survivor {
                    pid: Pid(pid.cast_signed()),
                    name: name(pid),
                    uid: u32::MAX,
                    why: Why::Dying,
                })
                .collect(),
            rounds: begun.rounds,
            took: Micros::from(begun.at.elapsed()),
            ..report(begun.cause, verdict)
        };
        if verdict == Verdict::Incomplete {
            state.notice = Some(Notice::EndUnconfirmed);
        }
        let end = Ended::Ending(ending);
        self.finish(state, end.clone());
        Some(end)
    }
}

/// The report of an ending in which nobody was met.
fn report(cause: Cause, verdict: Verdict) -> Ending {
    Ending {
        cause,
        verdict,
        proof: match verdict {
            Verdict::AllGone => Some(Proof::JobEmpty),
            Verdict::Incomplete => None,
        },
        members: Vec::new(),
        survivors: Vec::new(),
        unattributed: Vec::new(),
        peaks: None,
        rounds: 0,
        took: Micros(0),
    }
}

fn illegal(state: StateName) -> crate::error::Error {
    Repr::Refused(Reject::IllegalState { state }).into()
}
