//! What this program does when a test starts it once more.
//!
//! Roles say one word in a line, and every one of them ends by itself, should its test be gone.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use foster::contain::{self, Outcome};

/// The variable that names the role.
pub(crate) const ROLE: &str = "FOSTER_TEST_ROLE";

/// A variable for whatever a role has to be told.
pub(crate) const DETAIL: &str = "FOSTER_TEST_DETAIL";

/// The variable that asks the role to contain itself.
pub(crate) const CONTAIN: &str = "FOSTER_TEST_CONTAIN";

/// Every word of a role stands behind this.
pub(crate) const SAYS: &str = "role says: ";

/// How the test harness of this program runs the role alone.
pub(crate) const ARGUMENTS: [&str; 4] = [
    "roles::plays_the_role_that_a_test_asks_for",
    "--exact",
    "--ignored",
    "--nocapture",
];

/// How long a role lives at most.
const LIFE: Duration = Duration::from_secs(60);

pub(crate) fn program() -> PathBuf {
    env::current_exe().expect("this program has a name")
}

#[test]
#[ignore = "a role for the other tests"]
fn plays_the_role_that_a_test_asks_for() {
    let role = env::var(ROLE).expect("the role has a name");
    match role.as_str() {
        "exits-with-7" => exit(7),
        "writes" => writes(),
        "writes-much" => writes_much(),
        "tells-what-it-was-given" => tells(),
        "leaves-a-mark" => fs::write(detail(), "ran").expect("a file can be written"),
        "sleeps" => sleeps(),
        "has-a-family" => has_a_family(),
        "has-a-child" => has_a_child(),
        "leaves-a-child" => leaves_a_child(),
        "leaves-a-child-with-its-output" => leaves_a_child_with_its_output(),
        "host" => host(),
        "host-that-releases" => host_that_releases(),
        "contained" => contained(),
        "contained-host" => contained_host(),
        other => panic!("no such role: {other}"),
    }
}

fn say(word: impl std::fmt::Display) {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{SAYS}{word}").expect("the test reads");
    stdout.flush().expect("the test reads");
}

fn detail() -> OsString {
    env::var_os(DETAIL).expect("the role was told")
}

#[expect(clippy::disallowed_methods, reason = "the role has its own exit code")]
fn exit(code: i32) -> ! {
    process::exit(code)
}

fn sleeps() {
    let until = Instant::now() + LIFE;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}

/// Waits until the test says so, or is gone.
fn wait_for_word() {
    let mut byte = [0];
    let _count = io::stdin().read(&mut byte).expect("the test has our input");
}

fn starts(role: &str, stdout: Stdio) -> Child {
    let mut command = Command::new(program());
    command.args(ARGUMENTS).env(ROLE, role).stdin(Stdio::null());
    command
        .stdout(stdout)
        .spawn()
        .expect("a role can be started")
}

fn writes() {
    io::stdout()
        .write_all(b"to the output")
        .expect("it is read");
    io::stderr().write_all(b"to the error").expect("it is read");
    exit(0);
}

fn writes_much() {
    let part = vec![b'x'; 1 << 20];
    for _ in 0..4 {
        io::stdout().write_all(&part).expect("it is read");
        io::stderr().write_all(&part).expect("it is read");
    }
    exit(0);
}

fn tells() {
    say(env::var("FOSTER_TEST_SET").unwrap_or_default());
    say(env::var("FOSTER_TEST_REMOVED").is_err());
    let directory = env::current_dir().expect("there is one");
    say(directory
        .file_name()
        .expect("it has a name")
        .to_string_lossy());
}

/// A child and a grandchild, each of which is named by whoever holds it.
fn has_a_family() {
    let mut child = starts("has-a-child", Stdio::piped());
    say(child.id());
    let mut words = crate::Words::of(&mut child.stdout);
    say(words.next());
    sleeps();
}

fn has_a_child() {
    let child = starts("sleeps", Stdio::null());
    say(child.id());
    sleeps();
    drop(child);
}

fn leaves_a_child() {
    let child = starts("sleeps", Stdio::null());
    say(child.id());
    // The child's number is its own until the test holds it, too.
    wait_for_word();
    drop(child);
    exit(3);
}

fn leaves_a_child_with_its_output() {
    let child = starts("sleeps", Stdio::inherit());
    say(child.id());
    drop(child);
    exit(0);
}

/// A host whose test ends it.
fn host() {
    let mut child = crate::talking("has-a-family").spawn().expect("it starts");
    say(child.id());
    let mut words = crate::Words::of(&mut child.stdout);
    say(words.next());
    say(words.next());
    wait_for_word();
    // What a killed host does not run.
    exit(9);
}

fn host_that_releases() {
    let mut child = crate::talking("leaves-a-child").spawn().expect("it starts");
    let mut words = crate::Words::of(&mut child.stdout);
    say(words.next());
    wait_for_word();
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(b"\n").expect("it reads");
    child.wait().expect("it exits");
    say(child.release().expect("it has exited"));
    wait_for_word();
    exit(0);
}

fn contained() {
    let outcome = contain::on_request(CONTAIN, |_| true);
    assert!(matches!(outcome, Outcome::Contained), "{outcome:?}");
    say(env::var(CONTAIN).is_err());
    let child = starts("sleeps", Stdio::null());
    say(child.id());
    wait_for_word();
    exit(5);
}

/// Contained, and with sessions of its own, whose jobs are inside of its own job.
fn contained_host() {
    let outcome = contain::on_request(CONTAIN, |_| true);
    assert!(matches!(outcome, Outcome::Contained), "{outcome:?}");
    let mut child = crate::talking("has-a-family").spawn().expect("it starts");
    assert_eq!(child.notice(), None, "a job inside of a job");
    let mut words = crate::Words::of(&mut child.stdout);
    say(words.next());
    say(words.next());
    wait_for_word();
    let ending = child.kill().expect("it ends");
    say(format!("{:?}", ending.verdict));
    wait_for_word();
    exit(0);
}
