//! The life of a session as a pure function: state and event in, state and actions out.
//!
//! No clock, no system call, no allocation. What an action means is the server's business;
//! which event may happen when, and what follows, is decided here alone. The table stands in
//! `docs/DESIGN.md`, and a test compares the two.

use foster_protocol::StateName;

/// Where a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The child has been forked and has not reached exec.
    Starting,
    /// The child waits at the gate.
    Prepared,
    /// The program runs.
    Running,
    /// The leader has exited and is held; the client decides.
    Exited,
    /// The leader has exited and is held; the rest may finish by itself.
    Lingering,
    /// The child is being ended before its program was seen to run.
    Aborting,
    /// Every member has had the first signal, and the grace runs.
    Graceful,
    /// Every member gets KILL until none is left.
    Killing,
    /// The verdict is known.
    Ended,
    /// What was left was let go.
    Released,
    /// The program never ran.
    Failed,
}

impl State {
    /// The state as a client sees it.
    pub(crate) fn name(self) -> StateName {
        match self {
            Self::Starting => StateName::Starting,
            Self::Prepared => StateName::Prepared,
            Self::Running => StateName::Running,
            Self::Exited | Self::Lingering => StateName::Exited,
            Self::Aborting | Self::Graceful | Self::Killing => StateName::Ending,
            Self::Ended => StateName::Ended,
            Self::Released => StateName::Released,
            Self::Failed => StateName::Failed,
        }
    }

    /// Nothing more happens to the tree by the helper's doing.
    pub(crate) fn is_terminal(self) -> bool {
        match self {
            Self::Ended | Self::Released | Self::Failed => true,
            Self::Starting
            | Self::Prepared
            | Self::Running
            | Self::Exited
            | Self::Lingering
            | Self::Aborting
            | Self::Graceful
            | Self::Killing => false,
        }
    }
}

/// What follows the leader's exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterExit {
    Hold,
    End,
    Linger,
    Leave,
}

/// What can happen to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The child has reached the gate.
    Waiting,
    /// The client opened the gate.
    Opened,
    /// Exec succeeded.
    Executed,
    /// A step failed, or the child died before exec.
    NeverRan,
    /// The leader has exited and is not reaped.
    LeaderExited,
    /// The session is to end: kill, deadline, linger limit, close, shutdown, hangup.
    End,
    /// The session is to end without a grace.
    EndNow,
    /// The grace is over.
    GraceOver,
    /// The leader is dead and nobody else is left.
    TreeEmpty,
    /// The hard limit of the ending is reached.
    HardLimit,
    /// The client lets go what is left.
    Release,
}

/// What the server does about it, in the order of the list. Reaping is always last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Answer the spawn: the child waits.
    ReplyPrepared,
    /// Let the child through the gate.
    OpenGate,
    /// Answer the spawn or the opening: the program runs.
    ReplySpawned,
    /// Answer the spawn or the opening: it did not run. Waits are refused.
    ReplyFailed,
    /// Note the exit and answer everyone who waits for it.
    AnswerExit,
    /// KILL to the child alone: its group may not exist yet.
    KillChild,
    /// The first signal to every member, and the grace starts.
    BeginGrace,
    /// KILL to every member, until none is left or the hard limit is reached.
    BeginKill,
    /// The linger limit starts, and the rest is watched.
    BeginLinger,
    /// Look who is left.
    Look,
    /// Note the verdict and answer everyone who waits for the end.
    AnswerEnd,
    /// Let go what is left.
    LetGo,
    /// Collect the leader's status: its number is free after this.
    Reap,
}

/// An event that cannot happen in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IllegalTransition {
    pub(crate) state: State,
    pub(crate) event: Event,
}

/// The transition function.
pub(crate) fn next(
    state: State,
    event: Event,
    after_exit: AfterExit,
) -> Result<(State, &'static [Action]), IllegalTransition> {
    use Action as A;
    use Event as E;
    use State as S;
    let to = |state: State, actions: &'static [Action]| Ok((state, actions));
    match (state, event) {
        (S::Starting, E::Waiting) => to(S::Prepared, &[A::ReplyPrepared]),
        (S::Prepared, E::Opened) => to(S::Starting, &[A::OpenGate]),
        (S::Starting, E::Executed) => to(S::Running, &[A::ReplySpawned]),
        (S::Starting | S::Prepared, E::NeverRan) => to(S::Failed, &[A::ReplyFailed]),
        // The server reads what the child reported before it passes its exit on, so a child
        // that exits here was killed on its way: it never ran.
        (S::Starting | S::Prepared, E::LeaderExited) => to(S::Failed, &[A::ReplyFailed, A::Reap]),
        (S::Starting | S::Prepared, E::End | E::EndNow) => to(S::Aborting, &[A::KillChild]),

        (S::Running, E::LeaderExited) => match after_exit {
            AfterExit::Hold => to(S::Exited, &[A::AnswerExit]),
            AfterExit::End => to(S::Graceful, &[A::AnswerExit, A::BeginGrace]),
            AfterExit::Linger => to(S::Lingering, &[A::AnswerExit, A::BeginLinger]),
            AfterExit::Leave => to(S::Released, &[A::AnswerExit, A::LetGo, A::Reap]),
        },
        (S::Running | S::Exited | S::Lingering, E::End) => to(S::Graceful, &[A::BeginGrace]),
        (S::Running | S::Exited | S::Lingering | S::Graceful, E::EndNow)
        | (S::Graceful, E::GraceOver) => to(S::Killing, &[A::BeginKill]),
        // Whether a running session is detachable is checked before the event is made.
        (S::Running, E::Release) => to(S::Released, &[A::LetGo]),
        (S::Exited | S::Lingering, E::Release) => to(S::Released, &[A::LetGo, A::Reap]),
        (S::Lingering, E::TreeEmpty) => to(S::Ended, &[A::AnswerEnd, A::Reap]),

        // The child may have got through exec before KILL reached it.
        (S::Aborting, E::Executed) => to(S::Killing, &[A::ReplySpawned, A::BeginKill]),
        (S::Aborting, E::NeverRan) => to(S::Aborting, &[A::ReplyFailed]),
        (S::Aborting, E::LeaderExited) => to(S::Killing, &[A::ReplyFailed, A::BeginKill]),
        (S::Aborting, E::HardLimit) => to(S::Ended, &[A::ReplyFailed, A::AnswerEnd]),

        (S::Graceful, E::LeaderExited) => to(S::Graceful, &[A::AnswerExit, A::Look]),
        (S::Killing, E::LeaderExited) => to(S::Killing, &[A::AnswerExit, A::Look]),
        (S::Graceful | S::Killing, E::TreeEmpty) => to(S::Ended, &[A::AnswerEnd, A::Reap]),
        // The leader may be among those who are left, so it is reaped when it dies.
        (S::Killing, E::HardLimit) => to(S::Ended, &[A::AnswerEnd]),

        // A second request joins the first; the server has shortened the grace already.
        (S::Aborting | S::Killing, E::End | E::EndNow) | (S::Graceful, E::End) => to(state, &[]),
        // Late deaths of what an ending, a release or a failure left behind. After an ending
        // the leader is held until the rest has gone too.
        (S::Ended, E::LeaderExited) => to(S::Ended, &[A::AnswerExit]),
        (S::Released, E::LeaderExited) => to(S::Released, &[A::AnswerExit, A::Reap]),
        (S::Failed, E::LeaderExited) => to(S::Failed, &[A::Reap]),
        // A child that outlived its abort reports after the verdict; it was answered for.
        (S::Ended, E::Executed | E::NeverRan) => to(S::Ended, &[]),
        // Nothing is left to end, or it was let go.
        (S::Ended | S::Released | S::Failed, E::End | E::EndNow) => to(state, &[]),

        (
            S::Starting
            | S::Prepared
            | S::Running
            | S::Exited
            | S::Lingering
            | S::Aborting
            | S::Graceful
            | S::Killing
            | S::Ended
            | S::Released
            | S::Failed,
            E::Waiting
            | E::Opened
            | E::Executed
            | E::NeverRan
            | E::LeaderExited
            | E::GraceOver
            | E::TreeEmpty
            | E::HardLimit
            | E::Release,
        ) => Err(IllegalTransition { state, event }),
    }
}

#[cfg(test)]
mod tests;
