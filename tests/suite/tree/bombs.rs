//! Bombs: every member forks into sessions of its own while it is being ended.

use std::time::{Duration, Instant};

use foster_protocol::Reply;
use foster_tests::{ANSWER, Command, DEATH, Link, Stage, Tracer, is_root, note_not_run, proc};

use crate::ground::{assert_all_gone, tree};

/// Users of these tests alone: the kernel counts every process of a user.
const BOMBED: u32 = 64_332;
const LOST: u32 = 64_333;

/// How many processes a user may have: the bomb's, the helper and a keeper.
const LIMIT: &str = "nproc=202";

/// The longest wait for a `Pong` meanwhile. It is milliseconds where nothing else runs.
const PONG: Duration = Duration::from_secs(2);

/// A helper of a user whose processes are limited, with a bomb that has reached the limit.
fn bomb(stage: &Stage, user: u32) -> Option<(Link, foster_tests::Running, Tracer)> {
    if !is_root() {
        note_not_run("a bomb", "this is not root, and its processes count too");
        return None;
    }
    let launch = stage.launch().through("with-limit", &[LIMIT]);
    let mut link = launch.as_user(user).greeted();
    let (mut tracer, writer) = Tracer::new();
    let spec = tree(stage.fixture("bombs-with-sessions", &[]));
    let running = link.spawn(Command::new(spec).with(1, writer));
    assert_eq!(tracer.line(), "full");
    Some((link, running, tracer))
}

/// How many processes a user has.
fn count_of(user: u32) -> usize {
    let is_theirs = |pid: &i32| {
        let uids = proc::status_field(*pid, "Uid").unwrap_or_default();
        uids.split_ascii_whitespace().next() == Some(&user.to_string())
    };
    proc::pids().iter().filter(|pid| is_theirs(pid)).count()
}

#[test]
fn bomb_of_two_hundred_sessions_is_all_gone_and_pings_are_answered_meanwhile() {
    let stage = Stage::new();
    let Some((mut link, running, mut tracer)) = bomb(&stage, BOMBED) else {
        return;
    };
    let count = count_of(BOMBED);
    assert!(count > 150, "a bomb of {count}");
    let kill = link.ask_kill(running.session, libc::SIGKILL, Duration::ZERO);
    let mut slowest = Duration::ZERO;
    let mut pings = 0;
    loop {
        let begin = Instant::now();
        let ping = link.call(foster_protocol::Request::Ping);
        let reply = link.answer_within(ping, PONG).reply;
        assert!(matches!(reply, Reply::Pong { .. }), "{reply:?}");
        slowest = slowest.max(begin.elapsed());
        pings += 1;
        // The first ping was sent behind the kill, which cannot be over at once.
        if link.has_answer(kill) {
            break;
        }
        assert!(pings < 1_000_000, "the kill is never answered");
    }
    let ending = link.ended(kill, ANSWER);
    assert_all_gone(&ending, "the bomb");
    assert!(!tracer.is_held(), "somebody of the bomb lives");
    assert!(pings > 1, "a ping was answered before the kill");
    report(&format!(
        "bomb of {count}: {:?} in {} rounds, {pings} pings, the slowest {slowest:?}",
        Duration::from(ending.took),
        ending.rounds
    ));
    link.close(running.session);
    link.assert_idle();
}

#[test]
fn bomb_whose_keeper_and_helper_lose_their_host_is_all_gone() {
    let stage = Stage::new();
    let Some((mut link, running, mut tracer)) = bomb(&stage, BOMBED + 10) else {
        return;
    };
    let keeper = link.keeper_of(&running);
    link.hang_up();
    link.exit_code_within(Duration::from_secs(20));
    keeper.wait_for_death(Duration::ZERO);
    tracer.wait_for_end(DEATH);
}

#[test]
fn bomb_whose_helper_is_killed_is_ended_by_its_keeper() {
    let stage = Stage::new();
    let Some((mut link, running, mut tracer)) = bomb(&stage, LOST) else {
        return;
    };
    let keeper = link.keeper_of(&running);
    link.kill_helper();
    link.wait_for_death();
    tracer.wait_for_end(Duration::from_secs(20));
    keeper.wait_for_death(DEATH);
}

#[test]
fn bomb_whose_keeper_is_killed_is_ended_by_the_helper() {
    let stage = Stage::new();
    let Some((mut link, running, mut tracer)) = bomb(&stage, LOST + 10) else {
        return;
    };
    let end = link.ask_end(running.session);
    link.keeper_of(&running).signal(libc::SIGKILL);
    let ending = link.ended(end, ANSWER);
    let verdict = foster_protocol::Verdict::AllGone;
    assert_eq!(ending.verdict, verdict, "{ending:?}");
    assert!(!tracer.is_held(), "somebody of the bomb lives");
    link.close(running.session);
    link.assert_idle();
}

#[expect(clippy::print_stderr, reason = "a measurement is to be read")]
fn report(line: &str) {
    eprintln!("{line}");
}
