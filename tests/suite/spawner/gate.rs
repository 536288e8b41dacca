//! The gate: a command that is there and has not run, and does not if nobody lets it.

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use foster::{Command, Fallback, Gate, Level, LevelChoice, Spawner, Stdio};
use foster_tests::{DEATH, Program, SETTLE, Stage, Tracer, Witness, clean_up, eventually, proc};

use crate::ground::{kill, lines, marking, spawner, witness};

/// The levels at which there is a gate.
const LEVELS: [Level; 3] = [Level::Direct, Level::Group, Level::Tree];

/// A gated command that leaves a mark, its mark, and the pipe that it holds.
fn gated(stage: &Stage, spawner: &Spawner, level: Level) -> (Gate, PathBuf, Tracer) {
    let (mut command, marker) = marking(stage);
    let (tracer, writer) = Tracer::new();
    command.level(LevelChoice::Exactly(level)).fd(3, writer);
    let gate = spawner.gated(&command, Fallback::Refuse).expect("a gate");
    (gate, marker, tracer)
}

fn pid(gate: &Gate) -> i32 {
    i32::try_from(gate.pid()).expect("a pid fits")
}

#[test]
fn nothing_runs_before_the_gate_is_opened_and_the_program_after_it() {
    for level in LEVELS {
        let stage = Stage::new();
        let spawner = spawner();
        let (gate, marker, mut tracer) = gated(&stage, &spawner, level);
        let pid = pid(&gate);
        assert_eq!(gate.containment().level, level);
        assert!(gate.pidfd().is_some());
        let stat = proc::stat(pid).expect("it waits");
        assert_eq!((stat.group, stat.session), (pid, pid), "{level:?}");
        tracer.assert_held_for(Duration::from_millis(100));
        assert_eq!(lines(&marker), 0);
        let mut child = gate.open().expect("the program runs");
        assert_eq!(child.id(), pid.unsigned_abs());
        assert!(child.wait().expect("a status").success());
        assert_eq!(lines(&marker), 1, "{level:?}");
    }
}

#[test]
fn dropped_gate_runs_nothing() {
    for level in LEVELS {
        let stage = Stage::new();
        let spawner = spawner();
        let (gate, marker, mut tracer) = gated(&stage, &spawner, level);
        let leader = Witness::of(pid(&gate));
        drop(gate);
        leader.wait_for_death(DEATH);
        tracer.wait_for_end(DEATH);
        assert_eq!(lines(&marker), 0, "{level:?}");
        eventually("it is collected", SETTLE, || {
            proc::state(leader.pid()) != Some('Z')
        });
    }
}

#[test]
fn gate_that_is_closed_by_the_commands_deadline_runs_nothing() {
    for level in LEVELS {
        let stage = Stage::new();
        let (mut command, marker) = marking(&stage);
        command
            .level(LevelChoice::Exactly(level))
            .deadline(Duration::from_millis(100));
        let gate = spawner().gated(&command, Fallback::Refuse).expect("a gate");
        Witness::of(pid(&gate)).wait_for_death(DEATH);
        assert!(gate.open().is_err());
        assert_eq!(lines(&marker), 0, "{level:?}");
    }
}

#[test]
fn program_that_is_missing_is_told_when_the_gate_is_opened() {
    for level in LEVELS {
        let mut command = Command::new("/missing/program");
        command.level(LevelChoice::Exactly(level));
        let gate = spawner().gated(&command, Fallback::Refuse);
        let error = gate.expect("a gate").open().expect_err("no program");
        assert!(error.is_not_found(), "{level:?}: {error}");
        assert!(error.to_string().contains("/missing/program"));
    }
}

#[test]
fn directory_that_is_missing_is_told_before_the_gate() {
    for level in LEVELS {
        let stage = Stage::new();
        let (mut command, marker) = marking(&stage);
        command
            .level(LevelChoice::Exactly(level))
            .current_dir("/missing/directory");
        let error = spawner().gated(&command, Fallback::Refuse);
        assert!(error.expect_err("no directory").is_directory());
        assert_eq!(lines(&marker), 0, "{level:?}");
    }
}

#[test]
fn gate_closes_with_its_helper() {
    for level in [Level::Group, Level::Tree] {
        let stage = Stage::new();
        let spawner = spawner();
        let (gate, marker, mut tracer) = gated(&stage, &spawner, level);
        kill(&witness(&spawner.launch().expect("a helper")));
        tracer.wait_for_end(DEATH);
        let error = gate.open().expect_err("no helper");
        assert!(error.is_helper_lost(), "{level:?}: {error}");
        assert_eq!(lines(&marker), 0, "{level:?}");
    }
}

#[test]
fn gate_closes_with_its_host() {
    for level in ["direct", "group", "auto"] {
        let stage = Stage::new();
        let marker = stage.scratch().join("marker");
        let mut host = Program::fixture(&stage, "host-with-gate")
            .arg(level)
            .arg(&marker)
            .start();
        let mut line = host.stdout.line();
        if let Some(helper) = line.strip_prefix("helper ") {
            assert!(helper.parse::<i32>().is_ok(), "{line}");
            line = host.stdout.line();
        }
        let gated = line.strip_prefix("gated ").expect("a gate");
        let gated = Witness::of(gated.parse().expect("a pid"));
        host.signal(libc::SIGKILL);
        gated.wait_for_death(DEATH);
        host.finish(DEATH);
        assert_eq!(lines(&marker), 0, "{level}");
    }
}

#[test]
fn gate_opens_though_the_pipes_of_the_child_are_held_by_somebody_else() {
    let stage = Stage::new();
    let marker = stage.scratch().join("marker");
    let finished = Program::fixture(&stage, "host-with-gate")
        .arg("direct")
        .arg(&marker)
        .arg("copies")
        .run();
    let last = finished.stdout.lines().last();
    assert_eq!(last, Some("opened exit status: 0"), "{finished:?}");
    assert_eq!(lines(&marker), 1);
}

#[test]
fn gate_closes_with_its_host_though_a_stranger_holds_its_pipe() {
    let stage = Stage::new();
    let marker = stage.scratch().join("marker");
    let mut host = Program::fixture(&stage, "host-with-gate")
        .arg("direct")
        .arg(&marker)
        .arg("stranger")
        .start();
    let (mut gated, mut strangers) = (None, Vec::new());
    loop {
        let line = host.stdout.line();
        let pid = |word| Some(Witness::of(line.strip_prefix(word)?.parse().ok()?));
        if line == "ready" {
            break;
        }
        gated = gated.or_else(|| pid("gated "));
        strangers.extend(pid("stranger "));
    }
    assert!(!strangers.is_empty());
    host.signal(libc::SIGKILL);
    gated.expect("a gate").wait_for_death(DEATH);
    assert_eq!(lines(&marker), 0);
    assert!(strangers.iter().all(Witness::is_alive), "they are nobody's");
    clean_up(&strangers);
    host.finish(DEATH);
}

#[test]
fn gate_of_a_plain_command_opens_with_its_streams() {
    let stage = Stage::new();
    for level in [Level::Direct, Level::Group] {
        let helper = spawner().launch().expect("a helper");
        let mut command = crate::ground::sh(&stage, "echo out; exit 6");
        command
            .helper(&helper)
            .level(LevelChoice::Exactly(level))
            .stdout(Stdio::piped());
        let gate = command.gated().expect("a gate");
        let mut child = gate.open().expect("the program runs");
        let mut text = String::new();
        let mut stdout = child.stdout.take().expect("a pipe");
        stdout.read_to_string(&mut text).expect("its output");
        assert_eq!(text, "out\n");
        assert_eq!(child.wait().expect("a status").code(), Some(6));
    }
}
