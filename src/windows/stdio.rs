//! What a command's standard streams are connected to.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::os::windows::io::OwnedHandle;
use std::process::{self, ChildStderr, ChildStdin, ChildStdout};

/// What a standard stream of a command is connected to, as [`std::process::Stdio`].
///
/// A command that is spawned several times gets a duplicate of a handle each time.
#[derive(Debug)]
pub struct Stdio(Source);

/// Where a stream comes from.
#[derive(Debug)]
enum Source {
    Inherit,
    Null,
    Piped,
    Stdout,
    Stderr,
    Handle(OwnedHandle),
}

impl Stdio {
    /// Connects to the stream of the same number of this process.
    #[must_use]
    pub fn inherit() -> Self {
        Self(Source::Inherit)
    }

    /// Connects to nothing: reads end at once, writes vanish.
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

    /// The same for one spawn by std.
    ///
    /// # Errors
    ///
    /// Where a handle cannot be duplicated.
    pub(super) fn to_std(&self) -> io::Result<process::Stdio> {
        Ok(match &self.0 {
            Source::Inherit => process::Stdio::inherit(),
            Source::Null => process::Stdio::null(),
            Source::Piped => process::Stdio::piped(),
            Source::Stdout => io::stdout().into(),
            Source::Stderr => io::stderr().into(),
            Source::Handle(handle) => handle.try_clone()?.into(),
        })
    }
}

impl From<OwnedHandle> for Stdio {
    fn from(handle: OwnedHandle) -> Self {
        Self(Source::Handle(handle))
    }
}

/// Conversions from everything in std that owns a handle.
macro_rules! from_owner {
    ($($owner:ty),+ $(,)?) => {
        $(
            impl From<$owner> for Stdio {
                fn from(owner: $owner) -> Self {
                    Self::from(OwnedHandle::from(owner))
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
);

impl From<io::Stdout> for Stdio {
    /// Connects to this process's standard output.
    fn from(_: io::Stdout) -> Self {
        Self(Source::Stdout)
    }
}

impl From<io::Stderr> for Stdio {
    /// Connects to this process's standard error.
    fn from(_: io::Stderr) -> Self {
        Self(Source::Stderr)
    }
}
