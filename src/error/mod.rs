//! The one error of this crate.
//!
//! Kinds follow what a host can do about it. A text names the thing (path, session, step,
//! limit and actual size) and leaves the system's own words to the source.

mod loss;
mod reject;
mod repr;
#[cfg(unix)]
mod spawn;
mod step;

use std::fmt;
use std::io;

use foster_protocol::{Reject, Step};

use crate::notice::Notice;

pub(crate) use loss::{During, Loss};
#[cfg(target_os = "linux")]
pub(crate) use repr::Attempt;
pub(crate) use repr::Repr;
#[cfg(unix)]
pub(crate) use spawn::{Subject, directory, spawn_failed};

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Says what went wrong, with what it was about.
///
/// `io::Error::from` keeps the kind and the error number: where there is an error number, the
/// result is the system's own error with that number; elsewhere it carries this error.
pub struct Error(Box<Repr>);

/// What a host can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No helper could be started; the text lists what was tried.
    NoHelper,
    /// The helper exited before it said hello.
    HelperExited,
    /// The helper did not answer in time.
    HelperSilent,
    /// The helper speaks another version of the protocol, or not the protocol at all.
    VersionMismatch,
    /// The program's file was replaced since this process started.
    BuildMismatch,
    /// The process has threads already, and launching was told to refuse that.
    ThreadsPresent,
    /// The helper is gone.
    HelperLost,
    /// The helper was lost before the spawn's answer: the command may have run.
    SpawnFateUnknown,
    /// The helper was lost before the leader's exit; or, without a helper, something else in
    /// this process collected it.
    ExitUnknown,
    /// The helper was lost before the end of the tree was confirmed.
    EndUnknown,
    /// The helper was lost before it acknowledged a release.
    ReleaseFateUnknown,
    /// The program is not there.
    ProgramNotFound,
    /// The program is there and cannot be executed.
    ProgramNotExecutable,
    /// The program is there, and the interpreter that it names is not.
    Interpreter,
    /// The directory cannot be entered.
    Directory,
    /// Another step of the spawn failed.
    SpawnFailed,
    /// The session was ended before the program ran.
    EndedEarly,
    /// The helper refused, and nothing happened.
    Rejected,
    /// An argument, the environment or the request is larger than a limit.
    TooLarge,
    /// A value cannot be passed on, such as a string with a NUL inside.
    InvalidInput,
    /// This platform cannot do it, and nothing has happened. Never on Linux.
    Unsupported,
    /// A system call in this process failed.
    System,
}

impl Error {
    /// Returns what a host can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind()
    }

    /// Returns the error number, where the failure has one.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        self.0.errno()
    }

    /// Returns what there is to tell whoever would have seen the command's result, where the
    /// error says that something about it is not known.
    #[must_use]
    pub fn notice(&self) -> Option<Notice> {
        match self.kind() {
            ErrorKind::SpawnFateUnknown => Some(Notice::StartUnknown),
            ErrorKind::ExitUnknown => Some(Notice::ExitUnknown),
            ErrorKind::EndUnknown => Some(Notice::EndUnconfirmed),
            ErrorKind::ReleaseFateUnknown => Some(Notice::ReleaseUnknown),
            ErrorKind::NoHelper
            | ErrorKind::HelperExited
            | ErrorKind::HelperSilent
            | ErrorKind::VersionMismatch
            | ErrorKind::BuildMismatch
            | ErrorKind::ThreadsPresent
            | ErrorKind::HelperLost
            | ErrorKind::ProgramNotFound
            | ErrorKind::ProgramNotExecutable
            | ErrorKind::Interpreter
            | ErrorKind::Directory
            | ErrorKind::SpawnFailed
            | ErrorKind::EndedEarly
            | ErrorKind::Rejected
            | ErrorKind::TooLarge
            | ErrorKind::InvalidInput
            | ErrorKind::Unsupported
            | ErrorKind::System => None,
        }
    }

    /// Returns the step at which a spawn failed.
    #[must_use]
    pub fn step(&self) -> Option<Step> {
        self.0.step()
    }

    /// Returns why the helper refused.
    #[must_use]
    pub fn rejection(&self) -> Option<&Reject> {
        self.0.rejection()
    }

    /// Whether the program is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.kind() == ErrorKind::ProgramNotFound
    }

    /// Whether the program is there and cannot be executed, for whatever reason.
    #[must_use]
    pub fn is_not_executable(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::ProgramNotExecutable | ErrorKind::Interpreter
        )
    }

    /// Whether the working directory is what went wrong.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.kind() == ErrorKind::Directory
    }

    /// Whether the program's interpreter is what went wrong.
    #[must_use]
    pub fn is_interpreter(&self) -> bool {
        self.kind() == ErrorKind::Interpreter
    }

    /// Whether a permission is missing, for the program, the directory or anything else.
    #[must_use]
    pub fn is_permission_denied(&self) -> bool {
        self.io_kind() == io::ErrorKind::PermissionDenied
    }

    /// Whether the helper was lost, whatever the call was waiting for.
    #[must_use]
    pub fn is_helper_lost(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::HelperLost
                | ErrorKind::SpawnFateUnknown
                | ErrorKind::ExitUnknown
                | ErrorKind::EndUnknown
                | ErrorKind::ReleaseFateUnknown
        )
    }

    /// Whether no helper could be launched.
    #[must_use]
    pub fn is_launch(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::NoHelper
                | ErrorKind::HelperExited
                | ErrorKind::HelperSilent
                | ErrorKind::VersionMismatch
                | ErrorKind::BuildMismatch
                | ErrorKind::ThreadsPresent
        )
    }

    /// Whether the helper refused; nothing has happened then.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        self.kind() == ErrorKind::Rejected
    }

    /// Whether something is larger than a limit.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.kind() == ErrorKind::TooLarge
    }

    /// Whether this platform cannot do it; nothing has happened then.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.kind() == ErrorKind::Unsupported
    }

    /// Whether the command itself never ran because of this error.
    ///
    /// False where that is not known: after a lost helper.
    #[must_use]
    pub fn is_spawn_failure(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::ProgramNotFound
                | ErrorKind::ProgramNotExecutable
                | ErrorKind::Interpreter
                | ErrorKind::Directory
                | ErrorKind::SpawnFailed
                | ErrorKind::EndedEarly
                | ErrorKind::TooLarge
                | ErrorKind::InvalidInput
        )
    }

    /// The kind that std has for it.
    fn io_kind(&self) -> io::ErrorKind {
        match self.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno).kind(),
            None => self.0.io_kind(),
        }
    }

    /// The error of a call that a lost helper left without its answer.
    pub(crate) fn lost(during: During, loss: Loss) -> Self {
        Repr::Lost {
            during,
            source: loss,
        }
        .into()
    }

    /// The error of a request that the helper refused.
    pub(crate) fn rejected(reason: Reject) -> Self {
        Repr::Rejected(reason).into()
    }

    /// The error of a system call in this process.
    pub(crate) fn system(what: &'static str, source: io::Error) -> Self {
        Repr::System { what, source }.into()
    }
}

impl From<Repr> for Error {
    fn from(repr: Repr) -> Self {
        Self(Box::new(repr))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind())
            .field("context", &self.0)
            .finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.0)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(error.io_kind(), error),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
