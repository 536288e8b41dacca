//! Bytes that are no frames: the sessions end, and the exit code tells.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use foster_protocol::{Call, MAX_BODY, Request, RequestId, SessionId, encode_call};
use foster_tests::{DEATH, Link, Stage};

/// A frame with this header and body.
fn frame(length: usize, count: u8, padding: [u8; 3], body: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(length)
        .expect("a length of 32 bits")
        .to_le_bytes()
        .to_vec();
    bytes.push(count);
    bytes.extend(padding);
    bytes.extend(body);
    bytes
}

fn ping() -> Vec<u8> {
    encode_call(&Call {
        id: RequestId(u64::MAX),
        request: Request::Ping,
    })
    .expect("it fits")
}

/// Sends bytes while a session runs, and asserts that this ends the session and the helper.
fn assert_ends(bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_, mut tracer) = link.spawn_traced(stage.sleeper());
    link.send_raw(bytes, descriptors)
        .expect("the helper listens");
    // Nothing is read any more: a reply to the good part of the bytes has no account.
    assert_eq!(link.exit_code(), 100);
    tracer.wait_for_end(DEATH);
}

fn spare() -> OwnedFd {
    let (one, _other) = UnixStream::pair().expect("a socket pair");
    one.into()
}

#[test]
fn body_above_the_limit_ends_the_link() {
    assert_ends(&frame(MAX_BODY + 1, 0, [0; 3], &[]), &[]);
    assert_ends(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], &[]);
}

#[test]
fn descriptor_count_above_the_limit_ends_the_link() {
    assert_ends(&frame(0, 254, [0; 3], &[]), &[]);
}

#[test]
fn padding_that_is_not_zero_ends_the_link() {
    let body = ping();
    for place in 0..3 {
        let mut padding = [0; 3];
        padding[place] = 1;
        assert_ends(&frame(body.len(), 0, padding, &body), &[]);
    }
}

#[test]
fn announced_descriptors_that_do_not_come_end_the_link() {
    let body = ping();
    assert_ends(&frame(body.len(), 1, [0; 3], &body), &[]);
}

#[test]
fn more_descriptors_than_announced_end_the_link() {
    let (body, spare) = (ping(), spare());
    let two = [spare.as_fd(), spare.as_fd()];
    assert_ends(&frame(body.len(), 1, [0; 3], &body), &two);
}

#[test]
fn descriptors_that_no_frame_announces_end_the_link() {
    let (body, spare) = (ping(), spare());
    assert_ends(&frame(body.len(), 0, [0; 3], &body), &[spare.as_fd()]);
}

#[test]
fn bytes_behind_a_message_end_the_link() {
    let mut body = ping();
    body.push(0);
    assert_ends(&frame(body.len(), 0, [0; 3], &body), &[]);
}

#[test]
fn unknown_variant_ends_the_link() {
    let mut body = 7_u64.to_le_bytes().to_vec();
    body.extend(9999_u32.to_le_bytes());
    assert_ends(&frame(body.len(), 0, [0; 3], &body), &[]);
}

#[test]
fn empty_body_ends_the_link() {
    assert_ends(&frame(0, 0, [0; 3], &[]), &[]);
}

#[test]
fn length_inside_a_message_that_the_body_does_not_have_ends_the_link() {
    let request = Request::Restrict {
        seal: foster_protocol::Seal::default(),
    };
    let body = encode_call(&Call {
        id: RequestId(7),
        request,
    })
    .expect("it fits");
    let mut body = body.get(..12).expect("an id and a tag").to_vec();
    // A list of users that would be longer than any memory.
    body.push(1);
    body.extend(u64::MAX.to_le_bytes());
    assert_ends(&frame(body.len(), 0, [0; 3], &body), &[]);
}

#[test]
fn half_a_frame_and_a_hangup_is_a_hangup() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (_, mut tracer) = link.spawn_traced(stage.sleeper());
    link.send_raw(&frame(100, 0, [0; 3], &[1, 2, 3]), &[])
        .expect("the helper listens");
    link.hang_up();
    assert_eq!(link.exit_code(), 0);
    tracer.wait_for_end(DEATH);
}

#[test]
fn half_a_frame_delays_nothing_else() {
    let stage = Stage::new();
    let mut link = stage.link();
    let running = link.spawn(stage.sh("read x; exit 3"));
    let exit = link.ask_exit(running.session);
    let close = Request::Close {
        session: SessionId(999),
    };
    let body = encode_call(&Call {
        id: RequestId(5000),
        request: close,
    })
    .expect("it fits");
    let bytes = frame(body.len(), 0, [0; 3], &body);
    let (head, tail) = bytes.split_at(3);
    link.send_raw(head, &[]).expect("the helper listens");
    assert_eq!(link.exited(exit, foster_tests::ANSWER).status, 3 << 8);
    link.send_raw(tail, &[]).expect("the helper listens");
    link.ping();
}

#[test]
fn frame_that_comes_byte_by_byte_is_served() {
    let stage = Stage::new();
    let mut link = stage.link();
    let session = SessionId(u64::MAX);
    let body = encode_call(&Call {
        id: RequestId(5000),
        request: Request::Close { session },
    });
    let body = body.expect("it fits");
    for byte in frame(body.len(), 0, [0; 3], &body) {
        link.send_raw(&[byte], &[]).expect("the helper listens");
    }
    link.ping();
}

#[test]
fn descriptors_behind_glued_plain_frames_reach_their_own_frame() {
    let stage = Stage::new();
    let mut link = stage.link();
    let (mut tracer, writer) = foster_tests::Tracer::new();
    let pings: Vec<_> = (0..20)
        .map(|_| link.queue(Request::Ping, Vec::new()))
        .collect();
    let command = foster_tests::Command::new(stage.sh("echo $0")).with(1, writer);
    let session = link.fresh_session();
    let spawn = Request::Spawn {
        session,
        spec: Box::new(command.spec),
    };
    link.queue(spawn, command.descriptors);
    let last = link.call(Request::Ping);
    for id in pings.into_iter().chain([last]) {
        link.answer(id);
    }
    assert_eq!(tracer.line(), stage.tag());
}

#[test]
fn random_bytes_never_end_the_helper_in_another_way_than_a_hangup_or_a_refusal() {
    for seed in 1..=60_u64 {
        let stage = Stage::new();
        let mut link = stage.link();
        let bytes = random_bytes(seed);
        let sent = link.send_raw(&bytes, &[]);
        link.hang_up();
        let code = link.exit_code();
        assert!(
            [0, 100].contains(&code),
            "seed {seed}: code {code}, sending: {sent:?}"
        );
    }
}

#[test]
fn random_bodies_in_good_frames_end_the_link() {
    for seed in 1..=60_u64 {
        let stage = Stage::new();
        let mut link = stage.link();
        let mut body = random_bytes(seed);
        // A tag that no request has, so that no seed can be a request.
        body.splice(0..0, [0, 0, 0, 0, 0, 0, 0, 0, 200, 0, 0, 0]);
        let sent = link.send_raw(&frame(body.len(), 0, [0; 3], &body), &[]);
        assert_eq!(exit_of(&mut link), 100, "seed {seed}, sending: {sent:?}");
    }
}

#[test]
fn every_prefix_of_a_spawn_as_a_body_ends_the_link() {
    let stage = Stage::new();
    let spec = Box::new(stage.command("/bin/true", &[]));
    let request = Request::Spawn {
        session: SessionId(1),
        spec,
    };
    let body = encode_call(&Call {
        id: RequestId(7),
        request,
    })
    .expect("it fits");
    for length in (0..body.len()).step_by(7) {
        let mut link = stage.link();
        let part = body.get(..length).expect("a prefix");
        link.send_raw(&frame(length, 0, [0; 3], part), &[])
            .expect("the helper listens");
        assert_eq!(exit_of(&mut link), 100, "the first {length} bytes");
    }
}

fn exit_of(link: &mut Link) -> i32 {
    link.wait_for_hangup(DEATH);
    link.exit_code()
}

/// Up to 400 bytes of a xorshift generator.
fn random_bytes(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    let length = usize::from(next()) + usize::from(next() / 2);
    (0..length).map(|_| next()).collect()
}
