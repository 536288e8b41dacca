//! What became of a command, and foster's exit code for it.
//!
//! Facts are collected as they come; the reason and the code are worked out from them.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::libc::SIGTERM;

use crate::cli::course::Stop;
use crate::cli::{remedy, words};
use crate::{
    Bytes, Capabilities, Cause, Containment, Ended, Ending, Error, Exit, Farewell, Member,
    MemberEnd, Missing, Reject, Step, Survivor,
};

/// The exit code of a timeout.
const TIMED_OUT: u8 = 124;
/// The exit code of foster's own failure.
pub(crate) const FAILED: u8 = 125;
/// The exit code of a command that cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// The exit code of a command that is not there.
const NOT_FOUND: u8 = 127;
/// What is added to the number of the signal that a command died of.
const DIED: u8 = 128;

/// Why a run is over, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The command exited by itself.
    Exit,
    /// The command died of a signal that foster did not cause.
    Signal,
    /// The timeout was reached.
    Timeout,
    /// Foster was sent a signal, or its parent died.
    Cancelled,
    /// The command never ran.
    SpawnFailed,
    /// The helper is gone or does not answer.
    HelperLost,
}

impl Reason {
    /// The word in the report.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::SpawnFailed => "spawn-failed",
            Self::HelperLost => "helper-lost",
        }
    }
}

/// A process that had left the command's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Escapee<'a> {
    /// Its pid.
    pub(crate) pid: i32,
    /// Its name.
    pub(crate) name: &'a Bytes,
    /// How it ended; none where it was seen and had gone when the rest was ended.
    pub(crate) ended: Option<MemberEnd>,
}

/// What kept foster from its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A call to the helper.
    Call(Error),
    /// Something in foster itself.
    Own(String),
    /// The helper has been asked, and has not answered in time.
    Silent,
}

impl Failure {
    /// What it was, with every cause of it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Call(error) => {
                if is_keeper_lost(error) {
                    return "the keeper of the tree died; what became of the command is unknown"
                        .to_owned();
                }
                let first: &dyn std::error::Error = error;
                let causes = std::iter::successors(Some(first), |error| error.source());
                causes
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(": ")
            }
            Self::Own(text) => text.clone(),
            Self::Silent => "helper does not answer; who is left is unknown".to_owned(),
        }
    }
}

/// Everything that is known of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What the helper can do here, once it was launched.
    pub(crate) capabilities: Option<Capabilities>,
    /// The command's pid, once it ran.
    pub(crate) pid: Option<i32>,
    /// What contained it.
    pub(crate) containment: Option<Containment>,
    /// Whether there was a timeout at all.
    pub(crate) has_timeout: bool,
    /// Why the run was stopped from outside, if it was.
    pub(crate) stop: Option<Stop>,
    /// The command's exit.
    pub(crate) exit: Option<Exit>,
    /// The end of its tree.
    pub(crate) ended: Option<Ended>,
    /// What was ended beside the tree.
    pub(crate) farewell: Option<Farewell>,
    /// What kept foster from its work.
    pub(crate) failure: Option<Failure>,
}

impl Outcome {
    /// Whether the timeout ended the run.
    pub(crate) fn is_timeout(&self) -> bool {
        self.causes().any(|cause| cause == Cause::Deadline)
    }

    /// Why the run is over.
    pub(crate) fn reason(&self) -> Reason {
        match &self.failure {
            Some(Failure::Silent) => return Reason::HelperLost,
            Some(Failure::Call(error)) if error.is_helper_lost() || is_keeper_lost(error) => {
                return Reason::HelperLost;
            }
            Some(Failure::Call(_) | Failure::Own(_)) | None => {}
        }
        let is_killed = self.causes().any(|cause| cause == Cause::Kill);
        let Some(status) = self.status() else {
            // Of a command that ran, only the helper could have told the exit.
            return if self.pid.is_some() {
                Reason::HelperLost
            } else {
                self.unstarted()
            };
        };
        if self.is_timeout() {
            Reason::Timeout
        } else if self.stop.is_some() && is_killed {
            Reason::Cancelled
        } else if status.signal().is_some() {
            Reason::Signal
        } else {
            Reason::Exit
        }
    }

    /// Foster's exit code.
    pub(crate) fn exit_code(&self, preserve_status: bool) -> u8 {
        match (self.reason(), self.stop) {
            (Reason::HelperLost, _) => FAILED,
            (Reason::SpawnFailed, _) => match &self.failure {
                Some(Failure::Call(error)) => spawn_code(error),
                Some(Failure::Own(_) | Failure::Silent) | None => FAILED,
            },
            (Reason::Timeout, _) if !preserve_status => TIMED_OUT,
            (Reason::Cancelled, Some(Stop::ParentGone)) => died(SIGTERM),
            (Reason::Cancelled, Some(Stop::Signal(number))) if self.exit.is_none() => died(number),
            (Reason::Timeout, _) if self.exit.is_none() => TIMED_OUT,
            (Reason::Timeout | Reason::Cancelled | Reason::Exit | Reason::Signal, _) => {
                match (&self.failure, self.status()) {
                    (None, Some(status)) => status_code(status),
                    (Some(_), _) | (None, None) => FAILED,
                }
            }
        }
    }

    /// What kept foster from its work, in words. A level that is missing comes with its remedy.
    pub(crate) fn failure_text(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        let Failure::Call(error) = failure else {
            return Some(failure.text());
        };
        let Some(&Reject::LevelUnavailable { level, errno }) = error.rejection() else {
            return Some(failure.text());
        };
        let missing = Missing { level, errno };
        let (why, remedy) = remedy::of_missing(missing, self.capabilities.as_ref());
        let remedy = remedy.map(|text| format!("; {text}")).unwrap_or_default();
        let level = words::level(level);
        Some(format!("level {level} cannot be had: {why}{remedy}"))
    }

    /// The command's status.
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        self.exit.map(|exit| ExitStatus::from_raw(exit.status))
    }

    /// The record of the tree's end, unless it was let go.
    pub(crate) fn ending(&self) -> Option<&Ending> {
        match &self.ended {
            Some(Ended::Ending(ending)) => Some(ending),
            Some(Ended::Released { .. }) | None => None,
        }
    }

    /// How many processes were let go.
    pub(crate) fn left_running(&self) -> Option<u32> {
        match &self.ended {
            Some(Ended::Released { still_running }) => Some(*still_running),
            Some(Ended::Ending(_)) | None => None,
        }
    }

    /// Who is left against foster's will, each once.
    pub(crate) fn survivors(&self) -> Vec<&Survivor> {
        let of_tree = self
            .ending()
            .into_iter()
            .flat_map(|ending| &ending.survivors);
        let of_all = self
            .farewell
            .iter()
            .flat_map(|farewell| &farewell.survivors);
        let mut survivors: Vec<&Survivor> = Vec::new();
        for survivor in of_tree.chain(of_all) {
            if survivors.iter().all(|known| known.pid != survivor.pid) {
                survivors.push(survivor);
            }
        }
        survivors
    }

    /// Who was found outside the command's session, each once, and how it ended where it was
    /// ended.
    pub(crate) fn escaped(&self) -> Vec<Escapee<'_>> {
        let members = self.farewell.iter().flat_map(|farewell| &farewell.orphans);
        let ended = members.map(|member| {
            let Member { pid, name, ended } = member;
            Escapee {
                pid: pid.0,
                name,
                ended: Some(*ended),
            }
        });
        let mut escaped: Vec<Escapee<'_>> = ended.collect();
        for orphan in self
            .ending()
            .into_iter()
            .flat_map(|ending| &ending.unattributed)
        {
            if escaped.iter().all(|known| known.pid != orphan.pid.0) {
                escaped.push(Escapee {
                    pid: orphan.pid.0,
                    name: &orphan.name,
                    ended: None,
                });
            }
        }
        escaped
    }

    /// The reason of a run in which no exit was seen.
    fn unstarted(&self) -> Reason {
        let is_ended_early = match &self.failure {
            Some(Failure::Call(error)) => error.step() == Some(Step::Ended),
            Some(Failure::Own(_)) => false,
            Some(Failure::Silent) | None => true,
        };
        match (is_ended_early, self.stop) {
            (true, Some(_)) => Reason::Cancelled,
            (true, None) if self.has_timeout => Reason::Timeout,
            (true | false, _) => Reason::SpawnFailed,
        }
    }

    /// Why the tree ended; of one that was let go, why the command exited.
    pub(crate) fn cause(&self) -> Option<Cause> {
        let end = self.ending().map(|ending| ending.cause);
        end.or(self.exit.map(|exit| exit.cause))
    }

    /// Why the command exited and why its tree ended.
    pub(crate) fn causes(&self) -> impl Iterator<Item = Cause> {
        let exit = self.exit.map(|exit| exit.cause);
        let end = self.ending().map(|ending| ending.cause);
        exit.into_iter().chain(end)
    }
}

/// Whether the process that held the session died, and what it knew with it.
fn is_keeper_lost(error: &Error) -> bool {
    error.rejection() == Some(&Reject::SupervisorLost)
}

/// The code of a status, as a shell gives it.
fn status_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(FAILED),
        (None, Some(number)) => died(number),
        (None, None) => FAILED,
    }
}

/// The code of a death by a signal.
fn died(number: i32) -> u8 {
    u8::try_from(number)
        .ok()
        .and_then(|number| number.checked_add(DIED))
        .unwrap_or(FAILED)
}

/// The code of a spawn that failed.
fn spawn_code(error: &Error) -> u8 {
    if error.is_not_found() {
        NOT_FOUND
    } else if error.is_not_executable() || error.step() == Some(Step::Exec) || error.is_too_large()
    {
        NOT_EXECUTABLE
    } else {
        FAILED
    }
}

#[cfg(test)]
#[path = "outcome_tests.rs"]
mod tests;
