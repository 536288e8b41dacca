//! Who may speak, in which order, and how soon.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use foster_protocol::{BUILD, Bytes, HELLO_TIMEOUT, Level, Reject, Reply, Request, VERSION};
use foster_tests::{DEATH, Link, Stage, Tracer, note_not_run, places};

fn hello(version: u32) -> Request {
    Request::Hello {
        version,
        build: Bytes::from(BUILD),
        cgroup_root: None,
    }
}

#[test]
fn hello_is_answered_with_version_build_and_level_group() {
    let stage = Stage::new();
    let mut link = stage.launch().silent();
    let reply = link.ask(hello(VERSION));
    let Reply::Welcome {
        version,
        build,
        capabilities,
    } = reply
    else {
        panic!("{reply:?}")
    };
    assert_eq!(version, VERSION);
    assert!(!build.0.is_empty(), "the helper names its build");
    let group = capabilities
        .levels
        .iter()
        .find(|entry| entry.level == Level::Group);
    assert_eq!(group.expect("level group is listed").errno, 0);
}

#[test]
fn first_request_that_is_no_hello_ends_the_helper_with_code_100() {
    let stage = Stage::new();
    let mut link = stage.launch().silent();
    link.call(Request::Ping);
    link.wait_for_hangup(DEATH);
    assert_eq!(link.exit_code(), 100);
}

#[test]
fn version_mismatch_names_both_versions_and_ends_the_helper_within_a_second() {
    for client in [0, VERSION + 1, u32::MAX] {
        let stage = Stage::new();
        let mut link = stage.launch().silent();
        let begin = Instant::now();
        let reason = link.refusal(hello(client));
        assert_eq!(
            reason,
            Reject::VersionMismatch {
                helper: VERSION,
                client
            }
        );
        assert_eq!(link.exit_code(), 100);
        assert!(
            begin.elapsed() < Duration::from_secs(1),
            "it took {:?}",
            begin.elapsed()
        );
    }
}

#[test]
fn second_hello_is_rejected_and_the_link_lives() {
    let stage = Stage::new();
    let mut link = stage.link();
    assert_eq!(link.refusal(hello(VERSION)), Reject::HelloRepeated);
    link.ping();
}

#[test]
fn silent_client_ends_the_helper_with_code_100_after_the_hello_timeout() {
    let stage = Stage::new();
    let begin = Instant::now();
    let mut link = stage.launch().silent();
    assert_eq!(link.exit_code_within(HELLO_TIMEOUT + DEATH), 100);
    let early = HELLO_TIMEOUT.saturating_sub(Duration::from_millis(500));
    assert!(
        begin.elapsed() >= early,
        "it waited only {:?}",
        begin.elapsed()
    );
}

#[test]
fn half_a_hello_ends_the_helper_with_code_100_after_the_hello_timeout() {
    let stage = Stage::new();
    let mut link = stage.launch().silent();
    link.send_raw(&[30, 0, 0], &[]).expect("the helper listens");
    assert_eq!(link.exit_code_within(HELLO_TIMEOUT + DEATH), 100);
}

#[test]
fn hangup_before_hello_ends_the_helper_with_code_0() {
    let stage = Stage::new();
    let mut link = stage.launch().silent();
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
}

#[test]
fn helper_started_by_hand_says_so_in_one_line_and_exits_with_code_100() {
    if std::env::var_os(places::HELPER_ARGUMENT).is_some() {
        let missing = "this executable is a host as well, and without a socket it goes on as one";
        note_not_run("a start by hand", missing);
        return;
    }
    let stage = Stage::new();
    let mut command = stage.launch().into_command();
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.expect("the helper can be started");
    assert_eq!(output.status.code(), Some(100));
    let text = String::from_utf8(output.stderr).expect("a line of text");
    assert_eq!(text.lines().count(), 1, "{text:?}");
}

#[test]
fn helper_whose_peer_is_not_its_parent_exits_with_code_100() {
    let stage = Stage::new();
    let helper = places::helper();
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    // The shell forks, so that the helper's parent is not the process at the other end.
    let child: Child = std::process::Command::new("/bin/sh")
        .args(["-c", r#""$0" "$@" 2>/dev/null; exit $?"#])
        .arg(helper.path)
        .args(helper.args)
        .env(foster_tests::TAG, stage.tag())
        .stdin(OwnedFd::from(theirs))
        .spawn()
        .expect("the shell");
    let mut link = Link::new(child, ours.into());
    assert_eq!(link.exit_code(), 100);
}

#[test]
fn after_the_welcome_the_helper_holds_no_pipe_of_the_hosts() {
    let stage = Stage::new();
    let (mut stderr, writer) = Tracer::new();
    let mut link = stage.launch().with_stderr(writer).greeted();
    stderr.wait_for_end(DEATH);
    link.ping();
}

#[test]
fn log_descriptor_is_held_until_the_helper_exits() {
    let stage = Stage::new();
    let (mut log, writer) = Tracer::new();
    let mut link = stage.launch().silent();
    let id = link.call_with(hello(VERSION), vec![writer]);
    let reply = link.answer(id).reply;
    assert!(matches!(reply, Reply::Welcome { .. }), "{reply:?}");
    link.ping();
    assert!(log.is_held(), "the helper keeps its log");
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    log.wait_for_end(DEATH);
}

#[test]
fn helper_is_a_session_leader_in_the_root_directory() {
    let stage = Stage::new();
    let link = stage.link();
    let stat = foster_tests::proc::stat(link.pid()).expect("the helper lives");
    assert_eq!((stat.session, stat.group), (link.pid(), link.pid()));
    match std::fs::read_link(format!("/proc/{}/cwd", link.pid())) {
        Ok(directory) => assert_eq!(directory.to_str(), Some("/")),
        Err(error) => note_not_run("the helper's directory", &error.to_string()),
    }
}
