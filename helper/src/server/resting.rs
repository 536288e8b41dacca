//! A keeper between two sessions.
//!
//! It keeps nothing of the session that is over: the record with its label is gone, the spec and
//! its descriptors went with the start, timers and watches with the end. What another process can
//! change of this one is compared with what it was born as. Only then is it blank.

use foster_protocol::{Reject, Reply};

use super::{Fault, Role, Server};
use crate::keeper;
use crate::sys::condition::Condition;
use crate::sys::own;

impl Server {
    /// Says that the session is forgotten, once it is, and whether another one can be kept.
    pub(super) fn rest_if_done(&mut self) -> Result<(), Fault> {
        // A keeper that is process 1 of a namespace ends with it: the namespace is its session's.
        let is_done = self.role == Role::Keeper
            && self.isolation.is_none()
            && !self.has_forgotten
            && self.table.len() == 0
            && self.closing.is_none();
        if !is_done {
            return Ok(());
        }
        self.has_forgotten = true;
        let reply = match self.is_blank()? {
            true => {
                self.kept = None;
                let counters = self.counters();
                Reply::Pong { counters }
            }
            false => {
                let reason = Reject::ShuttingDown;
                Reply::Rejected { reason }
            }
        };
        self.reply(keeper::FORGOTTEN, reply)
    }

    /// Nobody and nothing of a session is here.
    fn is_blank(&self) -> Result<bool, Fault> {
        let is_empty = self.released.is_empty()
            && self.unreaped.is_empty()
            && self.sweep.is_none()
            && self.lists.is_empty();
        if !is_empty || own::has_children()? {
            return Ok(false);
        }
        let condition = Condition::read()?;
        Ok(self.condition.as_ref() == Some(&condition))
    }
}
