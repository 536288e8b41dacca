//! The values that many messages are made of, and what a helper tells of itself.
//!
//! Numbers that mean something have their own type. OS strings are bytes; durations are
//! whole microseconds. Nothing here does I/O or allocates beyond what it holds.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

#[cfg(test)]
use wincode::{SchemaRead, SchemaWrite};

use crate::ending::Orphan;

/// Names a request, chosen by the client. A reply carries the id of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct RequestId(pub u64);

/// Names a session, chosen by the client. It is never a pid and never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", self.0)
    }
}

/// A process id as the helper sees it. It says who was meant; it is never a licence to signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Pid(pub i32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A duration in whole microseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Micros(pub u64);

impl From<Duration> for Micros {
    /// Saturates at `u64::MAX` microseconds, which is longer than 500,000 years.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Micros> for Duration {
    fn from(micros: Micros) -> Self {
        Duration::from_micros(micros.0)
    }
}

/// An OS string: any bytes. Where the kernel wants a C string, a NUL inside is rejected.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Bytes(pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// As one run of bytes. On the wire it is what a `Vec<u8>` is; a decoder can check the
/// length against what is there before it allocates.
impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

/// Copies a run of bytes that is there in full.
struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a run of bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes(bytes.to_vec()))
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

/// How far the members of a session are contained. Each level includes those before it;
/// `Direct` is below all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Level {
    /// The helper is the leader's parent; everything that stays in its session is reached.
    Group,
    /// A keeper of its own adopts what leaves the session.
    Tree,
    /// A cgroup of its own.
    Cgroup,
    /// A pid namespace of its own.
    Namespace,
    /// No helper: the host itself is the leader's parent, and nothing is ended by its death.
    /// No helper offers it, and one that is asked for it gives at least `Group`.
    Direct,
}

impl Level {
    /// Its place among the levels, the weakest first.
    fn rank(self) -> u8 {
        match self {
            Level::Direct => 0,
            Level::Group => 1,
            Level::Tree => 2,
            Level::Cgroup => 3,
            Level::Namespace => 4,
        }
    }
}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Level {
    /// The stronger one is the greater one.
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// The level that a spawn asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum LevelChoice {
    /// The strongest level that the helper offers here without changing what a command sees.
    #[default]
    Auto,
    /// This level, or what is left of it where it is not to be had.
    Exactly(Level),
}

/// A level that was asked for and is not in force, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Missing {
    /// The level.
    pub level: Level,
    /// The error number that kept it away; `ENOSYS` where this helper does not offer it.
    pub errno: i32,
}

/// What contains a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Containment {
    /// The strongest level in force.
    pub level: Level,
    /// Levels that were asked for and are not in force.
    pub missing: Vec<Missing>,
}

/// A state of a session, as it is shown to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum StateName {
    /// The child is on its way to exec.
    Starting,
    /// The child waits at the gate.
    Prepared,
    /// The command runs.
    Running,
    /// The leader has exited and is held unreaped.
    Exited,
    /// The tree is being ended.
    Ending,
    /// The tree has been ended.
    Ended,
    /// The rest was let go.
    Released,
    /// The command never ran.
    Failed,
}

/// One session in a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct SessionInfo {
    /// The session.
    pub session: SessionId,
    /// Its leader; none where the fork failed.
    pub leader: Option<Pid>,
    /// Its state.
    pub state: StateName,
    /// The strongest level in force.
    pub level: Level,
    /// The time since its fork.
    pub age: Micros,
    /// Its label.
    pub label: Bytes,
    /// Orphans that its keeper has adopted, 256 at most. At level `group` there are none: an
    /// orphan is not the session's until it is ended.
    pub adopted: Vec<Orphan>,
}

/// Counters of a helper since its start, but for the first three, which are of this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Counters {
    /// Session records.
    pub sessions: u64,
    /// Leaders that are held unreaped.
    pub held: u64,
    /// Requests that wait for their reply.
    pub waiting: u64,
    /// Spawn requests that led to a fork.
    pub forks: u64,
    /// Adopted orphans that were reaped.
    pub orphans_reaped: u64,
    /// TERM, INT, HUP, QUIT, USR1 and USR2 that the helper itself was sent. It notes them and
    /// goes on: only its host ends it.
    pub signals_noted: u64,
}

/// What keeps a level away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Obstacle {
    /// This helper does not offer it.
    NotOffered,
    /// The kernel keeps no lists of children (`CONFIG_PROC_CHILDREN`).
    ChildrenFiles,
    /// The kernel has no pidfds.
    Pidfds,
    /// Several threads run in the helper's process, so it cannot fork a keeper.
    Threads,
    /// No cgroup v2 hierarchy is mounted.
    CgroupMount,
    /// No cgroup can be made below the helper's own, or below the root that was named.
    CgroupCreate,
    /// A process cannot be started in a cgroup that was made.
    CgroupEnter,
    /// `cgroup.kill` cannot be written.
    CgroupKill,
    /// The root that was named has processes of its own or lacks a controller.
    CgroupRoot,
    /// A user namespace cannot be made, which an unprivileged user needs.
    UserNamespace,
    /// A pid namespace cannot be made.
    PidNamespace,
    /// `/proc` cannot be mounted in the namespace.
    ProcMount,
}

/// Whether a level can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Availability {
    /// The level.
    pub level: Level,
    /// 0 where it can be had, else the error number that keeps it away.
    pub errno: i32,
    /// What failed.
    pub obstacle: Option<Obstacle>,
}

/// What a helper can do on this kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Capabilities {
    /// The levels.
    pub levels: Vec<Availability>,
    /// `clone3(2)` is used, not `fork(2)`.
    pub clone3: bool,
    /// Leaders and members are held by pidfd.
    pub pidfd: bool,
    /// A group is signalled through its leader's pidfd (Linux 6.9).
    pub pidfd_group: bool,
    /// `/proc/PID/task/TID/children` files exist; without them `/proc` is scanned.
    pub children_files: bool,
    /// 0 where `foster sweep` finds whatever this helper and its keepers leave when all of them
    /// are killed, else the error number that keeps the record for it away.
    pub janitor: i32,
}
