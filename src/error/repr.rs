//! What an error holds, with its text and its kind.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use foster_protocol::{Bytes, EncodeError, MAX_BODY, MAX_STRING, Reject, Step, VERSION};
use thiserror::Error;

use super::ErrorKind;
use super::loss::{During, Loss};
use super::reject::{reason, reject_kind};
use super::step::step_name;
use crate::size::Item;
use crate::size::Largest;

/// One place where a helper was looked for.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// The place.
    pub(crate) place: String,
    /// Why there is no helper from there.
    pub(crate) why: String,
}

/// What an error holds. Error numbers are turned into sources on demand.
#[derive(Debug, Error)]
pub(crate) enum Repr {
    #[error("no helper could be started{}", Attempts(.0))]
    NoHelper(Vec<Attempt>),
    #[error("helper {} exited before it said hello{}", path.display(), Status(*.status))]
    HelperExited {
        path: PathBuf,
        status: Option<ExitStatus>,
    },
    #[error("helper did not answer within {limit:?}")]
    HelperSilent { limit: Duration },
    #[error("helper {} speaks protocol version {helper}, this client {VERSION}", path.display())]
    Version { path: PathBuf, helper: u32 },
    #[error("program {} does not speak the helper's protocol", path.display())]
    NoProtocol { path: PathBuf, source: Loss },
    #[error(
        "helper {} is build {helper:?}, this program is {client:?}: its file was replaced",
        path.display()
    )]
    Build {
        path: PathBuf,
        helper: Bytes,
        client: Bytes,
    },
    #[error("process has {count} threads already, and a helper is to be launched before them")]
    Threads { count: usize },
    #[error("{during}")]
    Lost { during: During, source: Loss },
    #[error("program not found: {}", program.display())]
    NotFound { program: PathBuf, source: io::Error },
    #[error("program cannot be executed: {}", program.display())]
    NotExecutable { program: PathBuf, source: io::Error },
    #[error("interpreter of program cannot be executed: {}", program.display())]
    Interpreter { program: PathBuf, source: io::Error },
    #[error("directory cannot be entered: {}", directory.display())]
    Directory {
        directory: PathBuf,
        source: io::Error,
    },
    #[error("spawn of {} failed at step {}", program.display(), step_name(*.step))]
    SpawnFailed {
        program: PathBuf,
        step: Step,
        source: io::Error,
    },
    #[error("session was ended before {} ran", program.display())]
    EndedEarly { program: PathBuf },
    #[error("helper refused: {}", reason(.0))]
    Rejected(Reject),
    #[error("refused: {}", reason(.0))]
    Refused(Reject),
    #[error("something else in this process collected the command's exit; its status is unknown")]
    Stolen,
    #[error(
        "session is supervised by nobody here: its thread has failed, or belongs to the process \
         that this one was forked from"
    )]
    Unsupervised,
    #[error("{what} is {length} bytes long, above the limit of {MAX_STRING}")]
    StringTooLong { what: Item, length: usize },
    #[error("spawn request of {length} bytes is above the limit of {MAX_BODY}; largest: {largest}")]
    RequestTooLarge { length: usize, largest: Largest },
    #[cfg(unix)]
    #[error(
        "arguments and environment of {total} bytes are more than the kernel takes; largest: \
         {largest}"
    )]
    ListTooLarge { total: usize, largest: Largest },
    #[error("spawn passes {count} descriptors, above the limit of {limit}")]
    TooManyDescriptors { count: usize, limit: usize },
    #[error("{what} holds a NUL byte")]
    Nul { what: Item },
    #[error("request cannot be sent")]
    Unsendable(#[source] EncodeError),
    #[cfg(not(target_os = "linux"))]
    #[error("{what} not to be had on this platform")]
    Unsupported { what: &'static str },
    #[error("{what}")]
    System {
        what: &'static str,
        source: io::Error,
    },
}

impl Repr {
    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Repr::NoHelper(_) => ErrorKind::NoHelper,
            Repr::HelperExited { .. } => ErrorKind::HelperExited,
            Repr::HelperSilent { .. } => ErrorKind::HelperSilent,
            Repr::Version { .. } | Repr::NoProtocol { .. } => ErrorKind::VersionMismatch,
            Repr::Build { .. } => ErrorKind::BuildMismatch,
            Repr::Threads { .. } => ErrorKind::ThreadsPresent,
            Repr::Lost {
                during: During::Spawn,
                ..
            } => ErrorKind::SpawnFateUnknown,
            Repr::Lost {
                during: During::Exit,
                ..
            } => ErrorKind::ExitUnknown,
            Repr::Lost {
                during: During::End,
                ..
            } => ErrorKind::EndUnknown,
            Repr::Lost {
                during: During::Release,
                ..
            } => ErrorKind::ReleaseFateUnknown,
            Repr::Lost {
                during: During::Request | During::Unsent,
                ..
            } => ErrorKind::HelperLost,
            Repr::NotFound { .. } => ErrorKind::ProgramNotFound,
            Repr::NotExecutable { .. } => ErrorKind::ProgramNotExecutable,
            Repr::Interpreter { .. } => ErrorKind::Interpreter,
            Repr::Directory { .. } => ErrorKind::Directory,
            Repr::SpawnFailed { .. } => ErrorKind::SpawnFailed,
            Repr::EndedEarly { .. } => ErrorKind::EndedEarly,
            Repr::Rejected(Reject::StringTooLong { .. })
            | Repr::StringTooLong { .. }
            | Repr::RequestTooLarge { .. }
            | Repr::TooManyDescriptors { .. }
            | Repr::Unsendable(_) => ErrorKind::TooLarge,
            #[cfg(unix)]
            Repr::ListTooLarge { .. } => ErrorKind::TooLarge,
            Repr::Rejected(Reject::StringWithNul { .. }) | Repr::Nul { .. } => {
                ErrorKind::InvalidInput
            }
            Repr::Rejected(_) | Repr::Refused(_) => ErrorKind::Rejected,
            Repr::Stolen => ErrorKind::ExitUnknown,
            Repr::Unsupervised => ErrorKind::EndUnknown,
            #[cfg(not(target_os = "linux"))]
            Repr::Unsupported { .. } => ErrorKind::Unsupported,
            Repr::System { .. } => ErrorKind::System,
        }
    }

    pub(super) fn errno(&self) -> Option<i32> {
        match self {
            Repr::NotFound { source, .. }
            | Repr::NotExecutable { source, .. }
            | Repr::Interpreter { source, .. }
            | Repr::Directory { source, .. }
            | Repr::SpawnFailed { source, .. }
            | Repr::System { source, .. } => source.raw_os_error(),
            #[cfg(unix)]
            Repr::ListTooLarge { .. } => Some(libc::E2BIG),
            Repr::NoHelper(_)
            | Repr::HelperExited { .. }
            | Repr::HelperSilent { .. }
            | Repr::Version { .. }
            | Repr::NoProtocol { .. }
            | Repr::Build { .. }
            | Repr::Threads { .. }
            | Repr::Lost { .. }
            | Repr::EndedEarly { .. }
            | Repr::Rejected(_)
            | Repr::Refused(_)
            | Repr::Stolen
            | Repr::Unsupervised
            | Repr::StringTooLong { .. }
            | Repr::RequestTooLarge { .. }
            | Repr::TooManyDescriptors { .. }
            | Repr::Nul { .. }
            | Repr::Unsendable(_) => None,
            #[cfg(not(target_os = "linux"))]
            Repr::Unsupported { .. } => None,
        }
    }

    /// The kind that std has for it, where it has no error number.
    pub(super) fn io_kind(&self) -> io::ErrorKind {
        match self.kind() {
            ErrorKind::NoHelper => io::ErrorKind::NotFound,
            ErrorKind::HelperSilent => io::ErrorKind::TimedOut,
            ErrorKind::HelperExited
            | ErrorKind::HelperLost
            | ErrorKind::SpawnFateUnknown
            | ErrorKind::ExitUnknown
            | ErrorKind::EndUnknown
            | ErrorKind::ReleaseFateUnknown => io::ErrorKind::BrokenPipe,
            ErrorKind::VersionMismatch | ErrorKind::BuildMismatch | ErrorKind::ThreadsPresent => {
                io::ErrorKind::Unsupported
            }
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::EndedEarly => io::ErrorKind::Interrupted,
            ErrorKind::TooLarge => io::ErrorKind::ArgumentListTooLong,
            ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
            ErrorKind::Rejected => self.rejection().map_or(io::ErrorKind::Other, reject_kind),
            ErrorKind::ProgramNotFound
            | ErrorKind::ProgramNotExecutable
            | ErrorKind::Interpreter
            | ErrorKind::Directory
            | ErrorKind::SpawnFailed
            | ErrorKind::System => io::ErrorKind::Other,
        }
    }

    pub(super) fn step(&self) -> Option<Step> {
        match self {
            Repr::NotFound { .. } | Repr::NotExecutable { .. } => Some(Step::Exec),
            #[cfg(unix)]
            Repr::ListTooLarge { .. } => Some(Step::Exec),
            Repr::Interpreter { .. } => Some(Step::Interpreter),
            Repr::Directory { .. } => Some(Step::Directory),
            Repr::EndedEarly { .. } => Some(Step::Ended),
            Repr::SpawnFailed { step, .. } => Some(*step),
            Repr::NoHelper(_)
            | Repr::HelperExited { .. }
            | Repr::HelperSilent { .. }
            | Repr::Version { .. }
            | Repr::NoProtocol { .. }
            | Repr::Build { .. }
            | Repr::Threads { .. }
            | Repr::Lost { .. }
            | Repr::Rejected(_)
            | Repr::Refused(_)
            | Repr::Stolen
            | Repr::Unsupervised
            | Repr::StringTooLong { .. }
            | Repr::RequestTooLarge { .. }
            | Repr::TooManyDescriptors { .. }
            | Repr::Nul { .. }
            | Repr::Unsendable(_)
            | Repr::System { .. } => None,
            #[cfg(not(target_os = "linux"))]
            Repr::Unsupported { .. } => None,
        }
    }

    pub(super) fn rejection(&self) -> Option<&Reject> {
        if let Repr::Rejected(reason) | Repr::Refused(reason) = self {
            Some(reason)
        } else {
            None
        }
    }
}

/// The places that were tried, for the text of an error.
struct Attempts<'a>(&'a [Attempt]);

impl fmt::Display for Attempts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, attempt) in self.0.iter().enumerate() {
            let separator = if index == 0 { ": " } else { "; " };
            write!(f, "{separator}{}: {}", attempt.place, attempt.why)?;
        }
        Ok(())
    }
}

/// An exit status that may not be known.
struct Status(Option<ExitStatus>);

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(status) => write!(f, " ({status})"),
            None => Ok(()),
        }
    }
}
