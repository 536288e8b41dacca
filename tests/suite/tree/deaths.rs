//! The helper's death, alone and with others: keepers end what they keep.
//!
//! What is killed together with its keeper has nobody to end it at this level. The leader has its
//! death signal; whoever it has left behind lives, which is the level's limit.

use std::time::Duration;

use foster_protocol::Spec;
use foster_tests::{Command, DEATH, Stage, Tracer, clean_up};

use crate::ground::{ESCAPES, Escape, Escaped, spawn_sleeper, spawn_stubborn, tree};

#[test]
fn killed_helper_leaves_nobody_of_any_shape() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut all: Vec<Escaped> = ESCAPES
        .into_iter()
        .map(|escape| escape.spawn(&stage, &mut link, |spec| spec))
        .collect();
    link.kill_helper();
    link.wait_for_death();
    for escaped in &mut all {
        escaped.wait_for_death(DEATH);
    }
}

#[test]
fn killed_helper_leaves_nobody_of_a_detachable_session_that_was_not_released() {
    let stage = Stage::new();
    let mut link = stage.link();
    let detachable = |spec| Spec {
        detachable: true,
        ..spec
    };
    let mut escaped = Escape::Daemon.spawn(&stage, &mut link, detachable);
    link.kill_helper();
    link.wait_for_death();
    escaped.wait_for_death(DEATH);
}

#[test]
fn killed_helper_leaves_nobody_of_a_tree_that_ignores_term() {
    let stage = Stage::new();
    let mut link = stage.link();
    let grace = Duration::from_millis(500);
    let (running, mut tracer, keeper) = spawn_stubborn(&stage, &mut link, grace);
    link.kill_helper();
    link.wait_for_death();
    running.witness.wait_for_death(DEATH);
    tracer.wait_for_end(DEATH);
    keeper.wait_for_death(DEATH);
}

#[test]
fn members_have_their_grace_after_the_helper_was_killed() {
    let stage = Stage::new();
    let mut link = stage.link();
    let act = "trap \"echo acted; exit 0\" TERM; sleep 60 & until [ \"$(cat /proc/$!/comm)\" = sleep ]; do :; done; echo ready; wait";
    let script = format!("( setsid sh -c '{act}' & ); exec sleep 60");
    let spec = Spec {
        grace: Duration::from_secs(10).into(),
        ..tree(stage.sh(&script))
    };
    let (running, mut tracer) = link.spawn_traced(spec);
    let keeper = link.keeper_of(&running);
    link.kill_helper();
    link.wait_for_death();
    assert_eq!(tracer.wait_for_end(DEATH), b"acted\n");
    keeper.wait_for_death(DEATH);
}

#[test]
fn helper_that_is_killed_with_an_unopened_gate_runs_nothing() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (mut tracer, writer) = Tracer::new();
    let command = Command::new(tree(stage.sleeper())).with(1, writer);
    let prepared = link.prepare(command);
    let keeper = link.keeper_of(&prepared);
    link.kill_helper();
    link.wait_for_death();
    assert_eq!(tracer.wait_for_end(DEATH), b"");
    keeper.wait_for_death(DEATH);
}

#[test]
fn helper_and_one_keeper_killed_at_once_cost_that_keepers_escapees_and_nobody_else() {
    let stage = Stage::new();
    let mut link = stage.link();
    let lost = Escape::Setsid.spawn(&stage, &mut link, |spec| spec);
    let mut kept = Escape::Setsid.spawn(&stage, &mut link, |spec| spec);
    // The helper is stopped first, so that it does not see the death before its own.
    link.witness().stop();
    lost.keeper.signal(libc::SIGKILL);
    link.kill_helper();
    link.wait_for_death();
    kept.wait_for_death(DEATH);
    // The leader had its death signal; its escapee had only the keeper.
    lost.running.witness.wait_for_death(DEATH);
    let escapee = lost.escapee.expect("one process");
    assert!(escapee.is_alive(), "this level does not reach it");
    clean_up(&[escapee]);
}

#[test]
fn stopped_helper_delays_a_hangup_until_it_continues_while_the_host_lives() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, mut tracer, keeper) = spawn_sleeper(&stage, &mut link);
    link.witness().stop();
    // The host lives, so nothing ends yet: only the helper can see the hangup.
    link.hang_up();
    tracer.assert_held_for(Duration::from_millis(200));
    link.witness().signal(libc::SIGCONT);
    assert_eq!(link.exit_code(), 0);
    assert!(!running.witness.is_alive() && !keeper.is_alive());
}

#[test]
fn session_that_stops_its_keeper_is_ended_at_hangup_all_the_same() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_running, mut tracer, keeper) = spawn_sleeper(&stage, &mut link);
    keeper.stop();
    link.hang_up();
    link.exit_code_within(DEATH);
    tracer.wait_for_end(DEATH);
    keeper.wait_for_death(DEATH);
}

#[test]
fn session_that_stops_its_keeper_is_ended_on_request_all_the_same() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, mut tracer, keeper) = spawn_sleeper(&stage, &mut link);
    keeper.stop();
    link.ping();
    let id = link.ask_kill(running.session, libc::SIGTERM, Duration::from_millis(200));
    link.ended(id, DEATH);
    tracer.wait_for_end(DEATH);
    link.close(running.session);
    link.assert_idle();
}
