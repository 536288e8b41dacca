//! What a keeper reaches: whoever has left the session, in every way, at every end.

use std::time::Duration;

use foster_protocol::{Cause, Ended, Level, Member, OnExit, Spec, Verdict};
use foster_tests::{ANSWER, DEATH, Link, Stage, Witness, at_level, is_root, note_not_run, proc};

use crate::ground::{ESCAPES, Escape, Escaped, LONG, assert_all_gone, tree};

/// A user of these tests alone.
const OTHER_USER: u32 = 64_331;

/// The grace that the members have, all of which end at TERM.
const GRACE: Duration = Duration::from_secs(5);

/// A helper of this user, and one of another where this is root.
fn for_each_user(run: impl Fn(&Stage, Link)) {
    let stage = Stage::new();
    run(&stage, stage.link());
    if !is_root() {
        return note_not_run("a helper of another user", "this is not root");
    }
    let stage = Stage::new();
    run(&stage, stage.launch().as_user(OTHER_USER).greeted());
}

fn for_each_escape(
    change: fn(Spec) -> Spec,
    mut end: impl FnMut(&mut Link, &mut Escaped) -> foster_protocol::Ending,
    cause: Cause,
) {
    for escape in ESCAPES {
        let stage = Stage::new();
        let mut link = stage.link();
        let mut escaped = escape.spawn(&stage, &mut link, change);
        let ending = end(&mut link, &mut escaped);
        let what = format!("{escape:?}");
        assert_all_gone(&ending, &what);
        escaped.assert_dead(&what);
        assert_eq!(ending.cause, cause, "{what}: {ending:?}");
        link.close(escaped.running.session);
        link.assert_idle();
        assert_eq!(link.spares(), [escaped.keeper.pid()], "{what}");
        link.hang_up();
        assert_eq!(link.exit_code(), 0, "{what}");
        assert!(!escaped.keeper.is_alive(), "{what}: its keeper is left");
    }
}

#[test]
fn kill_at_once_reaches_whoever_has_left_the_session() {
    for_each_escape(
        |spec| spec,
        |link, escaped| link.end(escaped.running.session, Duration::ZERO),
        Cause::Kill,
    );
}

#[test]
fn end_with_a_grace_reaches_whoever_has_left_the_session() {
    for_each_escape(
        |spec| spec,
        |link, escaped| link.end(escaped.running.session, Duration::from_millis(300)),
        Cause::Kill,
    );
}

#[test]
fn exit_of_the_leader_ends_whoever_has_left_the_session() {
    for_each_escape(
        |spec| Spec {
            on_exit: OnExit::End {
                grace: Duration::from_millis(300).into(),
            },
            ..spec
        },
        |link, escaped| {
            let end = link.ask_end(escaped.running.session);
            escaped.running.witness.signal(libc::SIGKILL);
            link.ended(end, ANSWER)
        },
        Cause::Signal,
    );
}

#[test]
fn deadline_ends_whoever_has_left_the_session() {
    for_each_escape(
        |spec| Spec {
            deadline: Some(Duration::from_secs(2).into()),
            ..spec
        },
        |link, escaped| link.ending(escaped.running.session),
        Cause::Deadline,
    );
}

#[test]
fn deadline_holds_for_escapees_after_the_leaders_exit() {
    for_each_escape(
        |spec| Spec {
            deadline: Some(Duration::from_secs(2).into()),
            ..spec
        },
        |link, escaped| {
            escaped.running.witness.signal(libc::SIGKILL);
            link.exit(escaped.running.session);
            link.ending(escaped.running.session)
        },
        Cause::Deadline,
    );
}

#[test]
fn hangup_ends_whoever_has_left_the_session_before_the_helper_exits() {
    for_each_user(|stage, mut link| {
        let mut all: Vec<Escaped> = ESCAPES
            .into_iter()
            .map(|escape| escape.spawn(stage, &mut link, |spec| spec))
            .collect();
        link.hang_up();
        assert_eq!(link.exit_code(), 0);
        for (escape, escaped) in ESCAPES.into_iter().zip(&mut all) {
            escaped.assert_dead(&format!("{escape:?}"));
            assert!(!escaped.keeper.is_alive(), "{escape:?}: the keeper");
        }
    });
}

#[test]
fn shutdown_ends_whoever_has_left_the_session_before_its_farewell() {
    for_each_user(|stage, mut link| {
        let mut all: Vec<Escaped> = ESCAPES
            .into_iter()
            .map(|escape| escape.spawn(stage, &mut link, |spec| spec))
            .collect();
        let report = link.shut_down(GRACE);
        assert_eq!(report.sessions, 5, "{report:?}");
        assert!(report.survivors.is_empty(), "{report:?}");
        for (escape, escaped) in ESCAPES.into_iter().zip(&mut all) {
            escaped.assert_dead(&format!("{escape:?}"));
        }
        assert_eq!(link.exit_code(), 0);
    });
}

#[test]
fn close_ends_whoever_has_left_the_session_and_its_keeper_goes() {
    for_each_user(|stage, mut link| {
        let mut keepers = Vec::new();
        for escape in ESCAPES {
            let mut escaped = escape.spawn(stage, &mut link, |spec| spec);
            link.close(escaped.running.session);
            escaped.running.witness.wait_for_death(DEATH);
            escaped.tracer.wait_for_end(DEATH);
            if let Some(escapee) = &escaped.escapee {
                escapee.wait_for_death(DEATH);
            }
            link.assert_idle();
            // It waits for the next session, and goes with the helper.
            assert!(link.spares().contains(&escaped.keeper.pid()), "{escape:?}");
            keepers.push(escaped.keeper);
        }
        link.hang_up();
        assert_eq!(link.exit_code(), 0);
        assert!(!keepers.iter().any(Witness::is_alive), "a keeper is left");
    });
}

#[test]
fn member_outside_the_leaders_group_gets_term_and_the_grace_to_act_on_it() {
    let act = "trap \"echo acted; exit 0\" TERM; sleep 60 & until [ \"$(cat /proc/$!/comm)\" = sleep ]; do :; done; echo ready; wait";
    let escape = format!("( setsid sh -c '{act}' & ); exec sleep 60");
    let job = format!("set -m; sh -c '{act}' & exec sleep 60");
    for (level, script) in [
        (Level::Group, &job),
        (Level::Tree, &job),
        (Level::Tree, &escape),
    ] {
        let stage = Stage::new();
        let mut link = stage.link();
        let (running, mut tracer) = link.spawn_traced(at_level(level, stage.bash(script)));
        let ending = link.end(running.session, GRACE);
        let what = format!("{level:?}: {script}: {ending:?}");
        assert_eq!(ending.verdict, Verdict::AllGone, "{what}");
        assert_eq!(tracer.wait_for_end(DEATH), b"acted\n", "{what}");
        let killed = |member: &Member| member.ended == Ended::ByKill;
        assert!(!ending.members.iter().any(killed), "{what}");
    }
}

#[test]
fn escapee_is_listed_under_its_own_session_and_no_other() {
    let stage = Stage::new();
    let mut link = stage.link();
    let escaped = Escape::Daemon.spawn(&stage, &mut link, |spec| spec);
    let other = Escape::Daemon.spawn(&stage, &mut link, |spec| spec);
    for escaped in [&escaped, &other] {
        let daemon = escaped.escapee.as_ref().expect("one process");
        let parent = proc::stat(daemon.pid()).map(|stat| stat.parent);
        assert_eq!(parent, Some(escaped.keeper.pid()), "the daemon's parent");
        let (sessions, unattributed) = link.list();
        assert!(unattributed.is_empty(), "{unattributed:?}");
        for info in sessions {
            let listed: Vec<i32> = info.adopted.iter().map(|orphan| orphan.pid.0).collect();
            let expected = match info.session == escaped.running.session {
                true => vec![daemon.pid()],
                false => continue,
            };
            assert_eq!(listed, expected, "{info:?}");
        }
    }
}

#[test]
fn ending_names_the_escapee_among_the_members() {
    let stage = Stage::new();
    let mut link = stage.link();
    let escaped = Escape::Daemon.spawn(&stage, &mut link, |spec| spec);
    let ending = link.end(escaped.running.session, LONG);
    assert_all_gone(&ending, "a daemon");
    let daemon = escaped.escapee.as_ref().expect("one process").pid();
    let is_named = ending.members.iter().any(|member| member.pid.0 == daemon);
    assert!(is_named, "{ending:?}");
}

#[test]
fn end_of_one_session_leaves_the_escapees_of_the_others_alone() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut other = Escape::Daemon.spawn(&stage, &mut link, |spec| spec);
    let mut grouped = link.spawn_traced(at_level(Level::Group, stage.sleeper())).1;
    let mut escaped = Escape::Daemon.spawn(&stage, &mut link, |spec| spec);
    let ending = link.end(escaped.running.session, Duration::ZERO);
    assert_all_gone(&ending, "the one that was ended");
    escaped.assert_dead("the one that was ended");
    other.tracer.assert_held_for(Duration::from_millis(200));
    let daemon = other.escapee.as_ref().expect("one process");
    assert!(daemon.is_alive(), "the other session's daemon");
    assert!(grouped.is_held(), "the session without a keeper");
}

#[test]
fn orphan_of_a_session_that_dies_by_itself_leaves_no_zombie() {
    let stage = Stage::new();
    let mut link = stage.link();
    let script = "i=0; while [ $i -lt 50 ]; do ( setsid true & ); i=$((i+1)); done; \
                  echo ready; exec sleep 60";
    let (running, _tracer) = link.spawn_traced(tree(stage.sh(script)));
    let keeper = link.keeper_of(&running);
    foster_tests::eventually("the keeper has its leader alone", DEATH, || {
        proc::children(keeper.pid()).len() == 1
    });
}
