//! A command that waits before its program.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use foster_protocol::Containment;

use crate::child::Child;
use crate::command::{Command, Made};
use crate::error::{Result, Subject, spawn_failed};
use crate::notice::Notice;
use crate::size::Size;

/// A process that waits before it executes its program; see
/// [`Command::gated`](crate::Command::gated).
///
/// Dropping it closes the gate: the process ends, and the program never runs. So does the
/// death of this process or of the helper, whatever kills it. The command's deadline runs
/// already.
#[derive(Debug)]
#[must_use = "the program runs only when the gate is opened"]
pub struct Gate {
    child: Child,
    program: PathBuf,
    directory: Option<PathBuf>,
    size: Size,
    /// How long the helper's answer may take; none is for ever.
    within: Option<Duration>,
}

impl Gate {
    pub(crate) fn new(command: &Command, made: Made, within: Option<Duration>) -> Self {
        let subject = command.subject();
        Self {
            program: subject.program.to_owned(),
            directory: subject.directory.map(PathBuf::from),
            child: made.child,
            size: made.size,
            within,
        }
    }

    /// Returns the process id, which the program will have. The process waits, so that the
    /// number is its own; it is never a licence to signal.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns a pidfd of the process (`pidfd_open(2)`), where the kernel has pidfds and this
    /// process had room for it.
    #[must_use]
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.child.session().pidfd()
    }

    /// Returns what contains the command.
    #[must_use]
    pub fn containment(&self) -> &Containment {
        self.child.containment()
    }

    /// Returns what there is to tell already; see [`Child::notice`].
    #[must_use]
    pub fn notice(&self) -> Option<Notice> {
        self.child.notice()
    }

    /// Opens the gate, and returns when the program runs.
    ///
    /// # Errors
    ///
    /// As [`Command::spawn`](crate::Command::spawn) where the program cannot be executed. The
    /// command did not run, but for
    /// [`SpawnFateUnknown`](crate::ErrorKind::SpawnFateUnknown).
    pub fn open(self) -> Result<Child> {
        match self.child.session().open(self.within)? {
            Ok(()) => Ok(self.child),
            Err(failed) => {
                let subject = Subject {
                    program: &self.program,
                    directory: self.directory.as_deref(),
                };
                Err(spawn_failed(
                    &subject,
                    &self.size,
                    failed.step,
                    failed.errno,
                ))
            }
        }
    }
}
