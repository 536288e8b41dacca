//! One spawned command, owned.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::time::Duration;

use foster_protocol::{Containment, Ending, Exit, Target};

use crate::capture::capture;
use crate::error::Result;
use crate::notice::Notice;
use crate::output::Output;
use crate::session::Session;

/// A spawned command with everything that it starts, as [`std::process::Child`].
///
/// Dropping it ends the whole tree: TERM, the command's grace, KILL. The drop itself does not
/// wait, never blocks and never panics; to know when the tree has ended, call
/// [`end`](Self::end) or [`kill`](Self::kill). To let the tree live, call
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
    pub(crate) fn new(
        session: Session,
        stdin: Option<ChildStdin>,
        stdout: Option<ChildStdout>,
        stderr: Option<ChildStderr>,
        drain: Duration,
    ) -> Self {
        Self {
            stdin,
            stdout,
            stderr,
            session,
            drain,
        }
    }

    /// Returns the leader's process id; 0 where it is not known. It says who was meant; it is
    /// never a licence to signal.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.session.pid().0.unsigned_abs()
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

    /// Returns how the leader exited, what it used and why, if its exit is known by now.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        self.session.exit()
    }

    /// Waits for the leader's exit. Standard input is closed first.
    ///
    /// The rest of the tree is not waited for; see [`Session::wait_end`].
    ///
    /// # Errors
    ///
    /// [`ExitUnknown`](crate::ErrorKind::ExitUnknown) where the helper is lost before.
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
        let captured = capture(&self.session, stdout, stderr, self.drain)?;
        let status = self.wait()?;
        Ok(Output {
            status,
            notice: self.notice(),
            stdout: captured.stdout,
            stderr: captured.stderr,
            still_open: captured.still_open,
        })
    }

    /// Ends the whole tree with KILL, and returns when it has ended, or with the survivors
    /// named. Where it has ended already, its ending is returned.
    ///
    /// # Errors
    ///
    /// [`EndUnknown`](crate::ErrorKind::EndUnknown) where the helper is lost.
    pub fn kill(&self) -> Result<Ending> {
        self.session.end(libc::SIGKILL, Duration::ZERO)
    }

    /// Ends the whole tree: TERM to every member, KILL after the grace to those who are left.
    /// Returns when it has ended, or with the survivors named.
    ///
    /// # Errors
    ///
    /// [`EndUnknown`](crate::ErrorKind::EndUnknown) where the helper is lost.
    pub fn end(&self, grace: Duration) -> Result<Ending> {
        self.session.end(libc::SIGTERM, grace)
    }

    /// Sends a signal to every member of the tree, and returns how many it was sent to.
    ///
    /// # Errors
    ///
    /// Rejected where the number is no signal or the session is past its end.
    pub fn signal(&self, number: i32) -> Result<u32> {
        self.session.signal(number, Target::Tree)
    }

    /// Lets the rest of the tree go, and returns how many members still run, the leader
    /// included. Pipes that were not taken out are closed.
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
        self.session.close();
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("session", &self.session.id())
            .field("pid", &self.session.pid())
            .field("stdin", &self.stdin)
            .field("stdout", &self.stdout)
            .field("stderr", &self.stderr)
            .finish_non_exhaustive()
    }
}

fn status(exit: Exit) -> ExitStatus {
    ExitStatus::from_raw(exit.status)
}
