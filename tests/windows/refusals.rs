//! What is refused, and that nothing has happened then.

use std::fs;
use std::io;

use foster::{ErrorKind, Helper, Level, LevelChoice};

use crate::{role, roles};

#[test]
fn signal_is_unsupported_and_touches_nobody() {
    let mut child = role("sleeps")
        .stdout(foster::Stdio::null())
        .spawn()
        .expect("it starts");
    for number in [2, 9, 15, 0, -1] {
        let error = child.signal(number).expect_err("there are no signals");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.is_unsupported() && !error.is_spawn_failure());
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::Unsupported);
    }
    assert_eq!(child.try_wait().expect("it can be asked"), None);
}

#[test]
fn helper_is_unsupported() {
    for outcome in [Helper::launch(), Helper::global()] {
        let error = outcome.expect_err("there is none");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "a helper is not to be had on this platform"
        );
    }
}

#[test]
fn level_that_is_required_is_unsupported_and_nothing_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("mark");
    for level in [Level::Group, Level::Tree, Level::Cgroup, Level::Namespace] {
        let error = role("leaves-a-mark")
            .env(roles::DETAIL, &mark)
            .require(level)
            .spawn()
            .expect_err("there is no such level");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
    assert!(!mark.exists());
    let status = role("leaves-a-mark")
        .env(roles::DETAIL, &mark)
        .stdout(foster::Stdio::null())
        .require(Level::Direct)
        .status()
        .expect("it runs");
    assert!(status.success() && mark.exists());
}

#[test]
fn level_that_is_asked_for_is_told_as_missing() {
    let child = role("exits-with-7")
        .stdout(foster::Stdio::null())
        .level(LevelChoice::Exactly(Level::Tree))
        .spawn()
        .expect("it starts");
    let containment = child.containment();
    assert_eq!(containment.level, Level::Direct);
    assert_eq!(
        containment.missing.first().map(|one| one.level),
        Some(Level::Tree)
    );
}

#[test]
fn program_directory_and_file_that_are_wrong_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing.exe");
    let error = foster::Command::new(&missing)
        .spawn()
        .expect_err("it is not there");
    assert_eq!(error.kind(), ErrorKind::ProgramNotFound, "{error:?}");
    assert!(error.is_spawn_failure() && error.to_string().contains("missing.exe"));

    let text = folder.path().join("text.exe");
    fs::write(&text, "no program").expect("a file can be written");
    let error = foster::Command::new(&text)
        .spawn()
        .expect_err("it is no program");
    assert_eq!(error.kind(), ErrorKind::ProgramNotExecutable, "{error:?}");

    let error = role("exits-with-7")
        .current_dir(&missing)
        .spawn()
        .expect_err("it is not there");
    assert_eq!(error.kind(), ErrorKind::Directory, "{error:?}");
}

#[test]
fn nul_is_invalid_input_and_named() {
    let error = role("exits-with-7")
        .arg("a\0b")
        .spawn()
        .expect_err("it holds a NUL");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), "argument 5 holds a NUL byte");
}

#[test]
fn sweep_and_identity_confirm_nobody() {
    let error = foster::sweep().expect_err("nobody can be told from a stranger");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(!foster::identity::is_live_child(
        std::process::id(),
        "KEY",
        "name"
    ));
}
