//! The level under test, and what differs by it.

use foster_protocol::{Level, LevelChoice, Proof, Spec};

use crate::link::Link;
use crate::proc;
use crate::talk::Running;
use crate::tracer::Witness;

/// The level of every command of which its test does not say otherwise: `FOSTER_TEST_LEVEL`, or
/// `group`.
///
/// # Panics
///
/// Where the variable names no level.
#[must_use]
pub fn level() -> Level {
    match std::env::var("FOSTER_TEST_LEVEL").as_deref() {
        Ok("tree") => Level::Tree,
        Ok("cgroup") => Level::Cgroup,
        Ok("namespace") => Level::Namespace,
        Ok("group") | Err(_) => Level::Group,
        Ok(other) => panic!("FOSTER_TEST_LEVEL names no level: {other}"),
    }
}

/// What an ending of a tree without escapees rests on at the level under test.
#[must_use]
pub fn proof_of_level() -> Proof {
    match level() {
        Level::Direct => Proof::SessionScanEmpty,
        Level::Group => Proof::NoOrphans,
        Level::Tree | Level::Cgroup | Level::Namespace => proof_of_keeper(level()),
    }
}

/// What an ending that a keeper tells of rests on: the proof of the strongest layer. A keeper
/// that is process 1 lives when it tells, and has nobody else in its namespace.
///
/// # Panics
///
/// At level `group`, which has no keepers.
#[must_use]
pub fn proof_of_keeper(level: Level) -> Proof {
    match level {
        Level::Direct | Level::Group => panic!("a level without keepers"),
        Level::Tree | Level::Namespace => Proof::KeeperNoChildren,
        Level::Cgroup => Proof::CgroupUnpopulated,
    }
}

/// The same command at this level.
#[must_use]
pub fn at_level(level: Level, spec: Spec) -> Spec {
    Spec {
        level: LevelChoice::Exactly(level),
        ..spec
    }
}

impl Link {
    /// The process that has a session's leader as its child, for a leader that is not reaped:
    /// the helper at level `group`, and a child of the helper's, the keeper, above it.
    ///
    /// # Panics
    ///
    /// Where it is neither.
    #[must_use]
    pub fn supervisor_of(&self, running: &Running) -> i32 {
        let leader = proc::stat(running.pid).expect("the leader is not reaped");
        if level() > Level::Group {
            let keeper = proc::stat(leader.parent).expect("the keeper lives");
            assert_eq!(keeper.parent, self.pid(), "the keeper's parent");
        } else {
            assert_eq!(leader.parent, self.pid(), "the leader's parent");
        }
        leader.parent
    }

    /// Takes hold of the keeper of a session whose leader is not reaped.
    ///
    /// # Panics
    ///
    /// Where the session has no keeper.
    #[must_use]
    pub fn keeper_of(&self, running: &Running) -> Witness {
        let keeper_pid = || proc::stat(running.pid).map(|leader| leader.parent);
        let pid = keeper_pid().expect("the leader is not reaped");
        assert_ne!(pid, self.pid(), "the helper is the leader's parent");
        let keeper = Witness::of(pid);
        // The leader had the same parent before and after, so the number was the keeper's.
        assert_eq!(keeper_pid(), Some(pid), "the leader's parent");
        let parent = proc::stat(pid).map(|keeper| keeper.parent);
        assert_eq!(parent, Some(self.pid()), "the keeper's parent");
        keeper
    }
}
