//! The options of `foster`, from an argument vector to checked values.
//!
//! Options end at the first word that is none: what follows is the command's own. Nothing
//! here starts, opens or prints anything.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cli::contain_options::{ContainArgs, ContainOptions};
use crate::cli::service_options::{PsArgs, PsOptions, StopArgs, StopOptions};
use crate::cli::sweep_options::{SweepArgs, SweepOptions};
use crate::cli::{duration, signals};
use crate::{Level, LevelChoice};

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Run a command.
    Run(Box<RunOptions>),
    /// Contain a program.
    Contain(Box<ContainOptions>),
    /// Tell what can be had here, in this form.
    Doctor(Format),
    /// End what dead helpers left.
    Sweep(SweepOptions),
    /// List registered services.
    Ps(PsOptions),
    /// End registered services.
    Stop(StopOptions),
    /// Play the helper, which no hand may start.
    #[cfg(feature = "embedded-helper")]
    Helper,
    /// Print this text on standard output: the help or the version.
    Print(String),
}

/// The form of an answer on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// One JSON object on one line.
    Json,
}

/// Everything that `foster run` was told.
#[derive(Debug)]
pub(crate) struct RunOptions {
    /// Ends the command after this long; no limit where there is none.
    pub(crate) timeout: Option<Duration>,
    /// The time between the first signal and KILL; zero is KILL at once.
    pub(crate) grace: Duration,
    /// The first signal of an ending that no signal to foster has started.
    pub(crate) signal: i32,
    /// What happens to the rest when the command exits.
    pub(crate) on_exit: AtExit,
    /// The directory to start in.
    pub(crate) directory: Option<PathBuf>,
    /// Variables to set.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Whether the command starts without foster's own environment.
    pub(crate) env_clear: bool,
    /// The containment that is asked for.
    pub(crate) level: LevelChoice,
    /// The least containment that will do.
    pub(crate) require: Option<Level>,
    /// Where the report goes.
    pub(crate) report: Option<ReportTarget>,
    /// Whether a timeout keeps the command's own status.
    pub(crate) preserve_status: bool,
    /// How much foster says.
    pub(crate) detail: Detail,
    /// Whether the command may outlive foster's parent.
    pub(crate) outlive_parent: bool,
    /// The program.
    pub(crate) program: OsString,
    /// Its arguments.
    pub(crate) args: Vec<OsString>,
}

/// What happens to the rest of the tree when the command exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtExit {
    /// It is ended.
    End,
    /// It may finish, for this long where there is a limit.
    Wait(Option<Duration>),
    /// It is left alone.
    Leave,
}

/// Where a report goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReportTarget {
    /// Standard error.
    Stderr,
    /// A descriptor that foster was started with.
    Descriptor(RawFd),
    /// A file, created or emptied.
    File(PathBuf),
}

/// How much is said on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Detail {
    /// Only why foster itself failed.
    Quiet,
    /// Also what is unusual.
    Unusual,
    /// Each phase.
    Everything,
}

/// Reads the arguments, the program's own name first.
///
/// # Errors
///
/// One line that says what is wrong with them.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Request, String> {
    let line = match Line::try_parse_from(args) {
        Ok(line) => line,
        Err(error) => {
            let text = error.render().to_string();
            let kind = error.kind();
            return if matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
                Ok(Request::Print(text))
            } else if kind == ErrorKind::MissingSubcommand {
                // The text would list the hidden one too.
                Err(
                    "a subcommand is missing: run, contain, doctor, sweep, ps or stop (foster --help tells more)"
                        .to_owned(),
                )
            } else {
                Err(one_line(&text))
            };
        }
    };
    match line.verb {
        Verb::Run(args) => args.check().map(|options| Request::Run(Box::new(options))),
        Verb::Contain(args) => args
            .check()
            .map(|options| Request::Contain(Box::new(options))),
        Verb::Doctor(DoctorArgs { json }) => Ok(Request::Doctor(format(json))),
        Verb::Sweep(args) => Ok(Request::Sweep(args.options())),
        Verb::Ps(args) => Ok(Request::Ps(args.options())),
        Verb::Stop(args) => Ok(Request::Stop(args.options())),
        #[cfg(feature = "embedded-helper")]
        Verb::Helper => Ok(Request::Helper),
    }
}

pub(crate) fn format(json: bool) -> Format {
    if json { Format::Json } else { Format::Table }
}

/// Runs a command and leaves nothing of it behind.
#[derive(Debug, Parser)]
#[command(
    name = "foster",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = false
)]
struct Line {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Runs a command; when it exits, times out or foster ends, its whole tree ends
    Run(Box<RunArgs>),
    /// Contains a program: its whole tree ends with it, with foster, or with who started foster
    Contain(ContainArgs),
    /// Tells which levels of containment can be had here, and what to do about the others
    Doctor(DoctorArgs),
    /// Ends what is left where foster and all that watches over its commands was killed at once
    Sweep(SweepArgs),
    /// Lists the services of a registry, and whether each runs
    Ps(PsArgs),
    /// Ends services of a registry with everything that is known to be theirs
    Stop(StopArgs),
    /// Plays the helper of a host; it cannot be started by hand
    #[cfg(feature = "embedded-helper")]
    #[command(hide = true)]
    Helper,
}

#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "A duration is a number with ms, s (also without a unit), m, h or d; 0 is off.\n\
        Exit code: the command's own, 128+n when it died of signal n, 124 on timeout,\n\
        125 when foster failed, 126 when the command cannot be executed, 127 when it is not found."
)]
struct RunArgs {
    /// End the command after this long
    #[arg(short, long, value_name = "D", value_parser = duration::parse)]
    timeout: Option<Duration>,

    /// The time between the first signal and KILL; 0 is KILL at once
    #[arg(short = 'k', long, value_name = "D", default_value = "1s", value_parser = duration::parse)]
    grace: Duration,

    /// The first signal at the timeout and at the command's exit: a name or a number
    #[arg(short, long, value_name = "SIG", default_value = "TERM", value_parser = signals::parse)]
    signal: i32,

    /// What happens to the rest when the command exits: end, wait, wait:D or leave
    #[arg(long, value_name = "WHAT", default_value = "end", value_parser = parse_at_exit)]
    on_exit: AtExit,

    /// Start the command in this directory
    #[arg(short = 'C', long = "chdir", value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Set a variable in the command's environment; may be repeated
    #[arg(short, long, value_name = "K=V")]
    env: Vec<OsString>,

    /// Start with an empty environment; --env adds to it
    #[arg(long)]
    env_clear: bool,

    /// The containment to ask for
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "auto")]
    level: LevelWord,

    /// Refuse to start the command with less containment than this
    #[arg(long, value_enum, value_name = "LEVEL")]
    require: Option<RequiredWord>,

    /// Write a JSON report to FILE, to descriptor N (fd:N) or to standard error (-)
    #[arg(long, value_name = "FILE")]
    report: Option<OsString>,

    /// Exit with the command's own status also on timeout
    #[arg(long)]
    preserve_status: bool,

    /// Say each phase on standard error
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,

    /// Say nothing on standard error but why foster itself failed
    #[arg(short, long)]
    quiet: bool,

    /// Go on when foster's own parent dies
    #[arg(long)]
    outlive_parent: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "Exit code: 0 when level auto holds also what leaves a command's session (level \
        tree), 1 when not,\n125 when no helper can be had."
)]
struct DoctorArgs {
    /// Print one JSON object on one line
    #[arg(long)]
    json: bool,
}

/// A level that is asked for, as it is spelt.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LevelWord {
    Auto,
    Group,
    Tree,
    Cgroup,
    Namespace,
}

/// A level that is required, as it is spelt.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RequiredWord {
    Group,
    Tree,
    Cgroup,
    Namespace,
}

impl RunArgs {
    fn check(self) -> Result<RunOptions, String> {
        let mut words = self.command.into_iter();
        let program = words.next().unwrap_or_default();
        if program.is_empty() {
            return Err("the command is empty".to_owned());
        }
        Ok(RunOptions {
            timeout: limit(self.timeout.unwrap_or_default()),
            grace: self.grace,
            signal: self.signal,
            on_exit: self.on_exit,
            directory: self.directory,
            env: self
                .env
                .into_iter()
                .map(split_variable)
                .collect::<Result<_, _>>()?,
            env_clear: self.env_clear,
            level: self.level.into(),
            require: self.require.map(Level::from),
            report: self.report.map(parse_report).transpose()?,
            preserve_status: self.preserve_status,
            detail: match (self.quiet, self.verbose) {
                (true, _) => Detail::Quiet,
                (false, true) => Detail::Everything,
                (false, false) => Detail::Unusual,
            },
            outlive_parent: self.outlive_parent,
            program,
            args: words.collect(),
        })
    }
}

impl From<LevelWord> for LevelChoice {
    fn from(word: LevelWord) -> Self {
        match word {
            LevelWord::Auto => Self::Auto,
            LevelWord::Group => Self::Exactly(Level::Group),
            LevelWord::Tree => Self::Exactly(Level::Tree),
            LevelWord::Cgroup => Self::Exactly(Level::Cgroup),
            LevelWord::Namespace => Self::Exactly(Level::Namespace),
        }
    }
}

impl From<RequiredWord> for Level {
    fn from(word: RequiredWord) -> Self {
        match word {
            RequiredWord::Group => Self::Group,
            RequiredWord::Tree => Self::Tree,
            RequiredWord::Cgroup => Self::Cgroup,
            RequiredWord::Namespace => Self::Namespace,
        }
    }
}

/// A duration as a limit: zero is none.
fn limit(duration: Duration) -> Option<Duration> {
    (!duration.is_zero()).then_some(duration)
}

fn parse_at_exit(text: &str) -> Result<AtExit, String> {
    match text.split_once(':') {
        None if text == "end" => Ok(AtExit::End),
        None if text == "wait" => Ok(AtExit::Wait(None)),
        None if text == "leave" => Ok(AtExit::Leave),
        Some(("wait", time)) => {
            let time = duration::parse(time).map_err(|error| error.to_string())?;
            Ok(AtExit::Wait(limit(time)))
        }
        Some(_) | None => Err("end, wait, wait:D and leave are known".to_owned()),
    }
}

fn parse_report(target: OsString) -> Result<ReportTarget, String> {
    match target.as_bytes() {
        b"" => Err("invalid value '' for '--report <FILE>': an empty name".to_owned()),
        b"-" => Ok(ReportTarget::Stderr),
        [b'f', b'd', b':', number @ ..] => std::str::from_utf8(number)
            .ok()
            .filter(|number| number.starts_with(|c: char| c.is_ascii_digit()))
            .and_then(|number| number.parse().ok())
            .map(ReportTarget::Descriptor)
            .ok_or_else(|| invalid("--report <FILE>", &target, "not the number of a descriptor")),
        _ => Ok(ReportTarget::File(PathBuf::from(target))),
    }
}

fn split_variable(entry: OsString) -> Result<(OsString, OsString), String> {
    match entry.as_bytes().iter().position(|byte| *byte == b'=') {
        None => Err(invalid("--env <K=V>", &entry, "there is no =")),
        Some(0) => Err(invalid(
            "--env <K=V>",
            &entry,
            "there is no name before the =",
        )),
        Some(at) => {
            let mut name = entry.into_vec();
            let value = name.split_off(at + 1);
            name.truncate(at);
            Ok((OsString::from_vec(name), OsString::from_vec(value)))
        }
    }
}

/// One line about a value that an option does not take.
pub(crate) fn invalid(option: &str, value: &OsStr, why: &str) -> String {
    one_line(&format!(
        "invalid value '{}' for '{option}': {why}",
        value.to_string_lossy()
    ))
}

/// The first paragraph of a message as one line without control characters.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    words.join(" ").replace(|c: char| c.is_control(), "?")
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
