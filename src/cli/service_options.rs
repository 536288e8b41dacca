//! The options of `foster ps` and `foster stop`, from words to checked values. Nothing here looks at anything.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::options::{Format, format};
use crate::cli::{duration, signals};

/// What `foster ps` was told.
#[derive(Debug)]
pub(crate) struct PsOptions {
    /// The folder of the registry; the default one without it.
    pub(crate) folder: Option<PathBuf>,
    /// The form of the answer.
    pub(crate) format: Format,
}

/// What `foster stop` was told.
#[derive(Debug)]
pub(crate) struct StopOptions {
    /// Where, and the form of the answer.
    pub(crate) ps: PsOptions,
    /// The services; all of them where there is none.
    pub(crate) names: Vec<String>,
    /// The time between the first signal and KILL.
    pub(crate) grace: Duration,
    /// The first signal.
    pub(crate) signal: i32,
}

/// The options of `foster ps` as they are given.
#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "Exit code: 0, 1 when a file of the registry is not what a registry writes, 125 \
        when it cannot be read."
)]
pub(crate) struct PsArgs {
    /// The folder of the registry (default: foster/services in the user's state folder)
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Print one JSON object on one line
    #[arg(long)]
    json: bool,
}

/// The options of `foster stop` as they are given.
#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "Exit code: 0 when each of the services is over, 1 when one is not, 125 when one is \
        not registered\nor the registry cannot be read; then nothing was signalled."
)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    ps: PsArgs,

    /// End every registered service
    #[arg(long, required_unless_present = "names", conflicts_with = "names")]
    all: bool,

    /// The time between the first signal and KILL; 0 is KILL at once
    #[arg(short = 'k', long, value_name = "D", default_value = "3s", value_parser = duration::parse)]
    grace: Duration,

    /// The first signal: a name or a number
    #[arg(short, long, value_name = "SIG", default_value = "TERM", value_parser = signals::parse)]
    signal: i32,

    /// The services
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

impl PsArgs {
    /// The checked values.
    pub(crate) fn options(self) -> PsOptions {
        PsOptions {
            folder: self.folder,
            format: format(self.json),
        }
    }
}

impl StopArgs {
    /// The checked values.
    pub(crate) fn options(self) -> StopOptions {
        StopOptions {
            ps: self.ps.options(),
            // Either there are names, or all are meant.
            names: self.names,
            grace: self.grace,
            signal: self.signal,
        }
    }
}
