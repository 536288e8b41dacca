//! The `foster` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    foster::init();
    foster::cli::main()
}
