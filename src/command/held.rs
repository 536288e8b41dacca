//! A command that is held before its program runs, for whom it must not run too early.

use std::time::{Duration, Instant};

use foster_protocol::Reply;

use super::Command;
use super::plan::{Defaults, Plan};
use crate::connection::{Refusal, Ticket};
use crate::error::{During, Error, Repr, Result, Subject, spawn_failed};
use crate::helper::Helper;
use crate::session::Helped;
use crate::size::Size;

/// A command that exists, contained, and whose program does not run before it is let go. Dropping
/// it ends the session, so that a program that was not let go never runs.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    command: &'a Command,
    size: Size,
    session: Helped,
}

impl Command {
    /// Spawns the command up to its gate, within this time.
    pub(crate) fn spawn_held(&self, helper: &Helper, limit: Duration) -> Result<Held<'_>> {
        let Plan {
            spec,
            descriptors,
            ends: _no_pipes,
            size,
        } = self.plan(Defaults::Inherit, true)?;
        let connection = helper.connection();
        let (id, ticket) = match connection.spawn(spec, descriptors) {
            Ok(sent) => sent,
            Err(refusal) => return Err(refused(refusal, During::Unsent)),
        };
        let error = match ticket.wait(Instant::now().checked_add(limit)) {
            Ok(Some(Reply::Prepared {
                pid, containment, ..
            })) => {
                let session = Helped::new(helper.clone(), id, pid, containment);
                return Ok(Held {
                    command: self,
                    size,
                    session,
                });
            }
            Ok(Some(Reply::SpawnFailed { step, errno })) => {
                spawn_failed(&self.subject(), &size, step, errno)
            }
            Ok(Some(Reply::Rejected { reason })) => Error::rejected(reason),
            Ok(Some(_)) => Error::lost(During::Spawn, connection.breach()),
            Ok(None) => Repr::HelperSilent { limit }.into(),
            Err(loss) => Error::lost(During::Spawn, loss),
        };
        connection.close(id, false);
        connection.lock().forget(id);
        Err(error)
    }
}

impl Held<'_> {
    /// The session.
    pub(crate) fn session(&self) -> &Helped {
        &self.session
    }

    /// Lets the program go. The ticket is for [`opened`](Self::opened).
    pub(crate) fn open(&self) -> Result<Ticket<'_>> {
        let connection = self.session.connection();
        connection
            .open_gate(self.session.id())
            .map_err(|refusal| refused(refusal, During::Spawn))
    }

    /// Whether the program runs by now.
    pub(crate) fn opened(&self, ticket: &Ticket<'_>) -> Result<bool> {
        let reply = ticket
            .wait(Some(Instant::now()))
            .map_err(|loss| Error::lost(During::Spawn, loss))?;
        let subject: Subject<'_> = self.command.subject();
        match reply {
            None => Ok(false),
            Some(Reply::Spawned { .. }) => Ok(true),
            Some(Reply::SpawnFailed { step, errno }) => {
                Err(spawn_failed(&subject, &self.size, step, errno))
            }
            Some(Reply::Rejected { reason }) => Err(Error::rejected(reason)),
            Some(_) => {
                let loss = self.session.connection().breach();
                Err(Error::lost(During::Spawn, loss))
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.session.close();
    }
}

/// The error of a request that was not sent.
fn refused(refusal: Refusal, during: During) -> Error {
    match refusal {
        Refusal::Lost(loss) => Error::lost(during, loss),
        Refusal::Encode(error) => Repr::Unsendable(error).into(),
    }
}
