//! The options of `foster contain`, from words to checked values.
//!
//! Options end at the first word that is none. Nothing here starts, opens or prints anything.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::time::Duration;

use clap::Args;

use crate::cli::duration;
use crate::cli::options::{LevelWord, RequiredWord, invalid};
use crate::contain;
use crate::{Level, LevelChoice};

/// Everything that `foster contain` was told.
#[derive(Debug)]
pub(crate) struct ContainOptions {
    /// The time between TERM and KILL.
    pub(crate) grace: Duration,
    /// The containment that is asked for.
    pub(crate) level: LevelChoice,
    /// The least containment that will do.
    pub(crate) require: Option<Level>,
    /// The descriptor whose other end's closing ends the program.
    pub(crate) control: Option<RawFd>,
    /// Whether the death of foster's parent ends the program.
    pub(crate) watch_parent: bool,
    /// The line that says that containment is in force.
    pub(crate) acknowledgement: Option<String>,
    /// The program.
    pub(crate) program: OsString,
    /// Its arguments.
    pub(crate) args: Vec<OsString>,
}

/// The options of `foster contain` as they are given.
#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "Exit code: the program's own, 128+n when it died of signal n or n came before it \
        ran,\n125 when foster failed, 126 when the program cannot be executed, 127 when it is not found."
)]
pub(crate) struct ContainArgs {
    /// The time between TERM and KILL; 0 is KILL at once
    #[arg(short = 'k', long, value_name = "D", default_value = "1s", value_parser = duration::parse)]
    grace: Duration,

    /// The containment to ask for
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "auto")]
    level: LevelWord,

    /// Refuse to start the program with less containment than this
    #[arg(long, value_enum, value_name = "LEVEL")]
    require: Option<RequiredWord>,

    /// End the program when the other end of descriptor N, a pipe or a socket, is closed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    control_fd: Option<RawFd>,

    /// End the program when foster's own parent dies
    #[arg(long)]
    watch_parent: bool,

    /// Write one JSON line to standard output, with this key, before the program runs
    #[arg(
        long,
        value_name = "KEY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = contain::DEFAULT_KEY
    )]
    ack: Option<String>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl ContainArgs {
    /// Checks them.
    ///
    /// # Errors
    ///
    /// One line that says what is wrong with them.
    pub(crate) fn check(self) -> Result<ContainOptions, String> {
        let mut words = self.command.into_iter();
        let program = words.next().unwrap_or_default();
        if program.is_empty() {
            return Err("the program is empty".to_owned());
        }
        let acknowledgement = self
            .ack
            .map(|key| {
                contain::acknowledgement(&key).map_err(|_| {
                    let why = "letters, digits, _, - and . make a key";
                    invalid("--ack[=<KEY>]", OsStr::new(&key), why)
                })
            })
            .transpose()?;
        Ok(ContainOptions {
            grace: self.grace,
            level: self.level.into(),
            require: self.require.map(Level::from),
            control: self.control_fd,
            watch_parent: self.watch_parent,
            acknowledgement,
            program,
            args: words.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::options::{Request, parse};

    fn read(words: &[&str]) -> Result<Request, String> {
        parse(
            ["foster", "contain"]
                .iter()
                .chain(words)
                .map(OsString::from),
        )
    }

    fn contain(words: &[&str]) -> ContainOptions {
        match read(words) {
            Ok(Request::Contain(options)) => *options,
            other => panic!("{words:?} is read as {other:?}"),
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_page() {
        let options = contain(&["true"]);
        assert_eq!(options.grace, Duration::from_secs(1));
        assert_eq!((options.level, options.require), (LevelChoice::Auto, None));
        assert_eq!((options.control, options.watch_parent), (None, false));
        assert_eq!(options.acknowledgement, None);
        assert_eq!(options.program, "true");
        assert!(options.args.is_empty());
    }

    #[test]
    fn options_end_at_the_first_word_that_is_none() {
        let options = contain(&["--ack", "sh", "--ack=other", "--control-fd", "3"]);
        let line = options.acknowledgement.expect("it is asked for");
        assert_eq!(line, "{\"foster_session_containment\":1}");
        assert_eq!(options.program, "sh");
        assert_eq!(options.args, ["--ack=other", "--control-fd", "3"]);
        assert_eq!(options.control, None);
    }

    #[test]
    fn a_key_is_a_plain_word() {
        let options = contain(&["--ack=app.key-1", "--", "true"]);
        let line = options.acknowledgement.expect("it is asked for");
        assert_eq!(line, "{\"app.key-1\":1}");
        let line = read(&["--ack=a\"b", "true"]).expect_err("it is refused");
        assert!(line.contains("--ack"), "{line}");
    }
}
