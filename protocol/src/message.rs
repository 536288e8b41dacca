//! Requests and replies.
//!
//! A variant's number on the wire is its place in the enum. Variants are only appended.

use serde::{Deserialize, Serialize};

#[cfg(test)]
use wincode::{SchemaRead, SchemaWrite};

use crate::ending::{Ending, Exit, Member, Orphan, Survivor};
use crate::spec::{Seal, Spec, Step};
use crate::types::{
    Bytes, Capabilities, Containment, Counters, Level, Micros, Pid, RequestId, SessionId,
    SessionInfo, StateName,
};

/// A request with its id: the body of a frame from client to helper.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Call {
    /// The id that the reply will carry. It is the client's to choose.
    pub id: RequestId,
    /// The request.
    pub request: Request,
}

/// A reply with the id of its request: the body of a frame from helper to client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Answer {
    /// The id of the request.
    pub id: RequestId,
    /// The reply.
    pub reply: Reply,
}

/// What a client may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Request {
    /// The first request of all. It may carry one descriptor: the helper's log.
    Hello {
        /// The client's protocol version.
        version: u32,
        /// The client's build.
        build: Bytes,
        /// A cgroup v2 directory that holds no processes and has its controllers enabled, for
        /// cgroups with limits. Without it, cgroups are made below the helper's own.
        cgroup_root: Option<Bytes>,
    },
    /// Seals what may be asked for. Only right after `Hello`, and once.
    Restrict {
        /// The seal.
        seal: Seal,
    },
    /// Starts a command. Carries the descriptors that the spec refers to.
    Spawn {
        /// A session id greater than every one that was used before.
        session: SessionId,
        /// The command.
        spec: Box<Spec>,
    },
    /// Lets a gated child go.
    Open {
        /// The session.
        session: SessionId,
    },
    /// Asks for a reply when something has happened; at once if it already has.
    Wait {
        /// The session.
        session: SessionId,
        /// What to wait for.
        until: Until,
    },
    /// Signals or ends a session.
    Kill {
        /// The session.
        session: SessionId,
        /// How.
        how: How,
    },
    /// Lets the rest of a session go.
    Release {
        /// The session.
        session: SessionId,
    },
    /// Ends a session if it lives and forgets it. There is no reply.
    Close {
        /// The session.
        session: SessionId,
    },
    /// Asks for every session.
    List,
    /// Asks for the counters.
    Ping,
    /// Asks what the helper can do here.
    Probe,
    /// Ends every session that was not released, and then the helper.
    Shutdown {
        /// The time between the first signal and KILL.
        grace: Micros,
    },
}

/// What a `Wait` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Until {
    /// The leader's exit: `Exited`.
    Exit,
    /// The end of the session: `Ended`, or `Released` where it was released.
    End,
}

/// What a `Kill` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum How {
    /// Sends one signal: `Signalled`.
    Signal {
        /// The signal, 1 to 64.
        number: i32,
        /// To whom.
        to: Target,
    },
    /// Ends the tree: `Ended`. A second one joins the first and can only shorten its grace.
    End {
        /// The first signal.
        first: i32,
        /// The time between the first signal and KILL.
        grace: Micros,
    },
}

/// Whom a signal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Target {
    /// The leader alone.
    Leader,
    /// Every member.
    Tree,
}

/// What a helper answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Reply {
    /// To `Hello`.
    Welcome {
        /// The helper's protocol version.
        version: u32,
        /// The helper's build.
        build: Bytes,
        /// What it can do here.
        capabilities: Capabilities,
    },
    /// To `Restrict`.
    Restricted,
    /// To a gated `Spawn`: the child waits before exec.
    Prepared {
        /// The child.
        pid: Pid,
        /// What contains it.
        containment: Containment,
        /// The descriptors that come with this reply, in their order.
        attached: Vec<Attached>,
    },
    /// To `Spawn`, or to `Open`: the program runs.
    Spawned {
        /// The leader.
        pid: Pid,
        /// What contains it.
        containment: Containment,
        /// The descriptors that come with this reply, in their order.
        attached: Vec<Attached>,
    },
    /// To `Spawn`, or to `Open`: the program did not run.
    SpawnFailed {
        /// Where it went wrong.
        step: Step,
        /// The error number.
        errno: i32,
    },
    /// To any request: refused, and nothing happened.
    Rejected {
        /// Why.
        reason: Reject,
    },
    /// To `Wait` for the exit.
    Exited {
        /// The exit.
        exit: Exit,
    },
    /// To `Wait` for the end, and to `Kill` by `End`.
    Ended {
        /// The end.
        ending: Ending,
    },
    /// To `Kill` by `Signal`.
    Signalled {
        /// How many processes it was sent to.
        reached: u32,
    },
    /// To `Release`, and to a `Wait` for the end of a session that was released.
    Released {
        /// How many members still run, the leader included.
        still_running: u32,
    },
    /// To `List`.
    Sessions {
        /// Every session with a record.
        sessions: Vec<SessionInfo>,
        /// Adopted orphans that no session can be shown to own.
        unattributed: Vec<Orphan>,
    },
    /// To `Ping`.
    Pong {
        /// The counters.
        counters: Counters,
    },
    /// To `Probe`.
    Capabilities {
        /// What the helper can do here.
        capabilities: Capabilities,
    },
    /// To `Shutdown`, when everything has ended. The helper exits after it.
    Farewell {
        /// Every ending that the shutdown started, and the last one for adopted orphans.
        report: Farewell,
    },
}

/// A descriptor that comes with a reply. Each is an extra: a session works without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Attached {
    /// A pidfd of the leader.
    Pidfd,
    /// `cgroup.kill` of the session's own cgroup, open for writing: writing `1` kills everybody
    /// inside. It is for a client that has lost its helper, and not for a released session.
    CgroupKill,
}

/// What a shutdown did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub struct Farewell {
    /// How many sessions it ended.
    pub sessions: u32,
    /// Adopted orphans that it ended beside them, 256 at most.
    pub orphans: Vec<Member>,
    /// Who is left, in any session or none, 256 at most.
    pub survivors: Vec<Survivor>,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Reject {
    /// The versions differ. The helper exits after it.
    VersionMismatch {
        /// The helper's.
        helper: u32,
        /// The client's.
        client: u32,
    },
    /// `Hello` came a second time.
    HelloRepeated,
    /// `Restrict` came a second time, or after another request.
    RestrictTooLate,
    /// The seal does not allow it.
    NotPermitted {
        /// What it is about.
        what: Sealed,
    },
    /// No session has this id.
    UnknownSession,
    /// The session id is not greater than every one that was used before.
    DuplicateSession,
    /// The session is in a state in which this cannot be asked.
    IllegalState {
        /// The state.
        state: StateName,
    },
    /// A running session can be released only if it was spawned `detachable`.
    NotDetachable,
    /// This helper does not offer it.
    Unsupported {
        /// What.
        what: Feature,
    },
    /// The required level cannot be had.
    LevelUnavailable {
        /// The level.
        level: Level,
        /// Why: `ENOSYS` where this helper does not offer it.
        errno: i32,
    },
    /// The request came with more or fewer descriptors than it refers to.
    WrongDescriptorCount {
        /// How many it refers to.
        expected: u32,
        /// How many came.
        came: u32,
    },
    /// Descriptors were lost on the way: the helper has no more room for them.
    DescriptorsLost,
    /// A target is negative, above the helper's limit or named twice, or a controlling
    /// terminal is no target.
    BadTarget {
        /// The target.
        target: i32,
    },
    /// The number is no signal.
    BadSignal {
        /// The number.
        number: i32,
    },
    /// A string holds a NUL.
    StringWithNul {
        /// Which string.
        which: Field,
    },
    /// A string is longer than the kernel takes.
    StringTooLong {
        /// Which string.
        which: Field,
        /// Its length in bytes.
        length: u64,
        /// The most that is taken.
        limit: u64,
    },
    /// The helper has no room for another session.
    TooManySessions {
        /// The most at one time.
        limit: u64,
    },
    /// Too many requests wait for their reply.
    TooManyRequests {
        /// The most at one time.
        limit: u64,
    },
    /// The helper is shutting down.
    ShuttingDown,
    /// The reply would not fit into a frame.
    ReplyTooLong {
        /// The most that does, in bytes.
        limit: u64,
    },
    /// The session's keeper died, and the answer with it. What was asked may have been done.
    SupervisorLost,
}

/// What a seal speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Sealed {
    /// The user id.
    Uid,
    /// The group id or a supplementary group.
    Gid,
    /// The program.
    Program,
    /// The level.
    Level,
}

/// What a helper may not offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Feature {
    /// Limits on the whole tree, without a cgroup root that has controllers.
    TreeLimits,
    /// Letting go of a session at level `namespace`: it ends with its keeper.
    Release,
    /// Other credentials in a user namespace, where only the helper's own user is known.
    Credentials,
}

/// A string of a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(SchemaRead, SchemaWrite))]
pub enum Field {
    /// The program.
    Program,
    /// An argument.
    Argument {
        /// Its place, the program's name for itself being 0.
        index: u32,
    },
    /// An environment entry.
    Variable {
        /// Its place.
        index: u32,
    },
    /// The directory.
    Directory,
    /// The label.
    Label,
}
