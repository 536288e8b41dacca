//! A file system that has fallen mute: a member that waits for it cannot be ended, and neither
//! can a command that is a program on it.
//!
//! A read that the file system has taken and does not answer cannot be ended: once its server has
//! the request, the kernel waits for the answer without hearing KILL.

use std::path::PathBuf;
use std::time::Duration;

use foster_protocol::{Ending, Level, Reply, Verdict, Why};
use foster_tests::{
    ANSWER, DEATH, Process, Program, SETTLE, Stage, eventually, is_root, not_run, proc,
};
use nix::mount::{MntFlags, umount2};

use crate::ground::{LEVELS, Scene};

const WHAT: &str = "a mute file system";

/// The hard limit of an ending and what its answer takes.
const HARD: Duration = Duration::from_secs(20);

/// The mount and its server. Killing the server fails every request that waits.
struct Mute {
    server: Process,
    place: PathBuf,
}

impl Mute {
    /// Mounts it; none where that cannot be done, which is said.
    fn new(stage: &Stage) -> Option<Self> {
        if !is_root() {
            not_run(WHAT, "this is not root, which mounts it");
            return None;
        }
        let place = stage.scratch().join("mute");
        std::fs::create_dir(&place).expect("a folder");
        let mut server = Program::fixture(stage, "mute-file-system")
            .arg(&place)
            .start();
        let said = server.stdout.line();
        if said != "mounted" {
            not_run(WHAT, &said);
            return None;
        }
        Some(Self { server, place })
    }

    fn file(&self) -> String {
        self.place.join("file").display().to_string()
    }

    /// Waits until somebody has asked for what never comes.
    fn wait_for_a_reader(&mut self) {
        assert_eq!(self.server.stdout.line(), "asked");
    }

    /// Ends the server: whoever waits gets an error.
    fn die(&mut self) {
        self.server.signal(libc::SIGKILL);
        self.server.wait(DEATH);
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        // It comes first: nothing may wait for it when the mount goes.
        if self.server.witness().is_alive() {
            self.server.signal(libc::SIGKILL);
        }
        let gone = umount2(&self.place, MntFlags::MNT_DETACH);
        assert!(gone.is_ok() || std::thread::panicking(), "{gone:?}");
    }
}

fn assert_uninterruptible(ending: &Ending, pid: i32, level: Level) {
    assert_eq!(ending.verdict, Verdict::Incomplete, "{level:?}: {ending:?}");
    let survivors: Vec<_> = ending
        .survivors
        .iter()
        .map(|one| (one.pid.0, one.why))
        .collect();
    assert_eq!(
        survivors,
        [(pid, Why::Uninterruptible)],
        "{level:?}: {ending:?}"
    );
}

fn assert_reader_is_named(level: Level) {
    let Some(mut scene) = Scene::new(level, WHAT) else {
        return;
    };
    let Some(mut mute) = Mute::new(&scene.stage) else {
        return;
    };
    // Beside the reader, members that can be ended.
    let script = format!("sleep 60 & setsid sleep 60 & exec cat {}", mute.file());
    let (running, mut tracer) = scene.spawn(scene.stage.sh(&script));
    mute.wait_for_a_reader();
    let session = running.session;
    let kill = scene.link.ask_kill(session, libc::SIGKILL, Duration::ZERO);
    scene.assert_serves();
    let ending = scene.link.ended(kill, HARD);
    assert_uninterruptible(&ending, running.pid, level);
    assert!(
        running.witness.is_alive(),
        "the control: it cannot be ended"
    );
    assert_eq!(proc::state(running.pid), Some('D'), "how it waits");
    // Its dead children are its own to collect, and it cannot.
    let mut others = proc::session_members(running.pid);
    others.retain(|stat| stat.state != 'Z');
    assert_eq!(others.len(), 1, "the others are dead: {others:?}");
    scene.assert_serves();
    mute.die();
    running.witness.wait_for_death(ANSWER);
    if level != Level::Group {
        tracer.wait_for_end(DEATH);
    }
    scene.assert_no_leaf();
    scene.link.close(session);
    if level == Level::Group {
        scene.link.hang_up();
        assert_eq!(scene.link.exit_code(), 0);
        tracer.wait_for_end(Duration::ZERO);
    } else {
        scene.link.assert_idle();
    }
}

#[test]
fn member_that_waits_for_a_mute_file_system_is_named_and_the_rest_is_dead_at_group() {
    assert_reader_is_named(Level::Group);
}

#[test]
fn member_that_waits_for_a_mute_file_system_is_named_and_the_rest_is_dead_at_tree() {
    assert_reader_is_named(Level::Tree);
}

#[test]
fn member_that_waits_for_a_mute_file_system_is_named_and_the_rest_is_dead_at_cgroup() {
    assert_reader_is_named(Level::Cgroup);
}

#[test]
fn member_that_waits_for_a_mute_file_system_is_named_and_the_rest_is_dead_in_a_namespace() {
    assert_reader_is_named(Level::Namespace);
}

#[test]
fn program_on_a_mute_file_system_delays_nobody_and_can_be_ended() {
    for level in LEVELS {
        let Some(mut scene) = Scene::new(level, WHAT) else {
            continue;
        };
        let Some(mut mute) = Mute::new(&scene.stage) else {
            return;
        };
        let spec = scene.at(scene.stage.command(&mute.file(), &[]));
        let (session, spawn) = scene.link.start(spec);
        mute.wait_for_a_reader();
        scene.assert_serves();
        assert!(!scene.link.has_answer(spawn), "exec has not come back");
        let kill = scene.link.ask_kill(session, libc::SIGKILL, Duration::ZERO);
        let ending = scene.link.ended(kill, HARD);
        assert_eq!(ending.verdict, Verdict::Incomplete, "{level:?}: {ending:?}");
        let whys: Vec<Why> = ending.survivors.iter().map(|one| one.why).collect();
        assert_eq!(whys, [Why::Uninterruptible], "{level:?}: {ending:?}");
        let reply = scene.link.answer(spawn).reply;
        assert!(
            matches!(reply, Reply::SpawnFailed { .. }),
            "{level:?}: {reply:?}"
        );
        scene.assert_serves();
        mute.die();
        scene.link.close(session);
        scene.link.assert_idle();
        scene.assert_no_leaf();
    }
}

#[test]
fn deadline_ends_the_spawn_of_a_program_on_a_mute_file_system() {
    let Some(mut scene) = Scene::new(Level::Tree, WHAT) else {
        return;
    };
    let Some(mut mute) = Mute::new(&scene.stage) else {
        return;
    };
    let spec = foster_protocol::Spec {
        deadline: Some(Duration::from_millis(200).into()),
        ..scene.at(scene.stage.command(&mute.file(), &[]))
    };
    let (session, spawn) = scene.link.start(spec);
    mute.wait_for_a_reader();
    let reply = scene.link.answer_within(spawn, HARD).reply;
    assert!(matches!(reply, Reply::SpawnFailed { .. }), "{reply:?}");
    let ending = scene.link.ending(session);
    assert_eq!(ending.cause, foster_protocol::Cause::Deadline, "{ending:?}");
    scene.assert_serves();
    mute.die();
    scene.link.close(session);
    scene.link.assert_idle();
}

#[test]
fn helper_leaves_at_a_hangup_though_a_member_waits_for_a_mute_file_system() {
    for level in LEVELS {
        let Some(mut scene) = Scene::new(level, WHAT) else {
            continue;
        };
        let Some(mut mute) = Mute::new(&scene.stage) else {
            return;
        };
        let script = format!("exec cat {}", mute.file());
        let (running, mut tracer) = scene.spawn(scene.stage.sh(&script));
        mute.wait_for_a_reader();
        scene.link.hang_up();
        scene.link.exit_code_within(HARD);
        assert!(
            running.witness.is_alive(),
            "the control: it cannot be ended"
        );
        mute.die();
        // It has had its KILL long ago.
        tracer.wait_for_end(DEATH);
        running.witness.wait_for_death(DEATH);
        eventually("no leaf is left", SETTLE, || {
            let Some(cgroup) = &scene.cgroup else {
                return true;
            };
            // With its helper gone the leaf is the next sweep's to remove.
            cgroup
                .below()
                .iter()
                .all(|leaf| std::fs::remove_dir(leaf).is_ok())
        });
    }
}
