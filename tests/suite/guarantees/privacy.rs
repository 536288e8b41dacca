//! Another user, and this one, find no way into a helper.

use std::fs;
use std::io;

use foster_tests::{Host, Program, Stage, is_root, not_run};

/// The user who tries. Nobody else runs as this one.
const OTHER: u32 = 65_534;

#[test]
fn control_socket_has_no_name() {
    let stage = Stage::new();
    let host = Host::with_sessions(&stage, 1);
    let own = format!("/proc/{}/fd", host.process.pid());
    let links = fs::read_dir(own).expect("the descriptors of the host can be seen");
    let sockets: Vec<String> = links
        .filter_map(|link| fs::read_link(link.ok()?.path()).ok())
        .filter_map(|target| {
            let target = target.to_str()?.to_owned();
            let inode = target.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    assert!(!sockets.is_empty(), "the host has a control socket");
    let table = fs::read_to_string("/proc/net/unix").expect("the table of sockets");
    for inode in sockets {
        let line = table
            .lines()
            .find(|line| line.split_whitespace().nth(6) == Some(&inode))
            .expect("the socket is in the table");
        assert_eq!(line.split_whitespace().count(), 7, "no name: {line}");
    }
}

#[test]
fn helper_of_a_user_is_closed_to_that_user() {
    let stage = Stage::new();
    let mut program = Program::fixture(&stage, "host-with-sessions").arg("1");
    if is_root() {
        program = program.as_user(OTHER);
    }
    let host = Host::started(program, 1);
    let mut attacker = Program::fixture(&stage, "pries-into").arg(host.helper.pid().to_string());
    if is_root() {
        attacker = attacker.as_user(OTHER);
    }
    let finished = attacker.run();
    assert_eq!(finished.stdout, REFUSED, "{finished:?}");
    // The one way in that a user has over its own processes is open to the pryer, too.
    let mut control = Program::fixture(&stage, "pries-into").arg(host.process.pid().to_string());
    if is_root() {
        control = control.as_user(OTHER);
    }
    let control = control.run();
    assert!(
        control.stdout.contains("fd: open"),
        "the pryer can pry: {control:?}"
    );
}

#[test]
fn helper_of_root_is_closed_to_another_user() {
    if !is_root() {
        return not_run("prying into a helper of root", "this is not root");
    }
    let stage = Stage::new();
    let host = Host::with_sessions(&stage, 1);
    let attacker = Program::fixture(&stage, "pries-into")
        .arg(host.helper.pid().to_string())
        .as_user(OTHER)
        .run();
    assert_eq!(attacker.stdout, REFUSED, "{attacker:?}");
    let error = fs::read_dir(format!("/proc/{}/fd", host.helper.pid()))
        .err()
        .map(|error: io::Error| error.kind());
    assert_eq!(error, None, "root itself can look");
}

/// What the pryer says where everything is refused.
const REFUSED: &str = "fd: refused\nenviron: refused\nmem: refused\nptrace: refused\n";
