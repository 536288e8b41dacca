//! The descriptors of a child: what was mapped, and nothing else.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use foster_protocol::{MAX_DESCRIPTORS, Mapping, Spec};
use foster_tests::{Command, DEATH, Stage, Tracer, note_not_run};

/// A file with one line in it, open for reading.
fn file_with(stage: &Stage, line: &str) -> OwnedFd {
    let path = stage.scratch().join(line);
    let mut file = File::create(&path).expect("the scratch folder is writable");
    writeln!(file, "{line}").expect("the scratch folder is writable");
    File::open(&path).expect("the file is there").into()
}

/// The numbers that `prints-descriptors` printed.
fn numbers(output: &[u8]) -> Vec<i32> {
    let text = String::from_utf8_lossy(output);
    let words = text.lines().filter_map(|line| line.split(' ').next());
    words.map(|word| word.parse().expect("a number")).collect()
}

#[test]
fn descriptors_that_are_not_named_are_null_and_nothing_else_is_open() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_, output) = link.output(stage.fixture("prints-descriptors", &[]));
    let text = String::from_utf8_lossy(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines.first(), Some(&"0 /dev/null"));
    assert!(
        lines.get(1).is_some_and(|line| line.starts_with("1 pipe:")),
        "{lines:?}"
    );
    assert_eq!(lines.get(2), Some(&"2 /dev/null"));
}

#[test]
fn descriptors_that_the_host_leaked_do_not_reach_a_child() {
    let stage = Stage::new();
    let mut link = stage
        .launch()
        .through("with-leaked-descriptors", &["900"])
        .greeted();
    let (_, output) = link.output(stage.fixture("prints-descriptors", &[]));
    assert_eq!(numbers(&output), [0, 1, 2]);
    if let Some(count) = link.descriptors() {
        assert!(count < 50, "the helper itself keeps {count}");
    }
}

#[test]
fn most_descriptors_that_one_frame_carries_arrive_at_their_numbers() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (mut tracer, writer) = Tracer::new();
    let last = i32::try_from(MAX_DESCRIPTORS).expect("a small number") - 1;
    let mut command = Command::new(stage.fixture("prints-descriptors", &[]));
    for target in 0..=last {
        command = command.with(target, writer.try_clone().expect("a descriptor"));
    }
    drop(writer);
    let running = link.spawn(command);
    let output = tracer.wait_for_end(DEATH);
    assert_eq!(link.exit(running.session).status, 0);
    assert_eq!(numbers(&output), (0..=last).collect::<Vec<_>>());
}

#[test]
fn sparse_and_high_targets_arrive_at_their_numbers() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut command = Command::new(stage.fixture("prints-descriptors", &[]));
    for target in [3, 9, 10, 200, 500] {
        command = command.with(target, Tracer::new().1);
    }
    let (_, output) = link.output(command);
    assert_eq!(numbers(&output), [0, 1, 2, 3, 9, 10, 200, 500]);
}

#[test]
fn each_target_gets_its_own_source_in_any_order() {
    let stage = Stage::new();
    let mut link = stage.link();
    let script = "cat <&3; cat <&4; cat <&5; cat <&6";
    let orders = [[3, 4, 5, 6], [6, 5, 4, 3], [4, 3, 6, 5], [5, 6, 3, 4]];
    for targets in orders {
        let mut command = Command::new(stage.sh(script));
        for target in targets {
            command = command.with(target, file_with(&stage, &format!("file{target}")));
        }
        let (_, output) = link.output(command);
        let text = String::from_utf8_lossy(&output);
        assert_eq!(text, "file3\nfile4\nfile5\nfile6\n", "{targets:?}");
    }
}

/// Whatever numbers the sources have in the helper, some of these targets overlap them.
#[test]
fn targets_that_overlap_the_sources_own_numbers_are_laid_out_right() {
    let stage = Stage::new();
    let mut link = stage.link();
    for turn in 0..40 {
        let mut command =
            Command::new(stage.sh("for i in $(seq 10 49); do eval \"cat <&$i\"; done"));
        // Dash reads one digit only before a redirection.
        command.spec.program = "/bin/bash".into();
        for place in 0..40 {
            let target = 10 + (place * 7 + turn) % 40;
            command = command.with(target, file_with(&stage, &format!("f{target}")));
        }
        let (_, output) = link.output(command);
        let expected: String = (10..50).map(|target| format!("f{target}\n")).collect();
        assert_eq!(String::from_utf8_lossy(&output), expected, "turn {turn}");
    }
}

#[test]
fn standard_descriptors_can_be_swapped() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (mut one, out) = Tracer::new();
    let (mut two, err) = Tracer::new();
    let command = Command::new(stage.sh("echo to-out; echo to-err >&2"));
    let running = link.spawn(command.with(2, out).with(1, err));
    assert_eq!(one.wait_for_end(DEATH), b"to-err\n");
    assert_eq!(two.wait_for_end(DEATH), b"to-out\n");
    link.exit(running.session);
}

#[test]
fn one_source_can_serve_several_targets() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (mut both, writer) = Tracer::new();
    let mut command = Command::new(stage.sh("echo a; echo b >&2")).with(1, writer);
    command.spec.descriptors.push(Mapping {
        target: 2,
        source: 0,
    });
    link.spawn(command);
    assert_eq!(both.wait_for_end(DEATH), b"a\nb\n");
}

#[test]
fn helper_keeps_no_passed_descriptor() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (reader, writer) = Tracer::gate();
    let (mut tracer, out) = Tracer::new();
    // The command closes its own copy, so that only the helper's could hold the pipe.
    let command = Command::new(stage.sh("exec 1>&-; read x; exit 0")).with(0, reader);
    let running = link.spawn(command.with(1, out));
    tracer.wait_for_end(DEATH);
    drop(writer);
    link.exit(running.session);
}

#[test]
fn no_other_sessions_descriptor_reaches_a_child() {
    let stage = Stage::new();
    let mut link = stage.link();
    let held: Vec<_> = (0..10)
        .map(|_| link.spawn_traced(stage.sleeper()))
        .collect();
    let (_, output) = link.output(stage.fixture("prints-descriptors", &[]));
    assert_eq!(numbers(&output), [0, 1, 2]);
    drop(held);
}

#[test]
fn relative_directory_is_taken_from_the_passed_one() {
    let stage = Stage::new();
    let mut link = stage.link();
    std::fs::create_dir(stage.scratch().join("inner")).expect("the scratch folder is writable");
    let base: OwnedFd = File::open(stage.scratch())
        .expect("the folder is there")
        .into();
    let directory = Some("inner".into());
    let spec = Spec {
        directory_base: Some(0),
        directory,
        ..stage.command("/bin/pwd", &["-P"])
    };
    let command = Command {
        spec,
        descriptors: vec![base],
    };
    let (_, output) = link.output(command);
    let expected = stage
        .scratch()
        .canonicalize()
        .expect("the folder is there")
        .join("inner");
    assert_eq!(
        String::from_utf8_lossy(&output).trim_end(),
        expected.to_string_lossy()
    );
}

#[test]
fn helpers_descriptor_count_is_flat_over_many_spawns() {
    let stage = Stage::new();
    let mut link = stage.link();
    link.output(stage.sh("exit 0"));
    link.assert_idle();
    let before = link.descriptors();
    for _ in 0..200 {
        link.output(stage.sh("exit 0"));
        link.spawn_failure(Command::new(stage.command("/missing", &[])).with(1, Tracer::new().1));
        link.spawn_refusal(Command::new(stage.command("\0", &[])).with(1, Tracer::new().1));
    }
    for session in 0..1000 {
        link.close(foster_protocol::SessionId(session));
    }
    link.assert_idle();
    link.assert_descriptors(before);
}

#[test]
fn controlling_terminal_is_the_mapped_one() {
    let stage = Stage::new();
    let mut link = stage.link();
    let Ok(pty) = nix::pty::openpty(None, None) else {
        return note_not_run("a controlling terminal", "no pseudo terminal can be had");
    };
    let spec = Spec {
        controlling_terminal: Some(0),
        ..stage.sh("echo on-tty > /dev/tty")
    };
    let (mut tracer, writer) = Tracer::new();
    let running = link.spawn(Command::new(spec).with(0, pty.slave).with(3, writer));
    let exit = link.exit(running.session);
    assert_eq!(exit.status, 0, "/dev/tty can be opened");
    tracer.wait_for_end(DEATH);
    let mut text = [0; 6];
    nix::unistd::read(&pty.master, &mut text).expect("the terminal is readable");
    assert_eq!(&text, b"on-tty");
}
