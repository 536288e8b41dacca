//! Everything that a child needs between fork and exec, laid out before the fork.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::ptr;

use foster_protocol::{Bytes, ResourceLimit, Step};
use libc::c_char;

/// What the child does, in the order in which it does it.
#[derive(Debug)]
pub(crate) struct Orders {
    /// Keeps the sources among `places` open until the fork.
    pub(crate) _descriptors: Vec<OwnedFd>,
    /// Every descriptor that the child uses, by its number at the fork. The child moves those
    /// that stand where a target will be.
    pub(crate) places: Vec<i32>,
    /// Which place goes to which target, sorted by target: never twice the same, and always
    /// 0, 1 and 2.
    pub(crate) wires: Vec<Wire>,
    /// The place of the pipe that the child's progress goes to.
    pub(crate) status: usize,
    /// The place of the pipe that lets the child go: one byte to begin, and one for the gate.
    pub(crate) go: usize,
    /// The place of the directory to start from.
    pub(crate) base: Option<usize>,
    pub(crate) directory: Option<CString>,
    pub(crate) terminal: Option<i32>,
    pub(crate) umask: Option<u32>,
    pub(crate) limits: Vec<ResourceLimit>,
    pub(crate) nice: Option<i32>,
    /// The text to write.
    pub(crate) oom_score_adj: Option<Vec<u8>>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) groups: Option<Vec<u32>>,
    pub(crate) no_new_privs: bool,
    /// 0 is none.
    pub(crate) death_signal: i32,
    pub(crate) blocked: u64,
    pub(crate) gated: bool,
    /// What to execute, the first one that is there.
    pub(crate) candidates: Vec<CString>,
    pub(crate) arguments: Strings,
    pub(crate) environment: Strings,
    /// The first number that cannot be open; needed without `close_range`.
    pub(crate) open_max: i32,
    /// This process.
    pub(crate) parent: i32,
}

/// A place that becomes a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wire {
    pub(crate) target: i32,
    /// An index of `places`.
    pub(crate) place: usize,
}

/// A null-terminated array of C strings.
#[derive(Debug)]
pub(crate) struct Strings {
    /// Owns what `pointers` points to; never changed after they were taken.
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Strings {
    /// Takes the strings. None where one of them holds a NUL.
    pub(crate) fn new(strings: &[Bytes]) -> Option<Self> {
        let strings = strings
            .iter()
            .map(|string| CString::new(string.0.as_slice()).ok())
            .collect::<Option<Vec<CString>>>()?;
        let pointers = strings
            .iter()
            .map(|string| string.as_ptr())
            .chain([ptr::null()])
            .collect();
        Some(Self {
            _strings: strings,
            pointers,
        })
    }

    /// The array, as `execve(2)` takes it.
    pub(super) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// What a child says of itself through its status pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits at the gate.
    Waiting,
    /// Nothing but exec is left.
    Executing,
    /// A step failed.
    Failed {
        /// The step.
        step: Step,
        /// The error number.
        errno: i32,
    },
}

/// The steps by their number in a record.
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

impl Progress {
    /// How long a record is. A write of it goes into a pipe as a whole.
    pub(crate) const LENGTH: usize = 8;

    /// The record.
    pub(super) fn encode(self) -> [u8; Self::LENGTH] {
        let (kind, step, errno) = match self {
            Progress::Waiting => (1, 0, 0),
            Progress::Executing => (2, 0, 0),
            Progress::Failed { step, errno } => (3, step as u8, errno),
        };
        let [a, b, c, d] = errno.to_ne_bytes();
        [kind, step, 0, 0, a, b, c, d]
    }

    /// From a record; none for one that no child writes.
    pub(crate) fn decode(record: [u8; Self::LENGTH]) -> Option<Self> {
        let [kind, step, _, _, a, b, c, d] = record;
        let step = STEPS.get(usize::from(step)).copied()?;
        let errno = i32::from_ne_bytes([a, b, c, d]);
        match kind {
            1 => Some(Progress::Waiting),
            2 => Some(Progress::Executing),
            3 => Some(Progress::Failed { step, errno }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_comes_through_a_record() {
        for step in STEPS {
            let progress = Progress::Failed { step, errno: -7 };
            assert_eq!(Progress::decode(progress.encode()), Some(progress));
        }
        for progress in [Progress::Waiting, Progress::Executing] {
            assert_eq!(Progress::decode(progress.encode()), Some(progress));
        }
        assert_eq!(Progress::decode([9; 8]), None);
    }
}
