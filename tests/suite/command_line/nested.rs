//! `foster` below `foster`, and `foster` as the first process of a container.

use std::time::Duration;

use foster_tests::{DEATH, Process, Program, Stage, Witness, not_run, only_child_of, places};

/// Starts foster below foster, on a command that ignores TERM, with a grace that is far too
/// long in the inner one.
fn start(stage: &Stage, options: &[&str]) -> (Process, Vec<Witness>) {
    let foster = places::foster().display().to_string();
    let script = "trap '' TERM; echo $$; exec sleep 60";
    let mut process = Program::foster(stage, &["-k", "0.3"])
        .args(options)
        .args([&foster, "run", "-k", "50", "sh", "-c", script])
        .start();
    let command = Witness::of(process.stdout.pid());
    let outer_helper = only_child_of(process.pid());
    let inner = only_child_of(outer_helper.pid());
    let inner_helper = only_child_of(inner.pid());
    (process, vec![command, outer_helper, inner, inner_helper])
}

fn assert_all_gone(mut process: Process, members: &[Witness]) {
    process.stdout.wait_for_end(DEATH);
    process.wait(DEATH);
    for member in members {
        member.wait_for_death(DEATH);
    }
}

#[test]
fn inner_foster_and_its_command_are_gone_when_the_outer_one_is_sent_term() {
    let stage = Stage::new();
    let (process, members) = start(&stage, &[]);
    process.signal(libc::SIGTERM);
    assert_all_gone(process, &members);
}

#[test]
fn inner_foster_and_its_command_are_gone_when_the_outer_one_is_killed() {
    let stage = Stage::new();
    let (process, members) = start(&stage, &[]);
    process.signal(libc::SIGKILL);
    assert_all_gone(process, &members);
}

#[test]
fn inner_foster_and_its_command_are_gone_at_the_timeout_of_the_outer_one() {
    let stage = Stage::new();
    let (mut process, members) = start(&stage, &["-t", "0.6"]);
    assert_eq!(process.wait(DEATH).code(), Some(124));
    assert_all_gone(process, &members);
}

/// Starts foster as the first process of a pid namespace; none where there can be none.
fn start_first(stage: &Stage, args: &[&str]) -> Option<Process> {
    let mut process = Program::fixture(stage, "in-pid-namespace")
        .args(["first", "--"])
        .arg(places::foster())
        .arg("run")
        .args(args)
        .start();
    let line = process.stdout.line();
    if line == "inside" {
        return Some(process);
    }
    not_run("foster as the first process of a container", &line);
    None
}

#[test]
fn first_process_of_a_container_gives_the_code_of_its_command() {
    let stage = Stage::new();
    let script = "sleep 60 & setsid sleep 60 & exit 7";
    let Some(process) = start_first(&stage, &["sh", "-c", script]) else {
        return;
    };
    assert_eq!(process.finish(DEATH).code(), 7);
}

#[test]
fn first_process_of_a_container_ends_its_tree_at_term() {
    let stage = Stage::new();
    let script = "trap 'echo cleaned; exit 5' TERM; echo ready; sleep 60 & wait";
    let Some(mut process) = start_first(&stage, &["sh", "-c", script]) else {
        return;
    };
    assert_eq!(process.stdout.line(), "ready");
    let first = only_child_of(process.pid());
    first.signal(libc::SIGTERM);
    assert_eq!(process.stdout.wait_for_end(DEATH), b"cleaned\n");
    assert_eq!(process.wait(DEATH).code(), Some(5));
    first.wait_for_death(Duration::ZERO);
}

#[test]
fn group_of_the_command_is_killed_when_the_helper_is_killed() {
    let stage = Stage::new();
    let script = "trap '' TERM; sleep 60 & echo ready; sleep 60; sleep 60";
    let mut process = Program::foster(&stage, &["bash", "-c", script]).start();
    assert_eq!(process.stdout.line(), "ready");
    process.only_child().signal(libc::SIGKILL);
    // Foster itself ends the group through the leader's pidfd, where the kernel can (6.9).
    process.stdout.wait_for_end(DEATH);
    assert_eq!(process.wait(DEATH).code(), Some(125));
}
