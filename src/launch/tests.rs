//! Hello with helpers that are none, and the errors of launching.

use std::error::Error as _;
use std::thread;

use foster_protocol::Availability;

use super::*;
use crate::connection::fake::{self, Fake};
use crate::error::ErrorKind;

/// How long a failure may take to be reported.
const SOON: Duration = Duration::from_secs(1);

fn launch(path: &str, timeout: Duration) -> Error {
    let start = Instant::now();
    let error = Helper::builder()
        .path(path)
        .timeout(timeout)
        .launch()
        .expect_err("no helper");
    assert!(
        start.elapsed() < timeout + SOON,
        "it took {:?}",
        start.elapsed()
    );
    assert!(error.is_launch());
    error
}

#[test]
fn a_program_that_is_not_there_is_named_with_the_reason() {
    let error = launch("/no/such/helper", HELLO_TIMEOUT);
    assert_eq!(error.kind(), ErrorKind::NoHelper);
    assert_eq!(
        error.to_string(),
        "no helper could be started: /no/such/helper: No such file or directory (os error 2)"
    );
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
    assert!(
        launch("/etc/passwd", HELLO_TIMEOUT)
            .to_string()
            .contains("Permission denied")
    );
}

#[test]
fn a_helper_that_exits_before_hello_is_reported_at_once_with_its_status() {
    let start = Instant::now();
    let error = launch("/bin/false", HELLO_TIMEOUT);
    assert_eq!(error.kind(), ErrorKind::HelperExited);
    assert_eq!(
        error.to_string(),
        "helper /bin/false exited before it said hello (exit status: 1)"
    );
    assert!(start.elapsed() < SOON);
}

#[test]
fn a_silent_helper_is_given_up_at_the_limit() {
    // It reads the socket and writes to its output, which is null.
    let error = launch("/bin/cat", Duration::from_millis(100));
    assert_eq!(error.kind(), ErrorKind::HelperSilent);
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::TimedOut);
}

#[test]
fn threads_are_refused_on_request() {
    thread::scope(|scope| {
        let (stay, gate) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || gate.recv());
        let error = Helper::builder()
            .refuse_threads(true)
            .launch()
            .expect_err("threads are there");
        assert_eq!(error.kind(), ErrorKind::ThreadsPresent);
        drop(stay);
    });
}

/// Says hello to a fake helper as if it had been launched in this way.
fn greet(kind: Kind, script: impl FnOnce(Fake) + Send + 'static) -> Result<Capabilities> {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair can be made");
    let fake = thread::spawn(move || script(Fake::new(theirs)));
    let connection = Connection::new(ours).expect("an eventfd can be made");
    let place = Place {
        path: "/fake".into(),
        kind,
    };
    let outcome = hello(
        &connection,
        &place,
        &mut fake::process(),
        None,
        HELLO_TIMEOUT,
    );
    drop(connection);
    fake.join().expect("the script ran");
    outcome
}

fn welcome(version: u32, build: &str) -> Reply {
    let level = foster_protocol::Level::Group;
    let capabilities = Capabilities {
        levels: vec![Availability {
            level,
            errno: 0,
            obstacle: None,
        }],
        clone3: true,
        pidfd: true,
        pidfd_group: true,
        children_files: true,
        janitor: 0,
    };
    Reply::Welcome {
        version,
        build: build.into(),
        capabilities,
    }
}

fn answering(reply: Reply) -> impl FnOnce(Fake) + Send + 'static {
    move |mut fake| {
        let (call, _) = fake.next().expect("hello comes");
        assert_eq!(
            call.request,
            Request::Hello {
                version: VERSION,
                build: BUILD.into(),
                cgroup_root: None,
            }
        );
        fake.answer(call.id, reply, Vec::new());
    }
}

#[test]
fn a_welcome_gives_the_capabilities() {
    let capabilities = greet(Kind::OwnProgram, answering(welcome(VERSION, BUILD)));
    assert!(capabilities.expect("it is welcome").clone3);
}

#[test]
fn another_version_is_named_with_ours() {
    let rejected = Reply::Rejected {
        reason: Reject::VersionMismatch {
            helper: 9,
            client: VERSION,
        },
    };
    for script in [answering(rejected), answering(welcome(9, BUILD))] {
        let error = greet(Kind::Executable, script).expect_err("the versions differ");
        assert_eq!(error.kind(), ErrorKind::VersionMismatch);
        assert_eq!(
            error.to_string(),
            format!("helper /fake speaks protocol version 9, this client {VERSION}")
        );
    }
}

#[test]
fn a_welcome_of_a_later_layout_still_tells_its_version() {
    let error = greet(Kind::Executable, |mut fake| {
        let (call, _) = fake.next().expect("hello comes");
        // Id, tag 0 and version are where every version has them; the rest is unknown.
        let body = [
            &call.id.0.to_le_bytes()[..],
            &[0; 4],
            &9_u32.to_le_bytes(),
            &[7; 3],
        ]
        .concat();
        let length = u32::try_from(body.len()).expect("it is short");
        fake.raw(&[&length.to_le_bytes()[..], &[0; 4], &body].concat());
        fake.until_hangup();
    })
    .expect_err("the versions differ");
    assert!(error.to_string().contains("version 9"), "{error}");
}

#[test]
fn another_build_matters_only_to_a_re_executed_program() {
    let other = || answering(welcome(VERSION, "foster/other"));
    greet(Kind::Executable, other()).expect("an executable may be of another build");
    let error = greet(Kind::OwnProgram, other()).expect_err("the file was replaced");
    assert_eq!(error.kind(), ErrorKind::BuildMismatch);
    assert!(error.to_string().contains("foster/other"), "{error}");
}

#[test]
fn a_program_that_speaks_something_else_is_named() {
    let error = greet(Kind::Executable, |mut fake| {
        fake.next().expect("hello comes");
        fake.raw(b"SSH-2.0-other\r\n");
        fake.until_hangup();
    })
    .expect_err("that is no helper");
    assert_eq!(error.kind(), ErrorKind::VersionMismatch);
    assert_eq!(
        error.to_string(),
        "program /fake does not speak the helper's protocol"
    );
    assert_eq!(
        error.source().map(ToString::to_string).as_deref(),
        Some("helper broke the protocol")
    );
}
