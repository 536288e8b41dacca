//! What a client says about one command, and the stages in which it comes to life.

use serde::{Deserialize, Serialize};

#[cfg(test)]
use wincode::{SchemaRead, SchemaWrite};

use crate::types::{Bytes, Level, LevelChoice, Micros};

/// One descriptor of the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Mapping {
    /// Its number in the child.
    pub target: i32,
    /// The index of its source among the descriptors that came with the request.
    pub source: u32,
}

/// One resource limit (`setrlimit(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct ResourceLimit {
    /// The resource, by its number on this platform.
    pub resource: u32,
    /// The soft limit; `u64::MAX` is no limit.
    pub soft: u64,
    /// The hard limit; `u64::MAX` is no limit.
    pub hard: u64,
}

/// Limits on the whole tree. They need a level with controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct TreeLimits {
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Processor time in thousandths of one processor.
    pub cpu: Option<u64>,
}

/// What happens to the rest of the tree when the leader exits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum OnExit {
    /// Nothing: the session stays exited until the client decides.
    #[default]
    Hold,
    /// The rest is ended.
    End {
        /// The time between the first signal and KILL.
        grace: Micros,
    },
    /// The rest may finish by itself, and is ended when it has not by then.
    Linger {
        /// How long the rest may take, from the leader's exit.
        limit: Micros,
        /// The time between the first signal and KILL.
        grace: Micros,
    },
    /// The rest is released.
    Leave,
}

/// Everything about one command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Spec {
    /// The program. Without a slash it is searched in the `PATH` of `env`
    /// (`/bin:/usr/bin` where there is none).
    pub program: Bytes,
    /// The arguments, the program's name for itself first.
    pub args: Vec<Bytes>,
    /// The whole environment, as `NAME=value` entries.
    pub env: Vec<Bytes>,
    /// The index of a passed descriptor of the directory to start in; a relative
    /// `directory` is taken from there. Without it, the helper's own: `/`.
    pub directory_base: Option<u32>,
    /// The directory to start in.
    pub directory: Option<Bytes>,
    /// The descriptors of the child. 0, 1 and 2 are `/dev/null` where they are not named.
    pub descriptors: Vec<Mapping>,
    /// The target whose terminal becomes the controlling one.
    pub controlling_terminal: Option<i32>,
    /// The file mode creation mask; the helper's own without it.
    pub umask: Option<u32>,
    /// Resource limits.
    pub resource_limits: Vec<ResourceLimit>,
    /// The nice value.
    pub nice: Option<i32>,
    /// The OOM score adjustment, -1000 to 1000.
    pub oom_score_adj: Option<i32>,
    /// The user id.
    pub uid: Option<u32>,
    /// The group id.
    pub gid: Option<u32>,
    /// The supplementary groups.
    pub groups: Option<Vec<u32>>,
    /// Whether the tree may never gain privileges (`PR_SET_NO_NEW_PRIVS`).
    pub no_new_privs: bool,
    /// The signal that the leader gets when the helper dies. Without it: KILL, and none for a
    /// `detachable` session. 0 is none.
    pub death_signal: Option<i32>,
    /// The signals that start out blocked, bit `n - 1` for signal `n`.
    pub blocked: u64,
    /// The containment level that is asked for.
    pub level: LevelChoice,
    /// The least level that is accepted; below it the spawn is rejected.
    pub require: Option<Level>,
    /// Limits on the whole tree.
    pub limits: TreeLimits,
    /// What happens when the leader exits.
    pub on_exit: OnExit,
    /// Ends the session this long after the fork, also when the leader has exited by then.
    pub deadline: Option<Micros>,
    /// The time between the first signal and KILL at the deadline, at hangup and at `Close`.
    pub grace: Micros,
    /// The first signal of an ending that names none: on exit, at the deadline, at `Close`, at
    /// `Shutdown` and at hangup. TERM without it.
    pub first_signal: Option<i32>,
    /// Whether the session may be released while its leader runs.
    pub detachable: bool,
    /// Whether the child waits before exec for `Open`.
    pub gated: bool,
    /// Any text; it comes back in `List` and in the helper's log.
    pub label: Bytes,
}

/// A stage of a spawn. The first two are the helper's, the others the child's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Step {
    /// The helper's own preparations: pipes, tables.
    Prepare,
    /// `clone3(2)` or `fork(2)`.
    Fork,
    /// `setsid(2)`.
    Session,
    /// Laying out the descriptors and closing every other one.
    Descriptors,
    /// Making the terminal the controlling one.
    ControllingTerminal,
    /// Entering the directory.
    Directory,
    /// `setrlimit(2)`.
    ResourceLimits,
    /// `setpriority(2)`.
    Nice,
    /// Writing `/proc/self/oom_score_adj`.
    OomScore,
    /// `setgroups(2)`.
    Groups,
    /// `setresgid(2)`.
    Gid,
    /// `setresuid(2)`.
    Uid,
    /// `PR_SET_NO_NEW_PRIVS`.
    NoNewPrivs,
    /// Arming the death signal; `ESRCH` where the helper has died meanwhile.
    DeathSignal,
    /// Waiting at the gate; `ECANCELED` where it was closed unopened.
    Gate,
    /// The program is not there or cannot be executed.
    Exec,
    /// The program is there, and the interpreter that it names is not.
    Interpreter,
    /// The session was ended before the program ran.
    Ended,
}

/// What a helper may be asked for, sealed for the rest of its life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Seal {
    /// The user ids that a spawn may name; any where there is no list. With a list, a spawn
    /// that names none is refused unless the helper's own is in it.
    pub uids: Option<Vec<u32>>,
    /// The group ids, supplementary ones included, by the same rule.
    pub gids: Option<Vec<u32>>,
    /// The programs, compared byte by byte with `Spec::program`.
    pub programs: Option<Vec<Bytes>>,
    /// The levels that a spawn may ask for.
    pub levels: Option<Vec<Level>>,
    /// Whether every command runs with `no_new_privs`, asked for or not.
    pub no_new_privs: bool,
}
