//! What a child says on its status pipe on the way to exec.
//!
//! Records of 8 bytes, which a pipe never splits: a tag, a step, two zeros, and an error
//! number as a little-endian `i32`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use foster_protocol::Step;

use super::raw;

/// The length of a record.
pub(super) const RECORD: usize = 8;

const WAITING: u8 = 2;
const EXECUTING: u8 = 3;
const FAILED: u8 = 4;

/// Every step, at the place that is its code.
const STEPS: [Step; 18] = [
    Step::Prepare,
    Step::Fork,
    Step::Session,
    Step::Descriptors,
    Step::ControllingTerminal,
    Step::Directory,
    Step::ResourceLimits,
    Step::Nice,
    Step::OomScore,
    Step::Groups,
    Step::Gid,
    Step::Uid,
    Step::NoNewPrivs,
    Step::DeathSignal,
    Step::Gate,
    Step::Exec,
    Step::Interpreter,
    Step::Ended,
];

/// How far a child has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Everything else is done, and it waits at the gate.
    Waiting,
    /// It is about to run the program.
    Executing,
    /// It could not go on and has exited.
    Failed {
        /// Where it went wrong.
        step: Step,
        /// The error number.
        errno: i32,
    },
}

/// What one look at a status pipe gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// A record. Another one may follow.
    Record(Progress),
    /// Nothing is there yet.
    Nothing,
    /// The end of file. After `Executing` the program runs, or the child was killed on its
    /// last step; without it the program never ran.
    Closed,
}

impl Progress {
    /// Lays it out. Async-signal-safe.
    pub(super) fn encode(self) -> [u8; RECORD] {
        let (tag, step, errno) = match self {
            Self::Waiting => (WAITING, 0, 0),
            Self::Executing => (EXECUTING, 0, 0),
            Self::Failed { step, errno } => (FAILED, step as u8, errno),
        };
        let [a, b, c, d] = errno.to_le_bytes();
        [tag, step, 0, 0, a, b, c, d]
    }

    fn decode(record: [u8; RECORD]) -> Option<Self> {
        let [tag, step, _, _, a, b, c, d] = record;
        match tag {
            WAITING => Some(Self::Waiting),
            EXECUTING => Some(Self::Executing),
            FAILED => {
                let step = *STEPS.get(usize::from(step))?;
                Some(Self::Failed {
                    step,
                    errno: i32::from_le_bytes([a, b, c, d]),
                })
            }
            _ => None,
        }
    }
}

/// Reads the next record, without blocking.
///
/// # Errors
///
/// `EPROTO` for what is no record; otherwise what `read(2)` says.
pub(crate) fn read_progress(status: BorrowedFd<'_>) -> io::Result<Reading> {
    let mut record = [0_u8; RECORD];
    match raw::read(status.as_raw_fd(), &mut record) {
        Ok(0) => Ok(Reading::Closed),
        Ok(RECORD) => Progress::decode(record)
            .map(Reading::Record)
            .ok_or_else(malformed),
        Ok(_) => Err(malformed()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Reading::Nothing),
        Err(error) => Err(error),
    }
}

fn malformed() -> io::Error {
    io::Error::from_raw_os_error(libc::EPROTO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_comes_back_as_it_was() {
        let failures = STEPS
            .iter()
            .map(|&step| Progress::Failed { step, errno: -7 });
        let plain = [Progress::Waiting, Progress::Executing];
        for progress in plain.into_iter().chain(failures) {
            assert_eq!(Progress::decode(progress.encode()), Some(progress));
        }
    }

    #[test]
    fn an_unknown_tag_or_step_is_no_record() {
        assert_eq!(Progress::decode([0; RECORD]), None);
        assert_eq!(Progress::decode([9, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Progress::decode([FAILED, 18, 0, 0, 0, 0, 0, 0]), None);
    }
}
