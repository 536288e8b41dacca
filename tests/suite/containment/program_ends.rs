//! What ends a contained program, and that the starter leaves after it with its status.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use foster_tests::{
    Process, SETTLE, Stage, Witness, clean_up, eventually, is_root, note_not_run, only_child_of,
    proc,
};

use crate::ground::{
    OVER, VARIABLE, acknowledged, alive, asked, members, program, start_tree, tree,
};

/// An ordinary user.
const OTHER_USER: u32 = 65_534;

/// Lives until it is ended.
const SLEEPS: &str = "exec sleep 60";

/// Waits for the starter, and asserts that at this moment everybody has gone.
fn assert_over(mut process: Process, members: &[Witness], code: i32) {
    let status = process.wait(OVER);
    assert_eq!(alive(members), [], "who lives after the starter");
    assert_eq!(status.code(), Some(code));
}

#[test]
fn exit_of_the_program_ends_its_tree_before_the_starter_leaves() {
    for level in ["auto", "group"] {
        let stage = Stage::new();
        let (mut process, members) = start_tree(&stage, &[level], "read line; exit 3");
        process.say("go");
        assert_over(process, &members, 3);
    }
}

#[test]
fn control_program_that_is_not_asked_leaves_its_daemon_and_its_job() {
    let stage = Stage::new();
    let mut process = program(&stage, &[], &tree("read line; exit 3")).start();
    let members = members(&mut process);
    process.say("go");
    process.wait(OVER);
    let left = alive(&members).len();
    clean_up(&members);
    assert_eq!(left, 2);
}

#[test]
fn each_ending_signal_to_the_starter_ends_the_tree() {
    for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        let stage = Stage::new();
        let (process, members) = start_tree(&stage, &[], SLEEPS);
        process.signal(number);
        // TERM is what the program gets, and what it dies of.
        assert_over(process, &members, 128 + libc::SIGTERM);
    }
}

#[test]
fn starter_that_is_killed_takes_the_tree_with_it() {
    for level in ["auto", "group"] {
        let stage = Stage::new();
        let (mut process, members) = start_tree(&stage, &[level], SLEEPS);
        process.signal(libc::SIGKILL);
        process.stdout.wait_for_end(OVER);
        members.iter().for_each(|one| one.wait_for_death(OVER));
    }
}

#[test]
fn death_of_the_parent_ends_the_tree_where_it_is_watched() {
    let stage = Stage::new();
    let program = program(&stage, &["watch-parent"], &tree(SLEEPS));
    let program = program.below_a_parent(&stage).env(VARIABLE, "1");
    let (mut parent, members) = acknowledged(program);
    let starter = only_child_of(parent.pid());
    parent.signal(libc::SIGKILL);
    starter.wait_for_death(OVER);
    assert_eq!(alive(&members), []);
    parent.stdout.wait_for_end(OVER);
}

#[test]
fn control_death_of_a_parent_that_nobody_watches_changes_nothing() {
    let stage = Stage::new();
    let program = program(&stage, &[], &tree(SLEEPS));
    let program = program.below_a_parent(&stage).env(VARIABLE, "1");
    let (mut parent, members) = acknowledged(program);
    let starter = only_child_of(parent.pid());
    parent.signal(libc::SIGKILL);
    parent.wait(OVER);
    parent.stdout.assert_held_for(Duration::from_millis(500));
    assert!(starter.is_alive());
    assert_eq!(alive(&members).len(), members.len());
    clean_up(&[starter]);
    parent.stdout.wait_for_end(OVER);
}

#[test]
fn end_of_the_control_descriptor_ends_the_tree_and_its_bytes_are_the_programs() {
    let stage = Stage::new();
    // The pipe of standard input is both: what is written is for the program.
    let script = tree("read line; echo got $line; exec sleep 60");
    let (mut process, members) = acknowledged(asked(&stage, &["control=0"], &script));
    process.say("a line");
    assert_eq!(process.stdout.line(), "got a line");
    assert_eq!(alive(&members).len(), members.len());
    process.close_stdin();
    assert_over(process, &members, 128 + libc::SIGTERM);
}

#[test]
fn end_of_a_control_socket_ends_the_tree() {
    let stage = Stage::new();
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let program = asked(&stage, &["control=0"], &tree(SLEEPS)).stdin(OwnedFd::from(theirs));
    let (process, members) = acknowledged(program);
    drop(ours);
    assert_over(process, &members, 128 + libc::SIGTERM);
}

#[test]
fn starter_has_the_status_of_the_program() {
    let cases = [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -KILL $$", 128 + libc::SIGKILL),
        ("kill -USR1 $$", 128 + libc::SIGUSR1),
    ];
    for (script, code) in cases {
        let stage = Stage::new();
        let finished = asked(&stage, &[], script).run();
        assert_eq!(finished.code(), code, "{script}");
        assert_eq!(finished.stderr, "not requested\n");
    }
}

#[test]
fn program_that_cleans_up_at_the_signal_gives_its_own_code() {
    let stage = Stage::new();
    let script = "trap 'echo cleaned; exit 4' TERM; echo $$; sleep 60 & wait";
    let mut process = asked(&stage, &["grace=20000"], script).start();
    process.stdout.line();
    let leader = Witness::of(process.stdout.pid());
    process.signal(libc::SIGINT);
    assert_eq!(process.stdout.line(), "cleaned");
    assert_over(process, &[leader], 4);
}

#[test]
fn second_signal_means_now_whatever_the_grace_is() {
    let stage = Stage::new();
    let script = "trap '' TERM; echo $$; exec sleep 60";
    let mut process = asked(&stage, &["grace=50000"], script).start();
    process.stdout.line();
    let leader = Witness::of(process.stdout.pid());
    let begin = Instant::now();
    process.signal(libc::SIGTERM);
    process.stdout.assert_held_for(Duration::from_millis(300));
    process.signal(libc::SIGTERM);
    assert_over(process, &[leader], 128 + libc::SIGKILL);
    assert!(begin.elapsed() < OVER, "{:?}", begin.elapsed());
}

#[test]
fn user_signals_are_passed_on_and_stops_hold_program_and_starter() {
    let stage = Stage::new();
    // Nothing is forked: a shell whose child is stopped on its way to exec is not shown as stopped.
    let script = "trap 'echo heard' USR1; echo $$; while :; do read line; done";
    let mut process = asked(&stage, &[], script).start();
    process.stdout.line();
    let leader = Witness::of(process.stdout.pid());
    process.signal(libc::SIGUSR1);
    assert_eq!(process.stdout.line(), "heard");
    process.signal(libc::SIGTSTP);
    let state = |wanted| {
        let pids = [leader.pid(), process.pid()];
        pids.iter()
            .all(|pid| (proc::state(*pid) == Some('T')) == wanted)
    };
    eventually("both are stopped", SETTLE, || state(true));
    process.signal(libc::SIGCONT);
    eventually("both go on", SETTLE, || state(false));
    process.signal(libc::SIGTERM);
    assert_over(process, &[leader], 128 + libc::SIGTERM);
}

#[test]
fn ordinary_user_has_the_same() {
    if !is_root() {
        note_not_run("the tree of another user", "this is not root");
        return;
    }
    let stage = Stage::new();
    let other = asked(&stage, &[], &tree("read line; exit 3")).as_user(OTHER_USER);
    let (mut process, members) = acknowledged(other);
    process.say("go");
    assert_over(process, &members, 3);
    let other = asked(&stage, &[], &tree(SLEEPS)).as_user(OTHER_USER);
    let (mut process, members) = acknowledged(other);
    process.signal(libc::SIGKILL);
    process.stdout.wait_for_end(OVER);
    members.iter().for_each(|one| one.wait_for_death(OVER));
}
