//! A helper that is killed, stopped, replaced or of another version: errors, and no hang.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use foster::{ErrorKind, Helper};
use foster_tests::{DEATH, SETTLE, Stage, Tracer, Witness, eventually, find_tagged, places};
use nix::unistd::gettid;

use crate::ground::{command, helper, pid, sh};

/// How long a call may take to tell of a lost helper.
pub(crate) const TOLD: Duration = Duration::from_secs(1);

#[test]
fn every_pending_call_tells_of_a_killed_helper_within_a_second() {
    let stage = Stage::new();
    let helper = helper();
    let target = Witness::of(pid(&helper));
    let (mut tracer, writer) = Tracer::new();
    let log = stage.scratch().join("log");
    let mut sleeper = sh(&stage, &helper, "echo $$; exec sleep 60");
    sleeper.stdout(writer);
    let children: Vec<_> = (0..20)
        .map(|_| sleeper.spawn().expect("the command"))
        .collect();
    drop(sleeper);
    let leaders: Vec<Witness> = children.iter().map(|_| Witness::of(tracer.pid())).collect();
    let (tell, told) = mpsc::channel();
    let (say_thread, thread) = mpsc::channel();
    thread::scope(|scope| {
        for child in &children {
            let tell = tell.clone();
            scope.spawn(move || {
                let error = child.session().wait_exit(None).expect_err("no exit");
                tell.send(error.kind()).expect("the test listens");
            });
        }
        target.stop();
        let half_sent = scope.spawn(|| {
            let thread = gettid().as_raw();
            say_thread.send(thread).expect("the test listens");
            spawn_above_the_buffer(&stage, &helper, &log)
        });
        wait_until_asleep(thread.recv().expect("the thread says its number"));
        let begin = Instant::now();
        target.signal(libc::SIGKILL);
        for _ in &children {
            let kind = told
                .recv_timeout(TOLD)
                .expect("each wait returns within a second");
            assert_eq!(kind, ErrorKind::ExitUnknown);
        }
        let kind = half_sent.join().expect("the thread that spawns");
        assert_eq!(kind, ErrorKind::SpawnFateUnknown);
        assert!(begin.elapsed() < TOLD, "{:?}", begin.elapsed());
    });
    assert!(!log.exists(), "the half-sent command ran");
    assert_later_calls_tell(&helper, children.first().expect("20 children"));
    drop(children);
    leaders
        .iter()
        .for_each(|leader| leader.wait_for_death(DEATH));
    tracer.wait_for_end(DEATH);
}

/// Asserts that calls on a lost helper say what they were about.
fn assert_later_calls_tell(helper: &Helper, child: &foster::Child) {
    assert!(helper.is_lost());
    let kinds = [
        child.end(Duration::ZERO).expect_err("no helper").kind(),
        child.session().release().expect_err("no helper").kind(),
        helper.ping().expect_err("no helper").kind(),
    ];
    let expected = [
        ErrorKind::EndUnknown,
        ErrorKind::ReleaseFateUnknown,
        ErrorKind::HelperLost,
    ];
    assert_eq!(kinds, expected);
}

/// Spawns a command whose request is larger than what a socket's buffer takes.
fn spawn_above_the_buffer(stage: &Stage, helper: &Helper, log: &Path) -> ErrorKind {
    let mut command = sh(stage, helper, "echo ran >> \"$0\"");
    command.arg(log);
    for number in 0..12 {
        command.env(format!("FILLER_{number}"), "x".repeat(100_000));
    }
    command.spawn().expect_err("no helper").kind()
}

/// Waits until a thread of this process sleeps in one of the calls that wait for the helper.
pub(crate) fn wait_until_asleep(thread: i32) {
    eventually("the spawn is on its way", SETTLE, || {
        let path = format!("/proc/self/task/{thread}/syscall");
        let line = fs::read_to_string(path).expect("the thread's system call can be seen");
        let number = line.split(' ').next().and_then(|word| word.parse().ok());
        [libc::SYS_poll, libc::SYS_ppoll, libc::SYS_futex]
            .map(Some)
            .contains(&number)
    });
}

#[test]
fn lost_global_helper_is_replaced_at_the_next_spawn() {
    let stage = Stage::new();
    let mut process = foster_tests::Program::fixture(&stage, "host-with-global-helper").start();
    let first = Witness::of(process.stdout.pid());
    first.signal(libc::SIGKILL);
    first.wait_for_death(DEATH);
    process.say("again");
    let second = process.stdout.pid();
    assert_ne!(first.pid(), second);
    process.close_stdin();
    let finished = process.finish(DEATH);
    assert_eq!((finished.code(), finished.stdout.as_str()), (0, "ran\n"));
}

#[test]
fn helper_that_is_stopped_before_its_hello_is_given_up() {
    let stage = Stage::new();
    let path = stage.scratch().join("stopped-helper");
    write_script(&path, "#!/bin/sh\nkill -STOP $$\n");
    let begin = Instant::now();
    let error = Helper::builder()
        .path(&path)
        .launch()
        .expect_err("no hello");
    let took = begin.elapsed();
    assert_eq!(error.kind(), ErrorKind::HelperSilent, "{error}");
    assert!(took >= Duration::from_millis(4900), "{took:?}");
    assert!(took < Duration::from_millis(6500), "{took:?}");
    let name = stage
        .scratch()
        .file_name()
        .expect("a name")
        .to_string_lossy();
    eventually("the stopped helper is gone", SETTLE, || {
        find_tagged(&name).is_empty()
    });
}

#[test]
fn helper_that_is_stopped_answers_when_it_goes_on() {
    let stage = Stage::new();
    let helper = Helper::builder()
        .path(places::fixture("helper-under-test"))
        .timeout(Duration::from_millis(500))
        .launch()
        .expect("the helper");
    let target = Witness::of(pid(&helper));
    target.stop();
    let begin = Instant::now();
    let error = helper.ping().expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::HelperSilent, "{error}");
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
    target.signal(libc::SIGCONT);
    let status = sh(&stage, &helper, "exit 5").status();
    assert_eq!(status.expect("a status").code(), Some(5));
}

#[test]
fn running_helper_is_unaffected_by_what_becomes_of_its_file() {
    let stage = Stage::new();
    for change in ["replaced", "deleted", "forbidden"] {
        let path = stage.scratch().join(change);
        fs::copy(places::fixture("helper-under-test"), &path).expect("a copy");
        let helper = Helper::builder().path(&path).launch().expect("the helper");
        match change {
            "replaced" => {
                let other = stage.scratch().join("other");
                fs::write(&other, "nothing that runs").expect("a file");
                fs::rename(&other, &path).expect("a new name");
            }
            "deleted" => fs::remove_file(&path).expect("the file goes"),
            _ => fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("a new mode"),
        }
        let output = sh(&stage, &helper, "echo on").output().expect("an output");
        assert_eq!(output.stdout, b"on\n", "{change}");
        let (mut tracer, writer) = Tracer::new();
        let child = command(&stage, &helper, "sleep")
            .arg("60")
            .stdout(writer)
            .spawn();
        drop(child.expect("the command"));
        tracer.wait_for_end(DEATH);
    }
}

#[test]
fn helper_of_another_version_is_refused_with_both_versions_named() {
    let begin = Instant::now();
    let path = places::fixture("speaks-version-two");
    let error = Helper::builder()
        .path(path)
        .launch()
        .expect_err("another version");
    assert!(begin.elapsed() < TOLD, "{:?}", begin.elapsed());
    assert_eq!(error.kind(), ErrorKind::VersionMismatch, "{error}");
    let text = error.to_string();
    assert!(text.contains('1') && text.contains('2'), "{text}");
}

#[test]
fn helper_that_is_missing_or_something_else_is_a_typed_error_at_once() {
    let stage = Stage::new();
    let text = stage.scratch().join("text");
    fs::write(&text, "nothing that runs").expect("a file");
    let missing = stage.scratch().join("missing");
    let talker = stage.scratch().join("talker");
    write_script(
        &talker,
        "#!/bin/sh\necho something else entirely >&0\nsleep 3\n",
    );
    for path in [missing, text, talker, "/bin/true".into()] {
        let begin = Instant::now();
        let error = Helper::builder()
            .path(&path)
            .launch()
            .expect_err("no helper");
        assert!(error.is_launch(), "{}: {error:?}", path.display());
        assert!(
            begin.elapsed() < TOLD,
            "{}: {:?}",
            path.display(),
            begin.elapsed()
        );
        let named = error
            .to_string()
            .contains(path.to_str().expect("a path of text"));
        assert!(named, "{error}");
    }
}

/// Writes an executable script. The tests' own forks may hold the file open for writing for a
/// moment, so it is written by a process of its own.
fn write_script(path: &Path, text: &str) {
    let status = std::process::Command::new("sh")
        .args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .arg(text)
        .status();
    assert!(status.expect("a shell").success());
}
