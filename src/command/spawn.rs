//! The ways to spawn a command, and the one without a helper.

use std::process::ExitStatus;
use std::time::Duration;

use foster_protocol::{Level, LevelChoice, Reject};

use super::Command;
use super::plan::{Defaults, Ends};
use crate::child::Child;
use crate::direct;
use crate::error::{Repr, Result};
use crate::gate::Gate;
use crate::notice::Notice;
use crate::output::Output;
use crate::session::Session;
use crate::size::Size;

/// How a command is spawned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) defaults: Defaults,
    /// Whether it waits at its gate.
    pub(crate) gated: bool,
    /// How long the helper's answer may take; none is for ever.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "there are no helpers there")
    )]
    pub(crate) within: Option<Duration>,
}

/// A child whose program runs, or waits at its gate, and what an error of it would be about.
pub(crate) struct Made {
    pub(crate) child: Child,
    pub(crate) size: Size,
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

    pub(super) fn made(&self, session: Session, ends: Ends, size: Size) -> Made {
        let child = Child::new(session, ends.stdin, ends.stdout, ends.stderr, self.drain);
        Made { child, size }
    }
}
