//! Ending a tree at level `group`: everyone, gracefully, with a proof.

use std::time::{Duration, Instant};

use foster_protocol::{Cause, Ended, Member, Request, Target, Until, Verdict};
use foster_tests::{ANSWER, Command, DEATH, Link, Running, Stage, Tracer, Witness, proof_of_level};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(300);

fn assert_all_gone(ending: &foster_protocol::Ending) {
    assert_eq!(ending.verdict, Verdict::AllGone, "{ending:?}");
    assert!(ending.proof.is_some(), "all gone needs a proof: {ending:?}");
    assert!(ending.survivors.is_empty(), "{ending:?}");
}

/// Spawns a command and waits for this many lines of it.
fn spawn_lines(link: &mut Link, command: Command, lines: usize) -> (Running, Tracer, Vec<String>) {
    let (mut tracer, writer) = Tracer::new();
    let running = link.spawn(command.with(1, writer));
    let lines = (0..lines).map(|_| tracer.line()).collect();
    (running, tracer, lines)
}

#[test]
fn lone_leader_ends_by_term_with_the_proof_that_there_are_no_orphans() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer) = link.spawn_traced(stage.sleeper());
    let ending = link.end(running.session, LONG);
    assert_all_gone(&ending);
    assert_eq!(
        (ending.cause, ending.proof),
        (Cause::Kill, Some(proof_of_level()))
    );
    assert!(ending.members.is_empty(), "{ending:?}");
    let exit = link.exit(running.session);
    assert_eq!((exit.status, exit.cause), (libc::SIGTERM, Cause::Kill));
}

#[test]
fn first_signal_is_the_one_that_was_asked_for() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer) = link.spawn_traced(stage.sleeper());
    let id = link.ask_kill(running.session, libc::SIGINT, LONG);
    assert_all_gone(&link.ended(id, ANSWER));
    assert_eq!(link.exit(running.session).status, libc::SIGINT);
}

#[test]
fn background_job_of_the_same_group_ends_with_the_leader() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = stage.sh("sleep 60 & echo ready; exec sleep 60");
    let (running, mut tracer) = link.spawn_traced(spec);
    let ending = link.end(running.session, LONG);
    assert_all_gone(&ending);
    tracer.wait_for_end(DEATH);
    let member = ending.members.first().expect("the job is named");
    assert_eq!(member.ended, Ended::ByFirstSignal);
    // The job may be on its way from the shell to its program.
    assert!(
        [&b"sleep"[..], b"sh"].contains(&member.name.0.as_slice()),
        "{member:?}"
    );
}

#[test]
fn grace_is_over_when_the_tree_is_empty_and_not_before() {
    let stage = Stage::new();
    let mut link = stage.link();
    // The leader dies of TERM at once; the member takes a while to clean up.
    let member =
        "(trap 'read x <&3; echo cleaned; exit 0' TERM; echo up; while :; do sleep 1; done)";
    let (gate, release) = Tracer::gate();
    let spec = stage.sh(&format!("{member} & exec sleep 60"));
    let (running, mut tracer, _) = spawn_lines(&mut link, Command::new(spec).with(3, gate), 1);
    let id = link.ask_kill(running.session, libc::SIGTERM, LONG);
    running.witness.wait_for_death(DEATH);
    link.ping();
    assert!(!link.has_answer(id), "a member is still cleaning up");
    drop(release);
    let ending = link.ended(id, ANSWER);
    assert_all_gone(&ending);
    assert!(Duration::from(ending.took) < LONG, "{ending:?}");
    assert_eq!(tracer.wait_for_end(DEATH), b"cleaned\n");
}

#[test]
fn member_that_ignores_term_gets_kill_when_the_grace_is_over() {
    let stage = Stage::new();
    let mut link = stage.link();
    let path = foster_tests::places::fixture("ignores-term");
    let spec = stage.sh(&format!("{} & exec sleep 60", path.display()));
    let (running, mut tracer, _) = spawn_lines(&mut link, spec.into(), 1);
    let begin = Instant::now();
    let ending = link.end(running.session, SHORT);
    assert!(begin.elapsed() >= SHORT, "the grace was cut short");
    assert_all_gone(&ending);
    tracer.wait_for_end(DEATH);
    let member = ending.members.first().expect("the member is named");
    assert_eq!(member.ended, Ended::ByKill, "{ending:?}");
}

#[test]
fn leader_that_ignores_term_dies_of_kill() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer) = link.spawn_traced(stage.fixture("ignores-term", &[]));
    assert_all_gone(&link.end(running.session, SHORT));
    let exit = link.exit(running.session);
    assert_eq!((exit.status, exit.cause), (libc::SIGKILL, Cause::Kill));
}

#[test]
fn grace_of_zero_kills_at_once() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer) = link.spawn_traced(stage.fixture("ignores-term", &[]));
    let begin = Instant::now();
    assert_all_gone(&link.end(running.session, Duration::ZERO));
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "it took {:?}",
        begin.elapsed()
    );
}

#[test]
fn second_end_joins_the_first_and_shortens_its_grace() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer) = link.spawn_traced(stage.fixture("ignores-term", &[]));
    let begin = Instant::now();
    let first = link.ask_kill(running.session, libc::SIGTERM, LONG);
    let second = link.ask_kill(running.session, libc::SIGTERM, SHORT);
    let one = link.ended(first, ANSWER);
    let two = link.ended(second, ANSWER);
    assert_eq!(one, two);
    assert!(
        begin.elapsed() < LONG,
        "the second request shortens the grace"
    );
}

#[test]
fn second_end_never_lengthens_the_grace() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, _tracer) = link.spawn_traced(stage.fixture("ignores-term", &[]));
    let begin = Instant::now();
    let first = link.ask_kill(running.session, libc::SIGTERM, SHORT);
    let second = link.ask_kill(running.session, libc::SIGTERM, LONG);
    assert_eq!(link.ended(first, ANSWER), link.ended(second, ANSWER));
    assert!(begin.elapsed() < LONG, "it took {:?}", begin.elapsed());
}

#[test]
fn stopped_leader_gets_term_and_continues_to_act_on_it() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = stage.sh("trap 'echo cleaned; exit 3' TERM; echo ready; kill -STOP $$; sleep 60");
    let (running, mut tracer) = link.spawn_traced(spec);
    let pid = running.pid;
    let is_stopped = || foster_tests::proc::state(pid) == Some('T');
    foster_tests::eventually("the leader is stopped", foster_tests::SETTLE, is_stopped);
    assert_all_gone(&link.end(running.session, LONG));
    assert_eq!(tracer.wait_for_end(DEATH), b"cleaned\n");
    assert_eq!(link.exit(running.session).status, 3 << 8);
}

#[test]
fn stopped_member_that_ignores_term_dies() {
    let stage = Stage::new();
    let mut link = stage.link();
    let path = foster_tests::places::fixture("stops-itself");
    let spec = stage.sh(&format!("trap '' TERM; {} & exec sleep 60", path.display()));
    let (running, mut tracer, _) = spawn_lines(&mut link, spec.into(), 1);
    assert_all_gone(&link.end(running.session, SHORT));
    tracer.wait_for_end(DEATH);
}

#[test]
fn job_control_group_ends_with_its_session() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = stage.bash("set -m; sleep 60 & sleep 60 & echo ready; wait");
    let (running, mut tracer) = link.spawn_traced(spec);
    let ending = link.end(running.session, SHORT);
    assert_all_gone(&ending);
    tracer.wait_for_end(DEATH);
    assert_eq!(ending.members.len(), 2, "{ending:?}");
}

#[test]
fn job_control_group_ends_after_its_leader_was_killed() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = stage.bash("set -m; sleep 60 & sleep 60 & echo ready; kill -KILL $$");
    let (running, mut tracer) = link.spawn_traced(spec);
    assert_eq!(link.exit(running.session).status, libc::SIGKILL);
    assert!(tracer.is_held(), "the jobs outlive their shell");
    assert_all_gone(&link.end(running.session, SHORT));
    tracer.wait_for_end(DEATH);
}

#[test]
fn nested_job_control_groups_end_with_their_session() {
    let stage = Stage::new();
    let mut link = stage.link();
    let inner = "bash -c \"set -m; sleep 60 & bash -c 'set -m; sleep 60 & echo up; wait' & wait\"";
    let spec = stage.bash(&format!("set -m; {inner} & wait"));
    let (running, mut tracer) = link.spawn_traced(spec);
    assert_all_gone(&link.end(running.session, SHORT));
    tracer.wait_for_end(DEATH);
}

#[test]
fn nested_timeout_ends_with_its_session() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = stage.sh("timeout 60 sh -c 'echo ready; sleep 60' & wait");
    let (running, mut tracer) = link.spawn_traced(spec);
    assert_all_gone(&link.end(running.session, SHORT));
    tracer.wait_for_end(DEATH);
}

#[test]
fn signal_to_the_tree_reaches_every_member_and_to_the_leader_only_it() {
    let stage = Stage::new();
    let mut link = stage.link();
    let trap = "trap 'echo got' USR1; echo up; while :; do sleep 60 & wait $!; done";
    let spec = stage.sh(&format!("({trap}) & {trap}"));
    let (running, mut tracer, _) = spawn_lines(&mut link, spec.into(), 2);
    assert_eq!(
        link.signal(running.session, libc::SIGUSR1, Target::Leader),
        1
    );
    assert_eq!(tracer.line(), "got");
    link.end(running.session, Duration::ZERO);
    assert_eq!(
        tracer.wait_for_end(DEATH),
        b"",
        "the member was not signalled"
    );

    let spec = stage.sh("sleep 60 & echo up; wait");
    let (running, mut tracer, _) = spawn_lines(&mut link, spec.into(), 1);
    assert_eq!(link.signal(running.session, libc::SIGKILL, Target::Tree), 2);
    tracer.wait_for_end(DEATH);
}

#[test]
fn child_that_signals_its_own_group_hurts_nobody_else() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_, mut other) = link.spawn_traced(stage.sleeper());
    for signal in ["TERM", "KILL"] {
        let running = link.spawn(stage.sh(&format!("kill -{signal} 0; sleep 60")));
        link.exit(running.session);
    }
    assert!(other.is_held(), "another session lives");
    link.ping();
}

#[test]
fn many_children_that_ignore_term_are_all_gone_after_one_end() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, mut tracer) = link.spawn_traced(stage.fixture("has-many-children", &["200"]));
    let ending = link.end(running.session, SHORT);
    assert_all_gone(&ending);
    tracer.wait_for_end(DEATH);
    assert_eq!(ending.members.len(), 200);
    let is_other = |member: &&Member| member.ended != Ended::ByKill;
    let others: Vec<&Member> = ending.members.iter().filter(is_other).collect();
    assert!(
        others.is_empty(),
        "{} not by KILL: {:?}",
        others.len(),
        others.first()
    );
}

#[test]
fn end_that_travels_with_its_spawn_is_answered_and_leaves_nothing() {
    let stage = Stage::new();
    let mut link = stage.link();
    for _ in 0..100 {
        let (mut tracer, writer) = Tracer::new();
        let command = Command::new(stage.sh("sleep 60 & exec sleep 60")).with(1, writer);
        let session = link.fresh_session();
        let spawn = Request::Spawn {
            session,
            spec: Box::new(command.spec),
        };
        link.queue(spawn, command.descriptors);
        let wait = link.queue(
            Request::Wait {
                session,
                until: Until::End,
            },
            Vec::new(),
        );
        let kill = link.ask_kill(session, libc::SIGTERM, Duration::ZERO);
        assert_all_gone(&link.ended(kill, ANSWER));
        link.answer(wait);
        tracer.wait_for_end(DEATH);
        link.close(session);
    }
    link.assert_idle();
}

#[test]
fn process_whose_main_thread_has_exited_is_ended_too() {
    let stage = Stage::new();
    let mut link = stage.link();
    let path = foster_tests::places::fixture("leaves-leader-thread");
    let spec = stage.sh(&format!("trap '' TERM; {} & wait", path.display()));
    let (running, mut tracer) = link.spawn_traced(spec);
    assert_all_gone(&link.end(running.session, SHORT));
    tracer.wait_for_end(DEATH);
}

#[test]
fn leader_whose_main_thread_has_exited_has_not_exited() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (running, mut tracer) = link.spawn_traced(stage.fixture("leaves-leader-thread", &[]));
    let exit = link.ask_exit(running.session);
    let pid = running.pid;
    let is_zombie = || foster_tests::proc::state(pid) == Some('Z');
    foster_tests::eventually(
        "the main thread has exited",
        foster_tests::SETTLE,
        is_zombie,
    );
    link.ping();
    assert!(!link.has_answer(exit), "another thread runs");
    assert_all_gone(&link.end(running.session, SHORT));
    tracer.wait_for_end(DEATH);
    link.exited(exit, ANSWER);
}

#[test]
fn sibling_that_a_leader_made_is_ended_and_reaped() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = stage.fixture("clones-sibling", &[]);
    let (running, mut tracer, lines) = spawn_lines(&mut link, spec.into(), 2);
    let sibling: i32 = lines.first().expect("two lines").parse().expect("a pid");
    // The fixture says its own pid after the sibling's, so the sibling is unreaped here.
    let sibling = Witness::of(sibling);
    link.end(running.session, SHORT);
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    sibling.wait_for_death(DEATH);
    tracer.wait_for_end(DEATH);
}
