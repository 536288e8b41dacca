//! The helper executable. It is run by its host alone.

use std::process::ExitCode;

fn main() -> ExitCode {
    foster_helper::run()
}
