//! A command on a Unix without helpers: this process runs it itself, and says so.

use crate::command::{Command, How, Made};
use crate::error::{Repr, Result};
use crate::notice::Notice;

impl Command {
    /// Spawns without a helper. It has a notice where that was not asked for: what such a command
    /// starts may outlive this process.
    pub(crate) fn make(&self, how: How) -> Result<Made> {
        if !self.may_be_direct() {
            return Err(Repr::Unsupported {
                what: "a level above direct is",
            }
            .into());
        }
        let notice = (!self.is_direct()).then_some(Notice::NoHelper);
        self.make_direct(how, notice)
    }
}
