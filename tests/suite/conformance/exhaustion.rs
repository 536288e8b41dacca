//! The helper at its limits: a typed refusal, no leak, and the next spawn works.

use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use foster_protocol::{Reject, Reply, Step};
use foster_tests::{Command, Link, Stage, Tracer, is_root, note_not_run, pass};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

fn assert_serves(stage: &Stage, link: &mut Link) {
    let running = link.spawn(stage.sh("exit 5"));
    assert_eq!(link.exit(running.session).status, 5 << 8);
    link.close(running.session);
}

/// A command that comes with this many descriptors.
fn with_descriptors(stage: &Stage, count: i32) -> Command {
    let (mut command, spare) = (
        Command::new(stage.command("/bin/true", &[])),
        Tracer::new().1,
    );
    for target in 0..count {
        command = command.with(target, spare.try_clone().expect("a descriptor"));
    }
    command
}

#[test]
fn descriptors_that_do_not_fit_are_a_typed_refusal_and_leak_nothing_over_a_thousand_tries() {
    let stage = Stage::new();
    let mut link = stage
        .launch()
        .through("with-limit", &["nofile=48"])
        .greeted();
    assert_serves(&stage, &mut link);
    link.assert_idle();
    let before = link.descriptors();
    for turn in 0..1_000 {
        let (session, reply) = link.try_spawn(with_descriptors(&stage, 47));
        assert_eq!(
            reply,
            Reply::Rejected {
                reason: Reject::DescriptorsLost
            },
            "turn {turn}"
        );
        link.close(session);
    }
    assert_serves(&stage, &mut link);
    link.assert_idle();
    link.assert_descriptors(before);
}

#[test]
fn sessions_that_use_up_every_descriptor_end_in_a_typed_refusal_and_the_next_spawn_works() {
    let stage = Stage::new();
    let mut link = stage
        .launch()
        .through("with-limit", &["nofile=40"])
        .greeted();
    assert_serves(&stage, &mut link);
    link.assert_idle();
    let before = link.descriptors();
    for _ in 0..3 {
        let mut held = Vec::new();
        let refusal = loop {
            let (session, reply) = link.try_spawn(stage.sleeper());
            held.push(session);
            if !matches!(reply, Reply::Spawned { .. }) {
                break reply;
            }
            assert!(held.len() < 60, "the limit is never reached");
        };
        assert_typed(&refusal);
        for session in held {
            link.close(session);
        }
        link.assert_idle();
        assert_serves(&stage, &mut link);
    }
    link.assert_idle();
    link.assert_descriptors(before);
}

/// Whether it failed before a fork, or in it, for want of descriptors.
fn assert_typed(refusal: &Reply) {
    if *refusal
        == (Reply::Rejected {
            reason: Reject::DescriptorsLost,
        })
    {
        return;
    }
    let Reply::SpawnFailed { step, errno } = refusal else {
        panic!("{refusal:?}")
    };
    assert_eq!(*errno, libc::EMFILE, "{refusal:?}");
    assert!([Step::Prepare, Step::Fork].contains(step), "{refusal:?}");
}

#[test]
fn sessions_at_the_descriptor_limit_can_still_be_ended() {
    let stage = Stage::new();
    let mut link = stage
        .launch()
        .through("with-limit", &["nofile=40"])
        .greeted();
    let mut held = Vec::new();
    loop {
        let spec = stage.bash("set -m; sleep 60 & sleep 60 & exec sleep 60");
        let (session, reply) = link.try_spawn(spec);
        if !matches!(reply, Reply::Spawned { .. }) {
            assert_typed(&reply);
            break link.close(session);
        }
        held.push(session);
        assert!(held.len() < 60, "the limit is never reached");
    }
    for session in held {
        let ending = link.end(session, std::time::Duration::from_millis(200));
        assert_eq!(
            ending.verdict,
            foster_protocol::Verdict::AllGone,
            "{ending:?}"
        );
        link.close(session);
    }
    link.assert_idle();
}

#[test]
fn process_limit_is_a_typed_failure_and_the_next_spawn_works() {
    if !is_root() {
        return note_not_run(
            "a process limit",
            "this is not root, and its processes count too",
        );
    }
    let stage = Stage::new();
    // A user of this test alone: the kernel counts every process of the user.
    let launch = stage.launch().through("with-limit", &["nproc=8"]);
    let mut link = launch.as_user(64_321).greeted();
    let mut held = Vec::new();
    let failure = loop {
        let (session, reply) = link.try_spawn(stage.sleeper());
        held.push(session);
        if !matches!(reply, Reply::Spawned { .. }) {
            break reply;
        }
        assert!(held.len() < 20, "the limit is never reached");
    };
    assert_eq!(
        failure,
        Reply::SpawnFailed {
            step: Step::Fork,
            errno: libc::EAGAIN
        }
    );
    link.ping();
    // Ending needs no fork.
    for session in held {
        link.close(session);
    }
    link.assert_idle();
    assert_serves(&stage, &mut link);
}

#[test]
fn reply_waits_while_too_many_descriptors_of_the_user_are_on_their_way_and_comes_after_it() {
    if is_root() {
        return note_not_run(
            "too many descriptors on their way",
            "root may have any number",
        );
    }
    let stage = Stage::new();
    let mut link = stage
        .launch()
        .through("with-limit", &["nofile=48"])
        .greeted();
    // Sent and not received: the kernel counts them for the user.
    let (one, other) = UnixStream::pair().expect("a socket pair");
    let spare = Tracer::new().1;
    let number = [spare.as_raw_fd()];
    for _ in 0..100 {
        let rights = [ControlMessage::ScmRights(&number)];
        let slices = [IoSlice::new(b".")];
        let sent = sendmsg::<()>(one.as_raw_fd(), &slices, &rights, MsgFlags::empty(), None);
        sent.expect("this process has a higher limit");
    }
    let (session, spawn) = link.start(stage.sh("exit 5"));
    pass(Duration::from_millis(300));
    assert!(!link.has_answer(spawn), "the reply carries a descriptor");
    drop((one, other));
    let reply = link.answer(spawn).reply;
    assert!(matches!(reply, Reply::Spawned { .. }), "{reply:?}");
    assert_eq!(link.exit(session).status, 5 << 8);
}
