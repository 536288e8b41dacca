//! The builder's options beyond std's: containment and endings.

use std::time::Duration;

use foster_protocol::{Level, LevelChoice};

use super::command::Command;
use crate::on_exit::OnExit;

impl Command {
    /// Sets the containment level. It is always [`Level::Direct`] on this platform, and the
    /// child's [`containment`](crate::Child::containment) says what is missing.
    pub fn level(&mut self, level: LevelChoice) -> &mut Self {
        self.level = Some(level);
        self
    }

    /// Sets the least level that is accepted. Above [`Level::Direct`] the spawn is refused with
    /// the kind [`Unsupported`](crate::ErrorKind::Unsupported).
    pub fn require(&mut self, level: Level) -> &mut Self {
        self.require = Some(level);
        self
    }

    /// Sets what happens to the rest of the tree when the leader exits.
    pub fn on_exit(&mut self, on_exit: OnExit) -> &mut Self {
        self.on_exit = on_exit;
        self
    }

    /// Sets the time after which the tree is ended, counted from the creation of the process; also
    /// after the leader has exited.
    pub fn deadline(&mut self, deadline: Duration) -> &mut Self {
        self.deadline = Some(deadline);
        self
    }

    /// Does nothing here, where nothing asks a process to end: an ending is final at once.
    pub fn grace(&mut self, _grace: Duration) -> &mut Self {
        self
    }

    /// Sets how long output is still read after the leader's exit, for
    /// [`output`](Self::output) and [`wait_with_output`](crate::Child::wait_with_output).
    /// Without it: [`DEFAULT_DRAIN`](crate::DEFAULT_DRAIN).
    ///
    /// What the leader wrote is always read; the time is for members of its tree that still
    /// hold the pipe.
    pub fn drain(&mut self, drain: Duration) -> &mut Self {
        self.drain = drain;
        self
    }

    /// Says whether the child may be released while its leader runs.
    pub fn detachable(&mut self, detachable: bool) -> &mut Self {
        self.detachable = detachable;
        self
    }
}
