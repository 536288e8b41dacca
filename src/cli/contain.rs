//! `foster contain`: a program in a session that ends with whatever stands around it.
//!
//! The work is the library's starter; this gives it the command line's values and says what
//! failed in the command line's words and codes.

use crate::Command;
use crate::cli::contain_options::ContainOptions;
use crate::cli::options::Detail;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::words::Voice;
use crate::contain::{Failed, Orders, start};

/// Contains the program and returns foster's exit code.
pub(crate) fn contain(options: &ContainOptions) -> u8 {
    let voice = Voice::new(Detail::Unusual);
    let mut command = Command::new(&options.program);
    command.args(&options.args).level(options.level);
    if let Some(level) = options.require {
        command.require(level);
    }
    let orders = Orders {
        command,
        acknowledgement: options.acknowledgement.clone(),
        grace: options.grace,
        control: options.control,
        watch_parent: options.watch_parent,
        own_program: false,
    };
    match start(orders) {
        Ok(fate) => {
            if let Some(text) = fate.unusual() {
                voice.unusual(&text);
            }
            fate.code()
        }
        Err(failed) => {
            let outcome = failure(failed);
            if let Some(text) = outcome.failure_text() {
                voice.failure(&text);
            }
            outcome.exit_code(true)
        }
    }
}

fn failure(failed: Failed) -> Outcome {
    Outcome {
        capabilities: failed.capabilities.map(|known| *known),
        failure: Some(Failure::Call(failed.error)),
        ..Outcome::default()
    }
}
