//! A command is held before it runs.

use std::time::Duration;

use foster::ErrorKind;

use crate::held::Process;
use crate::{LIMIT, role, roles};

#[test]
fn gate_that_nobody_opens_runs_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("mark");
    let gate = role("leaves-a-mark")
        .env(roles::DETAIL, &mark)
        .gated()
        .expect("it can be held");
    let process = Process::open(gate.pid());
    process.assert_lives_on("process at its gate");
    assert!(!mark.exists(), "it ran before its gate was opened");
    drop(gate);
    process.assert_ends("process at a closed gate");
    assert!(!mark.exists(), "it ran though its gate was closed");
}

#[test]
fn gate_that_is_opened_runs_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("mark");
    let gate = role("leaves-a-mark")
        .env(roles::DETAIL, &mark)
        .stdout(foster::Stdio::null())
        .gated()
        .expect("it can be held");
    let pid = gate.pid();
    let mut child = gate.open().expect("it runs");
    assert_eq!(child.id(), pid);
    assert!(
        child
            .wait_timeout(LIMIT)
            .expect("it can be awaited")
            .is_some()
    );
    assert!(mark.exists());
}

#[test]
fn deadline_runs_while_the_gate_is_closed() {
    let gate = role("exits-with-7")
        .deadline(Duration::from_millis(200))
        .gated()
        .expect("it can be held");
    let process = Process::open(gate.pid());
    process.assert_ends("process at its gate at the deadline");
    let error = gate.open().expect_err("it was ended");
    assert_eq!(error.kind(), ErrorKind::EndedEarly);
}
