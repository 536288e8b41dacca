//! Descriptors that are kept back for endings.
//!
//! The soft limit stays below the hard one, so that spawns and received descriptors meet it
//! first; a walk over a tree lifts it for its pidfds. A helper that is full can still kill.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// How many descriptors are kept back where the hard limit has room for them.
const MOST_RESERVED: u64 = 1200;

/// The reserve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve {
    usual: u64,
    lifted: u64,
}

impl Reserve {
    /// Sets the usual limit: the hard one less the reserve, of which a fifth is the most.
    pub(crate) fn keep_back() -> io::Result<Self> {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let usual = hard - MOST_RESERVED.min(hard / 5);
        setrlimit(Resource::RLIMIT_NOFILE, usual, hard)?;
        Ok(Self {
            usual,
            lifted: hard,
        })
    }

    /// Numbers of descriptors are below this.
    pub(crate) fn usual(self) -> u64 {
        self.usual
    }

    /// Makes room for the pidfds of a walk.
    pub(crate) fn lift(self) {
        self.set(self.lifted);
    }

    /// Runs a walk with room for its pidfds, and keeps the reserve back again. What is open stays
    /// open.
    pub(crate) fn with_room<T>(self, walk: impl FnOnce() -> T) -> T {
        self.lift();
        let came_to = walk();
        self.set(self.usual);
        came_to
    }

    /// Moving the soft limit below the hard one is refused only by a seccomp filter; a walk
    /// without its reserve is cut short and says so.
    fn set(self, soft: u64) {
        if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, soft, self.lifted) {
            tracing::debug!(%error, "the descriptor limit cannot be moved");
        }
    }
}
