//! Sending a spawn and taking its answer.

use std::process::ExitStatus;

use foster_protocol::{EncodeError, MAX_DESCRIPTORS, Reply};

use super::Command;
use super::plan::{Defaults, Plan};
use crate::child::Child;
use crate::connection::Refusal;
use crate::error::{During, Error, Loss, Repr, Result, spawn_failed};
use crate::helper::Helper;
use crate::output::Output;
use crate::session::Session;

/// Why an attempt did not give a child.
enum Failure {
    /// Not a byte of the request had left, so the command can be spawned again.
    Unsent(Loss),
    /// Anything else.
    Final(Error),
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
            Failure::Final(error) => error,
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

    fn spawn_with(&self, defaults: Defaults) -> Result<Child> {
        if let Some(helper) = &self.helper {
            return Ok(self.attempt(helper, defaults)?);
        }
        match self.attempt(&Helper::global()?, defaults) {
            Err(Failure::Unsent(loss)) => {
                tracing::debug!(%loss, "spawn was not sent; trying once more");
                Ok(self.attempt(&Helper::global()?, defaults)?)
            }
            outcome => Ok(outcome?),
        }
    }

    fn attempt(&self, helper: &Helper, defaults: Defaults) -> std::result::Result<Child, Failure> {
        let Plan {
            spec,
            descriptors,
            ends,
            size,
        } = self.plan(defaults)?;
        let connection = helper.connection();
        let count = descriptors.len();
        let (id, ticket) = match connection.spawn(spec, descriptors) {
            Ok(sent) => sent,
            Err(Refusal::Lost(loss)) => return Err(Failure::Unsent(loss)),
            Err(Refusal::Encode(EncodeError::TooManyDescriptors { .. })) => {
                return Err(Error::from(Repr::TooManyDescriptors {
                    count,
                    limit: MAX_DESCRIPTORS,
                })
                .into());
            }
            Err(Refusal::Encode(EncodeError::TooLong { length })) => {
                return Err(Error::from(Repr::RequestTooLarge {
                    length,
                    largest: size.largest,
                })
                .into());
            }
        };
        let answer = ticket.wait(None);
        let error = match answer {
            Ok(Some(Reply::Spawned {
                pid, containment, ..
            })) => {
                let session = Session::new(helper.clone(), id, pid, containment);
                tracing::debug!(session = id.0, pid = pid.0, "spawned");
                return Ok(Child::new(
                    session,
                    ends.stdin,
                    ends.stdout,
                    ends.stderr,
                    self.drain,
                ));
            }
            Ok(Some(Reply::SpawnFailed { step, errno })) => {
                // The helper keeps a record of a failed session until it is closed.
                connection.close(id, false);
                spawn_failed(&self.subject(), &size, step, errno)
            }
            Ok(Some(Reply::Rejected { reason })) => Error::rejected(reason),
            Ok(Some(_) | None) => Error::lost(During::Spawn, connection.breach()),
            Err(loss) if ticket.is_unsent() => {
                connection.lock().forget(id);
                return Err(Failure::Unsent(loss));
            }
            Err(loss) => Error::lost(During::Spawn, loss),
        };
        connection.lock().forget(id);
        tracing::debug!(session = id.0, %error, "spawn failed");
        Err(error.into())
    }
}
