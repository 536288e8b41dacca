//! Sending a spawn and taking its answer.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use foster_protocol::{EncodeError, Level, LevelChoice, MAX_DESCRIPTORS, Reject, Reply};

use super::Command;
use super::plan::{Defaults, Ends, Plan};
use crate::child::Child;
use crate::connection::Refusal;
use crate::direct;
use crate::error::{During, Error, Loss, Repr, Result, spawn_failed};
use crate::gate::Gate;
use crate::helper::Helper;
use crate::notice::Notice;
use crate::output::Output;
use crate::session::{Helped, Session};
use crate::size::Size;

/// Why an attempt did not give a child.
pub(crate) enum Failure {
    /// The command has surely not run: not a byte of the request had left, or its gate was
    /// never opened. It can be spawned again.
    Unsent(Loss),
    /// The request was sent, and it is not known whether the command runs.
    Unanswered(Loss),
    /// Anything else.
    Final(Error),
}

/// How a command is spawned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) defaults: Defaults,
    /// Whether it waits at its gate.
    pub(crate) gated: bool,
    /// How long the helper's answer may take; none is for ever.
    pub(crate) within: Option<Duration>,
}

/// A child whose program runs, or waits at its gate, and what an error of it would be about.
pub(crate) struct Made {
    pub(crate) child: Child,
    pub(crate) size: Size,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unsent(loss) => Error::lost(During::Unsent, loss),
            Failure::Unanswered(loss) => Error::lost(During::Spawn, loss),
            Failure::Final(error) => error,
        }
    }
}

impl How {
    fn plainly(defaults: Defaults) -> Self {
        Self {
            defaults,
            gated: false,
            within: None,
        }
    }
}

impl Command {
    /// Spawns the command. Standard streams that were not set are inherited.
    ///
    /// Returns when the program runs. Where the global helper was lost before a byte of the
    /// request had left, the spawn is tried once more with a fresh one.
    ///
    /// # Errors
    ///
    /// Says whether the program, its interpreter or the directory is at fault, and names it;
    /// see [`ErrorKind`](crate::ErrorKind). The command did not run, but for
    /// [`SpawnFateUnknown`](crate::ErrorKind::SpawnFateUnknown).
    pub fn spawn(&mut self) -> Result<Child> {
        self.spawn_with(Defaults::Inherit)
    }

    /// Spawns the command, waits for its exit and returns what it wrote. Standard input that
    /// was not set is empty; outputs that were not set are captured.
    ///
    /// Returns at the leader's exit and a bounded [`drain`](Self::drain), also where a
    /// background process of the command keeps its output open. Such a process is ended
    /// before long: the child is dropped.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    pub fn output(&mut self) -> Result<Output> {
        self.spawn_with(Defaults::Capture)?.wait_with_output()
    }

    /// Spawns the command and waits for its exit. Standard streams that were not set are
    /// inherited; this side's ends of pipes are closed at once. What the command leaves
    /// behind is ended.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn) and [`Child::wait`].
    pub fn status(&mut self) -> Result<ExitStatus> {
        let mut child = self.spawn_with(Defaults::Inherit)?;
        // Nobody would read them, and a command that fills one would never exit.
        drop((child.stdin.take(), child.stdout.take(), child.stderr.take()));
        child.wait()
    }

    /// Spawns the command and holds it before its program: the process is there, with its
    /// number, its descriptors and its credentials, and executes nothing until
    /// [`Gate::open`].
    ///
    /// So a host can put what guards the command in place first: a row in a registry, a
    /// cgroup, a tracer. Where the gate is dropped, or this process or the helper dies, the
    /// program never runs.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn), of everything but the program itself. The command did not
    /// run.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn main() -> foster::Result<()> {
    /// let gate = foster::Command::new("make").gated()?;
    /// println!("process {} is about to run", gate.pid());
    /// let status = gate.open()?.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn gated(&mut self) -> Result<Gate> {
        let how = How {
            gated: true,
            ..How::plainly(Defaults::Inherit)
        };
        Ok(Gate::new(self, self.make(how)?, None))
    }

    fn spawn_with(&self, defaults: Defaults) -> Result<Child> {
        Ok(self.make(How::plainly(defaults))?.child)
    }

    fn make(&self, how: How) -> Result<Made> {
        if self.is_direct() {
            return self.make_direct(how, None);
        }
        if let Some(helper) = &self.helper {
            return Ok(self.attempt(helper, how)?);
        }
        match self.attempt(&Helper::global()?, how) {
            Err(Failure::Unsent(loss)) => {
                tracing::debug!(%loss, "spawn was not sent; trying once more");
                Ok(self.attempt(&Helper::global()?, how)?)
            }
            outcome => Ok(outcome?),
        }
    }

    /// Whether the command is to be run without a helper.
    pub(crate) fn is_direct(&self) -> bool {
        self.level == Some(LevelChoice::Exactly(Level::Direct))
    }

    /// Whether the command may be run without a helper.
    pub(crate) fn may_be_direct(&self) -> bool {
        self.require.is_none_or(|level| level == Level::Direct)
    }

    /// Spawns without a helper. `notice` says why, where that was not meant so.
    pub(crate) fn make_direct(&self, how: How, notice: Option<Notice>) -> Result<Made> {
        if let Some(level) = self.require.filter(|_| !self.may_be_direct()) {
            let errno = libc::ENOSYS;
            return Err(Repr::Refused(Reject::LevelUnavailable { level, errno }).into());
        }
        let plan = self.plan(how.defaults, how.gated)?;
        let session = match direct::spawn(plan.spec, plan.descriptors) {
            Ok(session) => session,
            Err(refusal) => return Err(refusal.into_error(&self.subject(), &plan.size)),
        };
        tracing::debug!(pid = session.pid().0, "spawned without a helper");
        let session = Session::direct(session, notice);
        Ok(self.made(session, plan.ends, plan.size))
    }

    fn made(&self, session: Session, ends: Ends, size: Size) -> Made {
        let child = Child::new(session, ends.stdin, ends.stdout, ends.stderr, self.drain);
        Made { child, size }
    }

    /// A child of which nothing is known, since the helper did not say.
    pub(crate) fn unknown(&self, loss: Loss) -> Child {
        Child::new(Session::unknown(loss), None, None, None, self.drain)
    }

    /// Spawns through a helper, once.
    pub(crate) fn attempt(&self, helper: &Helper, how: How) -> std::result::Result<Made, Failure> {
        let Plan {
            spec,
            descriptors,
            ends,
            size,
        } = self.plan(how.defaults, how.gated)?;
        let connection = helper.connection();
        let count = descriptors.len();
        let (id, ticket) = match connection.spawn(spec, descriptors) {
            Ok(sent) => sent,
            Err(refusal) => return Err(unsendable(refusal, count, &size)),
        };
        let until = how
            .within
            .and_then(|within| Instant::now().checked_add(within));
        let failure = match ticket.wait(until) {
            Ok(Some(
                Reply::Spawned {
                    pid, containment, ..
                }
                | Reply::Prepared {
                    pid, containment, ..
                },
            )) => {
                let session = Helped::new(helper.clone(), id, pid, containment);
                tracing::debug!(session = id.0, pid = pid.0, "spawned");
                return Ok(self.made(Session::helped(session), ends, size));
            }
            Ok(Some(Reply::SpawnFailed { step, errno })) => {
                // The helper keeps a record of a failed session until it is closed.
                connection.close(id, false);
                spawn_failed(&self.subject(), &size, step, errno).into()
            }
            Ok(Some(Reply::Rejected { reason })) => Error::rejected(reason).into(),
            Ok(None) => {
                // The helper reads this right behind the spawn, whenever that is: what it
                // starts late, it ends.
                connection.close(id, false);
                sent(how, Loss::Silent(how.within.unwrap_or_default()))
            }
            Ok(Some(_)) => sent(how, connection.breach()),
            Err(loss) if ticket.is_unsent() => Failure::Unsent(loss),
            Err(loss) => sent(how, loss),
        };
        connection.lock().forget(id);
        tracing::debug!(session = id.0, "spawn failed");
        Err(failure)
    }
}

/// The failure of a spawn that was sent and not answered. A gate that nobody has opened runs
/// nothing.
fn sent(how: How, loss: Loss) -> Failure {
    if how.gated {
        Failure::Unsent(loss)
    } else {
        Failure::Unanswered(loss)
    }
}

fn unsendable(refusal: Refusal, count: usize, size: &Size) -> Failure {
    let repr = match refusal {
        Refusal::Lost(loss) => return Failure::Unsent(loss),
        Refusal::Encode(EncodeError::TooManyDescriptors { .. }) => Repr::TooManyDescriptors {
            count,
            limit: MAX_DESCRIPTORS,
        },
        Refusal::Encode(EncodeError::TooLong { length }) => Repr::RequestTooLarge {
            length,
            largest: size.largest.clone(),
        },
    };
    Error::from(repr).into()
}
