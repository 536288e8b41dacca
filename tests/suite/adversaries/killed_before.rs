//! Cgroups that were killed once (`cgroup.kill`), with the helper in them: since Linux 6.14 every
//! process that is started from there in another cgroup is dead before it has run.

use std::fs;
use std::time::Duration;

use foster_protocol::{Availability, Level, LevelChoice, Obstacle, Reply, Spec, Step};
use foster_tests::{
    ANSWER, Cgroup, Link, Program, SETTLE, Stage, Tracer, at_level, eventually, not_run, places,
};
use nix::libc;

const WHAT: &str = "a cgroup that was killed once";

/// A cgroup of the test's own; what is missing is said.
fn cgroup(stage: &Stage) -> Option<Cgroup> {
    let made = Cgroup::unified(stage).and_then(|cgroup| {
        let has_kill = cgroup.path().join("cgroup.kill").exists();
        let missing = || "the kernel has no cgroup.kill".to_owned();
        has_kill.then_some(cgroup).ok_or_else(missing)
    });
    made.map_err(|missing| not_run(WHAT, &missing)).ok()
}

/// Launches a helper whose number is in this file, and asks for its level `cgroup`.
fn helper_in(stage: &Stage, procs: &str) -> (Link, Availability) {
    let mut link = stage.launch().through("in-cgroup", &[procs]).silent();
    let levels = link.hello().levels;
    let level = levels.into_iter().find(|one| one.level == Level::Cgroup);
    (link, level.expect("the level is told of"))
}

fn auto(spec: Spec) -> Spec {
    Spec {
        level: LevelChoice::Auto,
        ..spec
    }
}

/// Runs a command at this choice of a level; gives back the level that it got.
fn assert_runs(link: &mut Link, spec: Spec) -> Level {
    let (session, id) = link.start(spec);
    let reply = link.answer(id).reply;
    let Reply::Spawned { containment, .. } = reply else {
        panic!("spawn: {reply:?}")
    };
    assert_eq!(link.exit(session).status, 5 << 8, "it runs");
    link.close(session);
    containment.level
}

/// What is told of the level is true: a kernel without the rule offers it and it works; else it
/// is missing, with the reason, and `auto` is what is below it.
fn assert_honest(stage: &Stage, procs: &str, what: &str) {
    let (mut link, told) = helper_in(stage, procs);
    let expected = match told.errno {
        0 => Level::Cgroup,
        _ => {
            let reason = (told.obstacle, told.errno);
            let dead_at_birth = (Some(Obstacle::CgroupEnter), libc::ECANCELED);
            assert_eq!(reason, dead_at_birth, "{what}");
            Level::Tree
        }
    };
    let got = assert_runs(&mut link, auto(stage.sh("exit 5")));
    assert_eq!(got, expected, "{what}: {told:?}");
    let exactly = at_level(Level::Cgroup, stage.sh("exit 5"));
    assert_eq!(assert_runs(&mut link, exactly), expected, "{what}");
    link.assert_idle();
}

fn assert_has_level(stage: &Stage, procs: &str, what: &str) {
    let (mut link, told) = helper_in(stage, procs);
    assert_eq!(told.errno, 0, "{what}: {told:?}");
    let got = assert_runs(&mut link, auto(stage.sh("exit 5")));
    assert_eq!(got, Level::Cgroup, "{what}");
    link.assert_idle();
}

#[test]
fn helper_in_a_cgroup_that_was_killed_once_says_that_the_level_is_missing() {
    let stage = Stage::new();
    let Some(outer) = cgroup(&stage) else { return };
    let inner = outer.path().join("inner");
    fs::create_dir(&inner).expect("a cgroup below it");
    let words = |path: &std::path::Path| path.join("cgroup.procs").display().to_string();
    assert_has_level(&stage, &words(outer.path()), "the control: not killed yet");
    outer.set("cgroup.kill", "1").expect("nobody is inside");
    assert_honest(&stage, &words(outer.path()), "it was killed itself");
    assert_honest(&stage, &words(&inner), "the one above it was killed");
    let fresh = outer.path().join("fresh");
    fs::create_dir(&fresh).expect("a cgroup below it");
    assert_has_level(&stage, &words(&fresh), "it was made after that");
    eventually("the helpers left no leaf", SETTLE, || {
        outer.below().len() == 2
    });
}

#[test]
fn doctor_says_what_to_do_about_a_cgroup_that_was_killed_once() {
    let stage = Stage::new();
    let Some(cgroup) = cgroup(&stage) else { return };
    cgroup.set("cgroup.kill", "1").expect("nobody is inside");
    let finished = Program::fixture(&stage, "in-cgroup")
        .arg(cgroup.procs())
        .arg("--")
        .arg(places::foster())
        .args(["doctor", "--json"])
        .run();
    let (_, told) = helper_in(&stage, &cgroup.procs().display().to_string());
    if told.errno == 0 {
        return not_run(WHAT, "this kernel lets the level be had in one");
    }
    assert!(
        finished.stdout.contains("\"cgroup-enter\""),
        "{}",
        finished.stdout
    );
    assert!(
        finished
            .stdout
            .contains("start foster in a cgroup that is new"),
        "{}",
        finished.stdout
    );
}

/// Whoever moves a helper into such a cgroup later takes the level from it unseen.
#[test]
fn command_that_is_dead_at_birth_is_a_failed_spawn_and_no_exit() {
    let stage = Stage::new();
    let Some(cgroup) = cgroup(&stage) else { return };
    let killed = match Cgroup::of_name(&stage, "killed") {
        Ok(killed) => killed,
        Err(missing) => return not_run(WHAT, &missing),
    };
    killed.set("cgroup.kill", "1").expect("nobody is inside");
    let (mut link, told) = helper_in(&stage, &cgroup.procs().display().to_string());
    assert_eq!(told.errno, 0, "{told:?}");
    if let Err(error) = killed.set("cgroup.procs", &link.pid().to_string()) {
        return not_run(WHAT, &format!("the helper cannot be moved: {error}"));
    }
    let (mut tracer, writer) = Tracer::new();
    let spec = at_level(Level::Cgroup, stage.sh("exit 5"));
    let (session, id) = link.start(foster_tests::Command::new(spec).with(1, writer));
    let reply = link.answer(id).reply;
    if let Reply::SpawnFailed { step, errno } = reply {
        assert_eq!((step, errno), (Step::Ended, libc::ECANCELED));
    } else {
        assert!(matches!(reply, Reply::Spawned { .. }), "{reply:?}");
        let status = link.exit(session).status;
        assert_eq!(status, 5 << 8, "a kernel without the rule");
    }
    tracer.wait_for_end(ANSWER);
    link.close(session);
    let below = at_level(Level::Tree, stage.sh("exit 5"));
    assert_eq!(assert_runs(&mut link, below), Level::Tree);
    link.assert_idle();
    drop(link);
    eventually("no leaf is left", Duration::from_secs(5), || {
        cgroup.below().is_empty()
    });
}
