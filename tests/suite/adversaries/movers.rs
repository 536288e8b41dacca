//! Members that leave their cgroup for another one: a sibling's, the helper's, one of their own.

use std::fs;
use std::path::Path;
use std::time::Duration;

use foster_protocol::Level;
use foster_tests::{ANSWER, Running, Tracer, Witness};

use crate::ground::Scene;

const WHAT: &str = "a member that leaves its cgroup";

/// Spawns a leader whose child, in a session of its own, moves into a cgroup.
fn spawn_mover(scene: &mut Scene, to: &Path) -> (Running, Tracer, Witness) {
    let procs = to.join("cgroup.procs");
    let script = format!(
        "setsid sh -c 'echo $$ > {} && echo $$; exec sleep 60' & exec sleep 60",
        procs.display()
    );
    let (running, mut tracer) = scene.spawn(scene.stage.sh(&script));
    // It lives for a minute from here, so that the number is its own.
    let mover = Witness::of(tracer.pid());
    (running, tracer, mover)
}

fn cgroup_of(pid: i32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it lives");
    let own = text.lines().find_map(|line| line.strip_prefix("0::"));
    own.expect("it is in a cgroup").to_owned()
}

fn assert_mover_dies(scene: &mut Scene, to: &Path) {
    let (running, mut tracer, mover) = spawn_mover(scene, to);
    let (own, leaders) = (cgroup_of(mover.pid()), cgroup_of(running.pid));
    assert_ne!(own, leaders, "the control: it has left");
    let session = running.session;
    let kill = scene.link.ask_kill(session, libc::SIGKILL, Duration::ZERO);
    let ending = scene.link.ended(kill, ANSWER);
    scene.assert_all_gone(&ending, WHAT);
    let is_named = ending.members.iter().any(|one| one.pid.0 == mover.pid());
    assert!(is_named, "{ending:?}");
    mover.wait_for_death(Duration::ZERO);
    assert!(!tracer.is_held(), "somebody lives");
    scene.link.close(session);
}

#[test]
fn member_that_moves_into_a_siblings_cgroup_dies_and_the_sibling_does_not() {
    let Some(mut scene) = Scene::new(Level::Cgroup, WHAT) else {
        return;
    };
    let (sibling, mut held) = scene.spawn(scene.stage.sleeper());
    held.line();
    let Some(leaf) = scene
        .cgroup
        .as_ref()
        .and_then(|cgroup| cgroup.below().pop())
    else {
        return foster_tests::not_run(WHAT, "this is not root, and no cgroup is its own");
    };
    assert_mover_dies(&mut scene, &leaf);
    assert!(sibling.witness.is_alive() && held.is_held(), "the sibling");
    let ending = scene.link.end(sibling.session, Duration::ZERO);
    scene.assert_all_gone(&ending, "the sibling");
    scene.link.close(sibling.session);
    scene.link.assert_idle();
    scene.assert_no_leaf();
}

#[test]
fn member_that_moves_into_the_helpers_cgroup_dies_and_the_helper_does_not() {
    let Some(mut scene) = Scene::new(Level::Cgroup, WHAT) else {
        return;
    };
    let Some(own) = scene.cgroup.as_ref().map(|cgroup| cgroup.path().to_owned()) else {
        return foster_tests::not_run(WHAT, "this is not root, and no cgroup is its own");
    };
    assert_mover_dies(&mut scene, &own);
    scene.assert_serves();
    scene.link.assert_idle();
    scene.assert_no_leaf();
}

#[test]
fn stranger_that_moves_into_a_sessions_cgroup_goes_with_it() {
    let Some(mut scene) = Scene::new(Level::Cgroup, WHAT) else {
        return;
    };
    let (inside, _held) = scene.spawn(scene.stage.sleeper());
    let Some(leaf) = scene
        .cgroup
        .as_ref()
        .and_then(|cgroup| cgroup.below().pop())
    else {
        return foster_tests::not_run(WHAT, "this is not root, and no cgroup is its own");
    };
    // Of another session: it has put itself there, and what a cgroup does reaches it.
    let (other, mut tracer, mover) = spawn_mover(&mut scene, &leaf);
    let kill = scene
        .link
        .ask_kill(inside.session, libc::SIGKILL, Duration::ZERO);
    scene.link.ended(kill, ANSWER);
    mover.wait_for_death(ANSWER);
    assert!(other.witness.is_alive() && tracer.is_held(), "its leader");
    for session in [inside.session, other.session] {
        scene.link.close(session);
    }
    scene.link.assert_idle();
    scene.assert_no_leaf();
}
