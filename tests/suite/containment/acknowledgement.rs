//! The acknowledgement: one line, before everything, and only where it is true.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use foster_tests::{Process, SETTLE, Stage, Tracer, eventually, only_child_of, proc};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::ground::{LINE, OVER, asked};

#[test]
fn acknowledgement_is_the_first_line_and_the_only_one_that_is_not_the_programs() {
    let stage = Stage::new();
    let finished = asked(&stage, &[], "echo first; echo second").run();
    assert_eq!(finished.stdout, format!("{LINE}\nfirst\nsecond\n"));
    assert_eq!(finished.code(), 0);
}

#[test]
fn key_of_the_acknowledgement_is_the_programs_to_choose() {
    let stage = Stage::new();
    let finished = asked(&stage, &["key=app_contained"], "echo first").run();
    assert_eq!(finished.stdout, "{\"app_contained\":1}\nfirst\n");
}

#[test]
fn key_that_is_no_plain_word_makes_containment_unavailable() {
    let stage = Stage::new();
    let finished = asked(&stage, &["key=\""], "echo first").run();
    assert_eq!(finished.stdout, "first\n");
    assert_eq!(finished.stderr, "unavailable System\n");
}

#[test]
fn acknowledgement_that_nobody_can_read_is_none_and_the_program_runs_as_before() {
    let stage = Stage::new();
    let (reader, writer) = Tracer::new();
    drop(reader);
    let marker = stage.scratch().join("marker");
    let script = format!("echo $$ > {}", marker.display());
    let process = asked(&stage, &[], &script).stdout(writer).start();
    let pid = process.pid();
    let finished = process.finish(OVER);
    assert_eq!(finished.stderr, "unavailable System\n");
    let ran_as = std::fs::read_to_string(marker).expect("the program ran");
    assert_eq!(ran_as, format!("{pid}\n"));
}

/// A program whose standard output is full, so that it waits at its gate; it writes a marker.
struct AtGate {
    process: Process,
    stdout: Tracer,
    filler: usize,
    marker: PathBuf,
}

impl AtGate {
    fn start(stage: &Stage) -> Self {
        let (stdout, writer) = Tracer::new();
        let filler = fill(&writer);
        let marker = stage.scratch().join("marker");
        let script = format!(": > {}; echo ran", marker.display());
        let process = asked(stage, &[], &script).stdout(writer).start();
        let helper = only_child_of(process.pid());
        eventually("the command is on its way", SETTLE, || {
            let below = proc::children(helper.pid());
            let keeper = below.iter().any(|one| !proc::children(one.pid).is_empty());
            keeper || below.iter().any(|one| one.name != b"foster-helper")
        });
        Self {
            process,
            stdout,
            filler,
            marker,
        }
    }

    /// Waits for the end of everything and gives what came behind the filler.
    fn rest(mut self) -> (std::process::ExitStatus, String, bool) {
        let status = self.process.wait(OVER);
        let written = self.stdout.wait_for_end(OVER);
        let rest = written.get(self.filler..).expect("the filler");
        let text = String::from_utf8(rest.to_vec()).expect("text");
        (status, text, self.marker.exists())
    }

    /// As [`rest`](Self::rest), where somebody reads from now on.
    fn rest_drained(mut self) -> (std::process::ExitStatus, String, bool) {
        let written = self.stdout.wait_for_end(OVER);
        let status = self.process.wait(OVER);
        let rest = written.get(self.filler..).expect("the filler");
        let text = String::from_utf8(rest.to_vec()).expect("text");
        (status, text, self.marker.exists())
    }
}

/// Fills a pipe and gives how many bytes it took.
fn fill(writer: &OwnedFd) -> usize {
    let set = |flags| fcntl(writer.as_fd(), FcntlArg::F_SETFL(flags)).expect("a pipe's flags");
    set(OFlag::O_NONBLOCK);
    let mut file = File::from(writer.try_clone().expect("a copy"));
    let mut filler = 0;
    loop {
        match file.write(&[b'.'; 4096]) {
            Ok(count) => filler += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("the pipe: {error}"),
        }
    }
    set(OFlag::empty());
    filler
}

#[test]
fn program_never_ran_where_the_starter_is_killed_before_the_acknowledgement() {
    let stage = Stage::new();
    let gate = AtGate::start(&stage);
    gate.process.signal(libc::SIGKILL);
    let (_, text, has_run) = gate.rest();
    assert_eq!((text.as_str(), has_run), ("", false));
}

#[test]
fn program_never_ran_where_the_starter_is_sent_term_before_the_acknowledgement() {
    let stage = Stage::new();
    let gate = AtGate::start(&stage);
    gate.process.signal(libc::SIGTERM);
    let (status, text, has_run) = gate.rest();
    assert_eq!((text.as_str(), has_run), ("", false));
    assert_eq!(status.code(), Some(128 + libc::SIGTERM));
}

#[test]
fn control_program_runs_when_its_acknowledgement_can_be_written() {
    let stage = Stage::new();
    let gate = AtGate::start(&stage);
    assert!(!gate.marker.exists(), "it waits for the acknowledgement");
    let (status, text, has_run) = gate.rest_drained();
    assert_eq!(
        (text.as_str(), has_run),
        (format!("{LINE}\nran\n").as_str(), true)
    );
    assert_eq!(status.code(), Some(0));
}
