//! What is special about a session in a pid namespace of its own.

use std::time::Duration;

use foster_protocol::{Level, Reject, Reply, Request, Spec, StateName};
use foster_tests::{DEATH, SETTLE, eventually, is_root, not_run, proc};

use crate::ground::{Formed, NOBODY, SHAPES, Scene, Shape, outer};

const WHAT: &str = "a namespace";

fn scene() -> Option<Scene> {
    Scene::new(Level::Namespace, WHAT)
}

#[test]
fn numbers_that_are_told_are_the_hosts_and_those_inside_are_others() {
    let Some(mut scene) = scene() else { return };
    let script = "setsid sh -c 'echo $$; exec sleep 60' & echo $$; exec sleep 60";
    let (running, mut tracer) = scene.spawn(scene.stage.sh(script));
    let inner = [tracer.pid(), tracer.pid()];
    let keeper = scene.link.keeper_of(&running);
    let members = inner.map(|number| outer(&running, number));
    assert!(
        members.iter().any(|one| one.pid() == running.pid),
        "the leader"
    );
    let child = members.iter().find(|one| one.pid() != running.pid);
    let child = child.expect("its child").pid();
    let (sessions, _) = scene.link.list();
    let leader = sessions.first().and_then(|info| info.leader);
    assert_eq!(leader.map(|pid| pid.0), Some(running.pid));
    let ending = scene.link.end(running.session, Duration::ZERO);
    let named: Vec<i32> = ending.members.iter().map(|one| one.pid.0).collect();
    assert_eq!(named, [child], "{ending:?}");
    scene.assert_all_gone(&ending, WHAT);
    scene.link.close(running.session);
    keeper.wait_for_death(DEATH);
}

#[test]
fn command_is_never_the_first_process_and_sees_its_own_namespace_in_proc() {
    let Some(mut scene) = scene() else { return };
    let script = "echo $$; grep -c . /proc/1/comm; ls -d /proc/[0-9]* | wc -l";
    let (_exit, output) = scene.link.output(scene.at(scene.stage.sh(script)));
    let text = String::from_utf8_lossy(&output).into_owned();
    let numbers: Vec<u32> = text
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect();
    let [own, first, count] = numbers.as_slice() else {
        panic!("{text:?}")
    };
    assert!(*own > 1, "{text:?}");
    assert_eq!(*first, 1, "{text:?}");
    assert!(*count < 6, "{text:?}");
}

#[test]
fn release_is_refused() {
    let Some(mut scene) = scene() else { return };
    let detachable = Spec {
        detachable: true,
        ..scene.stage.sleeper()
    };
    let detachable = scene.at(detachable);
    let reason = scene.link.spawn_refusal(detachable);
    assert!(matches!(reason, Reject::Unsupported { .. }), "{reason:?}");
    let (running, mut tracer) = scene.spawn(scene.stage.sleeper());
    tracer.line();
    let session = running.session;
    let reason = scene.link.refusal(Request::Release { session });
    assert!(
        !matches!(reason, Reject::UnknownSession),
        "the reason is the level: {reason:?}"
    );
    assert_eq!(scene.link.state(session), Some(StateName::Running));
    let ending = scene.link.end(session, Duration::ZERO);
    scene.assert_all_gone(&ending, WHAT);
    scene.link.close(session);
}

#[test]
fn other_credentials_are_refused_in_a_user_namespace() {
    let Some(mut scene) = Scene::of_user(Level::Namespace, WHAT, NOBODY, &[]) else {
        return;
    };
    let spec = Spec {
        uid: Some(1),
        ..scene.stage.sh("exit 0")
    };
    let (_, reply) = scene.link.try_spawn(scene.at(spec));
    assert!(matches!(reply, Reply::Rejected { .. }), "{reply:?}");
    scene.assert_serves();
}

#[test]
fn user_keeps_its_number_in_a_user_namespace() {
    let Some(mut scene) = Scene::of_user(Level::Namespace, WHAT, NOBODY, &[]) else {
        return;
    };
    let (_, output) = scene.link.output(scene.at(scene.stage.sh("id -u; id -g")));
    assert_eq!(output, b"65534\n65534\n");
}

#[test]
fn every_shape_goes_with_a_keeper_that_is_killed() {
    let Some(mut scene) = scene() else { return };
    for shape in SHAPES {
        let mut formed = Formed::spawn(&mut scene, shape, |spec| spec);
        let session = formed.running.session;
        let end = scene.link.ask_end(session);
        let exit = scene.link.ask_exit(session);
        scene.link.keeper_of(&formed.running).signal(libc::SIGKILL);
        let ending = scene.link.ended(end, DEATH);
        assert_eq!(
            ending.cause,
            foster_protocol::Cause::SupervisorLost,
            "{ending:?}"
        );
        assert_eq!(
            ending.verdict,
            foster_protocol::Verdict::AllGone,
            "{ending:?}"
        );
        let proof = Some(foster_protocol::Proof::NamespaceDead);
        assert_eq!(ending.proof, proof, "{ending:?}");
        formed.assert_dead(Level::Namespace);
        let reply = scene.link.answer(exit).reply;
        assert!(matches!(reply, Reply::Rejected { .. }), "{reply:?}");
        scene.link.close(session);
    }
    scene.link.assert_idle();
}

#[test]
fn session_cannot_harm_its_keeper_by_signals() {
    let Some(mut scene) = scene() else { return };
    let script = "for s in KILL STOP TERM HUP INT; do kill -$s 1; done; kill -KILL -1; \
                  echo still; exec sleep 60";
    let (running, mut tracer) = scene.spawn(scene.stage.sh(script));
    assert_eq!(tracer.line(), "still");
    let keeper = scene.link.keeper_of(&running);
    let state = proc::state(keeper.pid());
    assert!(matches!(state, Some('S' | 'R')), "{state:?}");
    let ending = scene.link.end(running.session, Duration::ZERO);
    scene.assert_all_gone(&ending, WHAT);
    scene.link.close(running.session);
}

#[test]
fn namespaces_of_a_session_that_makes_its_own_go_with_it() {
    let Some(mut scene) = scene() else { return };
    if !is_root() {
        return not_run(WHAT, "this is not root, and unshare needs it");
    }
    let script = "unshare --pid --fork sh -c 'setsid sleep 60 & echo ready; exec sleep 60' & wait";
    let (running, mut tracer) = scene.spawn(scene.stage.sh(script));
    tracer.line();
    let ending = scene.link.end(running.session, Duration::ZERO);
    scene.assert_all_gone(&ending, WHAT);
    tracer.wait_for_end(Duration::ZERO);
    scene.link.close(running.session);
    eventually("nobody is left", SETTLE, || {
        proc::session_members(running.pid).is_empty()
    });
}

#[test]
fn shape_of_a_daemon_is_listed_by_the_hosts_number() {
    let Some(mut scene) = scene() else { return };
    let formed = Formed::spawn(&mut scene, Shape::Daemon, |spec| spec);
    let keeper = scene.link.keeper_of(&formed.running);
    let listed = |scene: &mut Scene| -> Vec<i32> {
        let (sessions, _) = scene.link.list();
        let adopted = sessions.iter().flat_map(|info| &info.adopted);
        adopted.map(|orphan| orphan.pid.0).collect()
    };
    let children = proc::children(keeper.pid());
    let daemons: Vec<i32> = children.iter().map(|stat| stat.pid).collect();
    let daemons: Vec<i32> = daemons
        .into_iter()
        .filter(|pid| *pid != formed.running.pid)
        .collect();
    assert_eq!(listed(&mut scene), daemons);
    assert_eq!(daemons.len(), 1, "{children:?}");
}
