//! From a failed step of a spawn to an error that names the thing.

use std::io;
use std::path::{Path, PathBuf};

use foster_protocol::Step;

use super::{Error, Repr};
use crate::size::Size;

/// What a spawn was about, kept for the text of its errors.
#[derive(Clone, Debug)]
pub(crate) struct Subject<'a> {
    /// The program as it was asked for.
    pub(crate) program: &'a Path,
    /// The directory as it was asked for; none for the host's own.
    pub(crate) directory: Option<&'a Path>,
}

/// Builds the error of a spawn that failed at a step.
pub(crate) fn spawn_failed(subject: &Subject<'_>, size: &Size, step: Step, errno: i32) -> Error {
    let program = subject.program.to_path_buf();
    let source = io::Error::from_raw_os_error(errno);
    let repr = match step {
        Step::Exec => exec_failed(program, size, source),
        Step::Interpreter => Repr::Interpreter { program, source },
        Step::Directory => Repr::Directory {
            directory: directory(subject),
            source,
        },
        Step::Ended => Repr::EndedEarly { program },
        Step::Prepare
        | Step::Fork
        | Step::Session
        | Step::Descriptors
        | Step::ControllingTerminal
        | Step::ResourceLimits
        | Step::Nice
        | Step::OomScore
        | Step::Groups
        | Step::Gid
        | Step::Uid
        | Step::NoNewPrivs
        | Step::DeathSignal
        | Step::Gate => Repr::SpawnFailed {
            program,
            step,
            source,
        },
    };
    repr.into()
}

/// The directory that a spawn was to start in.
pub(crate) fn directory(subject: &Subject<'_>) -> PathBuf {
    subject
        .directory
        .unwrap_or_else(|| Path::new("."))
        .to_path_buf()
}

fn exec_failed(program: PathBuf, size: &Size, source: io::Error) -> Repr {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => Repr::NotFound { program, source },
        Some(libc::EACCES | libc::EPERM | libc::ENOEXEC | libc::EISDIR | libc::ELOOP) => {
            Repr::NotExecutable { program, source }
        }
        Some(libc::E2BIG) => Repr::ListTooLarge {
            total: size.total,
            largest: size.largest.clone(),
        },
        Some(_) | None => Repr::SpawnFailed {
            program,
            step: Step::Exec,
            source,
        },
    }
}
