//! Ending registered services: together, in time, and only them.

use std::time::{Duration, Instant};

use foster::registry::{Outcome, Stop};
use foster_tests::{DEATH, Stage};

use crate::ground::{Running, SLEEP, folder, registry};

fn stop(grace: Duration) -> Stop {
    Stop {
        grace,
        budget: grace + Duration::from_secs(5),
        ..Stop::default()
    }
}

#[test]
fn service_that_heeds_term_is_over_long_before_the_grace_though_nobody_reaps_it() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let mut running = Running::registered(&stage, &registry, "web", SLEEP);
    let begin = Instant::now();
    let stopped = registry.stop_all(stop(Duration::from_secs(30)));
    let stopped = stopped.expect("the folder");
    assert!(begin.elapsed() < Duration::from_secs(10), "{begin:?}");
    let [(_, Outcome::Gone { by_kill, .. })] = stopped.as_slice() else {
        panic!("{stopped:?}");
    };
    assert!(!by_kill);
    assert!(!folder(&stage).join("web.service").exists());
    running.tracer.wait_for_end(DEATH);
    running.end();
}

#[test]
fn service_that_ignores_term_is_killed_at_the_end_of_the_grace_with_its_tree() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let script = "trap '' TERM; sleep 60 & sh -c 'sleep 60; :' & echo ready; wait; sleep 60";
    let mut running = Running::registered(&stage, &registry, "web", script);
    let grace = Duration::from_millis(300);
    let begin = Instant::now();
    let stopped = registry.stop_all(stop(grace)).expect("the folder");
    assert!(begin.elapsed() >= grace);
    let [
        (
            _,
            Outcome::Gone {
                by_kill, members, ..
            },
        ),
    ] = stopped.as_slice()
    else {
        panic!("{stopped:?}");
    };
    assert!(*by_kill && *members >= 2, "{stopped:?}");
    running.tracer.wait_for_end(DEATH);
    running.end();
}

#[test]
fn services_are_ended_at_the_same_time() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let script = "trap '' TERM; echo ready; sleep 30; sleep 30";
    let names = ["a", "b", "c", "d", "e"];
    let start = |name| Running::registered(&stage, &registry, name, script);
    let running: Vec<_> = names.into_iter().map(start).collect();
    let grace = Duration::from_secs(2);
    let begin = Instant::now();
    let stopped = registry.stop_all(stop(grace)).expect("the folder");
    // One after the other would take five graces.
    assert!(begin.elapsed() < 3 * grace, "{:?}", begin.elapsed());
    assert_eq!(stopped.len(), names.len());
    assert!(stopped.iter().all(|(_, outcome)| outcome.is_over()));
    for mut one in running {
        one.tracer.wait_for_end(DEATH);
        one.end();
    }
}

#[test]
fn members_that_outlive_the_leader_are_ended_too() {
    let stage = Stage::new();
    let registry = registry(&stage);
    // The leader goes at TERM, a member in a group of its own ignores it.
    let script = "set -m; sh -c 'trap \"\" TERM; echo ready; sleep 60; sleep 60' & \
                  trap 'exit 0' TERM; wait";
    let script = format!(
        "exec bash -c \"{}\"",
        script.replace('\\', "\\\\").replace('"', "\\\"")
    );
    let mut running = Running::registered(&stage, &registry, "web", &script);
    let stopped = registry.stop_all(stop(Duration::from_millis(500)));
    let stopped = stopped.expect("the folder");
    let [(_, Outcome::Gone { by_kill: true, .. })] = stopped.as_slice() else {
        panic!("{stopped:?}");
    };
    running.tracer.wait_for_end(DEATH);
    running.end();
}

#[test]
fn stopped_service_gets_term_and_continues_to_act_on_it() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let script = "trap 'echo bye; exit' TERM; echo ready; while :; do sleep 0.05; done";
    let mut running = Running::registered(&stage, &registry, "web", script);
    running.witness.stop();
    let stopped = registry.stop_all(stop(Duration::from_secs(20)));
    let stopped = stopped.expect("the folder");
    assert!(
        matches!(
            stopped.as_slice(),
            [(_, Outcome::Gone { by_kill: false, .. })]
        ),
        "{stopped:?}"
    );
    assert_eq!(running.tracer.wait_for_end(DEATH), b"bye\n");
    running.end();
}

#[test]
fn live_process_that_is_not_the_registered_one_is_never_signalled() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let running = Running::registered(&stage, &registry, "web", SLEEP);
    let stranger = Running::start(&stage, &registry, "db", SLEEP);
    let path = folder(&stage).join("web.service");
    let text = std::fs::read_to_string(&path).expect("the row");
    let (own, other) = (running.child.id(), stranger.child.id());
    let text = text.replace(&format!("\"pid\":{own}"), &format!("\"pid\":{other}"));
    std::fs::write(&path, text).expect("the row");
    let stopped = registry.stop_all(stop(Duration::ZERO)).expect("the folder");
    assert!(
        matches!(
            stopped.as_slice(),
            [(_, Outcome::Stale(foster::registry::Stale::NotOurs))]
        ),
        "{stopped:?}"
    );
    assert!(!path.exists(), "the row is cleared");
    foster_tests::pass(Duration::from_millis(100));
    assert!(running.witness.is_alive() && stranger.witness.is_alive());
    running.end();
    stranger.end();
}

#[test]
fn row_that_cannot_be_dropped_fails_no_stop() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let mut running = Running::registered(&stage, &registry, "web", SLEEP);
    // The lock that removing needs is no file any more.
    let lock = folder(&stage).join("lock");
    std::fs::remove_file(&lock).expect("the lock");
    std::fs::create_dir(&lock).expect("a folder");
    let stopped = registry.stop_all(stop(Duration::from_secs(20)));
    let stopped = stopped.expect("the folder");
    assert!(stopped.iter().all(|(_, outcome)| outcome.is_over()));
    running.tracer.wait_for_end(DEATH);
    assert!(folder(&stage).join("web.service").exists());
    running.end();
}

#[test]
fn budget_bounds_a_stop_that_never_began_its_grace() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let script = "trap '' TERM; echo ready; sleep 30; sleep 30";
    let mut running = Running::registered(&stage, &registry, "web", script);
    let how = Stop {
        grace: Duration::MAX,
        budget: Duration::from_secs(5),
        ..Stop::default()
    };
    let begin = Instant::now();
    let stopped = registry.stop_all(how).expect("the folder");
    assert!(begin.elapsed() < Duration::from_secs(15), "{begin:?}");
    assert!(
        stopped.iter().all(|(_, outcome)| outcome.is_over()),
        "{stopped:?}"
    );
    running.tracer.wait_for_end(DEATH);
    running.end();
}

#[test]
fn service_that_stops_itself_is_not_signalled_by_its_own_hand() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let foster = foster_tests::places::foster().display().to_string();
    let place = folder(&stage).display().to_string();
    let gate = stage.scratch().join("gate").display().to_string();
    let script = format!(
        "echo ready; until [ -e {gate} ]; do sleep 0.05; done; \
         {foster} stop --folder {place} --all; echo code $?; exec sleep 60"
    );
    let mut running = Running::registered(&stage, &registry, "web", &script);
    std::fs::write(&gate, "").expect("the gate");
    let line = running.tracer.line();
    assert_eq!(line, "web: not signalled: foster runs in it");
    assert_eq!(running.tracer.line(), "code 1");
    assert!(running.witness.is_alive());
    running.end();
}
