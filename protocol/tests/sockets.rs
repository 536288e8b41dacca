//! Frames and descriptors over real socket pairs.

#![cfg(target_os = "linux")]

mod limited;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use foster_protocol::{
    EncodeError, Frame, Inbox, MAX_BODY, MAX_DESCRIPTORS, Outbox, Received, receive, send,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};

/// How long any one test may wait.
const PATIENCE: Duration = Duration::from_secs(30);

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().expect("a socket pair")
}

fn null() -> OwnedFd {
    File::open("/dev/null").expect("/dev/null opens").into()
}

fn nulls(count: usize) -> Vec<OwnedFd> {
    (0..count).map(|_| null()).collect()
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd")
        .expect("/proc is there")
        .count()
}

/// Waits until the socket can be read or written, or the other end is gone.
fn wait_for(socket: BorrowedFd<'_>, flags: PollFlags, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = PollTimeout::try_from(left).expect("the patience is short");
    let ready = poll(&mut [PollFd::new(socket, flags)], timeout).expect("poll works");
    assert!(
        ready > 0,
        "nothing happened on the socket within {PATIENCE:?}"
    );
}

fn send_all(socket: &UnixStream, outbox: &mut Outbox) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match send(socket.as_fd(), outbox) {
            Ok(true) => return,
            Ok(false) => wait_for(socket.as_fd(), PollFlags::POLLOUT, deadline),
            // An ordinary user has as many descriptors on the way as it may have open, with those
            // of every other process of its. It passes when they are received.
            Err(error) if error.raw_os_error() == Some(libc::ETOOMANYREFS) => {
                assert!(Instant::now() < deadline, "{error} for {PATIENCE:?}");
                poll(&mut [], 5_u16).expect("poll works");
            }
            Err(error) => panic!("the peer lives: {error}"),
        }
    }
}

fn next(socket: &UnixStream, inbox: &mut Inbox) -> Frame {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(frame) = inbox.next_frame().expect("the peer keeps to the framing") {
            return frame;
        }
        match receive(socket.as_fd(), inbox) {
            Ok(Received::Bytes(_)) => {}
            Ok(Received::Closed) => panic!("the peer is gone"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait_for(socket.as_fd(), PollFlags::POLLIN, deadline);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn descriptors_arrive_usable_and_close_on_exec() {
    let (ours, theirs) = pair();
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let mut outbox = Outbox::new();
    outbox
        .push(b"take this", vec![writer.into()])
        .expect("it fits");
    send_all(&ours, &mut outbox);
    let frame = next(&theirs, &mut Inbox::new());
    assert_eq!(frame.body, b"take this");
    assert!(!frame.descriptors_lost);
    let [writer]: [OwnedFd; 1] = frame.descriptors.try_into().expect("one descriptor");
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", writer.as_raw_fd()))
        .expect("/proc is there");
    let flags = info
        .lines()
        .find_map(|line| line.strip_prefix("flags:"))
        .expect("it has flags");
    let flags = u32::from_str_radix(flags.trim(), 8).expect("they are octal");
    assert_ne!(flags & 0o2_000_000, 0, "it is not close-on-exec: {flags:o}");
    File::from(writer)
        .write_all(b"hello")
        .expect("the pipe is open");
    let mut text = String::new();
    // The end of the file comes only if no copy of the writing end is left anywhere.
    reader
        .read_to_string(&mut text)
        .expect("the pipe can be read");
    assert_eq!(text, "hello");
}

#[test]
fn most_descriptors_go_in_one_frame_and_one_more_is_refused_before_sending() {
    let (ours, theirs) = pair();
    let mut outbox = Outbox::new();
    outbox
        .push(b"many", nulls(MAX_DESCRIPTORS))
        .expect("it is the limit");
    send_all(&ours, &mut outbox);
    let frame = next(&theirs, &mut Inbox::new());
    assert_eq!(frame.descriptors.len(), MAX_DESCRIPTORS);
    let error = outbox
        .push(b"more", nulls(MAX_DESCRIPTORS + 1))
        .expect_err("it is too many");
    assert_eq!(
        error,
        EncodeError::TooManyDescriptors {
            count: MAX_DESCRIPTORS + 1
        }
    );
    assert!(outbox.is_empty());
}

#[test]
fn plain_and_descriptor_frames_glued_by_the_kernel_keep_their_own() {
    let (ours, theirs) = pair();
    let mut outbox = Outbox::new();
    // The bodies keep the outbox from gluing: each is a message of its own to the kernel.
    let large = vec![0; 20_000];
    for (body, count) in [
        (&b"a"[..], 0),
        (b"b", 1),
        (&large, 0),
        (b"c", 3),
        (b"d", 0),
        (b"e", 2),
    ] {
        outbox.push(body, nulls(count)).expect("it fits");
    }
    send_all(&ours, &mut outbox);
    let mut inbox = Inbox::new();
    let counts: Vec<usize> = (0..6)
        .map(|_| next(&theirs, &mut inbox).descriptors.len())
        .collect();
    assert_eq!(counts, [0, 1, 0, 3, 0, 2]);
    assert!(!inbox.is_mid_frame());
}

#[test]
fn largest_frame_passes_a_full_socket_to_a_reader_on_another_thread() {
    let (ours, theirs) = pair();
    let reader = thread::spawn(move || {
        let mut inbox = Inbox::new();
        let first = next(&theirs, &mut inbox);
        (first, next(&theirs, &mut inbox))
    });
    let body: Vec<u8> = (0..MAX_BODY).map(|i| i.to_le_bytes()[i % 3]).collect();
    let mut outbox = Outbox::new();
    outbox.push(&body, nulls(1)).expect("it is at the limit");
    outbox.push(b"last", nulls(1)).expect("it fits");
    send_all(&ours, &mut outbox);
    let (first, last) = reader.join().expect("the reader has both");
    assert!(first.body == body, "the body has changed");
    assert_eq!((first.descriptors.len(), last.descriptors.len()), (1, 1));
    assert_eq!(last.body, b"last");
}

#[test]
fn frames_of_every_size_and_count_pass_in_order() {
    let (ours, theirs) = pair();
    let shape = |index: usize| (index * index * 37 % 9000, index * 7 % 5);
    let reader = thread::spawn(move || {
        let mut inbox = Inbox::new();
        for index in 0..2000 {
            let frame = next(&theirs, &mut inbox);
            assert_eq!(
                (frame.body.len(), frame.descriptors.len()),
                shape(index),
                "{index}"
            );
        }
    });
    let mut outbox = Outbox::new();
    for index in 0..2000 {
        let (length, count) = shape(index);
        outbox
            .push(&vec![1; length], nulls(count))
            .expect("it fits");
        if index % 3 == 0 {
            send_all(&ours, &mut outbox);
        }
    }
    send_all(&ours, &mut outbox);
    reader.join().expect("every frame came as it was sent");
}

#[test]
fn closed_peer_is_closed_to_the_reader_also_when_it_left_bytes_unread() {
    for leaves_bytes in [false, true] {
        let (ours, theirs) = pair();
        let (mut outbox, mut inbox) = (Outbox::new(), Inbox::new());
        if leaves_bytes {
            outbox.push(b"never read", nulls(1)).expect("it fits");
            send_all(&ours, &mut outbox);
        }
        // Half a frame of theirs comes first.
        (&theirs)
            .write_all(&[9, 0, 0])
            .expect("the socket has room");
        drop(theirs);
        assert_eq!(
            receive(ours.as_fd(), &mut inbox).expect("it is there"),
            Received::Bytes(3)
        );
        for _ in 0..2 {
            let end = receive(ours.as_fd(), &mut inbox).expect("a close is no error");
            assert_eq!(end, Received::Closed);
        }
        assert!(inbox.is_mid_frame());
    }
}

#[test]
fn closed_peer_is_an_error_to_the_writer_and_no_signal() {
    let mut set = SigSet::empty();
    set.add(Signal::SIGPIPE);
    // A blocked signal stays pending, also where it is ignored, and so it can be seen.
    set.thread_block().expect("the mask is this thread's own");
    for leaves_bytes in [false, true] {
        let (ours, theirs) = pair();
        let mut outbox = Outbox::new();
        outbox.push(b"x", nulls(1)).expect("it fits");
        if leaves_bytes {
            send_all(&ours, &mut outbox);
            outbox.push(b"x", nulls(1)).expect("it fits");
        }
        drop(theirs);
        let error = send(ours.as_fd(), &mut outbox).expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        assert!(!outbox.is_empty(), "what was not sent is still there");
    }
    let pending = || {
        let status = fs::read_to_string("/proc/thread-self/status").expect("/proc is there");
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("SigPnd:"))
            .expect("a mask");
        u64::from_str_radix(mask.trim(), 16).expect("it is hexadecimal") & (1 << 12)
    };
    assert_eq!(pending(), 0, "SIGPIPE was raised");
    // The control: a write that does raise it is seen.
    let (reader, mut writer) = io::pipe().expect("a pipe");
    drop(reader);
    assert!(writer.write_all(b"x").is_err());
    assert_ne!(pending(), 0, "SIGPIPE cannot be seen here");
}

#[test]
fn empty_socket_would_block_and_does_not_wait() {
    let (ours, _theirs) = pair();
    let error = receive(ours.as_fd(), &mut Inbox::new()).expect_err("nothing is there");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let mut outbox = Outbox::new();
    outbox
        .push(&vec![0; MAX_BODY], Vec::new())
        .expect("it is at the limit");
    assert!(
        !send(ours.as_fd(), &mut outbox).expect("the peer lives"),
        "4 MiB fill any socket"
    );
    assert!((1..MAX_BODY).contains(&outbox.len()));
}

#[test]
fn descriptors_lost_at_the_limit_leak_nothing() {
    limited::run("-n 64", "at_the_limit_of_descriptors");
}

#[test]
#[ignore = "runs under the limit that another test sets"]
fn at_the_limit_of_descriptors() {
    let (ours, theirs) = pair();
    let (mut outbox, mut inbox) = (Outbox::new(), Inbox::new());
    let mut fillers = Vec::new();
    let error = loop {
        match File::open("/dev/null") {
            Ok(file) => fillers.push(file),
            Err(error) => break error,
        }
        assert!(fillers.len() < 64, "there is no limit");
    };
    assert_eq!(error.raw_os_error(), Some(nix::errno::Errno::EMFILE as i32));
    fillers.truncate(fillers.len() - 3);
    let before = open_descriptors();
    for round in 0..1000 {
        let body = [u8::from(round % 2 == 0)];
        outbox.push(&body, nulls(3)).expect("it fits");
        outbox.push(b"plain", Vec::new()).expect("it fits");
        send_all(&ours, &mut outbox);
        // The three are on their way and closed here; no, one or two of them find room.
        let blockers = nulls(1 + round % 3);
        let frame = next(&theirs, &mut inbox);
        assert_eq!(frame.body, body);
        assert!(frame.descriptors_lost && frame.descriptors.is_empty());
        drop(blockers);
        let frame = next(&theirs, &mut inbox);
        assert!(frame.body == b"plain" && !frame.descriptors_lost);
        assert_eq!(open_descriptors(), before, "round {round}");
    }
    outbox.push(b"whole", nulls(3)).expect("it fits");
    send_all(&ours, &mut outbox);
    let frame = next(&theirs, &mut inbox);
    assert_eq!(
        (frame.descriptors.len(), frame.descriptors_lost),
        (3, false)
    );
}
