//! One spawned command, owned.

use std::fmt;
use std::os::windows::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use foster_protocol::{Cause, Containment, Ending, Exit, Target};

use super::capture::capture;
use super::session::Session;
use super::tree::Tree;
use crate::error::Result;
use crate::notice::Notice;
use crate::output::Output;

/// A spawned command with everything that it starts, as [`std::process::Child`].
///
/// Dropping it ends the whole tree. The drop itself does not wait, never blocks and never panics;
/// to know when the tree has ended, call [`kill`](Self::kill). To let the tree live, call
/// [`release`](Self::release).
///
/// Methods with `&self` work while another thread waits; a [`Session`] can be cloned for it.
pub struct Child {
    /// This side's end of a piped standard input.
    pub stdin: Option<ChildStdin>,
    /// This side's end of a piped standard output.
    pub stdout: Option<ChildStdout>,
    /// This side's end of a piped standard error.
    pub stderr: Option<ChildStderr>,
    session: Session,
    drain: Duration,
}

impl Child {
    pub(super) fn new(
        tree: Arc<Tree>,
        stdin: Option<ChildStdin>,
        stdout: Option<ChildStdout>,
        stderr: Option<ChildStderr>,
        drain: Duration,
    ) -> Self {
        Self {
            stdin,
            stdout,
            stderr,
            session: Session::new(tree),
            drain,
        }
    }

    pub(super) fn tree(&self) -> &Tree {
        self.session.tree()
    }

    /// Returns the leader's process id. It is the leader's own while this handle is there, also
    /// after its exit.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.tree().pid
    }

    /// Returns the session, which can be cloned and shared.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns what there is to tell whoever sees the command's result: the last of what has
    /// become of its supervision, and none where all is well.
    #[must_use]
    pub fn notice(&self) -> Option<Notice> {
        self.session.notice()
    }

    /// Returns what contains the command.
    #[must_use]
    pub fn containment(&self) -> &Containment {
        self.session.containment()
    }

    /// Returns how the leader exited, what it used and why, if it has exited by now. Of the
    /// usage, the times alone are filled in.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        let tree = self.tree();
        let mut state = tree.lock();
        tree.look_at_leader(&mut state);
        state.exit
    }

    /// Waits for the leader's exit. Standard input is closed first.
    ///
    /// The rest of the tree is not waited for; see [`Session::wait_end`].
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        drop(self.stdin.take());
        loop {
            if let Some(exit) = self.session.wait_exit(None)? {
                return Ok(status(exit));
            }
        }
    }

    /// Returns the exit status if the leader has exited. It never blocks.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.session.wait_exit(Some(Duration::ZERO))?.map(status))
    }

    /// Waits for the leader's exit for a time; none where it is still running then. Standard
    /// input is closed first.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<ExitStatus>> {
        drop(self.stdin.take());
        Ok(self.session.wait_exit(Some(timeout))?.map(status))
    }

    /// Waits for the leader's exit and returns what came through its piped outputs. Standard
    /// input is closed first; both outputs are read at the same time.
    ///
    /// Returns at end-of-file of both outputs and the leader's exit, or the command's
    /// [`drain`](crate::Command::drain) after the exit where a member of the tree keeps an
    /// output open. What is left of the tree is ended then: the child is dropped.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait), and where an output cannot be read.
    pub fn wait_with_output(mut self) -> Result<Output> {
        drop(self.stdin.take());
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let captured = capture(self.tree(), stdout, stderr, self.drain)?;
        let status = self.wait()?;
        Ok(Output {
            status,
            notice: self.notice(),
            stdout: captured.stdout,
            stderr: captured.stderr,
            still_open: captured.still_open,
        })
    }

    /// Ends the whole tree, and returns when it has ended, or with the survivors named. Where it
    /// has ended already, its ending is returned.
    ///
    /// # Errors
    ///
    /// Rejected where the session was released.
    pub fn kill(&self) -> Result<Ending> {
        self.session.kill()
    }

    /// Ends the whole tree, as [`kill`](Self::kill) does: nothing asks a process to end here, so
    /// that there is nothing to wait for in the grace.
    ///
    /// # Errors
    ///
    /// As [`kill`](Self::kill).
    pub fn end(&self, _grace: Duration) -> Result<Ending> {
        self.session.kill()
    }

    /// Sends no signal: there are none on this platform.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported), always.
    pub fn signal(&self, number: i32) -> Result<u32> {
        self.session.signal(number, Target::Tree)
    }

    /// Lets the rest of the tree go, and returns how many members still run, the leader
    /// included: the job no longer ends them when it is closed. Pipes that were not taken out are
    /// closed.
    ///
    /// # Errors
    ///
    /// Rejected where the leader runs and the command was not spawned
    /// [`detachable`](crate::Command::detachable). The child is dropped then, which ends the
    /// tree; [`Session::release`] keeps it.
    pub fn release(self) -> Result<u32> {
        self.session.release()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.tree().begin(Cause::Close);
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("pid", &self.id())
            .field("stdin", &self.stdin)
            .field("stdout", &self.stdout)
            .field("stderr", &self.stderr)
            .finish_non_exhaustive()
    }
}

fn status(exit: Exit) -> ExitStatus {
    ExitStatus::from_raw(exit.status.cast_unsigned())
}
