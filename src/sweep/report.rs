//! What a sweep found and did, instance by instance.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use foster_protocol::{Bytes, Pid, RecordError, SessionId, Survivor};
use thiserror::Error;

/// What came of a sweep.
#[derive(Debug, Default)]
pub struct Swept {
    /// Every instance that has a record.
    pub instances: Vec<SweptInstance>,
    /// What was not believed. Nothing was done on its word.
    pub refused: Vec<Refused>,
}

impl Swept {
    /// Whether nothing is left of dead instances, as far as it could be found out.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.refused.is_empty() && self.instances.iter().all(|one| !one.fate.is_left())
    }

    pub(super) fn refuse(&mut self, path: PathBuf, reason: Refusal) {
        self.refused.push(Refused { path, reason });
    }
}

/// One instance: a helper with its keepers, and what they left.
#[derive(Clone, Debug)]
pub struct SweptInstance {
    /// Its record.
    pub record: PathBuf,
    /// The process id that its helper had. It may be somebody else's by now.
    pub helper: Option<Pid>,
    /// What became of it.
    pub fate: Fate,
    /// Who was found alive, this process and its kin not among them.
    pub found: Vec<Found>,
    /// Who bears the mark and was left alone: this process, its ancestors, and its group.
    pub spared: Vec<Found>,
    /// Who could not be ended.
    pub survivors: Vec<Survivor>,
    /// Its cgroups that were found; after a sweep that was not dry, those that could not be
    /// removed.
    pub cgroups: Vec<PathBuf>,
    /// The time that it took.
    pub took: Duration,
}

impl SweptInstance {
    pub(super) fn new(record: PathBuf, helper: Option<i32>, fate: Fate) -> Self {
        Self {
            record,
            helper: helper.map(Pid),
            fate,
            found: Vec::new(),
            spared: Vec::new(),
            survivors: Vec::new(),
            cgroups: Vec::new(),
            took: Duration::ZERO,
        }
    }

    /// Draws the conclusion from what was found and what is left.
    pub(super) fn conclude(&mut self, dry_run: bool) {
        let is_left = !self.spared.is_empty()
            || !self.survivors.is_empty()
            || !self.cgroups.is_empty()
            || (dry_run && !self.found.is_empty());
        self.fate = match (is_left, dry_run) {
            (true, true) => Fate::Left,
            (true, false) => Fate::Incomplete,
            (false, _) => Fate::AllGone,
        };
    }

    /// Nobody needs its record any more.
    pub(super) fn is_over(&self) -> bool {
        match self.fate {
            Fate::Past | Fate::AllGone => true,
            Fate::Live | Fate::Elsewhere | Fate::Left | Fate::Incomplete => false,
        }
    }
}

/// What became of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Its helper or a keeper lives, or another sweep is at it. Nothing was done.
    Live,
    /// It belongs to another pid namespace, from where alone its members can all be seen.
    /// Nothing was done.
    Elsewhere,
    /// It belongs to an earlier boot of the system, which nothing survived.
    Past,
    /// Something is left of it, and nothing was done: the run was dry.
    Left,
    /// Nothing is left of it but what was released.
    AllGone,
    /// Something is left of it.
    Incomplete,
}

impl Fate {
    /// Whether something of a dead instance is known to be left.
    #[must_use]
    pub fn is_left(self) -> bool {
        match self {
            Self::Left | Self::Incomplete => true,
            Self::Live | Self::Elsewhere | Self::Past | Self::AllGone => false,
        }
    }
}

/// A process that bears an instance's mark.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// Its process id.
    pub pid: Pid,
    /// Its name.
    pub name: Bytes,
    /// Its user.
    pub uid: u32,
    /// Its session. Ids from 2^28 on are told as one.
    pub session: SessionId,
}

/// A record, or a folder of records, that is not believed.
#[derive(Debug)]
pub struct Refused {
    /// Its path.
    pub path: PathBuf,
    /// Why it is not believed.
    pub reason: Refusal,
}

/// Why a record, or a folder of records, is not believed.
#[derive(Debug, Error)]
pub enum Refusal {
    /// It belongs to another user.
    #[error("it belongs to user {uid}")]
    WrongOwner {
        /// The user.
        uid: u32,
    },
    /// Others may write to it, or into the folder.
    #[error("others than its owner have access to it (mode {mode:03o})")]
    OpenToOthers {
        /// Its permissions.
        mode: u32,
    },
    /// It is a link, a folder, or anything else that a helper does not make.
    #[error("it is not what a helper makes")]
    WrongKind,
    /// It is larger than any record.
    #[error("it is {size} bytes long, more than a record has")]
    TooLarge {
        /// Its size in bytes.
        size: u64,
    },
    /// Its text is no record.
    #[error("it is no record")]
    Malformed(#[source] RecordError),
    /// It is the record of an instance with another name: a copy.
    #[error("it is the record of another instance")]
    WrongName,
    /// What it names as a cgroup is none.
    #[error("it names a cgroup that is none")]
    NoCgroup,
    /// A call failed.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Names what was tried when a call fails.
pub(super) trait During<T> {
    fn during(self, what: &'static str) -> Result<T, Refusal>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, what: &'static str) -> Result<T, Refusal> {
        self.map_err(|error| Refusal::System {
            what,
            source: error.into(),
        })
    }
}
