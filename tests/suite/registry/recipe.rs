//! How a service outlives its host and is found by the next one.

use std::time::Duration;

use foster::registry::{Outcome, Registry, RegistryError, Service, Standing, Stop};
use foster::{Command, Helper, Stdio};
use foster_tests::{DEATH, Host, Program, Stage, Tracer, places};

use crate::ground::{KEY, Running, SLEEP, folder, registry};

fn standing(registry: &Registry) -> Vec<(String, Standing)> {
    let found = registry.list().expect("a list").into_iter();
    found
        .map(|one| one.expect("a row"))
        .map(|one| (one.name.to_string(), one.standing))
        .collect()
}

#[test]
fn service_outlives_its_killed_host_is_found_by_the_next_one_and_ended_with_its_tree() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    let program = Program::fixture(&stage, "host-that-registers")
        .arg(folder(&stage))
        .arg("sleep 60 & sh -c 'sleep 60; :' & echo ready >&3; exec 3>&-; wait");
    let mut host = Host::started_with_stderr(program, writer, 1);
    host.process.signal(libc::SIGKILL);
    host.process.stdout.wait_for_end(DEATH);
    host.helper.wait_for_death(DEATH);
    tracer.assert_held_for(Duration::from_millis(300));
    let service = host.members("service").first().expect("it was named");
    assert!(service.is_alive(), "it was released");
    // The next host.
    let registry = registry(&stage);
    let pid = Some(service.pid().unsigned_abs());
    let kept = registry.reconcile().expect("a folder");
    assert!(
        matches!(
            kept.as_slice(),
            [one] if matches!(one.decision, foster::registry::Decision::Kept { pid: found } if found == pid)
        ),
        "{kept:?}"
    );
    let stopped = registry.stop_all(Stop::default()).expect("a folder");
    let [(_, Outcome::Gone { members, .. })] = stopped.as_slice() else {
        panic!("{stopped:?}");
    };
    assert!(*members >= 2, "{stopped:?}");
    tracer.wait_for_end(DEATH);
    assert_eq!(standing(&registry), []);
}

#[test]
fn child_that_is_registered_and_released_lives_on_and_is_listed() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let service = Service::new("web").expect("a name");
    let builder = Helper::builder().path(places::fixture("helper-under-test"));
    let helper = builder.launch().expect("the helper");
    let (mut tracer, writer) = Tracer::new();
    let child = Command::new("sleep")
        .arg("60")
        .markers(&registry.markers(&service).expect("markers"))
        .env(foster_tests::TAG, stage.tag())
        .detachable(true)
        .stdin(Stdio::null())
        .stdout(writer)
        .helper(&helper)
        .spawn()
        .expect("sleep");
    registry.register(&service, &child).expect("it lives");
    child.release().expect("it is detachable");
    drop(helper);
    tracer.assert_held_for(Duration::from_millis(300));
    assert_eq!(standing(&registry), [("web".to_owned(), Standing::Ours)]);
    let names = [service.name().clone()];
    let stopped = registry.stop(&names, Stop::default()).expect("it is there");
    assert!(stopped.iter().all(|(_, outcome)| outcome.is_over()));
    tracer.wait_for_end(DEATH);
}

#[test]
fn command_that_is_dead_already_is_not_registered() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let service = Service::new("web").expect("a name");
    let builder = Helper::builder().path(places::fixture("helper-under-test"));
    let helper = builder.launch().expect("the helper");
    let mut child = Command::new("true")
        .markers(&registry.markers(&service).expect("markers"))
        .detachable(true)
        .helper(&helper)
        .spawn()
        .expect("true");
    child.wait().expect("its exit");
    let error = registry.register(&service, &child).expect_err("it is dead");
    assert!(matches!(error, RegistryError::NotHeld { .. }), "{error}");
    // Its status was not taken by the look.
    assert!(child.wait().expect("its exit").success());
    assert_eq!(standing(&registry), []);
}

#[test]
fn second_service_of_a_name_is_refused_while_the_first_one_lives() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let first = Running::registered(&stage, &registry, "web", SLEEP);
    let mut second = Running::start(&stage, &registry, "web", SLEEP);
    let held = foster::identity::Held::of_std(&mut second.child).expect("it lives");
    let error = registry.register_held(&second.service, &held);
    let error = error.expect_err("the name is taken");
    assert!(
        matches!(&error, RegistryError::AlreadyRunning { pid, .. } if *pid == first.child.id()),
        "{error}"
    );
    first.end();
    registry
        .register_held(&second.service, &held)
        .expect("the first one is gone");
    second.end();
}

#[test]
fn names_and_keys_that_cannot_be_found_again_are_refused() {
    let stage = Stage::new();
    for name in ["", "a\nb", "a\0b"] {
        let error = Service::new(name).expect_err("it is no name");
        assert!(matches!(error, RegistryError::BadName { .. }), "{error}");
    }
    let error = Registry::open(folder(&stage), "A=B").expect_err("it is no key");
    assert!(matches!(error, RegistryError::Markers(_)), "{error}");
    let registry = Registry::open(folder(&stage), KEY).expect("a key");
    let odd = Running::registered(&stage, &registry, "../ä/b", SLEEP);
    let files: Vec<_> = std::fs::read_dir(folder(&stage))
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    let wanted = std::ffi::OsString::from("%2e%2e%2f%c3%a4%2fb.service");
    assert!(files.contains(&wanted), "{files:?}");
    assert_eq!(standing(&registry), [("../ä/b".to_owned(), Standing::Ours)]);
    odd.end();
}
