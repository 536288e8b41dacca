//! What the tests of this level share: commands with a keeper, and shapes that leave a session.

use std::time::Duration;

use foster_protocol::{Ending, Level, Proof, Spec, Verdict};
use foster_tests::{
    Command, Link, Running, SETTLE, Stage, Tracer, Witness, at_level, eventually, places, proc,
};

/// A grace that no test reaches unless it means to.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The same command with a keeper.
pub(crate) fn tree(spec: Spec) -> Spec {
    at_level(Level::Tree, spec)
}

/// A way out of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// A session of its own, below the leader.
    Setsid,
    /// A daemon: a double fork, a session of its own, no environment, `/`, no descriptors.
    Daemon,
    /// Processes that fork and leave for ever, in a new session each time.
    Comet,
    /// A daemon below a process that adopts orphans itself.
    NestedSubreaper,
    /// A child that the leader makes of its own parent.
    Sibling,
}

/// Every way out.
pub(crate) const ESCAPES: [Escape; 5] = [
    Escape::Setsid,
    Escape::Daemon,
    Escape::Comet,
    Escape::NestedSubreaper,
    Escape::Sibling,
];

/// A session of which somebody has left the kernel session.
#[derive(Debug)]
pub(crate) struct Escaped {
    /// The session.
    pub(crate) running: Running,
    /// Its keeper.
    pub(crate) keeper: Witness,
    /// Who has left, where somebody stays the same process.
    pub(crate) escapee: Option<Witness>,
    /// The pipe that everybody holds but a daemon.
    pub(crate) tracer: Tracer,
}

impl Escaped {
    /// Asserts that everybody of the session is dead at this moment.
    pub(crate) fn assert_dead(&mut self, what: &str) {
        assert!(!self.running.witness.is_alive(), "{what}: the leader lives");
        let is_dead = |escapee: &Witness| !escapee.is_alive();
        let are_dead = self.escapee.as_ref().is_none_or(is_dead);
        assert!(are_dead, "{what}: the escapee lives");
        assert!(!self.tracer.is_held(), "{what}: somebody holds the pipe");
    }

    /// Waits until everybody of the session and its keeper are dead.
    pub(crate) fn wait_for_death(&mut self, within: Duration) {
        self.running.witness.wait_for_death(within);
        if let Some(escapee) = &self.escapee {
            escapee.wait_for_death(within);
        }
        self.tracer.wait_for_end(within);
        self.keeper.wait_for_death(within);
    }
}

impl Escape {
    /// The command. It says the number of who leaves, where that is one process.
    pub(crate) fn spec(self, stage: &Stage) -> Spec {
        let daemon = "( setsid sh -c 'echo $$; cd /; exec env -i sleep 60 </dev/null >&- 2>&-' & )";
        let spec = match self {
            Self::Setsid => stage.sh("setsid sh -c 'echo $$; exec sleep 60' & exec sleep 60"),
            Self::Daemon => stage.sh(&format!("{daemon}; exec sleep 60")),
            Self::Comet => stage.fixture("flees-for-ever", &["8"]),
            Self::NestedSubreaper => {
                let wrapper = places::fixture("as-subreaper");
                let wrapper = wrapper.to_str().expect("a path of text");
                let script = "\"$1\" -- /bin/sh -c \"$2\" & exec sleep 60";
                let below = format!("{daemon}; sleep 60");
                stage.command("/bin/sh", &["-c", script, stage.tag(), wrapper, &below])
            }
            Self::Sibling => stage.fixture("clones-sibling", &[]),
        };
        tree(spec)
    }

    /// Spawns it, changed by its test, and waits until somebody has left.
    pub(crate) fn spawn(
        self,
        stage: &Stage,
        link: &mut Link,
        change: impl FnOnce(Spec) -> Spec,
    ) -> Escaped {
        let (mut tracer, writer) = Tracer::new();
        let command = Command::new(change(self.spec(stage))).with(1, writer);
        let running = link.spawn(command);
        let keeper = link.keeper_of(&running);
        let escapee = match self {
            // It lives for a minute from here, so that the number is its own.
            Self::Setsid | Self::Daemon | Self::NestedSubreaper => Some(Witness::of(tracer.pid())),
            Self::Sibling => {
                let sibling = Witness::of(tracer.pid());
                tracer.line();
                Some(sibling)
            }
            Self::Comet => {
                tracer.line();
                None
            }
        };
        if let Some(escapee) = &escapee {
            eventually("somebody has left the session", SETTLE, || {
                proc::stat(escapee.pid()).is_some_and(|stat| stat.session != running.pid)
            });
        }
        Escaped {
            running,
            keeper,
            escapee,
            tracer,
        }
    }
}

/// Asserts that an ending left nobody, by the proof of this level.
pub(crate) fn assert_all_gone(ending: &Ending, what: &str) {
    assert_eq!(ending.verdict, Verdict::AllGone, "{what}: {ending:?}");
    let proof = Some(Proof::KeeperNoChildren);
    assert_eq!(ending.proof, proof, "{what}: {ending:?}");
    assert!(ending.survivors.is_empty(), "{what}: {ending:?}");
    assert!(ending.unattributed.is_empty(), "{what}: {ending:?}");
}

/// Spawns a tree that ignores TERM, so that its keeper lives through its grace.
pub(crate) fn spawn_stubborn(
    stage: &Stage,
    link: &mut Link,
    grace: Duration,
) -> (Running, Tracer, Witness) {
    let spec = Spec {
        grace: grace.into(),
        ..tree(stage.fixture("ignores-term", &[]))
    };
    let (running, tracer) = link.spawn_traced(spec);
    let keeper = link.keeper_of(&running);
    (running, tracer, keeper)
}

/// Spawns a command that sleeps for a minute.
pub(crate) fn spawn_sleeper(stage: &Stage, link: &mut Link) -> (Running, Tracer, Witness) {
    let (running, tracer) = link.spawn_traced(tree(stage.sleeper()));
    let keeper = link.keeper_of(&running);
    (running, tracer, keeper)
}
