//! Sending a spawn and taking its answer.

use std::time::Instant;

use foster_protocol::{EncodeError, MAX_DESCRIPTORS, Reply};

use super::Command;
use super::plan::Plan;
use super::spawn::{How, Made};
use crate::child::Child;
use crate::connection::Refusal;
use crate::error::{During, Error, Loss, Repr, Result, spawn_failed};
use crate::helper::Helper;
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

impl Command {
    pub(super) fn make(&self, how: How) -> Result<Made> {
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
