//! The options of `foster sweep`, from words to checked values. Nothing here looks at anything.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::duration;
use crate::cli::options::{Format, format};

/// Everything that `foster sweep` was told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SweepOptions {
    /// Whether nothing is to be ended.
    pub(crate) dry_run: bool,
    /// The form of the report.
    pub(crate) format: Format,
    /// The time between TERM and KILL; zero is KILL at once.
    pub(crate) grace: Duration,
    /// Where records are looked for; where helpers keep them, if there is none.
    pub(crate) folders: Vec<PathBuf>,
}

/// The options of `foster sweep` as they are given.
#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "A duration is a number with ms, s (also without a unit), m, h or d.\n\
        Exit code: 0 when nothing is left, 1 when something is or could not be looked at,\n\
        125 when foster failed."
)]
pub(crate) struct SweepArgs {
    /// Only tell what is left: nothing is signalled, nothing is removed
    #[arg(long)]
    dry_run: bool,

    /// Print one JSON object on one line
    #[arg(long)]
    json: bool,

    /// The time between TERM and KILL; 0 is KILL at once
    #[arg(short = 'k', long, value_name = "D", default_value = "1s", value_parser = duration::parse)]
    grace: Duration,

    /// Look for records in this folder instead of the usual ones; may be repeated
    #[arg(long = "dir", value_name = "DIR")]
    folders: Vec<PathBuf>,
}

impl SweepArgs {
    /// The checked values.
    pub(crate) fn options(self) -> SweepOptions {
        SweepOptions {
            dry_run: self.dry_run,
            format: format(self.json),
            grace: self.grace,
            folders: self.folders,
        }
    }
}
