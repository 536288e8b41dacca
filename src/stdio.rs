//! What a command's standard streams are connected to.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{ChildStderr, ChildStdin, ChildStdout};

#[cfg(target_os = "linux")]
use nix::unistd::{dup2_stdin, dup2_stdout};

/// What a standard stream of a command is connected to, as [`std::process::Stdio`].
///
/// A command that is spawned several times gets a duplicate of a descriptor each time.
#[derive(Debug)]
pub struct Stdio(pub(crate) Source);

/// Where a stream comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The stream of the same number of this process; null where that is closed.
    Inherit,
    /// A given stream of this process.
    Own(Own),
    /// `/dev/null`.
    Null,
    /// A new pipe.
    Piped,
    /// A descriptor.
    Descriptor(OwnedFd),
}

/// A standard stream of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    Stdin,
    Stdout,
    Stderr,
}

impl Stdio {
    /// Connects to the stream of the same number of this process.
    ///
    /// Where that stream is closed, the command gets `/dev/null`.
    #[must_use]
    pub fn inherit() -> Self {
        Self(Source::Inherit)
    }

    /// Connects to `/dev/null`.
    #[must_use]
    pub fn null() -> Self {
        Self(Source::Null)
    }

    /// Connects to a new pipe, whose other end is in the [`Child`](crate::Child).
    #[must_use]
    pub fn piped() -> Self {
        Self(Source::Piped)
    }

    /// Whether a pipe will be made.
    #[must_use]
    pub fn makes_pipe(&self) -> bool {
        matches!(self.0, Source::Piped)
    }
}

impl Own {
    /// A duplicate of the stream; none where it is closed.
    pub(crate) fn duplicate(self) -> io::Result<Option<OwnedFd>> {
        let copy = match self {
            Own::Stdin => io::stdin().as_fd().try_clone_to_owned(),
            Own::Stdout => io::stdout().as_fd().try_clone_to_owned(),
            Own::Stderr => io::stderr().as_fd().try_clone_to_owned(),
        };
        match copy {
            Ok(copy) => Ok(Some(copy)),
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Lets go of standard input and output, which are the command's: its closing them must reach
/// whoever is at their other ends while this process still runs.
#[cfg(target_os = "linux")]
pub(crate) fn give_up_standard_streams() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(())
}

impl From<OwnedFd> for Stdio {
    fn from(descriptor: OwnedFd) -> Self {
        Self(Source::Descriptor(descriptor))
    }
}

/// Conversions from everything in std that owns a descriptor.
macro_rules! from_owner {
    ($($owner:ty),+ $(,)?) => {
        $(
            impl From<$owner> for Stdio {
                fn from(owner: $owner) -> Self {
                    Self::from(OwnedFd::from(owner))
                }
            }
        )+
    };
}

from_owner!(
    File,
    PipeReader,
    PipeWriter,
    ChildStdin,
    ChildStdout,
    ChildStderr,
    UnixStream,
    TcpStream,
);

impl From<io::Stdout> for Stdio {
    /// Connects to this process's standard output.
    fn from(_: io::Stdout) -> Self {
        Self(Source::Own(Own::Stdout))
    }
}

impl From<io::Stderr> for Stdio {
    /// Connects to this process's standard error.
    fn from(_: io::Stderr) -> Self {
        Self(Source::Own(Own::Stderr))
    }
}
