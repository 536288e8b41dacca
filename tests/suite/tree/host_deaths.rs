//! The host's death, alone and with its helper: keepers watch both.

use std::time::Duration;

use foster_tests::{DEATH, Host, Process, Program, SETTLE, Stage, Witness, eventually, proc};

/// Beside the leader, a daemon that has left its session and holds the same pipe. Both say their
/// number.
const SCRIPT: &str = "( setsid sh -c 'echo daemon $$; cd /; exec env -i sleep 60' & ); \
                      read x < /dev/null; exec sleep 60";

/// A host with this many sessions, each with a daemon.
fn host(stage: &Stage, count: usize) -> Host {
    let program = Program::fixture(stage, "host-with-sessions")
        .arg(count.to_string())
        .arg(SCRIPT);
    Host::started(program, count)
}

/// The keepers of a host's sessions: they have adopted the daemons.
fn keepers(host: &Host) -> Vec<Witness> {
    let daemons = host.members("daemon");
    assert!(!daemons.is_empty(), "sessions with daemons");
    let keeper_of = |daemon: &Witness| {
        let parent = || proc::stat(daemon.pid()).map(|stat| stat.parent);
        let helper = host.helper.pid();
        let is_keeper =
            |pid: i32| pid != helper && proc::stat(pid).is_some_and(|stat| stat.parent == helper);
        eventually("the daemon is its keeper's", SETTLE, || {
            parent().is_some_and(is_keeper)
        });
        let pid = parent().expect("the daemon lives");
        let keeper = Witness::of(pid);
        assert_eq!(parent(), Some(pid), "the number was the keeper's");
        keeper
    };
    daemons.iter().map(keeper_of).collect()
}

fn assert_all_gone(mut host: Host, keepers: &[Witness]) {
    host.process.stdout.wait_for_end(DEATH);
    host.helper.wait_for_death(DEATH);
    for member in host.members.values().flatten().chain(keepers) {
        member.wait_for_death(DEATH);
    }
}

/// The host's own death is this process's to collect.
fn collect(process: &mut Process) {
    process.wait(DEATH);
}

#[test]
fn killed_host_leaves_nobody() {
    let stage = Stage::new();
    let mut host = host(&stage, 3);
    let keepers = keepers(&host);
    host.process.signal(libc::SIGKILL);
    collect(&mut host.process);
    assert_all_gone(host, &keepers);
}

#[test]
fn host_and_helper_that_are_killed_at_once_leave_nobody() {
    let stage = Stage::new();
    let mut host = host(&stage, 3);
    let keepers = keepers(&host);
    // Stopped first: the helper cannot do anything between the two.
    host.helper.stop();
    host.process.signal(libc::SIGKILL);
    host.helper.signal(libc::SIGKILL);
    collect(&mut host.process);
    assert_all_gone(host, &keepers);
}

#[test]
fn stopped_helper_of_a_killed_host_keeps_nobody_alive() {
    let stage = Stage::new();
    let mut host = host(&stage, 3);
    let keepers = keepers(&host);
    host.helper.stop();
    host.process.signal(libc::SIGKILL);
    collect(&mut host.process);
    host.process.stdout.wait_for_end(DEATH);
    for member in host.members.values().flatten() {
        member.wait_for_death(DEATH);
    }
    assert!(host.helper.is_alive(), "the helper is stopped");
    for keeper in &keepers {
        keeper.wait_for_death(DEATH);
    }
    host.helper.signal(libc::SIGCONT);
    host.helper.wait_for_death(DEATH);
}

#[test]
fn stopped_host_keeps_its_sessions_and_their_limits() {
    let stage = Stage::new();
    let mut host = host(&stage, 2);
    let keepers = keepers(&host);
    host.process.witness().stop();
    host.process
        .stdout
        .assert_held_for(Duration::from_millis(300));
    assert!(keepers.iter().all(Witness::is_alive), "the keepers");
    host.process.signal(libc::SIGKILL);
    collect(&mut host.process);
    assert_all_gone(host, &keepers);
}
