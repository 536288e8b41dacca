//! Bombs: inside one session, and of a thousand processes that each make a session.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foster_protocol::{Ending, Level, Reply, Request, ResourceLimit, Verdict, Why};
use foster_tests::{ANSWER, DEATH, Running, Tracer, is_root, not_run, note_not_run, pass, sys};

use crate::ground::{LEVELS, Scene, report};

/// Users of these tests alone, one a level: the kernel counts every process of a user.
const BOMBED: u32 = 64_360;

/// How many processes a user may have: the bomb's, the helper's and a keeper.
const THOUSAND: &str = "nproc=1004";

/// How often a ping is tried while the bomb goes off and nothing is ended: what this machine
/// takes to let anybody run beside it.
const CONTROLS: usize = 20;

/// Set by `.ci/run`.
const ALL: &str = "FOSTER_TEST_ALL_BOMBS";

/// Within this a helper that may go before others answers.
const SOON: Duration = Duration::from_millis(50);

/// The time between two pings: a host that asks now and then.
const PING_PAUSE: Duration = Duration::from_millis(5);

/// The hard limit of an ending and what its answer takes.
const HARD: Duration = Duration::from_secs(15);

/// How long a machine that is loaded gives the bomb to go off.
const OFF: Duration = Duration::from_secs(20);

/// The bombs take more than a minute together, so that a plain run has three of them and
/// `.ci/run` has all.
fn all_of_them() -> bool {
    let all = std::env::var_os(ALL).is_some();
    if !all {
        note_not_run("one more bomb of a thousand", &format!("{ALL} is not set"));
    }
    all
}

/// One bomb at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A helper of a user whose processes are limited, with a bomb that has reached the limit.
fn thousand(level: Level, user: u32) -> Option<(Scene, Running, Tracer)> {
    let mut scene = Scene::of_user(level, "a bomb of a thousand", user, &[THOUSAND])?;
    let spec = scene.stage.fixture("bombs-with-sessions", &[]);
    let (running, mut tracer) = scene.spawn(spec);
    assert_eq!(tracer.line(), "full");
    Some((scene, running, tracer))
}

/// How long one ping takes.
fn ping(scene: &mut Scene) -> Duration {
    let begin = Instant::now();
    let ping = scene.link.call(Request::Ping);
    let reply = scene.link.answer(ping).reply;
    assert!(matches!(reply, Reply::Pong { .. }), "{reply:?}");
    begin.elapsed()
}

/// Ends a bomb and pings meanwhile: every ping is answered, the slowest after the time that is
/// returned. A helper without privileges is one of a thousand to the scheduler.
fn end_and_ping(scene: &mut Scene, running: &Running) -> (Ending, Duration) {
    // It is the helper that is timed, and not how this thread fares beside the bomb.
    sys::run_before_everybody(true).expect("this runs as root");
    let controls = (0..CONTROLS).map(|_| {
        pass(PING_PAUSE);
        ping(scene)
    });
    let controls = controls.max();
    let control = controls.unwrap_or_default();
    let session = running.session;
    let kill = scene.link.ask_kill(session, libc::SIGKILL, Duration::ZERO);
    let mut pings = Vec::new();
    while !scene.link.has_answer(kill) {
        pings.push(ping(scene));
        pass(PING_PAUSE);
        assert!(pings.len() < 1_000_000, "the kill is never answered");
    }
    let ending = scene.link.ended(kill, ANSWER);
    sys::run_before_everybody(false).expect("it always may");
    pings.sort_unstable();
    let most = pings.get(pings.len() * 99 / 100).copied();
    let (most, slowest) = (most.unwrap_or_default(), pings.last().copied());
    let line = format!(
        "a bomb of a thousand at {:?}: {:?} in {:?}, {} rounds, {} pings, 99% within {most:?}, \
         the slowest {slowest:?}; before the kill {control:?}",
        scene.level,
        ending.verdict,
        Duration::from(ending.took),
        ending.rounds,
        pings.len(),
    );
    report(&line);
    (ending, slowest.unwrap_or_default())
}

#[test]
fn bomb_of_a_thousand_sessions_is_all_gone_in_a_cgroup_and_in_a_namespace() {
    if !all_of_them() {
        return;
    }
    let _alone = alone();
    for (level, user) in [(Level::Cgroup, BOMBED), (Level::Namespace, BOMBED + 1)] {
        let Some((mut scene, running, mut tracer)) = thousand(level, user) else {
            continue;
        };
        let (ending, _) = end_and_ping(&mut scene, &running);
        scene.assert_all_gone(&ending, "the bomb");
        assert!(!tracer.is_held(), "somebody of the bomb lives at {level:?}");
        scene.link.close(running.session);
        scene.link.assert_idle();
        scene.assert_no_leaf();
        scene.assert_serves();
    }
}

#[test]
fn bomb_of_a_thousand_sessions_is_all_gone_in_a_tree_or_said_to_be_too_fast() {
    let _alone = alone();
    let Some((mut scene, running, mut tracer)) = thousand(Level::Tree, BOMBED + 2) else {
        return;
    };
    let (ending, _) = end_and_ping(&mut scene, &running);
    assert!(Duration::from(ending.took) < HARD, "{ending:?}");
    match ending.verdict {
        Verdict::AllGone => assert!(
            !tracer.is_held(),
            "somebody of the bomb lives: {:?} {:?} {:?}",
            ending.cause,
            ending.proof,
            ending.unattributed
        ),
        Verdict::Incomplete => {
            let is_said = |why| matches!(why, Why::ForkRate | Why::Dying | Why::Uninterruptible);
            let are_said = ending.survivors.iter().all(|one| is_said(one.why));
            assert!(are_said, "{ending:?}");
        }
    }
    scene.link.close(running.session);
    // Whoever is left is killed again and again, and the bomb ends by itself.
    tracer.wait_for_end(OFF);
    scene.assert_serves();
    drop(scene);
}

/// A helper that may haste, and a bomb of another user's.
fn thousand_of_another(level: Level, user: u32) -> Option<(Scene, Running, Tracer)> {
    const WHAT: &str = "a bomb of a thousand under a helper of root";
    if !is_root() {
        not_run(WHAT, "this is not root");
        return None;
    }
    let mut scene = Scene::new(level, WHAT)?;
    let mut spec = scene.stage.fixture("bombs-with-sessions", &[]);
    spec.uid = Some(user);
    spec.gid = Some(user);
    spec.groups = Some(Vec::new());
    spec.resource_limits.push(ResourceLimit {
        resource: libc::RLIMIT_NPROC,
        soft: 1_000,
        hard: 1_000,
    });
    let (running, mut tracer) = scene.spawn(spec);
    assert_eq!(tracer.line(), "full");
    Some((scene, running, tracer))
}

#[test]
fn helper_of_root_answers_pings_at_once_beside_a_bomb_of_a_thousand_sessions() {
    let _alone = alone();
    for (level, user) in [
        (Level::Tree, BOMBED + 20),
        (Level::Cgroup, BOMBED + 21),
        (Level::Namespace, BOMBED + 22),
    ] {
        let Some((mut scene, running, mut tracer)) = thousand_of_another(level, user) else {
            continue;
        };
        let (ending, slowest) = end_and_ping(&mut scene, &running);
        assert!(slowest < SOON, "a ping took {slowest:?} at {level:?}");
        scene.assert_all_gone(&ending, "the bomb");
        assert!(!tracer.is_held(), "somebody of the bomb lives at {level:?}");
        scene.link.close(running.session);
        scene.assert_serves();
    }
}

#[test]
fn bomb_of_a_thousand_sessions_goes_with_its_killed_helper() {
    if !all_of_them() {
        return;
    }
    let _alone = alone();
    for (level, user) in [(Level::Cgroup, BOMBED + 3), (Level::Namespace, BOMBED + 4)] {
        let Some((mut scene, running, mut tracer)) = thousand(level, user) else {
            continue;
        };
        let keeper = scene.link.keeper_of(&running);
        scene.link.kill_helper();
        scene.link.wait_for_death();
        tracer.wait_for_end(OFF);
        keeper.wait_for_death(OFF);
        scene.assert_no_leaf();
    }
}

#[test]
fn bomb_of_a_thousand_sessions_goes_with_its_killed_keeper() {
    if !all_of_them() {
        return;
    }
    let _alone = alone();
    for (level, user) in [(Level::Cgroup, BOMBED + 5), (Level::Namespace, BOMBED + 6)] {
        let Some((mut scene, running, mut tracer)) = thousand(level, user) else {
            continue;
        };
        let end = scene.link.ask_end(running.session);
        scene.link.keeper_of(&running).signal(libc::SIGKILL);
        let ending = scene.link.ended(end, ANSWER);
        assert_eq!(ending.verdict, Verdict::AllGone, "{level:?}: {ending:?}");
        tracer.wait_for_end(DEATH);
        scene.link.close(running.session);
        scene.link.assert_idle();
        scene.assert_no_leaf();
    }
}

#[test]
fn bomb_inside_one_session_is_all_gone_by_one_kill_each_time() {
    let _alone = alone();
    const USER: u32 = BOMBED + 10;
    // One number for more of it: `FOSTER_TEST_MANY`.
    let turns = std::env::var("FOSTER_TEST_MANY").ok();
    let turns: u32 = turns.and_then(|text| text.parse().ok()).unwrap_or(10);
    for (place, level) in LEVELS.into_iter().enumerate() {
        let user = USER + u32::try_from(place).expect("four levels");
        let scene = Scene::of_user(level, "a bomb in a session", user, &["nproc=60"]);
        let Some(mut scene) = scene else { continue };
        for turn in 0..turns {
            let spec = scene.stage.fixture("bombs-with-sessions", &["inside"]);
            let (running, mut tracer) = scene.spawn(spec);
            assert_eq!(tracer.line(), "full");
            let session = running.session;
            let kill = scene.link.ask_kill(session, libc::SIGKILL, Duration::ZERO);
            let ending = scene.link.ended(kill, ANSWER);
            scene.assert_all_gone(&ending, &format!("turn {turn}"));
            assert!(
                !tracer.is_held(),
                "turn {turn}: somebody lives at {level:?}"
            );
            scene.link.close(session);
        }
        scene.link.assert_idle();
    }
}
