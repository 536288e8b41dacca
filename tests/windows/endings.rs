//! Whom an ending reaches, and whom it leaves.

use std::io::Write;
use std::os::windows::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use foster::{Cause, Ended, MemberEnd, OnExit, Proof, Verdict};

use crate::held::Process;
use crate::{LIMIT, Words, role, roles, talking};

/// A leader with a child and a grandchild.
fn family() -> (foster::Child, [Process; 2]) {
    let mut child = talking("has-a-family").spawn().expect("it starts");
    let mut words = Words::of(&mut child.stdout);
    let members = [words.process(), words.process()];
    (child, members)
}

/// A leader that has exited, and a child of it that lives.
fn left(on_exit: OnExit) -> (foster::Child, Process) {
    let mut child = talking("leaves-a-child")
        .on_exit(on_exit)
        .spawn()
        .expect("it starts");
    let mut words = Words::of(&mut child.stdout);
    let member = words.process();
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(b"\n").expect("it reads");
    drop(input);
    let status = child.wait().expect("it exits");
    assert_eq!(status.code(), Some(3));
    (child, member)
}

#[test]
fn grandchildren_die_with_the_job() {
    let (child, [middle, last]) = family();
    let ending = child.kill().expect("it can be ended");
    middle.assert_has_ended("child");
    last.assert_has_ended("grandchild");
    assert_eq!(ending.verdict, Verdict::AllGone, "{ending:?}");
    assert_eq!(ending.proof, Some(Proof::JobEmpty));
    assert_eq!(ending.cause, Cause::Kill);
    assert_eq!(ending.members.len(), 2, "{ending:?}");
    for member in &ending.members {
        assert_eq!(member.ended, MemberEnd::ByKill);
        assert!(!member.name.0.is_empty(), "{ending:?}");
    }
    assert_eq!(child.kill().expect("the same again"), ending);
    assert_eq!(child.notice(), None);
    let exit = child.exit().expect("it has exited");
    assert_eq!((exit.status, exit.cause), (1, Cause::Kill));
}

#[test]
fn control_kill_of_the_leader_alone_leaves_its_grandchildren() {
    let mut child = Command::new(roles::program())
        .args(roles::ARGUMENTS)
        .env(roles::ROLE, "has-a-family")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .creation_flags(0)
        .spawn()
        .expect("it starts");
    let mut words = Words::of(&mut child.stdout);
    let members = [words.process(), words.process()];
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    for member in &members {
        member.assert_lives_on("member of a tree that is in no job");
    }
}

#[test]
fn drop_without_release_ends_the_tree() {
    let (child, [middle, last]) = family();
    drop(child);
    middle.assert_ends("child");
    last.assert_ends("grandchild");
}

#[test]
fn drop_after_the_exit_ends_what_was_left() {
    let (child, member) = left(OnExit::Hold);
    member.assert_lives_on("child of a leader that has exited");
    drop(child);
    member.assert_ends("child of a leader that has exited");
}

#[test]
fn release_keeps_what_was_left_running() {
    let (child, member) = left(OnExit::Hold);
    let session = child.session().clone();
    assert_eq!(child.release().expect("it has exited"), 1);
    member.assert_lives_on("what was released");
    assert_eq!(session.release().expect("the same again"), 1);
    let error = session.kill().expect_err("it is nobody's any more");
    assert!(error.is_rejected(), "{error}");
    drop(session);
    member.assert_lives_on("what was released");
}

#[test]
fn running_leader_is_released_only_where_it_was_spawned_for_that() {
    let (child, [middle, last]) = family();
    let error = child.release().expect_err("it runs");
    assert!(error.is_rejected(), "{error}");
    middle.assert_ends("child");
    last.assert_ends("grandchild");
    let mut child = talking("has-a-family")
        .detachable(true)
        .spawn()
        .expect("it starts");
    let leader = Process::open(child.id());
    let mut words = Words::of(&mut child.stdout);
    let members = [words.process(), words.process()];
    assert_eq!(child.release().expect("it is detachable"), 3);
    leader.assert_lives_on("leader");
    members.iter().for_each(|one| one.assert_lives_on("member"));
}

#[test]
fn deadline_ends_the_tree() {
    let mut child = talking("has-a-family")
        .deadline(Duration::from_secs(3))
        .spawn()
        .expect("it starts");
    let mut words = Words::of(&mut child.stdout);
    let members = [words.process(), words.process()];
    let ended = child
        .session()
        .wait_end(Some(LIMIT))
        .expect("it can be awaited");
    let Some(Ended::Ending(ending)) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(ending.cause, Cause::Deadline);
    assert_eq!(ending.verdict, Verdict::AllGone);
    members
        .iter()
        .for_each(|one| one.assert_has_ended("member"));
    assert_eq!(child.exit().map(|exit| exit.cause), Some(Cause::Deadline));
}

#[test]
fn deadline_holds_after_the_leaders_exit() {
    let mut child = talking("leaves-a-child")
        .deadline(Duration::from_secs(3))
        .spawn()
        .expect("it starts");
    let mut words = Words::of(&mut child.stdout);
    let member = words.process();
    drop(child.stdin.take());
    child.wait().expect("it exits");
    member.assert_ends("child of a leader that has exited");
    assert_eq!(child.exit().map(|exit| exit.cause), Some(Cause::Exit));
}

#[test]
fn rest_is_ended_at_the_exit_where_the_command_says_so() {
    let grace = Duration::ZERO;
    let (child, member) = left(OnExit::End { grace });
    member.assert_ends("child of a leader that has exited");
    let ended = child
        .session()
        .wait_end(Some(LIMIT))
        .expect("it can be awaited");
    assert!(matches!(ended, Some(Ended::Ending(ending)) if ending.cause == Cause::Exit));
}

#[test]
fn rest_may_linger_up_to_its_limit() {
    let (limit, grace) = (Duration::from_secs(2), Duration::ZERO);
    let (child, member) = left(OnExit::Linger { limit, grace });
    member.assert_lives_on("member before the limit");
    member.assert_ends("member after the limit");
    let ended = child
        .session()
        .wait_end(Some(LIMIT))
        .expect("it can be awaited");
    assert!(matches!(ended, Some(Ended::Ending(ending)) if ending.cause == Cause::Linger));
}

#[test]
fn linger_is_over_when_nobody_is_left() {
    let (limit, grace) = (LIMIT * 2, Duration::ZERO);
    let child = role("exits-with-7")
        .stdout(foster::Stdio::null())
        .on_exit(OnExit::Linger { limit, grace })
        .spawn()
        .expect("it starts");
    let ended = child
        .session()
        .wait_end(Some(LIMIT))
        .expect("it can be awaited");
    let Some(Ended::Ending(ending)) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(
        (ending.cause, ending.verdict),
        (Cause::Exit, Verdict::AllGone)
    );
}

#[test]
fn rest_is_released_at_the_exit_where_the_command_says_so() {
    let (child, member) = left(OnExit::Leave);
    let ended = child
        .session()
        .wait_end(Some(LIMIT))
        .expect("it can be awaited");
    assert_eq!(ended, Some(Ended::Released { still_running: 1 }));
    drop(child);
    member.assert_lives_on("what was left");
}

#[test]
fn rest_that_is_left_is_not_ended_by_a_drop_right_after_the_exit() {
    for _ in 0..5 {
        let (child, member) = left(OnExit::Leave);
        drop(child);
        member.assert_lives_on("what was left");
    }
}
