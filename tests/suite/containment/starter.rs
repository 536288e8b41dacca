//! The starter beside its program: what it holds, and what becomes of both when a helper goes.

use std::time::Duration;

use foster_tests::{Stage, Witness, only_child_of};

use crate::ground::{LINE, OVER, asked, start_tree};

#[test]
fn starter_relays_nothing_and_holds_neither_input_nor_output() {
    let stage = Stage::new();
    // The program closes its output and lives on: its reader sees the end at once.
    let script = "echo $$; exec >&- <&-; exec sleep 60 2>&-";
    let mut process = asked(&stage, &[], script).start();
    assert_eq!(process.stdout.line(), LINE);
    let leader = Witness::of(process.stdout.pid());
    process.stdout.wait_for_end(OVER);
    assert!(leader.is_alive() && process.witness().is_alive());
    process.signal(libc::SIGTERM);
    process.wait(OVER);
    assert!(!leader.is_alive());
}

#[test]
fn program_has_its_own_session_and_the_starter_is_outside_of_it() {
    let stage = Stage::new();
    let (mut process, members) = start_tree(&stage, &[], "read line");
    let session = |pid| foster_tests::proc::stat(pid).expect("it lives").session;
    let leader = members
        .iter()
        .find(|one| session(one.pid()) == one.pid() && is_below_helper(one.pid(), process.pid()))
        .expect("the program leads a session");
    assert_ne!(session(process.pid()), leader.pid());
    process.say("go");
    process.finish(OVER);
}

/// Whether the process is a child of the helper or of its keeper.
fn is_below_helper(pid: i32, starter: i32) -> bool {
    let parent = |pid| foster_tests::proc::stat(pid).map(|stat| stat.parent);
    let helper = only_child_of(starter).pid();
    let above = parent(pid);
    above == Some(helper) || above.and_then(parent) == Some(helper)
}

#[test]
fn starter_that_loses_its_helper_says_so_and_nobody_is_left() {
    let stage = Stage::new();
    let (process, members) = start_tree(&stage, &[], "exec sleep 60");
    only_child_of(process.pid()).signal(libc::SIGKILL);
    members.iter().for_each(|one| one.wait_for_death(OVER));
    let finished = process.finish(OVER);
    assert_eq!(finished.code(), 125);
    let said = finished.stderr.lines().last().unwrap_or_default();
    assert!(said.starts_with("foster: helper was lost"), "{finished:?}");
}

#[test]
fn program_that_kills_its_own_keeper_is_ended_and_the_starter_says_so() {
    let stage = Stage::new();
    let script = "echo $$; kill -KILL $PPID; exec sleep 60";
    let mut process = asked(&stage, &[], script).start();
    process.stdout.line();
    let status = process.wait(OVER);
    // Its standard output is held by the leader, if it lives.
    process.stdout.wait_for_end(Duration::ZERO);
    assert_eq!(status.code(), Some(125));
}
