//! The connection against a helper that misbehaves on purpose.

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use foster_protocol::{
    Cause, Counters, Exit, Micros, Pid, Reject, Reply, Request, RequestId, Usage,
};

use super::fake::{self, ANSWER_LIMIT, Fake};
use nix::poll::{PollFd, PollFlags};

use super::*;
use crate::command::Command;
use crate::error::ErrorKind;
use crate::poll::poll_until;
use crate::stdio::Stdio;

/// How long anything here may take.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

fn exited(status: i32) -> Reply {
    let exit = Exit {
        status,
        usage: Usage::default(),
        wall: Micros(1),
        cause: Cause::Exit,
    };
    Reply::Exited { exit }
}

pub(super) fn command(helper: &crate::Helper) -> Command {
    let mut command = Command::new("never-run");
    command
        .helper(helper)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

#[test]
fn every_spawn_fails_at_once_when_the_helper_is_lost_before_the_answer() {
    let (helper, fake) = fake::helper(|mut fake| {
        for _ in 0..4 {
            fake.next_spawn();
        }
    });
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let error = command(&helper).spawn().expect_err("the helper is lost");
                assert_eq!(error.kind(), ErrorKind::SpawnFateUnknown);
                assert!(error.is_helper_lost() && !error.is_spawn_failure());
                assert!(error.to_string().contains("may have run"), "{error}");
            });
        }
    });
    assert!(helper.is_lost());
    fake.join().expect("the script ran");
}

#[test]
fn a_spawn_of_which_nothing_was_sent_did_not_run() {
    let (helper, fake) = fake::helper(drop);
    fake.join().expect("the script ran");
    let error = command(&helper).spawn().expect_err("the helper is lost");
    assert_eq!(error.kind(), ErrorKind::HelperLost);
    assert!(error.to_string().contains("did not run"), "{error}");
}

#[test]
fn each_wait_names_what_it_does_not_know_when_the_helper_is_lost() {
    let (helper, fake) = fake::helper(|mut fake| {
        fake.accept_spawn(None);
        // The wait for the end, the end and the release, in any order.
        for _ in 0..3 {
            fake.next().expect("a request comes");
        }
    });
    let mut child = command(&helper).spawn().expect("the fake answers");
    let session = child.session().clone();
    thread::scope(|scope| {
        let waits = [
            scope.spawn(|| child.wait().expect_err("lost").kind()),
            scope.spawn(|| session.wait_end(None).expect_err("lost").kind()),
            scope.spawn(|| session.end(15, LIMIT).expect_err("lost").kind()),
            scope.spawn(|| session.release().expect_err("lost").kind()),
        ];
        let kinds = waits.map(|wait| wait.join().expect("no wait panics"));
        assert_eq!(
            kinds,
            [
                ErrorKind::ExitUnknown,
                ErrorKind::EndUnknown,
                ErrorKind::EndUnknown,
                ErrorKind::ReleaseFateUnknown
            ]
        );
    });
    fake.join().expect("the script ran");
}

#[test]
fn bytes_that_are_no_frame_lose_the_helper() {
    for bytes in [
        // A body above the limit; padding that is not zero; a body that is no reply; a reply
        // to a request that was never sent; descriptors that did not come.
        [0xff; 8].to_vec(),
        [1, 0, 0, 0, 0, 1, 0, 0, 0].to_vec(),
        [1, 0, 0, 0, 0, 0, 0, 0, 0].to_vec(),
        fake::frame(RequestId(77), Reply::Restricted),
        [1, 0, 0, 0, 1, 0, 0, 0, 0].to_vec(),
    ] {
        let (helper, fake) = fake::helper(move |mut fake| {
            fake.next().expect("the ping comes");
            fake.raw(&bytes);
            fake.until_hangup();
        });
        let error = helper.ping().expect_err("the helper breaks the protocol");
        assert_eq!(error.kind(), ErrorKind::HelperLost);
        fake.join().expect("the client hangs up by itself");
    }
}

#[test]
fn a_reply_of_the_wrong_kind_loses_the_helper() {
    let (helper, fake) = fake::helper(|mut fake| {
        let (call, _) = fake.next().expect("the list comes");
        fake.answer(call.id, Reply::Restricted, Vec::new());
        fake.until_hangup();
    });
    assert_eq!(
        helper.list().expect_err("no list came").kind(),
        ErrorKind::HelperLost
    );
    assert!(helper.is_lost());
    fake.join().expect("the client hangs up by itself");
}

#[test]
fn a_silent_helper_is_reported_in_time_and_its_late_answer_is_dropped() {
    let (go, gate) = mpsc::channel();
    let (helper, fake) = fake::helper(move |mut fake| {
        let (late, _) = fake.next().expect("the ping comes");
        gate.recv_timeout(LIMIT).expect("the ping gave up");
        fake.answer(
            late.id,
            Reply::Pong {
                counters: Counters::default(),
            },
            Vec::new(),
        );
        let (call, _) = fake.next().expect("the second ping comes");
        let counters = Counters {
            sessions: 7,
            ..Counters::default()
        };
        fake.answer(call.id, Reply::Pong { counters }, Vec::new());
        fake.until_hangup();
    });
    let start = Instant::now();
    assert_eq!(
        helper.ping().expect_err("it is silent").kind(),
        ErrorKind::HelperSilent
    );
    assert!(start.elapsed() >= ANSWER_LIMIT && start.elapsed() < LIMIT);
    go.send(()).expect("the script waits");
    assert_eq!(helper.ping().expect("it speaks again").sessions, 7);
    drop(helper);
    fake.join().expect("the script ran");
}

#[test]
fn half_a_frame_outlives_its_reader_and_the_role_is_handed_on() {
    let (go, gate) = mpsc::channel();
    let (helper, fake) = fake::helper(move |mut fake| {
        let wait = fake.accept_spawn(None);
        let frame = fake::frame(wait, exited(0x0700));
        let (head, tail) = frame.split_at(11);
        fake.raw(head);
        gate.recv_timeout(LIMIT).expect("the first reader gave up");
        fake.raw(tail);
        fake.until_hangup();
    });
    let mut child = command(&helper).spawn().expect("the fake answers");
    let session = child.session().clone();
    let follower = thread::spawn(move || session.wait_exit(Some(LIMIT)));
    let early = child
        .wait_timeout(Duration::from_millis(50))
        .expect("the helper is there");
    assert_eq!(early, None);
    go.send(()).expect("the script waits");
    let exit = follower
        .join()
        .expect("no wait panics")
        .expect("the helper is there");
    assert_eq!(exit.map(|exit| exit.status), Some(0x0700));
    assert_eq!(
        child
            .try_wait()
            .expect("it is known")
            .and_then(|status| status.code()),
        Some(7)
    );
    drop((child, helper));
    fake.join().expect("the script ran");
}

#[test]
fn closes_that_do_not_fit_never_block_and_go_out_while_somebody_waits() {
    const CHILDREN: usize = 2000;
    let (go, gate) = mpsc::channel();
    let (helper, fake) = fake::helper(move |mut fake| {
        let last = (0..=CHILDREN).map(|_| fake.accept_spawn(None)).last();
        gate.recv_timeout(LIMIT).expect("the children are dropped");
        for _ in 0..CHILDREN {
            let (call, _) = fake.next().expect("a close comes");
            assert!(matches!(call.request, Request::Close { .. }), "{call:?}");
        }
        fake.answer(last.expect("there was one"), exited(0), Vec::new());
        fake.until_hangup();
    });
    let children: Vec<_> = (0..CHILDREN)
        .map(|_| command(&helper).spawn().expect("the fake answers"))
        .collect();
    let mut last = command(&helper).spawn().expect("the fake answers");
    let waiter = thread::spawn(move || last.wait_timeout(LIMIT));
    drop(children);
    go.send(()).expect("the script waits");
    let status = waiter
        .join()
        .expect("no wait panics")
        .expect("the helper is there");
    assert!(status.is_some_and(|status| status.success()));
    drop(helper);
    fake.join().expect("the script ran");
}

/// Starts a group of its own that lives for a minute, with a pidfd of its leader.
pub(super) fn group() -> (std::process::Child, OwnedFd) {
    let leader = std::process::Command::new("sleep")
        .arg("63.1")
        .process_group(0)
        .spawn()
        .expect("sleep can be started");
    let pidfd = sys::open_pidfd(leader.id()).expect("the child is ours");
    (leader, pidfd)
}

/// Whether a process exits before long.
fn exits(process: &mut std::process::Child, within: Duration) -> bool {
    let pidfd = sys::open_pidfd(process.id()).expect("the child is ours");
    let mut polled = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    poll_until(&mut polled, Some(within)).expect("a pidfd can be polled");
    polled[0].any().unwrap_or(false)
}

#[test]
fn sessions_are_killed_by_pidfd_when_the_helper_is_lost_unless_released() {
    let (mut ours, pidfd) = group();
    let (mut released, released_pidfd) = group();
    let (helper, fake) = fake::helper(move |mut fake| {
        fake.accept_spawn(Some(pidfd));
        fake.accept_spawn(Some(released_pidfd));
        let (call, _) = fake.next().expect("the release comes");
        assert!(matches!(call.request, Request::Release { .. }), "{call:?}");
        fake.answer(call.id, Reply::Released { still_running: 1 }, Vec::new());
    });
    let child = command(&helper).spawn().expect("the fake answers");
    let free = command(&helper).spawn().expect("the fake answers");
    assert_eq!(free.session().release().expect("the fake answers"), 1);
    fake.join().expect("the script ran");
    assert!(helper.is_lost());
    assert!(exits(&mut ours, LIMIT), "the session was not killed");
    drop((child, free));
    assert!(
        !exits(&mut released, Duration::from_millis(50)),
        "the released one was killed"
    );
    released.kill().expect("it is ours");
    let status = ours.wait().expect("it is ours");
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    released.wait().expect("it is ours");
}

#[test]
fn a_refused_spawn_leaves_nothing_to_close() {
    let (helper, fake) = fake::helper(|mut fake| {
        let (spawn, wait, _) = fake.next_spawn();
        let refused = || Reply::Rejected {
            reason: Reject::ShuttingDown,
        };
        // The client hangs up at its answer, so that comes last.
        fake.answer(wait, refused(), Vec::new());
        fake.answer(spawn.id, refused(), Vec::new());
        assert!(fake.next().is_none(), "nothing more comes");
    });
    let error = command(&helper).spawn().expect_err("it is refused");
    assert!(error.is_rejected());
    assert_eq!(error.rejection(), Some(&Reject::ShuttingDown));
    drop(helper);
    fake.join().expect("the script ran");
}

#[test]
fn output_ends_at_the_exit_without_a_pidfd_though_a_pipe_stays_open() {
    let (helper, fake) = fake::helper(|mut fake| {
        let (spawn, wait, descriptors) = fake.next_spawn();
        let Request::Spawn { spec, .. } = &spawn.request else {
            panic!("{spawn:?}")
        };
        let stdout = spec.descriptors.iter().find(|mapping| mapping.target == 1);
        let index = stdout.expect("it is piped").source as usize;
        let mut pipe = File::from(descriptors[index].try_clone().expect("it can be copied"));
        pipe.write_all(b"hi\n").expect("the client reads");
        let reply = Reply::Spawned {
            pid: Pid(i32::MAX),
            containment: fake::containment(),
            attached: Vec::new(),
        };
        fake.answer(spawn.id, reply, Vec::new());
        fake.answer(wait, exited(0), Vec::new());
        fake.until_hangup();
        drop(pipe);
    });
    let mut command = Command::new("never-run");
    let output = command.helper(&helper).output().expect("the fake answers");
    assert_eq!(output.stdout, b"hi\n");
    assert!(output.still_open);
    drop((command, helper));
    fake.join().expect("the script ran");
}

#[test]
fn a_forked_process_writes_nothing_to_its_parents_socket() {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair can be made");
    let mut connection = Connection::new(ours).expect("an eventfd can be made");
    // As it is in a child of the process that made it.
    connection.owner = connection.owner.wrapping_add(1);
    connection.close(SessionId(1), true);
    let refusal = connection
        .request(Request::Ping, Vec::new())
        .expect_err("it is not ours");
    assert!(matches!(refusal, Refusal::Lost(Loss::Forked)));
    let waited = connection.wait(Key::Session(SessionId(1)), None, |_| None::<()>);
    assert!(matches!(waited, Err(Loss::Forked)));
    drop(connection);
    assert!(Fake::new(theirs).next().is_none(), "nothing was written");
}
