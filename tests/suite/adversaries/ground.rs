//! What the adversaries share: a helper at a level that can be had here, and shapes of trees.

use std::fs;
use std::time::Duration;

use foster_protocol::{Cause, Ending, Level, Proof, Spec, Verdict};
use foster_tests::{
    Cgroup, Command, Launch, Link, Running, SETTLE, Stage, Tracer, Witness, at_level, eventually,
    is_root, not_run, places, proc, proof_of_keeper,
};

/// Every level.
pub(crate) const LEVELS: [Level; 4] = [Level::Group, Level::Tree, Level::Cgroup, Level::Namespace];

/// The levels with a keeper.
pub(crate) const KEPT: [Level; 3] = [Level::Tree, Level::Cgroup, Level::Namespace];

/// A user that owns nothing.
pub(crate) const NOBODY: u32 = 65_534;

/// A helper at a level, with what it stands on. The helper goes first, and the stage last.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) link: Link,
    pub(crate) level: Level,
    /// Where its leaves are made, where that is a cgroup of the test's own.
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) stage: Stage,
}

impl Scene {
    /// Launches a helper of this user; none where the level cannot be had, which is said.
    pub(crate) fn new(level: Level, what: &str) -> Option<Self> {
        let stage = Stage::new();
        let launch = stage.launch();
        // Root makes a cgroup for it, so that what is left of leaves can be seen.
        let (launch, cgroup) = match (level, is_root()) {
            (Level::Cgroup, true) => in_cgroup(&stage, launch, level, what, None)?,
            _ => (launch, None),
        };
        Self::greeted(stage, launch, cgroup, level, what)
    }

    /// Launches a helper of another user, with limits; none where it cannot be had.
    pub(crate) fn of_user(level: Level, what: &str, user: u32, limits: &[&str]) -> Option<Self> {
        if !is_root() {
            not_run(what, "this is not root, which makes helpers of other users");
            return None;
        }
        let stage = Stage::new();
        let mut launch = stage.launch();
        if !limits.is_empty() {
            launch = launch.through("with-limit", limits);
        }
        let (launch, cgroup) = in_cgroup(&stage, launch, level, what, Some(user))?;
        Self::greeted(stage, launch, cgroup, level, what)
    }

    fn greeted(
        stage: Stage,
        launch: Launch,
        cgroup: Option<Cgroup>,
        level: Level,
        what: &str,
    ) -> Option<Self> {
        let mut link = launch.silent();
        let capabilities = link.hello();
        let levels = capabilities.levels.iter();
        let mut lack = levels.filter(|one| one.level == level && one.errno != 0);
        if let Some(lack) = lack.next() {
            let missing = format!("level {level:?}: {:?}, error {}", lack.obstacle, lack.errno);
            not_run(what, &missing);
            return None;
        }
        Some(Self {
            link,
            level,
            cgroup,
            stage,
        })
    }

    /// The same command at the level of this scene.
    pub(crate) fn at(&self, spec: Spec) -> Spec {
        at_level(self.level, spec)
    }

    /// Spawns a command at the level of this scene whose standard output is a tracer.
    pub(crate) fn spawn(&mut self, spec: Spec) -> (Running, Tracer) {
        let (tracer, writer) = Tracer::new();
        let command = Command::new(at_level(self.level, spec)).with(1, writer);
        (self.link.spawn(command), tracer)
    }

    /// Asserts that an ending left nobody, by the proof of the level.
    pub(crate) fn assert_all_gone(&self, ending: &Ending, what: &str) {
        let what = format!("{what} at {:?}: {ending:?}", self.level);
        assert_eq!(ending.verdict, Verdict::AllGone, "{what}");
        assert!(ending.survivors.is_empty(), "{what}");
        if self.level != Level::Group {
            // Where a tree takes every processor, its keeper may be too late.
            let is_late = ending.cause == Cause::SupervisorLost;
            let proof = match is_late && self.level == Level::Namespace {
                true => Proof::NamespaceDead,
                false => proof_of_keeper(self.level),
            };
            assert_eq!(ending.proof, Some(proof), "{what}");
        }
    }

    /// Asserts that the helper serves: it ends a fresh command and is idle after it.
    pub(crate) fn assert_serves(&mut self) {
        self.link.ping();
        let spec = self.at(self.stage.sh("exit 5"));
        let running = self.link.spawn(spec);
        assert_eq!(self.link.exit(running.session).status, 5 << 8);
        self.link.close(running.session);
    }

    /// Asserts that no leaf is left in the scene's cgroup.
    pub(crate) fn assert_no_leaf(&self) {
        if let Some(cgroup) = &self.cgroup {
            eventually("no leaf is left", SETTLE, || cgroup.below().is_empty());
        }
    }
}

/// Has the helper start as this user, in a cgroup of its own where the level needs one.
fn in_cgroup(
    stage: &Stage,
    launch: Launch,
    level: Level,
    what: &str,
    user: Option<u32>,
) -> Option<(Launch, Option<Cgroup>)> {
    let mut words = Vec::new();
    let mut made = None;
    if level == Level::Cgroup {
        let cgroup = Cgroup::unified(stage);
        let cgroup = cgroup.map_err(|missing| not_run(what, &missing)).ok()?;
        if let Some(user) = user {
            cgroup.give_to(user);
        }
        words.push(cgroup.procs().display().to_string());
        made = Some(cgroup);
    }
    words.extend(user.map(|user| format!("user={user}")));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Some((launch.through("in-cgroup", &words), made))
}

/// A way in which a tree tries to outlive its ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A child in the leader's group.
    Group,
    /// A child in a session of its own.
    Setsid,
    /// A daemon: a double fork, a session of its own, no environment, `/`.
    Daemon,
    /// Processes that fork and leave for ever, in a new session each time.
    Comet,
    /// A daemon below a process that adopts orphans itself.
    Subreaper,
    /// A child that the leader makes of its own parent, without an exit signal.
    Sibling,
    /// It ignores TERM, and so does its child.
    Stubborn,
    /// It is stopped, and so is its child.
    Stopped,
    /// Its main thread has exited and another one runs.
    Threads,
}

/// Every shape.
pub(crate) const SHAPES: [Shape; 9] = [
    Shape::Group,
    Shape::Setsid,
    Shape::Daemon,
    Shape::Comet,
    Shape::Subreaper,
    Shape::Sibling,
    Shape::Stubborn,
    Shape::Stopped,
    Shape::Threads,
];

impl Shape {
    /// The command. Everybody of it holds descriptor 1, and it says a line when it is formed.
    pub(crate) fn spec(self, stage: &Stage) -> Spec {
        let daemon = "( setsid sh -c 'cd /; exec env -i sh -c \"echo ready; exec sleep 60\" </dev/null 2>&-' & )";
        match self {
            Self::Group => stage.sh("sh -c 'echo ready; exec sleep 60' & exec sleep 60"),
            Self::Setsid => stage.sh("setsid sh -c 'echo ready; exec sleep 60' & exec sleep 60"),
            Self::Daemon => stage.sh(&format!("{daemon}; exec sleep 60")),
            Self::Comet => stage.fixture("flees-for-ever", &["8"]),
            Self::Subreaper => {
                let wrapper = places::fixture("as-subreaper");
                let wrapper = wrapper.to_str().expect("a path of text");
                let script = "\"$1\" -- /bin/sh -c \"$2\" & exec sleep 60";
                let below = format!("{daemon}; sleep 60");
                stage.command("/bin/sh", &["-c", script, stage.tag(), wrapper, &below])
            }
            Self::Sibling => stage.fixture("clones-sibling", &[]),
            Self::Stubborn => stage.fixture("ignores-term", &[]),
            Self::Stopped => stage.sh(
                "setsid sh -c 'echo ready; kill -STOP $$; exec sleep 60' & kill -STOP $$; wait",
            ),
            Self::Threads => stage.fixture("leaves-leader-thread", &[]),
        }
    }
}

/// A tree of a shape, under way.
#[derive(Debug)]
pub(crate) struct Formed {
    pub(crate) shape: Shape,
    pub(crate) running: Running,
    pub(crate) tracer: Tracer,
}

impl Formed {
    /// Spawns one of this shape, changed by its test, and waits until it is formed.
    pub(crate) fn spawn(
        scene: &mut Scene,
        shape: Shape,
        change: impl FnOnce(Spec) -> Spec,
    ) -> Self {
        let spec = change(shape.spec(&scene.stage));
        let (running, mut tracer) = scene.spawn(spec);
        tracer.line();
        Self {
            shape,
            running,
            tracer,
        }
    }

    /// One of every shape.
    pub(crate) fn all(scene: &mut Scene, change: impl Fn(Spec) -> Spec) -> Vec<Self> {
        SHAPES
            .into_iter()
            .map(|shape| Self::spawn(scene, shape, &change))
            .collect()
    }

    /// Asserts that nobody of it lives at this moment.
    pub(crate) fn assert_dead(&mut self, level: Level) {
        let shape = self.shape;
        let is_alive = self.running.witness.is_alive();
        assert!(!is_alive, "the leader of {shape:?} lives at {level:?}");
        let is_held = self.tracer.is_held();
        assert!(!is_held, "somebody of {shape:?} lives at {level:?}");
    }

    /// Waits until nobody of it lives.
    pub(crate) fn wait_for_death(&mut self, within: Duration) {
        self.running.witness.wait_for_death(within);
        self.tracer.wait_for_end(within);
    }
}

/// The process that is called by this number in a leader's pid namespace.
pub(crate) fn outer(running: &Running, inner: i32) -> Witness {
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = namespace(running.pid).expect("the leader lives");
    let is_it = |pid: i32| {
        let numbers = proc::status_field(pid, "NSpid").unwrap_or_default();
        let last = numbers.split_ascii_whitespace().last();
        namespace(pid).as_ref() == Some(&own) && last == Some(&inner.to_string())
    };
    let found = proc::pids().into_iter().find(|pid| is_it(*pid));
    let witness = Witness::of(found.expect("it is in the leader's namespace"));
    assert!(is_it(witness.pid()), "the number is still its own");
    witness
}

/// What a measurement came to.
#[expect(clippy::print_stderr, reason = "a measurement is to be read")]
pub(crate) fn report(line: &str) {
    eprintln!("{line}");
}
