//! The matrix of `foster run`: every shape, every event, nothing left.

use std::time::{Duration, Instant};

use foster_tests::{DEATH, Ground, Process, Program, Stage, Witness, only_child_of};

use crate::shapes::{
    GRACE, GRACE_WORD, Leader, MARGIN, SHAPES, Shape, assert_in_time, time_to_end,
};

/// A run of `foster` whose member runs.
pub(crate) struct Run {
    process: Process,
    pub(crate) foster: Witness,
    helper: Witness,
    member: Witness,
}

impl Run {
    /// Starts `foster` as a child of the test.
    fn start(stage: &Stage, options: &[&str], shape: Shape, leader: Leader) -> Self {
        Self::start_on(Ground::of_environment(), stage, options, shape, leader)
    }

    /// Starts it on this ground.
    pub(crate) fn start_on(
        ground: Ground,
        stage: &Stage,
        options: &[&str],
        shape: Shape,
        leader: Leader,
    ) -> Self {
        let process = program(ground, stage, options, shape, leader).start();
        let foster = Witness::of(process.pid());
        Self::found(process, foster, shape)
    }

    /// Starts `foster` as a child of a parent that does nothing.
    fn start_below_a_parent(stage: &Stage, shape: Shape) -> Self {
        let ground = Ground::of_environment();
        let program = program(ground, stage, &[], shape, Leader::Waits);
        let process = program.below_a_parent(stage).start();
        let foster = only_child_of(process.pid());
        Self::found(process, foster, shape)
    }

    fn found(mut process: Process, foster: Witness, shape: Shape) -> Self {
        // First, because on a loaded machine a short timeout may be over when the member was met.
        let helper = only_child_of(foster.pid());
        let member = shape.member(&mut process.stdout);
        Self {
            process,
            foster,
            helper,
            member,
        }
    }

    /// Waits until foster, its helper and every member are dead, and gives the time since.
    pub(crate) fn time_to_end(&mut self, since: Instant) -> Duration {
        time_to_end(&mut self.process.stdout, since);
        // A daemon does not hold the pipe.
        self.member.wait_for_death(DEATH);
        let time = since.elapsed();
        self.foster.wait_for_death(DEATH);
        self.helper.wait_for_death(DEATH);
        time
    }
}

fn program(
    ground: Ground,
    stage: &Stage,
    options: &[&str],
    shape: Shape,
    leader: Leader,
) -> Program {
    // Where no level is named, it is what a user gets.
    let level = std::env::var("FOSTER_TEST_LEVEL").unwrap_or_else(|_| "auto".to_owned());
    Program::on_ground(stage, ground, "run")
        .args(["--grace", GRACE_WORD, "--level", &level])
        .args(options)
        .args(shape.command(leader))
}

/// Runs the event for every shape; it gives the moment from which the time counts.
fn for_every_shape(event: impl Fn(&Stage, Shape) -> (Run, Instant)) {
    for shape in SHAPES {
        assert_in_time(&format!("{shape:?}"), GRACE + MARGIN, || {
            let stage = Stage::new();
            let (mut run, since) = event(&stage, shape);
            run.time_to_end(since)
        });
    }
}

#[test]
fn nothing_is_left_when_the_root_exits() {
    for_every_shape(|stage, shape| {
        let mut run = Run::start(stage, &[], shape, Leader::Exits);
        run.process.say("go");
        let since = Instant::now();
        assert_eq!(run.process.wait(DEATH).code(), Some(0), "{shape:?}");
        (run, since)
    });
}

#[test]
fn nothing_is_left_when_the_root_kills_itself() {
    for_every_shape(|stage, shape| {
        let mut run = Run::start(stage, &[], shape, Leader::KillsItself);
        run.process.say("go");
        let since = Instant::now();
        assert_eq!(run.process.wait(DEATH).code(), Some(137), "{shape:?}");
        (run, since)
    });
}

#[test]
fn nothing_is_left_when_foster_is_sent_term() {
    for_every_shape(|stage, shape| {
        let mut run = Run::start(stage, &[], shape, Leader::Waits);
        run.process.signal(libc::SIGTERM);
        let since = Instant::now();
        assert_eq!(run.process.wait(DEATH).code(), Some(143), "{shape:?}");
        (run, since)
    });
}

#[test]
fn nothing_is_left_when_the_root_leaves_at_term_and_a_member_ignores_it() {
    for_every_shape(|stage, shape| {
        let mut run = Run::start(stage, &[], shape, Leader::LeavesAtTerm);
        run.process.signal(libc::SIGTERM);
        let since = Instant::now();
        assert_eq!(run.process.wait(DEATH).code(), Some(0), "{shape:?}");
        (run, since)
    });
}

#[test]
fn nothing_is_left_when_the_timeout_is_reached() {
    for_every_shape(|stage, shape| {
        let timeout = Duration::from_secs(1);
        let mut run = Run::start(stage, &["-t", "1s"], shape, Leader::LeavesAtTerm);
        // The member runs since less than the timeout, so that this is no later than its end.
        let since = Instant::now() + timeout;
        assert_eq!(run.process.wait(DEATH).code(), Some(124), "{shape:?}");
        (run, since)
    });
}

#[test]
fn nothing_is_left_when_foster_is_killed() {
    for_every_shape(|stage, shape| {
        let run = Run::start(stage, &[], shape, Leader::Waits);
        run.foster.signal(libc::SIGKILL);
        (run, Instant::now())
    });
}

#[test]
fn nothing_is_left_when_foster_is_killed_and_the_root_leaves_at_term() {
    for_every_shape(|stage, shape| {
        let run = Run::start(stage, &[], shape, Leader::LeavesAtTerm);
        run.foster.signal(libc::SIGKILL);
        (run, Instant::now())
    });
}

#[test]
fn nothing_is_left_when_the_parent_of_foster_alone_is_killed() {
    for_every_shape(|stage, shape| {
        let run = Run::start_below_a_parent(stage, shape);
        run.process.signal(libc::SIGKILL);
        (run, Instant::now())
    });
}

#[test]
fn nothing_is_left_when_foster_and_its_parent_are_killed_at_once() {
    for_every_shape(|stage, shape| {
        let run = Run::start_below_a_parent(stage, shape);
        run.process.signal(libc::SIGKILL);
        run.foster.signal(libc::SIGKILL);
        (run, Instant::now())
    });
}
