//! Lengths that lie: a decoder takes no memory for what a body does not have.

#![cfg(target_os = "linux")]

mod limited;

use foster_protocol::{
    Call, Inbox, MAX_BODY, Request, RequestId, SessionId, Spec, decode_answer, decode_call,
    encode_call,
};

/// The address space of the limited process in KiB. The test binary itself takes a few MiB.
const SPACE: usize = 96 * 1024;

fn spawn(spec: Spec) -> Vec<u8> {
    let request = Request::Spawn {
        session: SessionId(1),
        spec: Box::new(spec),
    };
    encode_call(&Call {
        id: RequestId(1),
        request,
    })
    .expect("it is small")
}

/// A body of the largest size, made of as many of the smallest elements as fit, in the list
/// of arguments.
fn a_body_of_empty_strings() -> (Vec<u8>, usize) {
    let empty = spawn(Spec::default());
    // The id, the tag, the session and the length of the program stand before it.
    let place = 8 + 4 + 8 + 8;
    let count = (MAX_BODY - empty.len()) / 8;
    let (head, tail) = empty.split_at(place);
    let mut body = head.to_vec();
    body.extend_from_slice(&(count as u64).to_le_bytes());
    body.resize(body.len() + count * 8, 0);
    // Behind the number of arguments, which was zero.
    body.extend(tail.iter().skip(8));
    (body, count)
}

#[test]
fn lying_lengths_are_errors_within_a_small_address_space() {
    limited::run(&format!("-v {SPACE}"), "under_a_small_address_space");
}

#[test]
#[ignore = "runs under the limit that another test sets"]
fn under_a_small_address_space() {
    // The control: the limit bites for what a trusting decoder would reserve.
    let mut trusting = Vec::<u8>::new();
    assert!(
        trusting.try_reserve_exact(SPACE * 1024).is_err(),
        "there is no limit"
    );

    // Every place of every small message may be a length; most are not, none may be trusted.
    let whole = spawn(Spec {
        args: vec!["a".into()],
        env: vec!["b=c".into()],
        groups: Some(vec![1]),
        ..Spec::default()
    });
    for lie in [
        u64::MAX,
        u64::MAX / 24,
        1 << 62,
        1 << 40,
        MAX_BODY as u64,
        MAX_BODY as u64 / 24,
    ] {
        for place in 12..whole.len() - 8 {
            let mut body = whole.clone();
            body[place..place + 8].copy_from_slice(&lie.to_le_bytes());
            let _outcome_differs_by_place = decode_call(&body);
            let _no_answer_at_all = decode_answer(&body);
        }
        // The length of the program, with nothing behind it.
        let mut body = whole[..20].to_vec();
        body.extend_from_slice(&lie.to_le_bytes());
        assert!(
            decode_call(&body).is_err(),
            "a length of {lie} with no bytes behind it"
        );
        // The number of arguments, likewise.
        let mut body = whole[..28].to_vec();
        body.extend_from_slice(&lie.to_le_bytes());
        assert!(
            decode_call(&body).is_err(),
            "a list of {lie} with no elements behind it"
        );
    }

    let (body, count) = a_body_of_empty_strings();
    assert!(body.len() > MAX_BODY - 8 && body.len() <= MAX_BODY);
    let Request::Spawn { spec, .. } = decode_call(&body).expect("it is a request").request else {
        panic!("it is a spawn");
    };
    assert_eq!(spec.args.len(), count);
}

#[test]
fn header_that_promises_the_most_takes_no_memory_before_it_comes() {
    limited::run(&format!("-v {SPACE}"), "a_thousand_promises");
}

#[test]
#[ignore = "runs under the limit that another test sets"]
fn a_thousand_promises() {
    let mut trusting = Vec::<u8>::new();
    assert!(
        trusting.try_reserve_exact(SPACE * 1024).is_err(),
        "there is no limit"
    );
    let length = u32::try_from(MAX_BODY).expect("the limit is small");
    let mut header = length.to_le_bytes().to_vec();
    header.extend_from_slice(&[0; 5]);
    // Together they promise 4 GiB.
    let mut inboxes = Vec::new();
    for _ in 0..1000 {
        let mut inbox = Inbox::new();
        inbox.feed(&header, Vec::new(), false);
        assert!(inbox.next_frame().expect("the header is right").is_none());
        inboxes.push(inbox);
    }
}
