//! Starting a process on a machine that may be short of something for a moment.

use std::io;
use std::process::{Child, Command};

use crate::deadline::{Deadline, SETTLE, pass};

/// The time between two tries.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(20);

/// Starts it. Where the machine has no room for one more process at the moment, or another
/// process of it still holds the program open that was just written, it is tried again.
///
/// # Panics
///
/// Where it cannot be started in time, with the program, the error and its number.
pub(crate) fn start(command: &mut Command) -> Child {
    let wait = Deadline::after(SETTLE);
    loop {
        match command.spawn() {
            Ok(child) => return child,
            Err(error) if is_for_a_moment(&error) && !wait.is_reached() => pass(AGAIN),
            Err(error) => panic!(
                "{:?} cannot be started: {error}, errno {:?}: {command:?}",
                command.get_program(),
                error.raw_os_error()
            ),
        }
    }
}

fn is_for_a_moment(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::ENOMEM | libc::ETXTBSY)
    )
}
