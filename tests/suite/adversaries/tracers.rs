//! Tracers that never let a dying process go: in the tree, and outside of it.

use std::time::Duration;

use foster_protocol::{Level, Verdict, Why};
use foster_tests::{
    ANSWER, DEATH, Program, SETTLE, Stage, Witness, eventually, not_run, places, proc,
};

use crate::ground::{KEPT, LEVELS, Scene};

const WHAT: &str = "a tracer that holds the dying";

/// The hard limit of an ending and what its answer takes.
const HARD: Duration = Duration::from_secs(20);

#[test]
fn tracer_of_the_tree_dies_with_its_tracee() {
    for level in KEPT {
        let Some(mut scene) = Scene::new(level, WHAT) else {
            continue;
        };
        let tracer = places::fixture("holds-at-exit").display().to_string();
        // It has left the session, and traces the leader.
        let script = format!("setsid {tracer} $$ & exec sleep 60");
        let (running, mut pipe) = scene.spawn(scene.stage.sh(&script));
        pipe.line();
        eventually("the leader is traced", SETTLE, || {
            proc::status_field(running.pid, "TracerPid").is_some_and(|tracer| tracer != "0")
        });
        let ending = scene.link.end(running.session, Duration::from_millis(300));
        scene.assert_all_gone(&ending, WHAT);
        pipe.wait_for_end(Duration::ZERO);
        scene.link.close(running.session);
        scene.link.assert_idle();
        scene.assert_no_leaf();
    }
}

fn assert_outside_tracer_is_named(level: Level) {
    let Some(mut scene) = Scene::new(level, WHAT) else {
        return;
    };
    let (running, mut pipe) = scene.spawn(scene.stage.sh("sleep 60 & echo ready; exec sleep 60"));
    pipe.line();
    let stage = Stage::new();
    let mut tracer = Program::fixture(&stage, "holds-at-exit")
        .arg(running.pid.to_string())
        .start();
    if !tracer.stdout.is_held() {
        return not_run(WHAT, "this user may not trace");
    }
    let own = tracer.stdout.pid();
    let session = running.session;
    let kill = scene.link.ask_kill(session, libc::SIGKILL, Duration::ZERO);
    scene.assert_serves();
    let ending = scene.link.ended(kill, HARD);
    assert_eq!(ending.verdict, Verdict::Incomplete, "{level:?}: {ending:?}");
    let survivors: Vec<_> = ending
        .survivors
        .iter()
        .map(|one| (one.pid.0, one.why))
        .collect();
    let tracer_pid = match level {
        // A number outside of its namespace is none that the keeper can know.
        Level::Namespace => 0,
        Level::Direct | Level::Group | Level::Tree | Level::Cgroup => own,
    };
    let why = Why::HeldByTracer {
        tracer: foster_protocol::Pid(tracer_pid),
    };
    assert_eq!(survivors, [(running.pid, why)], "{level:?}: {ending:?}");
    assert!(running.witness.is_alive(), "the control: it is held");
    scene.assert_serves();
    tracer.signal(libc::SIGKILL);
    tracer.wait(DEATH);
    running.witness.wait_for_death(ANSWER);
    pipe.wait_for_end(DEATH);
    scene.assert_no_leaf();
    scene.link.close(session);
    scene.link.assert_idle();
}

#[test]
fn tracer_outside_of_the_tree_is_named_and_the_helper_serves_on_at_group() {
    assert_outside_tracer_is_named(Level::Group);
}

#[test]
fn tracer_outside_of_the_tree_is_named_and_the_helper_serves_on_at_tree() {
    assert_outside_tracer_is_named(Level::Tree);
}

#[test]
fn tracer_outside_of_the_tree_is_named_and_the_helper_serves_on_at_cgroup() {
    assert_outside_tracer_is_named(Level::Cgroup);
}

#[test]
fn tracer_outside_of_the_tree_is_named_and_the_helper_serves_on_in_a_namespace() {
    assert_outside_tracer_is_named(Level::Namespace);
}

#[test]
fn dead_leader_that_its_tracer_has_not_collected_ends_with_the_tracer() {
    for level in LEVELS {
        let Some(mut scene) = Scene::new(level, WHAT) else {
            continue;
        };
        let (running, mut pipe) = scene.spawn(scene.stage.sleeper());
        pipe.line();
        let stage = Stage::new();
        let mut tracer = Program::fixture(&stage, "holds-at-exit")
            .arg(running.pid.to_string())
            .start();
        let own = Witness::of(tracer.stdout.pid());
        scene.link.close(running.session);
        running.witness.signal(libc::SIGKILL);
        own.signal(libc::SIGKILL);
        tracer.wait(DEATH);
        pipe.wait_for_end(DEATH);
        scene.link.assert_idle();
    }
}
