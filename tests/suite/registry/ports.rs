//! Ports that somebody holds: a stranger is named and left alone.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use foster::identity::Held;
use foster::registry::{Port, RegistryError, Service};
use foster_tests::{Stage, TAG, is_root, not_run};

use crate::ground::{Running, SLEEP, registry};

fn on_port(port: u16) -> Service {
    Service::new("web").expect("a name").port(port)
}

#[test]
fn port_of_a_stranger_is_a_typed_error_that_names_it_and_nobody_is_signalled() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let stage = Stage::new();
        let registry = registry(&stage);
        let Ok(listener) = TcpListener::bind(address) else {
            not_run("a port over IPv6", "a loopback address of IPv6");
            continue;
        };
        let port = listener.local_addr().expect("it is bound").port();
        // The stranger is this very test, which a signal would end.
        let error = registry.check_port(&on_port(port)).expect_err("it is held");
        let RegistryError::PortTaken {
            port: named,
            pid,
            program,
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((*named, *pid), (port, Some(std::process::id())));
        assert!(
            program
                .as_ref()
                .is_some_and(|name| name.contains("registry"))
        );
        assert!(error.to_string().contains(&port.to_string()), "{error}");
        drop(listener);
        // A child of another test may have a copy of the socket until its exec.
        foster_tests::eventually("the port is free", foster_tests::SETTLE, || {
            matches!(registry.check_port(&on_port(port)), Ok(Port::Free))
        });
    }
}

#[test]
fn port_of_a_registered_service_is_told_by_its_name() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let service = Service::new("db").expect("a name").port(port);
    // A member of the service holds the socket: its standard input.
    let mut child = Command::new("setsid")
        .args(["sleep", "60"])
        .env(TAG, stage.tag())
        .envs(registry.markers(&service).expect("markers").variables())
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .spawn()
        .expect("setsid is there");
    let held = Held::of_std(&mut child).expect("it lives");
    let taken = registry
        .check_port(&on_port(port))
        .expect_err("a stranger's");
    assert!(
        matches!(taken, RegistryError::PortTaken { pid, .. } if pid == Some(child.id())),
        "{taken}"
    );
    registry.register_held(&service, &held).expect("it lives");
    let port = registry.check_port(&on_port(port)).expect("it is known");
    assert_eq!(port, Port::HeldBy(service.name().clone()));
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
}

#[test]
fn port_whose_holder_cannot_be_seen_is_taken_all_the_same() {
    let stage = Stage::new();
    let registry = registry(&stage);
    if is_root() {
        return not_run_as_root();
    }
    // Sockets of other users that listen on this machine, if there are any.
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("the table");
    let own = nix::unistd::geteuid().as_raw().to_string();
    let foreign = table.lines().skip(1).find_map(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let (_, port) = fields.get(1)?.rsplit_once(':')?;
        let is_foreign = fields.get(3) == Some(&"0A") && *fields.get(7)? != own;
        is_foreign.then(|| u16::from_str_radix(port, 16).ok())?
    });
    let Some(port) = foreign else {
        return foster_tests::note_not_run(
            "a port that cannot be seen",
            "nobody else listens here",
        );
    };
    let error = registry.check_port(&on_port(port)).expect_err("it is held");
    assert!(
        matches!(error, RegistryError::PortTaken { pid: None, .. }),
        "{error}"
    );
}

/// Root sees every holder.
fn not_run_as_root() {
    foster_tests::note_not_run("a port that cannot be seen", "root sees every holder");
}

#[test]
fn service_without_a_port_takes_none() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let running = Running::registered(&stage, &registry, "web", SLEEP);
    let service = Service::new("web").expect("a name");
    assert_eq!(registry.check_port(&service).expect("no port"), Port::Free);
    running.end();
}
