//! Every shape of tree, ended in every way, at the levels that end it whatever it does.

use std::time::Duration;

use foster_protocol::{Cause, OnExit, Request, Spec, Target};
use foster_tests::{ANSWER, DEATH, SETTLE, eventually};

use crate::ground::{Formed, KEPT, SHAPES, Scene, Shape};

const WHAT: &str = "every shape of tree";

/// A grace that stubborn members are not left alone with for long.
const GRACE: Duration = Duration::from_millis(300);

/// Runs a test at each level with a keeper.
fn at_each_level(mut run: impl FnMut(&mut Scene)) {
    for level in KEPT {
        if let Some(mut scene) = Scene::new(level, WHAT) {
            run(&mut scene);
            scene.assert_no_leaf();
        }
    }
}

#[test]
fn kill_at_once_leaves_nobody_of_any_shape() {
    at_each_level(|scene| {
        for mut formed in Formed::all(scene, |spec| spec) {
            let kill = scene
                .link
                .ask_kill(formed.running.session, libc::SIGKILL, Duration::ZERO);
            let ending = scene.link.ended(kill, ANSWER);
            scene.assert_all_gone(&ending, &format!("{:?}", formed.shape));
            formed.assert_dead(scene.level);
            scene.link.close(formed.running.session);
        }
        scene.link.assert_idle();
    });
}

#[test]
fn end_with_a_grace_leaves_nobody_of_any_shape() {
    at_each_level(|scene| {
        for mut formed in Formed::all(scene, |spec| spec) {
            let ending = scene.link.end(formed.running.session, GRACE);
            scene.assert_all_gone(&ending, &format!("{:?}", formed.shape));
            formed.assert_dead(scene.level);
            scene.link.close(formed.running.session);
        }
        scene.link.assert_idle();
    });
}

#[test]
fn close_leaves_nobody_of_any_shape() {
    at_each_level(|scene| {
        let all = Formed::all(scene, |spec| spec);
        for formed in &all {
            scene.link.close(formed.running.session);
        }
        for mut formed in all {
            formed.wait_for_death(DEATH);
        }
        scene.link.assert_idle();
    });
}

#[test]
fn deadline_leaves_nobody_of_any_shape() {
    at_each_level(|scene| {
        let timed = |spec| Spec {
            deadline: Some(Duration::from_secs(3).into()),
            ..spec
        };
        for mut formed in Formed::all(scene, timed) {
            let ending = scene.link.ending(formed.running.session);
            assert_eq!(ending.cause, Cause::Deadline, "{ending:?}");
            scene.assert_all_gone(&ending, &format!("{:?}", formed.shape));
            formed.assert_dead(scene.level);
            scene.link.close(formed.running.session);
        }
        scene.link.assert_idle();
    });
}

#[test]
fn leaders_exit_leaves_nobody_of_any_shape() {
    at_each_level(|scene| {
        let ending = |spec| Spec {
            on_exit: OnExit::End {
                grace: GRACE.into(),
            },
            ..spec
        };
        for shape in SHAPES {
            // Its process goes on as a thread that nobody can end alone.
            if shape == Shape::Threads {
                continue;
            }
            let mut formed = Formed::spawn(scene, shape, ending);
            let session = formed.running.session;
            scene.link.signal(session, libc::SIGKILL, Target::Leader);
            let ending = scene.link.ending(session);
            scene.assert_all_gone(&ending, &format!("{shape:?}"));
            formed.assert_dead(scene.level);
            scene.link.close(session);
        }
        scene.link.assert_idle();
    });
}

#[test]
fn hangup_leaves_nobody_of_any_shape_when_the_helper_has_exited() {
    at_each_level(|scene| {
        let mut all = Formed::all(scene, |spec| spec);
        scene.link.hang_up();
        assert_eq!(scene.link.exit_code(), 0);
        for formed in &mut all {
            formed.assert_dead(scene.level);
        }
    });
}

#[test]
fn shutdown_leaves_nobody_of_any_shape_at_its_farewell() {
    at_each_level(|scene| {
        let mut all = Formed::all(scene, |spec| spec);
        let farewell = scene.link.shut_down(GRACE);
        assert!(farewell.survivors.is_empty(), "{farewell:?}");
        assert_eq!(farewell.sessions as usize, SHAPES.len());
        for formed in &mut all {
            formed.assert_dead(scene.level);
        }
    });
}

#[test]
fn end_of_one_session_touches_nobody_of_another() {
    at_each_level(|scene| {
        let mut others = Formed::all(scene, |spec| spec);
        for shape in SHAPES {
            let formed = Formed::spawn(scene, shape, |spec| spec);
            let session = formed.running.session;
            let kill = scene.link.ask_kill(session, libc::SIGKILL, Duration::ZERO);
            let ending = scene.link.ended(kill, ANSWER);
            scene.assert_all_gone(&ending, &format!("{shape:?}"));
            scene.link.close(session);
        }
        for other in &mut others {
            let shape = other.shape;
            assert!(other.running.witness.is_alive(), "the leader of {shape:?}");
            assert!(other.tracer.is_held(), "{shape:?}");
        }
        for other in &mut others {
            scene.link.close(other.running.session);
            other.wait_for_death(DEATH);
        }
    });
}

#[test]
fn leaf_is_there_while_its_session_is_and_gone_with_it() {
    let Some(mut scene) = Scene::new(foster_protocol::Level::Cgroup, "a leaf") else {
        return;
    };
    let formed = Formed::spawn(&mut scene, Shape::Daemon, |spec| spec);
    if let Some(cgroup) = &scene.cgroup {
        assert_eq!(cgroup.below().len(), 1, "a leaf a session");
    }
    // Cgroups that the session makes itself go too.
    if let Some(leaf) = scene.cgroup.as_ref().and_then(|one| one.below().pop()) {
        std::fs::create_dir_all(leaf.join("a/b/c")).expect("cgroups below the leaf");
    }
    let session = formed.running.session;
    let ending = scene.link.end(session, GRACE);
    scene.assert_all_gone(&ending, "a leaf");
    scene.assert_no_leaf();
    let reply = scene.link.ask(Request::List);
    assert!(matches!(reply, foster_protocol::Reply::Sessions { .. }));
    scene.link.close(session);
    eventually("the session is forgotten", SETTLE, || {
        scene.link.state(session).is_none()
    });
}
