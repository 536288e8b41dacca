//! Spawning for hosts that must not fail for want of a job, and for those that must.

use super::child::Child;
use super::command::Command;
use super::gate::Gate;
use super::spawn::{Defaults, SYSTEM};
use crate::elsewhere::Helper;
use crate::error::Result;
use crate::fallback::Fallback;
use crate::output::Output;

/// Spawns commands, and has a rule for those that cannot be put into a job.
///
/// There is no helper on Windows and none is missed: whatever ends this process ends its commands'
/// jobs. So a command that is in a job carries no notice. Where it could not be put into one,
/// [`Fallback::Direct`] runs it with [`Notice::NoJob`](crate::Notice::NoJob), and
/// [`Fallback::Refuse`] does not run it. A spawner can be a `static`.
///
/// # Examples
///
/// ```no_run
/// use foster::{Command, Fallback, Spawner};
///
/// static SPAWNER: Spawner = Spawner::new();
///
/// fn main() -> foster::Result<()> {
///     foster::init();
///     let output = SPAWNER.output(Command::new("git").arg("status"), Fallback::Direct)?;
///     if let Some(notice) = output.notice {
///         println!("note: {notice}");
///     }
///     println!("{}", String::from_utf8_lossy(&output.stdout));
///     Ok(())
/// }
/// ```
#[derive(Debug, Default)]
pub struct Spawner {
    _private: (),
}

impl Spawner {
    /// Creates a spawner.
    #[must_use]
    pub const fn new() -> Self {
        Self { _private: () }
    }

    /// Creates a spawner that is meant to have no helper, as every one is here.
    #[must_use]
    pub const fn without_helper() -> Self {
        Self::new()
    }

    /// Says that there is no helper on this platform.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported), always.
    pub fn launch(&self) -> Result<Helper> {
        Helper::launch()
    }

    /// Spawns the command, as [`Command::spawn`] does. Standard streams that were not set are
    /// inherited.
    ///
    /// # Errors
    ///
    /// As [`Command::spawn`]. For want of a job only where the fallback says so:
    /// [`SpawnFailed`](crate::ErrorKind::SpawnFailed) at the step session. The command did not
    /// run then.
    pub fn spawn(&self, command: &Command, fallback: Fallback) -> Result<Child> {
        self.gated(command, fallback)?.open()
    }

    /// Spawns the command, waits for its exit and returns what it wrote, as
    /// [`Command::output`] does, with the notice if there is one.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    pub fn output(&self, command: &Command, fallback: Fallback) -> Result<Output> {
        command
            .make(Defaults::Capture, fallback, SYSTEM)?
            .open()?
            .wait_with_output()
    }

    /// Spawns the command and holds it before its program, as [`Command::gated`] does.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    pub fn gated(&self, command: &Command, fallback: Fallback) -> Result<Gate> {
        command.make(Defaults::Inherit, fallback, SYSTEM)
    }
}
