//! What happens where the system refuses a job or a thread.

use std::io;
use std::os::windows::io::AsHandle;
use std::time::Duration;

use foster_protocol::{Step, Verdict};

use super::Command;
use super::spawn::{Defaults, Means, SYSTEM};
use super::stdio::Stdio;
use crate::error::ErrorKind;
use crate::fallback::Fallback;
use crate::notice::Notice;
use crate::sys::{self, Job};

const LIMIT: Duration = Duration::from_secs(30);

fn no_job() -> io::Result<Job> {
    Err(io::ErrorKind::PermissionDenied.into())
}

fn no_thread(_pid: u32) -> io::Result<usize> {
    Err(io::ErrorKind::PermissionDenied.into())
}

const WITHOUT_JOB: Means = Means {
    job: no_job,
    ..SYSTEM
};

const WITHOUT_THREADS: Means = Means {
    resume: no_thread,
    ..SYSTEM
};

/// A command that waits for its input.
fn waiting() -> Command {
    let mut command = Command::new("cmd.exe");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command
}

#[test]
fn command_without_a_job_runs_with_a_notice_and_is_ended_by_its_number() {
    let gate = waiting()
        .make(Defaults::Inherit, Fallback::Direct, WITHOUT_JOB)
        .expect("it may run without");
    assert_eq!(gate.notice(), Some(Notice::NoJob));
    let mut child = gate.open().expect("it runs");
    assert_eq!(child.try_wait().expect("it can be asked"), None);
    let ending = child.kill().expect("it can be ended");
    // Nobody can say who else there was.
    assert_eq!((ending.verdict, ending.proof), (Verdict::Incomplete, None));
    assert_eq!(child.notice(), Some(Notice::EndUnconfirmed));
    assert!(child.try_wait().expect("it can be asked").is_some());
}

#[test]
fn command_without_a_job_that_exits_by_itself_keeps_its_code_and_its_notice() {
    let mut command = Command::new("cmd.exe");
    command.args(["/c", "exit 4"]);
    let output = command
        .make(Defaults::Capture, Fallback::Direct, WITHOUT_JOB)
        .and_then(super::Gate::open)
        .and_then(super::Child::wait_with_output)
        .expect("it runs");
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(output.notice, Some(Notice::NoJob));
}

#[test]
fn dropped_child_without_a_job_is_ended() {
    let child = waiting()
        .make(Defaults::Inherit, Fallback::Direct, WITHOUT_JOB)
        .and_then(super::Gate::open)
        .expect("it may run without");
    let session = child.session().clone();
    drop(child);
    assert!(
        session
            .wait_exit(Some(LIMIT))
            .expect("it can be awaited")
            .is_some()
    );
}

#[test]
fn command_that_must_have_a_job_is_refused_without_one() {
    let error = waiting()
        .make(Defaults::Inherit, Fallback::Refuse, WITHOUT_JOB)
        .expect_err("there is no job");
    assert_eq!(error.kind(), ErrorKind::SpawnFailed, "{error:?}");
    assert_eq!(error.step(), Some(Step::Session), "{error:?}");
    assert!(error.is_spawn_failure());
}

#[test]
fn child_that_cannot_be_resumed_is_ended_and_awaited_and_reported() {
    for job in [SYSTEM.job, no_job] {
        let means = Means {
            job,
            ..WITHOUT_THREADS
        };
        let gate = waiting()
            .make(Defaults::Inherit, Fallback::Direct, means)
            .expect("it can be created");
        let leader = gate.leader().try_clone_to_owned().expect("a handle");
        let error = gate.open().expect_err("no thread can be resumed");
        assert_eq!(error.kind(), ErrorKind::SpawnFailed, "{error:?}");
        assert_eq!(error.step(), Some(Step::Gate), "{error:?}");
        let dead = sys::wait_any(&[leader.as_handle()], Some(Duration::ZERO));
        assert_eq!(
            dead.expect("it can be looked at"),
            Some(0),
            "it was awaited"
        );
    }
}

#[test]
fn suspended_process_is_resumed_by_all_its_threads() {
    let gate = waiting().gated().expect("it can be held");
    assert_eq!(sys::resume(gate.pid()).expect("it has threads"), 1);
    let error = sys::resume(u32::MAX).expect_err("nobody has the number");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}
