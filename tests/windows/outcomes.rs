//! What a command gets, gives back and is reported with.

use std::time::{Duration, Instant};

use foster::{Cause, ErrorKind, Fallback, Level, Spawner};

use crate::{LIMIT, Words, role, roles, talking};

#[test]
fn exit_code_is_the_commands_own() {
    let status = role("exits-with-7")
        .stdout(foster::Stdio::null())
        .status()
        .expect("it runs");
    assert_eq!(status.code(), Some(7));
}

#[test]
fn exit_is_known_without_a_wait_and_tells_its_cause() {
    let mut child = role("exits-with-7")
        .stdout(foster::Stdio::null())
        .spawn()
        .expect("it starts");
    let status = child.wait_timeout(LIMIT).expect("it can be awaited");
    assert_eq!(status.and_then(|status| status.code()), Some(7));
    let exit = child.exit().expect("it has exited");
    assert_eq!((exit.status, exit.cause), (7, Cause::Exit));
    assert!(exit.wall.0 > 0, "{exit:?}");
    assert_eq!(child.try_wait().expect("the same again"), status);
    assert_eq!(child.containment().level, Level::Direct);
}

#[test]
fn wait_is_over_when_its_time_is() {
    let mut child = role("sleeps")
        .stdout(foster::Stdio::null())
        .spawn()
        .expect("it starts");
    let before = Instant::now();
    let time = Duration::from_millis(300);
    assert_eq!(child.wait_timeout(time).expect("it can be awaited"), None);
    assert!(before.elapsed() >= time);
    assert_eq!(child.try_wait().expect("it can be asked"), None);
    let session = child.session().clone();
    assert_eq!(
        session.wait_end(Some(time)).expect("it can be awaited"),
        None
    );
}

#[test]
fn both_outputs_are_captured_and_told_apart() {
    let output = role("writes").output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(
        out.contains("to the output") && !out.contains("to the error"),
        "{out}"
    );
    assert!(
        err.contains("to the error") && !err.contains("to the output"),
        "{err}"
    );
    assert!(output.status.success() && !output.still_open);
    assert_eq!(output.notice, None);
}

#[test]
fn more_than_a_pipe_holds_comes_whole_on_both_outputs_at_once() {
    let output = role("writes-much").output().expect("it runs");
    let count = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == b'x').count();
    assert!(count(&output.stdout) >= 4 << 20);
    assert!(count(&output.stderr) >= 4 << 20);
}

#[test]
fn output_returns_at_the_exit_though_a_grandchild_holds_the_pipe() {
    let before = Instant::now();
    let output = role("leaves-a-child-with-its-output")
        .output()
        .expect("it runs");
    assert!(output.still_open);
    assert!(before.elapsed() < LIMIT);
    assert!(String::from_utf8_lossy(&output.stdout).contains(roles::SAYS));
}

#[test]
fn environment_and_directory_are_those_that_were_set() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = talking("tells-what-it-was-given")
        .env("FOSTER_TEST_SET", "a value with \"quotes\"")
        .env("FOSTER_TEST_REMOVED", "x")
        .env_remove("FOSTER_TEST_REMOVED")
        .current_dir(directory.path())
        .spawn()
        .expect("it starts");
    let mut words = Words::of(&mut child.stdout);
    assert_eq!(words.next(), "a value with \"quotes\"");
    assert_eq!(words.next(), "true");
    let name = directory.path().file_name().expect("it has a name");
    assert_eq!(words.next(), name.to_string_lossy());
    child.wait().expect("it exits");
}

#[test]
fn spawner_needs_no_helper_and_has_nothing_to_tell() {
    static SPAWNER: Spawner = Spawner::new();
    let output = SPAWNER
        .output(role("writes").arg("-q"), Fallback::Refuse)
        .expect("it runs");
    assert!(output.status.success());
    assert_eq!(output.notice, None);
    let error = SPAWNER.launch().expect_err("there is no helper");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn command_is_spawned_more_than_once() {
    let mut command = role("exits-with-7");
    command.stdout(foster::Stdio::null());
    for _ in 0..3 {
        assert_eq!(command.status().expect("it runs").code(), Some(7));
    }
}

#[test]
fn nobody_holds_the_output_once_the_tree_has_ended() {
    let mut child = talking("has-a-family").spawn().expect("it starts");
    let mut words = Words::of(&mut child.stdout);
    words.next();
    words.next();
    child.kill().expect("it ends");
    words.rest();
}
