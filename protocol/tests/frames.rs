//! Frames out of reads: whatever the reads are cut into, and whatever they carry.

#![cfg(target_os = "linux")]

use std::fs::File;
use std::os::fd::OwnedFd;

use foster_protocol::{EncodeError, FrameError, Inbox, MAX_BODY, MAX_DESCRIPTORS, Outbox};
use proptest::prelude::*;

const HEADER: usize = 8;
const READ: usize = 64 * 1024;

fn null() -> OwnedFd {
    File::open("/dev/null").expect("/dev/null opens").into()
}

fn nulls(count: usize) -> Vec<OwnedFd> {
    (0..count).map(|_| null()).collect()
}

fn frame(body: &[u8], count: u8) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a test body is short");
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[count, 0, 0, 0]);
    bytes.extend_from_slice(body);
    bytes
}

/// The bodies and descriptor counts of every whole frame.
fn drain(inbox: &mut Inbox) -> Result<Vec<(Vec<u8>, usize, bool)>, FrameError> {
    let mut frames = Vec::new();
    while let Some(frame) = inbox.next_frame()? {
        frames.push((frame.body, frame.descriptors.len(), frame.descriptors_lost));
    }
    Ok(frames)
}

#[test]
fn plain_frame_glued_before_a_descriptor_frame_leaves_it_its_descriptors() {
    let mut inbox = Inbox::new();
    let mut bytes = frame(b"plain", 0);
    bytes.extend(frame(b"with", 2));
    inbox.feed(&bytes, nulls(2), false);
    let frames = drain(&mut inbox).expect("both frames are right");
    assert_eq!(
        frames,
        [(b"plain".to_vec(), 0, false), (b"with".to_vec(), 2, false)]
    );
}

#[test]
fn descriptor_frame_may_arrive_byte_by_byte() {
    let mut inbox = Inbox::new();
    let mut descriptors = nulls(1);
    for byte in frame(b"slow", 1) {
        assert_eq!(drain(&mut inbox).expect("nothing is wrong yet"), []);
        inbox.feed(&[byte], std::mem::take(&mut descriptors), false);
    }
    assert_eq!(
        drain(&mut inbox).expect("the frame is right"),
        [(b"slow".to_vec(), 1, false)]
    );
    assert!(!inbox.is_mid_frame());
}

#[test]
fn rest_of_a_frame_and_the_start_of_the_next_share_a_read_with_descriptors() {
    let mut inbox = Inbox::new();
    let (first, second) = (frame(b"first", 1), frame(b"second", 2));
    let (head, tail) = first.split_at(10);
    inbox.feed(head, nulls(1), false);
    inbox.feed(&[tail, &second[..1]].concat(), nulls(2), false);
    inbox.feed(&second[1..], Vec::new(), false);
    let frames = drain(&mut inbox).expect("both frames are right");
    assert_eq!(
        frames,
        [
            (b"first".to_vec(), 1, false),
            (b"second".to_vec(), 2, false)
        ]
    );
}

#[test]
fn descriptors_with_a_frame_that_announces_none_are_refused_in_an_unbroken_stream() {
    let mut inbox = Inbox::new();
    inbox.feed(&frame(b"plain", 0), nulls(1), false);
    // The stream never pauses: part of a next frame is always there.
    inbox.feed(&frame(b"next", 0)[..5], Vec::new(), false);
    assert_eq!(
        inbox
            .next_frame()
            .expect("it is a frame")
            .expect("it is whole")
            .body,
        b"plain"
    );
    assert!(matches!(inbox.next_frame(), Err(FrameError::Unannounced)));
}

#[test]
fn descriptors_in_the_middle_of_a_frame_are_refused() {
    let mut inbox = Inbox::new();
    let bytes = frame(b"announces one", 1);
    inbox.feed(&bytes[..9], Vec::new(), false);
    inbox.feed(&bytes[9..], nulls(1), false);
    let error = inbox.next_frame().expect_err("they came too late");
    assert_eq!(
        error,
        FrameError::DescriptorCount {
            announced: 1,
            came: 0
        }
    );
}

#[test]
fn second_batch_within_one_frame_is_refused() {
    let mut inbox = Inbox::new();
    let bytes = frame(b"one batch only", 1);
    inbox.feed(&bytes[..9], nulls(1), false);
    inbox.feed(&bytes[9..], nulls(1), false);
    assert_eq!(
        inbox
            .next_frame()
            .expect("the first is its own")
            .map(|f| f.descriptors.len()),
        Some(1)
    );
    assert!(matches!(inbox.next_frame(), Err(FrameError::Unannounced)));
}

#[test]
fn announced_and_arrived_counts_must_agree() {
    for (announced, came) in [(1_u8, 0), (1, 2), (3, 2)] {
        let mut inbox = Inbox::new();
        inbox.feed(&frame(b"x", announced), nulls(came), false);
        let error = inbox.next_frame().expect_err("the counts differ");
        assert_eq!(
            error,
            FrameError::DescriptorCount {
                announced: announced.into(),
                came
            }
        );
    }
}

#[test]
fn lost_descriptors_spoil_their_own_frame_and_no_other() {
    let mut inbox = Inbox::new();
    inbox.feed(&[frame(b"a", 0), frame(b"b", 3)].concat(), nulls(1), true);
    inbox.feed(&frame(b"c", 1), nulls(1), false);
    let frames = drain(&mut inbox).expect("the framing is right");
    let expected = [
        (b"a".to_vec(), 0, false),
        (b"b".to_vec(), 0, true),
        (b"c".to_vec(), 1, false),
    ];
    assert_eq!(frames, expected);
}

#[test]
fn header_limits_are_checked_before_the_body_comes() {
    let too_long = u32::try_from(MAX_BODY + 1).expect("the limit is small");
    let mut header = too_long.to_le_bytes().to_vec();
    header.extend_from_slice(&[0; 4]);
    let refuses = |header: &[u8]| {
        let mut inbox = Inbox::new();
        inbox.feed(header, Vec::new(), false);
        inbox.next_frame().expect_err("the header is wrong")
    };
    assert_eq!(
        refuses(&header),
        FrameError::BodyTooLong { length: too_long }
    );
    assert_eq!(
        refuses(&[0xff; 8]),
        FrameError::BodyTooLong { length: u32::MAX }
    );
    assert_eq!(
        refuses(&[1, 0, 0, 0, 254, 0, 0, 0]),
        FrameError::TooManyDescriptors { count: 254 }
    );
    for place in 5..8 {
        let mut header = [0; 8];
        header[place] = 1;
        assert_eq!(refuses(&header), FrameError::Padding);
    }
}

#[test]
fn body_at_the_limit_passes_and_one_byte_more_is_not_sent() {
    let mut outbox = Outbox::new();
    let body = vec![7; MAX_BODY + 1];
    let error = outbox
        .push(&body, Vec::new())
        .expect_err("it is above the limit");
    assert_eq!(
        error,
        EncodeError::TooLong {
            length: MAX_BODY + 1
        }
    );
    assert!(outbox.is_empty());
    outbox
        .push(&body[1..], Vec::new())
        .expect("it is at the limit");
    let mut inbox = Inbox::new();
    while let Some((bytes, _)) = outbox.front() {
        let count = bytes.len().min(READ);
        inbox.feed(&bytes[..count], Vec::new(), false);
        outbox.advance(count);
    }
    assert_eq!(outbox.len(), 0);
    assert_eq!(
        drain(&mut inbox).expect("the frame is right"),
        [(body[1..].to_vec(), 0, false)]
    );
    assert_eq!(inbox.held_bytes(), 0);
}

#[test]
fn outbox_refuses_more_descriptors_than_a_message_carries() {
    let mut outbox = Outbox::new();
    let error = outbox
        .push(b"x", nulls(MAX_DESCRIPTORS + 1))
        .expect_err("they are too many");
    assert_eq!(
        error,
        EncodeError::TooManyDescriptors {
            count: MAX_DESCRIPTORS + 1
        }
    );
    assert!(outbox.is_empty());
}

#[test]
fn outbox_glues_small_plain_frames_and_starts_a_piece_for_descriptors() {
    let mut outbox = Outbox::new();
    outbox.push(b"spawn", nulls(1)).expect("it fits");
    outbox.push(b"wait", Vec::new()).expect("it fits");
    outbox.push(b"spawn", nulls(1)).expect("it fits");
    let (bytes, descriptors) = outbox.front().expect("it is not empty");
    assert_eq!(bytes, [frame(b"spawn", 1), frame(b"wait", 0)].concat());
    assert_eq!(descriptors.len(), 1);
    let count = bytes.len();
    outbox.advance(1);
    assert_eq!(
        outbox.front().map(|(_, descriptors)| descriptors.len()),
        Some(0)
    );
    outbox.advance(usize::MAX);
    assert_eq!(outbox.len(), frame(b"spawn", 1).len());
    assert!(count > outbox.len());
    assert_eq!(
        outbox.front().map(|(_, descriptors)| descriptors.len()),
        Some(1)
    );
}

/// A frame of a property test: its body and whether it carries a descriptor.
fn frames() -> impl Strategy<Value = Vec<(Vec<u8>, bool)>> {
    let body = prop_oneof![
        8 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => proptest::collection::vec(any::<u8>(), 60_000..70_000),
    ];
    proptest::collection::vec((body, any::<bool>()), 1..8)
}

proptest! {
    #[test]
    fn any_cut_of_the_stream_gives_the_same_frames(
        frames in frames(),
        cuts in proptest::collection::vec(1_usize..30_000, 1..40),
    ) {
        let mut stream = Vec::new();
        let mut starts = Vec::new();
        for (body, with) in &frames {
            if *with {
                starts.push(stream.len());
            }
            stream.extend(frame(body, u8::from(*with)));
        }
        let mut inbox = Inbox::new();
        let mut got = Vec::new();
        let mut cuts = cuts.iter().cycle();
        let mut at = 0;
        while at < stream.len() {
            let cut = *cuts.next().expect("a cycle does not end");
            // As the kernel does it: a read ends before it meets a second descriptor frame.
            let mut ahead = starts.iter().filter(|start| **start >= at);
            let first = ahead.next().copied().unwrap_or(stream.len());
            let second = ahead.next().copied().unwrap_or(stream.len());
            let end = (at + cut).min(second).min(stream.len());
            let descriptors = if first < end { nulls(1) } else { Vec::new() };
            inbox.feed(&stream[at..end], descriptors, false);
            got.extend(drain(&mut inbox).expect("the stream is right"));
            at = end;
        }
        let sent: Vec<_> =
            frames.into_iter().map(|(body, with)| (body, usize::from(with), false)).collect();
        prop_assert_eq!(got, sent);
        prop_assert!(!inbox.is_mid_frame());
    }

    #[test]
    fn any_bytes_are_frames_or_an_error_and_are_not_hoarded(
        reads in proptest::collection::vec(
            (
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 1..64),
                    proptest::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 1..64),
                    // A header of a long body, and much of it.
                    (0_u8..=64, 1_usize..=READ).prop_map(|(high, length)| {
                        let mut bytes = vec![0; length.max(HEADER)];
                        bytes[2] = high;
                        bytes
                    }),
                ],
                0_usize..3,
                any::<bool>(),
            ),
            1..80,
        ),
    ) {
        let mut inbox = Inbox::new();
        for (bytes, count, lost) in reads {
            inbox.feed(&bytes, nulls(count), lost);
            prop_assert!(inbox.held_bytes() <= MAX_BODY + HEADER + READ);
            if drain(&mut inbox).is_err() {
                break;
            }
            prop_assert!(inbox.held_bytes() < MAX_BODY + HEADER);
        }
    }
}
