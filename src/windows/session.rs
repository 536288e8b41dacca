//! A shareable handle on one session.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foster_protocol::{Cause, Containment, Ending, Exit, Pid, SessionId, Target};

use super::tree::Tree;
use crate::ended::Ended;
use crate::error::{Repr, Result};
use crate::notice::Notice;

/// A handle on a session that can be cloned and shared between threads.
///
/// Every method takes `&self` and works while other threads wait. The session is ended when its
/// [`Child`](crate::Child) is dropped.
#[derive(Clone)]
pub struct Session {
    tree: Arc<Tree>,
}

impl Session {
    pub(super) fn new(tree: Arc<Tree>) -> Self {
        Self { tree }
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the session's id at its helper: 0, because it has none.
    #[must_use]
    pub fn id(&self) -> SessionId {
        SessionId(0)
    }

    /// Returns the leader's process id. It is the leader's own while this handle is there, also
    /// after its exit.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid(self.tree.pid.cast_signed())
    }

    /// Returns what contains the session.
    #[must_use]
    pub fn containment(&self) -> &Containment {
        &self.tree.containment
    }

    /// Returns what there is to tell whoever sees the command's result: the last of what has
    /// become of its supervision, and none where all is well.
    #[must_use]
    pub fn notice(&self) -> Option<Notice> {
        self.tree.lock().notice
    }

    /// Sends no signal: there are none on this platform.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported), always.
    pub fn signal(&self, number: i32, to: Target) -> Result<u32> {
        tracing::debug!(number, ?to, "signals are not to be had on this platform");
        Err(Repr::Unsupported {
            what: "signals are",
        }
        .into())
    }

    /// Ends the tree, and returns when it has ended, or with the survivors named. Where it has
    /// ended already, its ending is returned.
    ///
    /// # Errors
    ///
    /// Rejected where the session was released.
    pub fn kill(&self) -> Result<Ending> {
        self.tree.end(Cause::Kill)
    }

    /// Waits for the leader's exit; none where the time was up first.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn wait_exit(&self, timeout: Option<Duration>) -> Result<Option<Exit>> {
        self.tree.wait_exit(timeout)
    }

    /// Waits for the session's end; none where the time was up first.
    ///
    /// # Errors
    ///
    /// None on this platform.
    pub fn wait_end(&self, timeout: Option<Duration>) -> Result<Option<Ended>> {
        // A time that is out of range is no limit.
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Ok(self.tree.settle(until))
    }

    /// Lets the rest of the session go, and returns how many members still run, the leader
    /// included.
    ///
    /// # Errors
    ///
    /// Rejected where the leader runs and the command was not spawned
    /// [`detachable`](crate::Command::detachable), or where the session is being ended.
    pub fn release(&self) -> Result<u32> {
        self.tree.release()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("pid", &self.pid())
            .field("containment", self.containment())
            .finish_non_exhaustive()
    }
}
