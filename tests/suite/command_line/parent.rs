//! The death of foster's own parent.

use std::time::Duration;

use foster_tests::{DEATH, Process, Program, Stage, Witness, clean_up, only_child_of};

/// Starts foster below a parent that the test can kill; its command says its pid.
fn start(stage: &Stage, options: &[&str]) -> (Process, Witness, Witness) {
    let script = "trap 'echo cleaned; exit 0' TERM; echo $$; sleep 60 & wait";
    let mut parent = Program::foster(stage, options)
        .args(["sh", "-c", script])
        .below_a_parent(stage)
        .start();
    let command = Witness::of(parent.stdout.pid());
    let foster = only_child_of(parent.pid());
    (parent, foster, command)
}

#[test]
fn death_of_the_parent_ends_the_tree_as_term_does() {
    let stage = Stage::new();
    let (mut parent, foster, command) = start(&stage, &[]);
    parent.signal(libc::SIGKILL);
    assert_eq!(parent.stdout.wait_for_end(DEATH), b"cleaned\n");
    command.wait_for_death(DEATH);
    foster.wait_for_death(DEATH);
}

#[test]
fn orderly_exit_of_the_parent_ends_the_tree_too() {
    let stage = Stage::new();
    let script = "\"$0\" run sh -c 'echo $$; exec sleep 60' & read line";
    let mut parent = Program::new(&stage, "bash")
        .args(["-c", script])
        .arg(foster_tests::places::foster())
        .start();
    let command = Witness::of(parent.stdout.pid());
    parent.say("go");
    parent.wait(DEATH);
    command.wait_for_death(DEATH);
    parent.stdout.wait_for_end(DEATH);
}

#[test]
fn outlive_parent_lets_the_command_go_on() {
    let stage = Stage::new();
    let (mut parent, foster, command) = start(&stage, &["--outlive-parent"]);
    parent.signal(libc::SIGKILL);
    parent.wait(DEATH);
    parent.stdout.assert_held_for(Duration::from_millis(800));
    assert!(command.is_alive() && foster.is_alive());
    // Foster itself still is the one whose death ends the tree.
    clean_up(&[foster]);
    assert_eq!(parent.stdout.wait_for_end(DEATH), b"cleaned\n");
    command.wait_for_death(DEATH);
}
