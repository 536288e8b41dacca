//! How a leader exited, how a session ended, and who is left.

use serde::{Deserialize, Serialize};

#[cfg(test)]
use wincode::{SchemaRead, SchemaWrite};

use crate::types::{Bytes, Micros, Pid};

/// Resource usage of the leader and the descendants that it waited for (`getrusage(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Usage {
    /// Processor time in user mode.
    pub user: Micros,
    /// Processor time in the kernel.
    pub system: Micros,
    /// The largest resident set in KiB.
    pub max_rss: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Blocks read.
    pub blocks_in: u64,
    /// Blocks written.
    pub blocks_out: u64,
    /// Context switches that were asked for.
    pub voluntary_switches: u64,
    /// Context switches that were not.
    pub involuntary_switches: u64,
}

/// Why a leader exited or a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Cause {
    /// The leader exited by itself.
    Exit,
    /// The leader died of a signal that the helper did not send to end it.
    Signal,
    /// The deadline was reached.
    Deadline,
    /// The linger limit was reached.
    Linger,
    /// The client asked for it.
    Kill,
    /// The client closed the session.
    Close,
    /// The client asked the helper to shut down.
    Shutdown,
    /// The host is gone.
    Hangup,
    /// The session's keeper died.
    SupervisorLost,
    /// The kernel killed a member because the session had reached its memory limit.
    OutOfMemory,
}

/// The exit of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Exit {
    /// The wait status as `wait(2)` lays it out; of a host on Windows, the exit code.
    pub status: i32,
    /// What the leader and the descendants that it waited for used.
    pub usage: Usage,
    /// The time from the fork to the exit.
    pub wall: Micros,
    /// Why it exited.
    pub cause: Cause,
}

/// Whether an ending left anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Verdict {
    /// Nothing is left, by the proof that goes with it.
    AllGone,
    /// The hard limit was reached first; the survivors are named.
    Incomplete,
}

/// What an `AllGone` rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Proof {
    /// The leader is dead and the helper holds no adopted orphan, so that no dead leader has a
    /// living descendant.
    NoOrphans,
    /// The leader is dead and no adopted orphan or descendant of one is in its session.
    /// Escapes from the session are possible; adopted ones are in `unattributed`.
    SessionEmpty,
    /// The leader is dead and a scan of `/proc` found nobody in its session. Escapes from the
    /// session are possible.
    SessionScanEmpty,
    /// The keeper has no children. At level `namespace` it is process 1, so that nobody else is
    /// in the namespace.
    KeeperNoChildren,
    /// The cgroup is unpopulated.
    CgroupUnpopulated,
    /// The namespace's first process is dead: the keeper died before it had ended the session.
    NamespaceDead,
    /// The job is empty. Of a host on Windows; no helper gives it.
    JobEmpty,
}

/// How a member ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Ended {
    /// Before any signal reached it.
    ByItself,
    /// After the first signal and before KILL.
    ByFirstSignal,
    /// After KILL.
    ByKill,
    /// It lives.
    Not,
}

/// A process that an ending found alive beside the leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Member {
    /// Its process id.
    pub pid: Pid,
    /// Its name (`comm`, at most 15 bytes).
    pub name: Bytes,
    /// How it ended.
    pub ended: Ended,
}

/// Why a member outlived an ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Why {
    /// It is in uninterruptible sleep.
    Uninterruptible,
    /// A tracer holds it.
    HeldByTracer {
        /// The tracer; 0 where it is outside of the session's pid namespace.
        tracer: Pid,
    },
    /// The helper may not signal it.
    NotPermitted {
        /// Its user.
        uid: u32,
    },
    /// New members came faster than they could be ended.
    ForkRate,
    /// It left its cgroup, and could not be ended outside of it.
    LeftCgroup,
    /// It has been sent KILL and had not died when the limit was reached.
    Dying,
    /// It could not be signalled without a risk to a stranger: the kernel has no pidfds.
    NotPinned,
}

/// A member that outlived an ending.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Survivor {
    /// Its process id.
    pub pid: Pid,
    /// Its name.
    pub name: Bytes,
    /// Its user.
    pub uid: u32,
    /// Why it lives.
    pub why: Why,
}

/// An adopted orphan that no session can be shown to own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Orphan {
    /// Its process id.
    pub pid: Pid,
    /// Its session id as the kernel sees it.
    pub sid: Pid,
    /// Its name.
    pub name: Bytes,
}

/// The most that a tree used, as its cgroup counted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Peaks {
    /// Memory in bytes (`memory.peak`).
    pub memory: Option<u64>,
    /// Processes and threads (`pids.peak`).
    pub processes: Option<u64>,
    /// Processor time of all members (`cpu.stat`).
    pub cpu: Option<Micros>,
    /// Members that the kernel killed for want of memory (`memory.events`).
    pub oom_kills: Option<u64>,
}

/// The end of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Ending {
    /// Why it ended.
    pub cause: Cause,
    /// Whether anything is left.
    pub verdict: Verdict,
    /// What `AllGone` rests on.
    pub proof: Option<Proof>,
    /// Who was found alive beside the leader, 256 at most.
    pub members: Vec<Member>,
    /// Who is left, 256 at most.
    pub survivors: Vec<Survivor>,
    /// Adopted orphans that no session can be shown to own, 256 at most.
    pub unattributed: Vec<Orphan>,
    /// The most that the tree used, where a cgroup counted it.
    pub peaks: Option<Peaks>,
    /// How many times the tree was walked.
    pub rounds: u32,
    /// The time from the first signal to the verdict.
    pub took: Micros,
}
