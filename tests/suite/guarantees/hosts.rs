//! Hosts in unusual circumstances: their sessions live as long as they do, and no longer.

use std::time::{Duration, Instant};

use foster_tests::{
    DEATH, Host, Process, Program, SETTLE, Stage, Tracer, Witness, clean_up, eventually,
    only_child_of, places, proc,
};

use crate::shapes::{GRACE, MARGIN, assert_in_time, time_to_end};

#[test]
fn sessions_are_gone_at_once_though_a_forked_stranger_keeps_the_socket() {
    assert_in_time("the session", GRACE + MARGIN, || {
        let stage = Stage::new();
        let program = Program::fixture(&stage, "host-with-stranger");
        let mut host = Host::started(program, 2);
        host.process.signal(libc::SIGKILL);
        let time = time_to_end(&mut host.process.stdout, Instant::now());
        host.helper.wait_for_death(DEATH);
        let strangers = host.members("stranger");
        assert!(strangers.iter().all(Witness::is_alive));
        clean_up(strangers);
        time
    });
}

#[test]
fn sessions_outlive_the_thread_that_launched_and_spawned_them() {
    let stage = Stage::new();
    let program = Program::fixture(&stage, "host-of-a-thread");
    let mut host = Host::started(program, 2);
    let tasks = format!("/proc/{}/task", host.process.pid());
    eventually("the thread has ended", SETTLE, || {
        std::fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() == 1)
    });
    host.process
        .stdout
        .assert_held_for(Duration::from_millis(300));
    assert!(host.helper.is_alive(), "the helper");
    let sleepers = host.members("sleeper");
    assert_eq!(sleepers.len(), 2);
    assert!(sleepers.iter().all(Witness::is_alive));
    host.process.signal(libc::SIGKILL);
    host.process.stdout.wait_for_end(DEATH);
    host.helper.wait_for_death(DEATH);
}

#[test]
fn released_session_survives_its_host_and_its_sibling_does_not() {
    let stage = Stage::new();
    let (mut released, writer) = Tracer::new();
    let program = Program::fixture(&stage, "host-that-releases");
    let mut host = Host::started_with_stderr(program, writer, 2);
    // The command and its background job: both were let go, and both are this test's to end.
    let mut released_members = host.members.remove("released").unwrap_or_default();
    let leader = released_members.pop().expect("its pid");
    let job = only_child_of(leader.pid());
    host.process.signal(libc::SIGKILL);
    host.process.stdout.wait_for_end(DEATH);
    host.helper.wait_for_death(DEATH);
    host.members("kept")
        .iter()
        .for_each(|kept| kept.wait_for_death(DEATH));
    released.assert_held_for(GRACE + MARGIN);
    assert!(leader.is_alive() && job.is_alive(), "both of the session");
    assert_eq!(
        proc::stat(job.pid()).map(|stat| stat.parent),
        Some(leader.pid())
    );
    clean_up(&[job]);
    leader.wait_for_death(DEATH);
    released.wait_for_end(DEATH);
}

#[test]
fn helper_and_sessions_of_a_first_process_that_aborts_are_gone() {
    for sessions in ["0", "4"] {
        let stage = Stage::new();
        let program = Program::fixture(&stage, "in-pid-namespace")
            .args(["first", "--"])
            .arg(places::fixture("host-with-sessions"))
            .arg(sessions);
        let Some(mut process) = start_in_namespace(program) else {
            return;
        };
        // The pids that it says are those of its namespace: they are of no use here.
        while process.stdout.line() != "ready" {}
        let host = only_child_of(process.pid());
        let helper = proc::children(host.pid())
            .into_iter()
            .map(|stat| Witness::of(stat.pid))
            .next()
            .expect("the host has its helper");
        process.say("abort");
        process.stdout.wait_for_end(DEATH);
        let status = process.wait(DEATH);
        assert!(!status.success(), "{status}");
        host.wait_for_death(Duration::ZERO);
        helper.wait_for_death(DEATH);
    }
}

/// Starts a program in a namespace of its own; none where none can be had, which is said.
fn start_in_namespace(program: Program) -> Option<Process> {
    let mut process = program.start();
    let line = process.stdout.line();
    if line == "inside" {
        return Some(process);
    }
    foster_tests::not_run("a host that is the first process", &line);
    None
}

#[test]
fn host_that_ignores_child_signals_and_blocks_all_ends_its_sessions_as_any() {
    let stage = Stage::new();
    let program = Program::fixture(&stage, "with-dirty-signals")
        .arg("--")
        .arg(places::fixture("host-with-sessions"))
        .arg("4");
    let mut host = Host::started(program, 4);
    host.process.signal(libc::SIGKILL);
    host.process.stdout.wait_for_end(DEATH);
    host.helper.wait_for_death(DEATH);
}
