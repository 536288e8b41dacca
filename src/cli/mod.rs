//! The `foster` command: a host of this library with a command line.
//!
//! `docs/CLI.md` is its page. Standard output is the command's alone; only the help, the
//! version and the tables of the other subcommands go there. Nothing here signals by number, forks or waits on a pid.

mod contain;
mod contain_options;
mod course;
mod doctor;
mod duration;
mod follow;
mod news;
mod options;
mod outcome;
mod plan;
mod ps;
mod remedy;
mod report;
mod run;
mod service_options;
mod signals;
mod stop;
mod sweep;
mod sweep_options;
mod watch;
mod words;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use options::{Detail, Request};
use outcome::FAILED;
use words::Voice;

/// Runs the `foster` command with this process's arguments and returns its exit code.
///
/// The program's `main` calls [`crate::init()`] first: the command re-executes its own file
/// as the helper. It is to be the only call of the process, because it handles signals and
/// gives up the standard streams.
#[must_use]
pub fn main() -> ExitCode {
    match options::parse(env::args_os()) {
        Ok(Request::Run(options)) => ExitCode::from(run::run(&options)),
        Ok(Request::Contain(options)) => ExitCode::from(contain::contain(&options)),
        #[cfg(feature = "embedded-helper")]
        Ok(Request::Helper) => foster_helper::run(),
        Ok(Request::Doctor(format)) => match doctor::examine(format) {
            Ok(answer) => print(&answer.text, ExitCode::from(answer.code)),
            Err(line) => fail(&line),
        },
        Ok(Request::Sweep(options)) => match sweep::sweep(&options) {
            Ok(answer) => print(&answer.text, ExitCode::from(answer.code)),
            Err(line) => fail(&line),
        },
        Ok(Request::Ps(options)) => match ps::list(&options) {
            Ok((text, code)) => print(&text, ExitCode::from(code)),
            Err(line) => fail(&line),
        },
        Ok(Request::Stop(options)) => match stop::stop(&options) {
            Ok((text, code)) => print(&text, ExitCode::from(code)),
            Err(line) => fail(&line),
        },
        Ok(Request::Print(text)) => print(&text, ExitCode::SUCCESS),
        Err(line) => fail(&line),
    }
}

/// Prints a text and returns this code where that works.
fn print(text: &str, code: ExitCode) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(error) => fail(&format!("standard output cannot be written: {error}")),
    }
}

fn fail(text: &str) -> ExitCode {
    Voice::new(Detail::Unusual).failure(text);
    ExitCode::from(FAILED)
}
