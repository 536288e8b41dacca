//! Kinds, texts and conversions.

use std::error::Error as _;
use std::io;
use std::path::Path;

use foster_protocol::{Level, Reject, Step};

use super::*;
use crate::size::Size;

fn failed(step: Step, errno: i32) -> Error {
    let subject = Subject {
        program: Path::new("/p"),
        directory: Some(Path::new("/d")),
    };
    spawn_failed(&subject, &Size::new(), step, errno)
}

#[test]
fn a_failed_step_tells_what_is_at_fault_and_names_it() {
    for (step, errno, kind, text) in [
        (
            Step::Exec,
            libc::ENOENT,
            ErrorKind::ProgramNotFound,
            "program not found: /p",
        ),
        (
            Step::Exec,
            libc::EACCES,
            ErrorKind::ProgramNotExecutable,
            "program cannot be executed: /p",
        ),
        (
            Step::Exec,
            libc::EMFILE,
            ErrorKind::SpawnFailed,
            "spawn of /p failed at step exec",
        ),
        (
            Step::Interpreter,
            libc::ENOENT,
            ErrorKind::Interpreter,
            "interpreter of program cannot be executed: /p",
        ),
        (
            Step::Directory,
            libc::EACCES,
            ErrorKind::Directory,
            "directory cannot be entered: /d",
        ),
        (
            Step::Fork,
            libc::EAGAIN,
            ErrorKind::SpawnFailed,
            "spawn of /p failed at step fork",
        ),
        (
            Step::Ended,
            libc::ECANCELED,
            ErrorKind::EndedEarly,
            "session was ended before /p ran",
        ),
    ] {
        let error = failed(step, errno);
        assert_eq!(error.kind(), kind);
        assert_eq!(error.to_string(), text);
        assert_eq!(error.step(), Some(step));
        assert!(error.is_spawn_failure());
    }
}

#[test]
fn the_error_number_and_stds_kind_are_kept() {
    let error = failed(Step::Directory, libc::ENOTDIR);
    assert_eq!(error.raw_os_error(), Some(libc::ENOTDIR));
    let source = error.source().expect("the system's own words").to_string();
    assert_eq!(
        source,
        io::Error::from_raw_os_error(libc::ENOTDIR).to_string()
    );
    let error = io::Error::from(error);
    assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    assert_eq!(error.raw_os_error(), Some(libc::ENOTDIR));

    let error = io::Error::from(failed(Step::Exec, libc::E2BIG));
    assert_eq!(error.kind(), io::ErrorKind::ArgumentListTooLong);
    assert_eq!(error.raw_os_error(), Some(libc::E2BIG));
}

#[test]
fn an_error_without_a_number_keeps_its_text_and_kind() {
    let error = Error::lost(During::Spawn, Loss::Closed);
    let text = error.to_string();
    let error = io::Error::from(error);
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(error.to_string(), text);
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    assert_eq!(inner.map(Error::kind), Some(ErrorKind::SpawnFateUnknown));
}

#[test]
fn a_refusal_says_why_and_has_stds_kind() {
    let level = Reject::LevelUnavailable {
        level: Level::Cgroup,
        errno: libc::ENOSYS,
    };
    let error = Error::rejected(level.clone());
    assert_eq!(error.rejection(), Some(&level));
    assert!(
        error
            .to_string()
            .starts_with("helper refused: level cgroup cannot be had here: ")
    );
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::Unsupported);
}

#[test]
fn an_unknown_fate_is_no_spawn_failure() {
    for during in [
        During::Spawn,
        During::Exit,
        During::End,
        During::Release,
        During::Request,
    ] {
        let error = Error::lost(during, Loss::Closed);
        assert!(error.is_helper_lost() && !error.is_spawn_failure());
        assert_eq!(
            error.source().map(ToString::to_string).as_deref(),
            Some("helper closed the control socket")
        );
    }
}
