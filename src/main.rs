//! The `foster` command.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    foster::init();
    foster::cli::main()
}

/// The code of a command that could not run anything, as on Linux.
#[cfg(not(target_os = "linux"))]
const FAILED: u8 = 125;

#[cfg(not(target_os = "linux"))]
#[expect(clippy::print_stderr, reason = "it is all that there is to say")]
fn main() -> ExitCode {
    eprintln!("foster: this command needs Linux; elsewhere there is the library alone");
    FAILED.into()
}
