//! Spawning on a Unix without helpers, by the rule for hosts that have none.

use crate::child::Child;
use crate::command::{Command, Defaults, How, Made};
use crate::error::{Repr, Result};
use crate::fallback::Fallback;
use crate::gate::Gate;
use crate::notice::Notice;
use crate::output::Output;

use super::Helper;

/// Spawns commands on a platform without helpers, with the rule of Linux for when there is none:
/// [`Fallback::Direct`] runs a command with [`Notice::NoHelper`], and [`Fallback::Refuse`] does
/// not run it. A spawner can be a `static`.
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
///     Ok(())
/// }
/// ```
#[derive(Debug, Default)]
pub struct Spawner {
    is_helperless: bool,
}

impl Spawner {
    /// Creates a spawner.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            is_helperless: false,
        }
    }

    /// Creates a spawner that is meant to have no helper: it runs every command directly, and
    /// without a notice.
    #[must_use]
    pub const fn without_helper() -> Self {
        Self {
            is_helperless: true,
        }
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
    /// As [`Command::spawn`]. For want of a helper only where the fallback or the command refuses
    /// to run without one, with the kind [`Unsupported`](crate::ErrorKind::Unsupported); it did
    /// not run then.
    pub fn spawn(&self, command: &Command, fallback: Fallback) -> Result<Child> {
        let made = self.make(command, fallback, Defaults::Inherit, false)?;
        Ok(made.child)
    }

    /// Spawns the command, waits for its exit and returns what it wrote, as
    /// [`Command::output`] does, with the notice if there is one.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    pub fn output(&self, command: &Command, fallback: Fallback) -> Result<Output> {
        let made = self.make(command, fallback, Defaults::Capture, false)?;
        made.child.wait_with_output()
    }

    /// Spawns the command and holds it before its program, as [`Command::gated`] does.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    pub fn gated(&self, command: &Command, fallback: Fallback) -> Result<Gate> {
        let made = self.make(command, fallback, Defaults::Inherit, true)?;
        Ok(Gate::new(command, made, None))
    }

    fn make(
        &self,
        command: &Command,
        fallback: Fallback,
        defaults: Defaults,
        gated: bool,
    ) -> Result<Made> {
        let how = How {
            defaults,
            gated,
            within: None,
        };
        if self.is_helperless || command.is_direct() {
            return command.make_direct(how, None);
        }
        match fallback {
            Fallback::Direct if command.may_be_direct() => {
                command.make_direct(how, Some(Notice::NoHelper))
            }
            Fallback::Direct | Fallback::Refuse => Err(Repr::Unsupported {
                what: "a helper is",
            }
            .into()),
        }
    }
}
