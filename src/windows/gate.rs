//! A command that waits before its program.

use std::fmt;
use std::io;
use std::path::PathBuf;

use foster_protocol::{Cause, Containment, Step};

use super::child::Child;
use crate::error::{Repr, Result};
use crate::notice::Notice;

/// A process that waits before it executes its program; see
/// [`Command::gated`](crate::Command::gated).
///
/// Dropping it closes the gate: the process ends, and the program never runs. So does the end of
/// this process, in whatever way. The command's deadline runs already.
#[must_use = "the program runs only when the gate is opened"]
pub struct Gate {
    child: Child,
    program: PathBuf,
    resume: fn(u32) -> io::Result<usize>,
}

impl Gate {
    pub(super) fn new(
        child: Child,
        program: PathBuf,
        resume: fn(u32) -> io::Result<usize>,
    ) -> Self {
        Self {
            child,
            program,
            resume,
        }
    }

    /// Returns the process id, which the program will have. The process waits, so that the
    /// number is its own.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process, for those who see to it that it dies.
    #[cfg(test)]
    pub(super) fn leader(&self) -> std::os::windows::io::BorrowedHandle<'_> {
        use std::os::windows::io::AsHandle;
        self.child.tree().leader.as_handle()
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

    /// Opens the gate: every thread of the process is resumed.
    ///
    /// # Errors
    ///
    /// [`EndedEarly`](crate::ErrorKind::EndedEarly) where the deadline was reached before;
    /// [`SpawnFailed`](crate::ErrorKind::SpawnFailed) at the step gate where a thread cannot be
    /// resumed: the process has been ended then, and was waited for.
    pub fn open(self) -> Result<Child> {
        let tree = self.child.tree();
        let resumed = {
            // Under the lock, so that no ending begins between the look and the threads.
            let state = tree.lock();
            if state.begun.is_some() || state.end.is_some() {
                return Err(Repr::EndedEarly {
                    program: self.program,
                }
                .into());
            }
            (self.resume)(tree.pid)
        };
        match resumed {
            Ok(_threads) => Ok(self.child),
            Err(source) => {
                tree.end(Cause::Close)?;
                Err(Repr::SpawnFailed {
                    program: self.program,
                    step: Step::Gate,
                    source,
                }
                .into())
            }
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("child", &self.child)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}
