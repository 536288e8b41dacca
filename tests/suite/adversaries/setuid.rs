//! Members that have become root below a helper that has not.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use foster_protocol::{Ending, Level, Verdict, Why};
use foster_tests::{
    ANSWER, Cgroup, DEATH, Running, Stage, Tracer, Witness, clean_up, not_run, places,
};
use nix::sys::statvfs::{FsFlags, statvfs};

use crate::ground::{NOBODY, Scene, outer};

const WHAT: &str = "a member that has become root";

/// The hard limit of an ending and what its answer takes.
const HARD: Duration = Duration::from_secs(20);

/// A set-user-id copy of the fixture; none where set-user-id has no effect.
fn copy(stage: &Stage) -> Option<PathBuf> {
    let folder = stage.scratch();
    let flags = statvfs(folder).expect("the scratch folder").flags();
    if flags.contains(FsFlags::ST_NOSUID) {
        not_run(WHAT, "the scratch folder's file system is mounted nosuid");
        return None;
    }
    fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("the scratch folder");
    let path = folder.join("becomes-root");
    fs::copy(places::fixture("becomes-root"), &path).expect("a copy");
    fs::set_permissions(&path, Permissions::from_mode(0o4755)).expect("the copy");
    Some(path)
}

/// Spawns a command one member of which has become root. Gives that one.
fn spawn(scene: &mut Scene, words: &str) -> Option<(Running, Tracer, Witness)> {
    let path = copy(&scene.stage)?;
    let script = format!("{} {words} & exec sleep 60", path.display());
    let (running, mut tracer) = scene.spawn(scene.stage.sh(&script));
    let inner = tracer.pid();
    let member = match scene.level {
        Level::Namespace => outer(&running, inner),
        // It lives for a minute from here, so that the number is its own.
        Level::Direct | Level::Group | Level::Tree | Level::Cgroup => Witness::of(inner),
    };
    Some((running, tracer, member))
}

fn kill(scene: &mut Scene, running: &Running) -> Ending {
    let session = running.session;
    let kill = scene.link.ask_kill(session, libc::SIGKILL, Duration::ZERO);
    scene.link.ended(kill, HARD)
}

#[test]
fn member_that_has_become_root_is_named_as_not_permitted_and_the_helper_serves_on() {
    for level in [Level::Group, Level::Tree] {
        let Some(mut scene) = Scene::of_user(level, WHAT, NOBODY, &[]) else {
            return;
        };
        let Some((running, mut tracer, member)) = spawn(&mut scene, "") else {
            return;
        };
        let ending = kill(&mut scene, &running);
        assert_eq!(ending.verdict, Verdict::Incomplete, "{level:?}: {ending:?}");
        assert_eq!(ending.proof, None, "{level:?}: {ending:?}");
        let survivors = ending.survivors.iter();
        let survivors: Vec<_> = survivors.map(|one| (one.pid.0, one.uid, one.why)).collect();
        let expected = (member.pid(), 0, Why::NotPermitted { uid: 0 });
        assert_eq!(survivors, [expected], "{level:?}: {ending:?}");
        assert!(!running.witness.is_alive(), "the leader lives at {level:?}");
        scene.assert_serves();
        // Only this test may end it, and the helper notes that.
        clean_up(&[member]);
        tracer.wait_for_end(DEATH);
        scene.link.close(running.session);
        scene.link.assert_idle();
    }
}

#[test]
fn member_that_has_become_root_is_gone_with_its_cgroup_and_with_its_namespace() {
    for level in [Level::Cgroup, Level::Namespace] {
        let Some(mut scene) = Scene::of_user(level, WHAT, NOBODY, &[]) else {
            continue;
        };
        // In a user namespace that maps one user nobody becomes root: it says so and exits.
        if level == Level::Namespace {
            let Some(path) = copy(&scene.stage) else {
                return;
            };
            let script = format!("{} || echo refused; exec sleep 60", path.display());
            let (running, mut tracer) = scene.spawn(scene.stage.sh(&script));
            assert_eq!(tracer.line(), "refused");
            let ending = kill(&mut scene, &running);
            scene.assert_all_gone(&ending, WHAT);
            scene.link.close(running.session);
            continue;
        }
        let Some((running, mut tracer, member)) = spawn(&mut scene, "") else {
            return;
        };
        let ending = kill(&mut scene, &running);
        scene.assert_all_gone(&ending, WHAT);
        member.wait_for_death(Duration::ZERO);
        assert!(!tracer.is_held(), "somebody lives at {level:?}");
        scene.link.close(running.session);
        scene.link.assert_idle();
        scene.assert_no_leaf();
    }
}

#[test]
fn member_that_has_become_root_is_gone_at_the_death_of_its_namespaces_keeper() {
    let Some(mut scene) = Scene::new(Level::Namespace, WHAT) else {
        return;
    };
    if !foster_tests::is_root() {
        return not_run(WHAT, "this is not root, whose namespaces know every user");
    }
    let command = scene.stage.sh("exec sleep 60");
    let (running, mut tracer) = scene.spawn(foster_protocol::Spec {
        uid: Some(NOBODY),
        gid: Some(NOBODY),
        groups: Some(Vec::new()),
        ..command
    });
    let end = scene.link.ask_end(running.session);
    scene.link.keeper_of(&running).signal(libc::SIGKILL);
    let ending = scene.link.ended(end, ANSWER);
    assert_eq!(ending.verdict, Verdict::AllGone, "{ending:?}");
    tracer.wait_for_end(Duration::ZERO);
    scene.link.close(running.session);
}

#[test]
fn member_that_has_become_root_and_left_its_cgroup_is_named_and_its_leaf_goes_with_it() {
    let Some(mut scene) = Scene::of_user(Level::Cgroup, WHAT, NOBODY, &[]) else {
        return;
    };
    let refuge = match Cgroup::of_name(&scene.stage, "refuge") {
        Ok(refuge) => refuge,
        Err(missing) => return not_run(WHAT, &missing),
    };
    let words = refuge.procs().display().to_string();
    let Some((running, mut tracer, member)) = spawn(&mut scene, &words) else {
        return;
    };
    let ending = kill(&mut scene, &running);
    assert_eq!(ending.verdict, Verdict::Incomplete, "{ending:?}");
    let survivors: Vec<_> = ending
        .survivors
        .iter()
        .map(|one| (one.pid.0, one.why))
        .collect();
    assert_eq!(survivors, [(member.pid(), Why::LeftCgroup)], "{ending:?}");
    scene.assert_serves();
    clean_up(&[member]);
    tracer.wait_for_end(DEATH);
    scene.assert_no_leaf();
    scene.link.close(running.session);
    scene.link.assert_idle();
    drop(refuge);
}
