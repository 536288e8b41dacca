//! What leaves its session: at level `group` it is seen and named, and ended at hangup. What
//! level `tree` makes of it has its own suite.

use std::time::Duration;

use foster_protocol::{Level, Proof, Verdict};
use foster_tests::{Command, DEATH, Stage, Tracer, Witness, at_level, level, proc};

/// Runs the escape to the leader's exit; gives the session, the escapee and its tracer.
fn escape(
    level: Level,
    stage: &Stage,
    link: &mut foster_tests::Link,
) -> (foster_protocol::SessionId, Witness, Tracer) {
    let (mut tracer, writer) = Tracer::new();
    let spec = at_level(level, stage.fixture("escapes-by-setsid", &[]));
    let running = link.spawn(Command::new(spec).with(1, writer));
    let pid = tracer.pid();
    // It holds the tracer, so it lives, and its number is its own.
    let escapee = Witness::of(pid);
    link.exit(running.session);
    (running.session, escapee, tracer)
}

#[test]
fn setsid_escapee_is_listed_as_unattributed() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_, escapee, _tracer) = escape(Level::Group, &stage, &mut link);
    let name = b"escapes-by-sets";
    let is_listed = |link: &mut foster_tests::Link| {
        let (_, unattributed) = link.list();
        unattributed
            .iter()
            .any(|orphan| orphan.pid.0 == escapee.pid() && orphan.name.0 == name)
    };
    foster_tests::eventually("the escapee is listed", foster_tests::SETTLE, || {
        is_listed(&mut link)
    });
    assert_eq!(
        foster_tests::proc::stat(escapee.pid()).map(|stat| stat.parent),
        Some(link.pid())
    );
}

#[test]
fn ending_names_an_escapee_and_claims_no_more_than_its_session() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (session, escapee, _tracer) = escape(Level::Group, &stage, &mut link);
    let ending = link.end(session, Duration::from_millis(300));
    assert_eq!(ending.verdict, Verdict::AllGone);
    assert_ne!(
        ending.proof,
        Some(Proof::NoOrphans),
        "an orphan lives: {ending:?}"
    );
    let named = ending
        .unattributed
        .iter()
        .any(|orphan| orphan.pid.0 == escapee.pid());
    assert!(named, "{ending:?}");
}

#[test]
fn escapee_is_ended_at_hangup() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_, escapee, mut tracer) = escape(level(), &stage, &mut link);
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    escapee.wait_for_death(DEATH);
    tracer.wait_for_end(DEATH);
}

#[test]
fn escapee_of_a_closed_session_is_ended_at_hangup() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (session, escapee, mut tracer) = escape(level(), &stage, &mut link);
    link.close(session);
    link.ping();
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    escapee.wait_for_death(DEATH);
    tracer.wait_for_end(DEATH);
}

#[test]
fn farewell_names_the_orphans_that_it_ended() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_, escapee, mut tracer) = escape(Level::Group, &stage, &mut link);
    let report = link.shut_down(Duration::from_millis(300));
    let named = report
        .orphans
        .iter()
        .any(|orphan| orphan.pid.0 == escapee.pid());
    assert!(named, "{report:?}");
    assert!(report.survivors.is_empty(), "{report:?}");
    assert_eq!(link.exit_code(), 0);
    tracer.wait_for_end(DEATH);
}

#[test]
fn orphan_that_exits_by_itself_is_reaped() {
    let stage = Stage::new();
    let mut link = stage.link();
    let before = link.ping().orphans_reaped;
    // The orphan says its number, and waits for the end of standard input.
    let script = "(sh -c 'echo $$; exec cat >/dev/null' <&3 &); exec 3<&-; exec sleep 60";
    let (gate, opener) = Tracer::gate();
    let (mut tracer, writer) = Tracer::new();
    let command = Command::new(stage.sh(script)).with(1, writer).with(3, gate);
    let running = link.spawn(command);
    let orphan = tracer.pid();
    let supervisor = link.supervisor_of(&running);
    let is_adopted = || proc::stat(orphan).is_some_and(|stat| stat.parent == supervisor);
    foster_tests::eventually("the orphan is adopted", foster_tests::SETTLE, is_adopted);
    drop(opener);
    foster_tests::eventually("the orphan is reaped", foster_tests::SETTLE, || {
        !is_adopted()
    });
    // The helper counts what it has reaped itself.
    if level() == Level::Group {
        foster_tests::eventually("the orphan is counted", foster_tests::SETTLE, || {
            link.ping().orphans_reaped > before
        });
    }
    link.close(running.session);
    link.assert_idle();
}
