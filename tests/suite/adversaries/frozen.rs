//! Trees that are frozen by their cgroup: of version 2, which lets them die, and of version 1,
//! which does not.

use std::fs;
use std::time::Duration;

use foster_protocol::{Level, Verdict, Why};
use foster_tests::{ANSWER, Cgroup, DEATH, Running, SETTLE, Tracer, eventually, is_root, not_run};

use crate::ground::{LEVELS, Scene};

const WHAT: &str = "a frozen tree";

/// The hard limit of an ending and what its answer takes.
const HARD: Duration = Duration::from_secs(20);

/// Spawns a leader with a child in a session of its own, both in a cgroup of the test's.
fn spawn_in(scene: &mut Scene, cgroup: &Cgroup) -> (Running, Tracer) {
    let script = format!(
        "echo $$ > {} && {{ setsid sleep 60 & echo ready; exec sleep 60; }}",
        cgroup.procs().display()
    );
    let (running, mut tracer) = scene.spawn(scene.stage.sh(&script));
    tracer.line();
    (running, tracer)
}

#[test]
fn tree_that_version_two_has_frozen_dies_at_each_level() {
    for level in [Level::Tree, Level::Cgroup, Level::Namespace] {
        let Some(mut scene) = Scene::new(level, WHAT) else {
            continue;
        };
        if !is_root() {
            return not_run(WHAT, "this is not root, which moves processes");
        }
        let cgroup = match Cgroup::of_name(&scene.stage, "frozen") {
            Ok(cgroup) => cgroup,
            Err(missing) => return not_run(WHAT, &missing),
        };
        let (running, mut tracer) = if level == Level::Namespace {
            // Numbers are others inside, and 0 is whoever writes it.
            let script = format!(
                "echo 0 > {} && {{ setsid sleep 60 & echo ready; exec sleep 60; }}",
                cgroup.procs().display()
            );
            let (running, mut tracer) = scene.spawn(scene.stage.sh(&script));
            tracer.line();
            (running, tracer)
        } else {
            spawn_in(&mut scene, &cgroup)
        };
        cgroup.set("cgroup.freeze", "1").expect("version 2 freezes");
        let events = cgroup.path().join("cgroup.events");
        eventually("the tree is frozen", SETTLE, || {
            fs::read_to_string(&events).is_ok_and(|text| text.contains("frozen 1"))
        });
        let ending = scene.link.end(running.session, Duration::from_millis(300));
        scene.assert_all_gone(&ending, WHAT);
        tracer.wait_for_end(Duration::ZERO);
        scene.link.close(running.session);
        scene.link.assert_idle();
    }
}

#[test]
fn tree_that_version_one_has_frozen_is_named_and_gone_when_it_thaws() {
    for level in LEVELS {
        // One that a namespace holds is the same, and moves by other numbers.
        if level == Level::Namespace {
            continue;
        }
        let Some(mut scene) = Scene::new(level, WHAT) else {
            continue;
        };
        let freezer = match Cgroup::of_controller(&scene.stage, "freezer") {
            Ok(freezer) => freezer,
            Err(missing) => return not_run(WHAT, &missing),
        };
        let (running, mut tracer) = spawn_in(&mut scene, &freezer);
        freezer
            .set("freezer.state", "FROZEN")
            .expect("version 1 freezes");
        let state = freezer.path().join("freezer.state");
        eventually("the tree is frozen", SETTLE, || {
            fs::read_to_string(&state).is_ok_and(|text| text.trim() == "FROZEN")
        });
        let session = running.session;
        let kill = scene.link.ask_kill(session, libc::SIGKILL, Duration::ZERO);
        scene.assert_serves();
        let ending = scene.link.ended(kill, HARD);
        assert_eq!(ending.verdict, Verdict::Incomplete, "{level:?}: {ending:?}");
        let survivors: Vec<Why> = ending.survivors.iter().map(|one| one.why).collect();
        let are_said = survivors.iter().all(|why| *why == Why::Uninterruptible);
        assert!(are_said && !survivors.is_empty(), "{level:?}: {ending:?}");
        assert!(running.witness.is_alive(), "the control: it is frozen");
        scene.assert_serves();
        freezer.set("freezer.state", "THAWED").expect("it thaws");
        running.witness.wait_for_death(ANSWER);
        if level == Level::Group {
            // Whoever has left is ended with the helper.
            scene.link.hang_up();
            scene.link.exit_code();
            tracer.wait_for_end(Duration::ZERO);
            continue;
        }
        tracer.wait_for_end(DEATH);
        scene.assert_no_leaf();
        scene.link.close(session);
        scene.link.assert_idle();
    }
}
