//! The same shapes and events without foster: members are left, so that the matrix can bite.
//! What a control leaves behind is ended through its pidfd.

use std::time::Duration;

use foster_tests::{Program, Stage, Witness, clean_up, hold_tagged};

use crate::shapes::{GRACE, Leader, MARGIN, SHAPES, Shape};

/// Who runs the command in foster's place.
#[derive(Clone, Copy, Debug)]
enum Wrapper {
    /// Nobody: the command is the test's own child.
    None,
    /// `timeout -k`, which is in use for this.
    Timeout,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The command does what its leader does at a line.
    Line,
    /// A signal to the wrapper, or to the command where there is none.
    Signal(i32),
}

/// Runs one cell and gives whether its member is left.
fn is_left(wrapper: Wrapper, shape: Shape, leader: Leader, event: Event) -> bool {
    let stage = Stage::new();
    let command = shape.command(leader);
    let program = match wrapper {
        Wrapper::None => Program::new(&stage, "/bin/bash").args(&command[1..]),
        Wrapper::Timeout => Program::new(&stage, "timeout")
            .args(["-k", "0.3", "30"])
            .args(&command),
    };
    let mut process = program.start();
    let member: Witness = shape.member(&mut process.stdout);
    match event {
        Event::Line => process.say("go"),
        Event::Signal(number) => process.signal(number),
    }
    process.wait(GRACE + Duration::from_secs(5));
    // The time is the subject here: the same time after which foster has left nothing.
    foster_tests::pass(GRACE + MARGIN);
    let is_left = member.is_alive();
    clean_up(&[member]);
    // A daemon's leader does not wait for it, and may be left too.
    clean_up(&hold_tagged(stage.tag()));
    process.stdout.wait_for_end(Duration::from_secs(5));
    is_left
}

/// The shapes of which the member is left.
fn left(wrapper: Wrapper, leader: Leader, event: Event) -> Vec<Shape> {
    let mut left = SHAPES.to_vec();
    left.retain(|shape| is_left(wrapper, *shape, leader, event));
    left
}

#[test]
fn control_plain_command_leaves_every_shape_when_the_root_exits() {
    assert_eq!(left(Wrapper::None, Leader::Exits, Event::Line), SHAPES);
}

#[test]
fn control_plain_command_leaves_every_shape_when_the_root_is_killed() {
    let kill = Event::Signal(libc::SIGKILL);
    assert_eq!(left(Wrapper::None, Leader::Waits, kill), SHAPES);
}

/// `timeout` makes a group of its own. When that is orphaned, the kernel itself sends HUP and
/// CONT to it, because a member is stopped (`setpgid(2)`): the stopped shape is left by luck only.
fn without_stopped() -> Vec<Shape> {
    let mut shapes = SHAPES.to_vec();
    shapes.retain(|shape| *shape != Shape::Stopped);
    shapes
}

#[test]
fn control_timeout_leaves_every_running_shape_when_the_root_exits() {
    let left = left(Wrapper::Timeout, Leader::Exits, Event::Line);
    assert_eq!(left, without_stopped());
}

#[test]
fn control_timeout_leaves_every_running_shape_when_it_is_killed() {
    let kill = Event::Signal(libc::SIGKILL);
    let left = left(Wrapper::Timeout, Leader::Waits, kill);
    assert_eq!(left, without_stopped());
}

#[test]
fn control_timeout_leaves_members_when_it_is_sent_term() {
    let term = Event::Signal(libc::SIGTERM);
    let left = left(Wrapper::Timeout, Leader::Waits, term);
    assert!(left.contains(&Shape::OwnGroup), "{left:?}");
    assert!(left.contains(&Shape::NestedTimeout), "{left:?}");
}

#[test]
fn control_timeout_leaves_members_that_ignore_term_when_the_root_leaves() {
    let term = Event::Signal(libc::SIGTERM);
    let left = left(Wrapper::Timeout, Leader::LeavesAtTerm, term);
    assert!(left.contains(&Shape::SameGroup), "{left:?}");
    assert!(left.contains(&Shape::IgnoresTerm), "{left:?}");
}
