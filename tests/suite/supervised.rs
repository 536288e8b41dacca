//! Death signals: of children without a helper, and of commands behind one.

use std::process::{Command, Stdio};
use std::time::Duration;

use foster::supervised::{self, SupervisedError, Supervision};
use foster::{ErrorKind, Level, LevelChoice, Step};
use foster_tests::{DEATH, Process, Program, Stage, Tracer, Witness, places, proc};

/// Longer than a signal takes.
const WHILE: Duration = Duration::from_millis(300);

/// How often a requester goes away until it was faster than the spawn.
const TRIES: u32 = 200;

/// A host that has spawned its child in this way, and the child.
fn host(stage: &Stage, way: &str) -> (Process, Witness) {
    let mut process = Program::fixture(stage, "host-that-supervises")
        .arg(way)
        .start();
    let mut child = None;
    loop {
        let line = process.stdout.line();
        match line.split_once(' ') {
            // It is not reaped while its parent, which never waits, lives.
            Some(("child", pid)) => child = Some(Witness::of(pid.parse().expect("a pid"))),
            _ if line == "done" => {}
            _ => panic!("the host says {line:?}"),
        }
        // The two lines come in any order.
        if line == "done" || child.is_some() {
            break;
        }
    }
    let child = child.unwrap_or_else(|| {
        loop {
            let line = process.stdout.line();
            if let Some(pid) = line.strip_prefix("child ") {
                break Witness::of(pid.parse().expect("a pid"));
            }
        }
    });
    (process, child)
}

#[test]
fn child_dies_with_its_killed_host() {
    let stage = Stage::new();
    let (mut host, child) = host(&stage, "main");
    assert_eq!(
        proc::stat(child.pid()).map(|stat| stat.parent),
        Some(host.pid())
    );
    host.signal(libc::SIGKILL);
    host.stdout.wait_for_end(DEATH);
    child.wait_for_death(DEATH);
}

#[test]
fn child_survives_the_thread_that_asked_for_it_and_dies_with_its_host() {
    let stage = Stage::new();
    let (mut host, child) = host(&stage, "thread");
    host.stdout.assert_held_for(WHILE);
    assert!(child.is_alive(), "the thread alone has ended");
    host.signal(libc::SIGKILL);
    child.wait_for_death(DEATH);
    host.stdout.wait_for_end(DEATH);
}

#[test]
fn control_plain_death_signal_kills_the_child_when_its_thread_ends() {
    let stage = Stage::new();
    let mut process = Program::fixture(&stage, "host-that-supervises")
        .arg("plain")
        .start();
    // The child may die before it says a word: the host's line is the one that counts.
    while process.stdout.line() != "done" {}
    let is_dead = || {
        let children = proc::children(process.pid());
        children.iter().all(|child| child.state == 'Z')
    };
    foster_tests::eventually("the child is dead while its host lives", DEATH, is_dead);
    assert!(process.witness().is_alive());
    process.signal(libc::SIGKILL);
}

#[test]
fn every_child_has_this_process_as_its_parent_whoever_asks() {
    let stage = Stage::new();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let tag = stage.tag().to_owned();
            std::thread::spawn(move || {
                let mut command = Command::new("sleep");
                command.arg("60").env(foster_tests::TAG, tag);
                command.stdin(Stdio::null()).stdout(Stdio::null());
                supervised::spawn(command).expect("sleep is there")
            })
        })
        .collect();
    for thread in threads {
        let mut child = thread.join().expect("no panic");
        let pid = i32::try_from(child.id()).expect("a pid fits");
        let parent = proc::stat(pid).map(|stat| stat.parent.unsigned_abs());
        assert_eq!(parent, Some(std::process::id()));
        assert!(child.try_wait().expect("it is ours").is_none(), "it lives");
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
    }
}

#[test]
fn child_of_a_requester_that_has_gone_is_killed_and_reaped() {
    let stage = Stage::new();
    let how = Supervision {
        patience: Duration::ZERO,
        ..Supervision::default()
    };
    let mut was_late = false;
    for _ in 0..TRIES {
        let (mut tracer, writer) = Tracer::new();
        let mut command = Command::new("sleep");
        command.arg("60").env(foster_tests::TAG, stage.tag());
        command.stdin(Stdio::null()).stdout(writer);
        match supervised::spawn_with(command, how) {
            Err(SupervisedError::Late { program, .. }) => {
                assert_eq!(program, "sleep");
                was_late = true;
            }
            Ok(mut child) => {
                child.kill().expect("it is ours");
                child.wait().expect("it is ours");
            }
            Err(error) => panic!("{error}"),
        }
        tracer.wait_for_end(DEATH);
        if was_late {
            return;
        }
    }
    panic!("the requester was never late in {TRIES} tries");
}

fn helper() -> foster::Helper {
    let builder = foster::Helper::builder().path(places::helper().path);
    builder.launch().expect("the helper under test starts")
}

#[test]
fn leader_gets_the_death_signal_that_it_asked_for_when_its_helper_is_killed() {
    let stage = Stage::new();
    let helper = helper();
    let (mut tracer, writer) = Tracer::new();
    let script = "trap 'echo got; exit' TERM; echo ready; while :; do sleep 0.05; done";
    let child = foster::Command::new("sh")
        .args(["-c", script])
        .env(foster_tests::TAG, stage.tag())
        .level(LevelChoice::Exactly(Level::Group))
        .parent_death_signal(libc::SIGTERM)
        .stdout(writer)
        .helper(&helper)
        .spawn()
        .expect("the command");
    assert_eq!(tracer.line(), "ready");
    // It is a child of this process that nobody has reaped.
    let witness = Witness::of(i32::try_from(helper.id()).expect("a pid fits"));
    witness.signal(libc::SIGKILL);
    assert_eq!(tracer.line(), "got");
    tracer.wait_for_end(DEATH);
    drop(child);
}

#[test]
fn death_signal_of_a_detachable_command_is_a_typed_error_and_nothing_runs() {
    let stage = Stage::new();
    let helper = helper();
    let marker = stage.scratch().join("ran");
    let error = foster::Command::new("touch")
        .arg(&marker)
        .env(foster_tests::TAG, stage.tag())
        .detachable(true)
        .parent_death_signal(libc::SIGKILL)
        .helper(&helper)
        .spawn()
        .expect_err("a death signal cannot be disarmed");
    assert_eq!(error.kind(), ErrorKind::SpawnFailed);
    assert_eq!(error.step(), Some(Step::DeathSignal));
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert!(!marker.exists());
}
