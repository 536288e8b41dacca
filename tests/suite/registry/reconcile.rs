//! What is done with the rows that another host has left.

use foster::registry::{Decision, Registry, Service, Stale, Standing, State};
use foster_tests::Stage;

use crate::ground::{Running, SLEEP, folder, registry};

/// The decision about the only row.
fn decision(registry: &Registry) -> Decision {
    let mut told = registry.reconcile().expect("the folder");
    assert_eq!(told.len(), 1, "{told:?}");
    told.remove(0).decision
}

/// Changes a field of the row of `web`.
fn change(stage: &Stage, field: &str, value: serde_json::Value) {
    let path = folder(stage).join("web.service");
    let text = std::fs::read(&path).expect("the row");
    let mut row: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    *row.get_mut(field).expect("the field") = value;
    std::fs::write(&path, row.to_string()).expect("the row");
}

/// Asserts that the row is dropped for this reason, and that whoever lives is untouched.
fn assert_dropped(stage: &Stage, registry: &Registry, why: Stale, running: &Running) {
    let decision = decision(registry);
    assert!(
        matches!(decision, Decision::Dropped(found) if found == why),
        "{decision:?}"
    );
    assert!(!folder(stage).join("web.service").exists());
    assert!(running.witness.is_alive(), "nobody is signalled");
}

#[test]
fn row_of_a_live_service_is_kept() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let running = Running::registered(&stage, &registry, "web", SLEEP);
    let pid = running.child.id();
    for _ in 0..2 {
        let decision = decision(&registry);
        assert!(
            matches!(decision, Decision::Kept { pid: Some(kept) } if kept == pid),
            "{decision:?}"
        );
    }
    running.end();
}

#[test]
fn row_of_a_dead_service_is_dropped_though_its_zombie_has_the_number() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let running = Running::registered(&stage, &registry, "web", SLEEP);
    running.witness.signal(libc::SIGKILL);
    running.witness.wait_for_death(foster_tests::DEATH);
    // Nobody has waited for it yet.
    let told = decision(&registry);
    assert!(matches!(told, Decision::Dropped(Stale::Dead)), "{told:?}");
    running.end();
}

#[test]
fn row_of_another_boot_is_dropped_and_whoever_has_the_number_lives_on() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let running = Running::registered(&stage, &registry, "web", SLEEP);
    change(&stage, "boot", "another".into());
    assert_dropped(&stage, &registry, Stale::OtherBoot, &running);
    running.end();
}

#[test]
fn row_whose_number_is_a_strangers_is_dropped_and_the_stranger_lives_on() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let running = Running::registered(&stage, &registry, "web", SLEEP);
    let stranger = Running::start(&stage, &registry, "db", SLEEP);
    // With the kernel's own name of the process, and without it, by the markers.
    for pidfs in [None, Some(serde_json::Value::Null)] {
        let row = std::fs::read(folder(&stage).join("web.service")).expect("the row");
        change(&stage, "pid", stranger.child.id().into());
        if let Some(null) = pidfs {
            change(&stage, "pidfs", null);
        }
        assert_dropped(&stage, &registry, Stale::NotOurs, &stranger);
        std::fs::write(folder(&stage).join("web.service"), row).expect("the row");
    }
    assert!(running.witness.is_alive());
    stranger.end();
    running.end();
}

#[test]
fn row_without_the_kernels_name_is_kept_by_its_markers() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let running = Running::registered(&stage, &registry, "web", SLEEP);
    change(&stage, "pidfs", serde_json::Value::Null);
    let told = decision(&registry);
    assert!(matches!(told, Decision::Kept { .. }), "{told:?}");
    running.end();
}

#[test]
fn row_without_a_pid_or_an_identity_is_dropped() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let running = Running::registered(&stage, &registry, "web", SLEEP);
    let path = folder(&stage).join("web.service");
    let row = std::fs::read(&path).expect("the row");
    for (field, value, why) in [
        ("pid", serde_json::Value::Null, Stale::NoPid),
        ("key", serde_json::Value::Null, Stale::NoIdentity),
        ("key", "no key".into(), Stale::NoIdentity),
        ("pid", 0.into(), Stale::NotOurs),
        ("pid", 1.into(), Stale::NotOurs),
        ("pid", u32::MAX.into(), Stale::NotOurs),
        ("pid", std::process::id().into(), Stale::NotOurs),
    ] {
        std::fs::write(&path, &row).expect("the row");
        change(&stage, field, value);
        assert_dropped(&stage, &registry, why, &running);
    }
    running.end();
}

#[test]
fn row_that_its_host_called_over_is_dropped_and_one_that_starts_is_untouched() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let running = Running::registered(&stage, &registry, "web", SLEEP);
    for state in [State::Error, State::Stopped] {
        let name = running.service.name();
        registry.mark(name, state).expect("it is registered");
        assert_dropped(&stage, &registry, Stale::Over, &running);
        let service = Service::new("web").expect("a name");
        registry.announce(&service).expect("the folder");
    }
    let told = decision(&registry);
    assert!(
        matches!(told, Decision::Untouched(Standing::NotYet)),
        "{told:?}"
    );
    assert!(folder(&stage).join("web.service").exists());
    running.end();
}
