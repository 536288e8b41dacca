//! How a tree ends without a helper: everyone has the grace, KILL is for who is left, and the
//! report tells the truth.

use std::time::{Duration, Instant};

use foster::{Cause, MemberEnd, Proof, Verdict};
use foster_tests::{DEATH, SETTLE, Stage, Tracer, Witness, clean_up, eventually, places, proc};

use crate::ground::{GRACE, SOON, direct, leader};

#[test]
fn ending_reaches_the_background_and_the_groups_of_job_control() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    let mut bash = foster::Command::new("/bin/bash");
    bash.args([
        "-c",
        "sleep 60 & set -m; sh -c 'echo job $$; sleep 60' & set +m; echo ready; wait",
    ])
    .env(foster_tests::TAG, stage.tag())
    .grace(GRACE)
    .level(foster::LevelChoice::Exactly(foster::Level::Direct))
    .stdin(foster::Stdio::null())
    .stdout(writer);
    let child = bash.spawn().expect("the command");
    drop(bash);
    tracer.line();
    tracer.line();
    let ending = child.end(SOON).expect("an ending");
    assert_eq!(ending.cause, Cause::Kill);
    assert_eq!(ending.verdict, Verdict::AllGone);
    assert_eq!(ending.proof, Some(Proof::SessionScanEmpty));
    assert!(ending.members.len() >= 2, "{ending:?}");
    for member in &ending.members {
        assert_eq!(member.ended, MemberEnd::ByFirstSignal, "{ending:?}");
    }
    assert_eq!(child.notice(), None);
    tracer.wait_for_end(DEATH);
}

#[test]
fn grace_is_over_when_the_tree_is_empty_and_not_before() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    // The leader leaves at once, and the member takes its time to clean up.
    let script = "sh -c 'trap \"sleep 0.3; echo clean >&3; exit\" TERM; echo ready >&3; \
                  while :; do sleep 0.05; done' & trap 'exit 0' TERM; while :; do sleep 0.05; done";
    let child = direct(&stage, script).fd(3, writer).spawn();
    let child = child.expect("the command");
    tracer.line();
    let begin = Instant::now();
    let ending = child.end(Duration::from_secs(20)).expect("an ending");
    let took = begin.elapsed();
    assert!(took >= GRACE && took < Duration::from_secs(10), "{took:?}");
    assert_eq!(ending.verdict, Verdict::AllGone);
    assert_eq!(tracer.wait_for_end(DEATH), b"clean\n");
}

#[test]
fn leader_that_heeds_term_ends_long_before_its_grace() {
    let stage = Stage::new();
    let child = direct(&stage, "exec sleep 60")
        .spawn()
        .expect("the command");
    let begin = Instant::now();
    child.end(Duration::from_secs(30)).expect("an ending");
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    let exit = child.exit().expect("it is known");
    assert_eq!((exit.status, exit.cause), (libc::SIGTERM, Cause::Kill));
}

#[test]
fn members_that_ignore_term_get_kill_when_the_grace_is_over() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    let script = "trap '' TERM; sleep 60 & echo ready >&3; sleep 60";
    let child = direct(&stage, script).fd(3, writer).spawn();
    let child = child.expect("the command");
    tracer.line();
    let begin = Instant::now();
    let ending = child.end(GRACE).expect("an ending");
    assert!(begin.elapsed() >= GRACE, "{:?}", begin.elapsed());
    assert_eq!(ending.verdict, Verdict::AllGone);
    assert!(!ending.members.is_empty());
    for member in &ending.members {
        assert_eq!(member.ended, MemberEnd::ByKill, "{ending:?}");
    }
    tracer.wait_for_end(DEATH);
}

#[test]
fn stopped_members_have_the_grace_too() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    let script = "trap 'echo had it >&3; exit' TERM; echo $$ >&3; while :; do kill -STOP $$; done";
    let child = direct(&stage, script).fd(3, writer).spawn();
    let child = child.expect("the command");
    let pid = tracer.pid();
    eventually("it is stopped", SETTLE, || proc::state(pid) == Some('T'));
    let ending = child.end(SOON).expect("an ending");
    assert_eq!(ending.verdict, Verdict::AllGone);
    assert_eq!(tracer.wait_for_end(DEATH), b"had it\n");
}

#[test]
fn each_member_has_the_first_signal_once() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    let script = "sh -c 'trap \"echo term >&3\" TERM; echo ready >&3; \
                  while :; do sleep 0.02; done' & echo up >&3; wait; wait";
    let child = direct(&stage, script).fd(3, writer).spawn();
    let child = child.expect("the command");
    tracer.line();
    tracer.line();
    child.end(GRACE).expect("an ending");
    let said = tracer.wait_for_end(DEATH);
    assert_eq!(String::from_utf8_lossy(&said), "term\n");
}

#[test]
fn second_end_joins_the_first_and_shortens_its_grace() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    let child = direct(
        &stage,
        "trap '' TERM; echo ready >&3; sleep 60 & wait; sleep 60",
    )
    .fd(3, writer)
    .spawn()
    .expect("the command");
    tracer.line();
    let session = child.session().clone();
    let first = std::thread::spawn(move || session.end(libc::SIGTERM, Duration::from_secs(60)));
    eventually("the ending has begun", SETTLE, || {
        child.signal(libc::SIGCONT).is_ok()
    });
    let second = child.kill().expect("an ending");
    let first = first.join().expect("the thread").expect("an ending");
    assert_eq!(first, second);
    tracer.wait_for_end(DEATH);
}

#[test]
fn process_whose_main_thread_has_exited_is_ended_too() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    let path = places::fixture("leaves-leader-thread");
    let script = format!("{} >&3 & sleep 0.3; exit 0", path.display());
    let mut child = direct(&stage, &script)
        .fd(3, writer)
        .spawn()
        .expect("the command");
    child.wait().expect("a status");
    let ending = child.kill().expect("an ending");
    assert_eq!(ending.verdict, Verdict::AllGone);
    assert_eq!(ending.members.len(), 1, "{ending:?}");
    tracer.wait_for_end(DEATH);
}

#[test]
fn descendant_that_makes_its_own_session_is_not_reached_and_not_claimed() {
    let stage = Stage::new();
    let (mut tracer, writer) = Tracer::new();
    let mut child = direct(&stage, "setsid sh -c 'echo $$ >&3; exec sleep 60' & wait")
        .fd(3, writer)
        .spawn()
        .expect("the command");
    let escapee = Witness::of(tracer.pid());
    let ending = child.kill().expect("an ending");
    assert_eq!(
        ending.proof,
        Some(Proof::SessionScanEmpty),
        "escapes are possible"
    );
    child.wait().expect("a status");
    assert!(escapee.is_alive(), "this is the limit of the level");
    clean_up(&[escapee]);
    tracer.wait_for_end(DEATH);
}

#[test]
fn leader_of_a_dead_host_has_its_death_signal_and_the_thread_that_spawned_may_go() {
    let stage = Stage::new();
    // The thread that asked for the spawn ends, and the leader lives.
    let child = std::thread::scope(|scope| {
        let spawned = scope.spawn(|| direct(&stage, "exec sleep 60").spawn());
        spawned.join().expect("the thread").expect("the command")
    });
    let leader = leader(&child);
    foster_tests::pass(GRACE);
    assert!(leader.is_alive());
    child.kill().expect("an ending");
    // The host dies, and the leader with it.
    let mut host = foster_tests::Program::fixture(&stage, "host-direct")
        .args(["--", "/bin/sh", "-c", "echo $$; exec sleep 60"])
        .start();
    let leader = Witness::of(host.stdout.pid());
    host.signal(libc::SIGKILL);
    leader.wait_for_death(DEATH);
    host.finish(DEATH);
}

#[test]
fn nobody_of_this_process_group_is_signalled() {
    let stage = Stage::new();
    let mut bystander = std::process::Command::new("sleep")
        .arg("60")
        .env(foster_tests::TAG, stage.tag())
        .spawn()
        .expect("a bystander in our own group");
    for script in [
        "exec sleep 60",
        "trap '' TERM; sleep 60 & wait; sleep 60",
        "exit 0",
    ] {
        let child = direct(&stage, script).spawn().expect("the command");
        child.end(Duration::from_millis(50)).expect("an ending");
    }
    assert!(bystander.try_wait().expect("ours").is_none(), "it lives");
    bystander.kill().expect("ours");
    bystander.wait().expect("ours");
}
