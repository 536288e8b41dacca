//! What a command wrote and how it exited.

use std::process::{self, ExitStatus};

use crate::notice::Notice;

/// What a command wrote and how it exited.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Output {
    /// How the leader exited.
    pub status: ExitStatus,
    /// What came through standard output.
    pub stdout: Vec<u8>,
    /// What came through standard error.
    pub stderr: Vec<u8>,
    /// Whether an output was still open at the end: a member of the tree held it longer than
    /// the drain lasts, and may have had more to say.
    pub still_open: bool,
    /// What there is to tell beside the result; see [`Child::notice`](crate::Child::notice).
    pub notice: Option<Notice>,
}

impl From<Output> for process::Output {
    fn from(output: Output) -> Self {
        Self {
            status: output.status,
            stdout: output.stdout,
            stderr: output.stderr,
        }
    }
}
