//! What a connection does about its sessions when the helper is lost.

use std::io::{PipeReader, PipeWriter, Read, pipe};
use std::time::Instant;

use foster_protocol::{Attached, Cause, Ending, Micros, Reply, Request, RequestId, Verdict};
use nix::poll::{PollFd, PollFlags};

use super::fake::{self, Fake};
use super::tests::{LIMIT, command, group};
use super::*;
use crate::error::ErrorKind;
use crate::poll::poll_until;

/// How a tree ended of which nobody was left.
fn ending() -> Ending {
    Ending {
        cause: Cause::Kill,
        verdict: Verdict::AllGone,
        proof: None,
        members: Vec::new(),
        survivors: Vec::new(),
        unattributed: Vec::new(),
        peaks: None,
        rounds: 1,
        took: Micros(0),
    }
}

/// A session whose `cgroup.kill` is a pipe: the reader shows what is written, and that it is
/// closed.
fn accept_with_kill(fake: &mut Fake, kill: PipeWriter) -> RequestId {
    fake.accept_spawn_with(vec![Attached::CgroupKill], vec![kill.into()])
}

/// What was written to a `cgroup.kill` until it was closed.
fn written(mut reader: PipeReader) -> Vec<u8> {
    let mut polled = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
    poll_until(&mut polled, Some(LIMIT)).expect("a pipe can be polled");
    assert!(polled[0].any().unwrap_or(false), "the descriptor is held");
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("a pipe can be read");
    bytes
}

#[test]
fn cgroups_are_killed_when_the_helper_is_lost_unless_ended_or_released() {
    let (ours, ours_kill) = pipe().expect("a pipe");
    let (ended, ended_kill) = pipe().expect("a pipe");
    let (released, released_kill) = pipe().expect("a pipe");
    let (asked, asked_kill) = pipe().expect("a pipe");
    let (dropped, dropped_kill) = pipe().expect("a pipe");
    let (helper, fake) = fake::helper(move |mut fake| {
        for kill in [
            ours_kill,
            ended_kill,
            released_kill,
            asked_kill,
            dropped_kill,
        ] {
            accept_with_kill(&mut fake, kill);
        }
        let (end, _) = fake.next().expect("the end comes");
        let reply = Reply::Ended { ending: ending() };
        fake.answer(end.id, reply, Vec::new());
        let (release, _) = fake.next().expect("the release comes");
        fake.answer(release.id, Reply::Released { still_running: 1 }, Vec::new());
        let (wait, _) = fake.next().expect("a dropped session's end is asked for");
        assert!(matches!(wait.request, Request::Wait { .. }), "{wait:?}");
        let (close, _) = fake.next().expect("its close comes");
        assert!(matches!(close.request, Request::Close { .. }), "{close:?}");
        let (release, _) = fake.next().expect("the second release comes");
        assert!(matches!(release.request, Request::Release { .. }));
    });
    let children: Vec<_> = (0..5)
        .map(|_| command(&helper).spawn().expect("the fake answers"))
        .collect();
    let [one, two, three, four, five] = <[_; 5]>::try_from(children).expect("five");
    two.kill().expect("the fake answers");
    assert_eq!(written(ended), b"", "an ended session's is closed");
    three.session().release().expect("the fake answers");
    assert_eq!(written(released), b"", "a released session's is closed");
    drop(five);
    let error = four.session().release().expect_err("the helper is lost");
    assert_eq!(error.kind(), ErrorKind::ReleaseFateUnknown);
    fake.join().expect("the script ran");
    assert_eq!(written(ours), b"1");
    assert_eq!(written(dropped), b"1", "its end was not known");
    drop((one, two, three, four, helper));
    assert_eq!(written(asked), b"", "whether it was let go is not known");
}

#[test]
fn helper_that_dies_behind_a_socket_that_a_stranger_holds_is_lost() {
    for waits in [true, false] {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair can be made");
        let mut connection = Connection::new(ours).expect("an eventfd can be made");
        let (mut process, pidfd) = group();
        connection.watch_peer(Some(pidfd));
        assert!(connection.loss().is_none(), "it lives");
        process.kill().expect("it is ours");
        if waits {
            let deadline = Instant::now().checked_add(LIMIT);
            let waited = connection.wait(Key::Session(SessionId(1)), deadline, |_| None::<()>);
            assert!(matches!(waited, Err(Loss::Died)), "{waited:?}");
        } else {
            process.wait().expect("it is ours");
            assert!(matches!(connection.loss(), Some(Loss::Died)));
        }
        drop(theirs);
        process.wait().expect("it is ours");
    }
}
