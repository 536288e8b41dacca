//! Sizes and bytes: what the kernel takes arrives as it was, and the rest is refused by name.

use foster_protocol::{
    Bytes, Call, EncodeError, MAX_STRING, Reply, Request, RequestId, SessionId, Spec, Step,
    encode_call,
};
use foster_tests::{Link, Stage};

/// The arguments and the environment as the child holds them.
fn echoed(link: &mut Link, spec: Spec) -> (Vec<u8>, Vec<u8>) {
    let (exit, output) = link.output(spec);
    assert_eq!(exit.status, 0);
    let end = output
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("a length");
    let (length, rest) = output.split_at(end);
    let length = String::from_utf8_lossy(length).parse().expect("a length");
    let (args, env) = rest.get(1..).expect("a newline").split_at(length);
    (args.to_vec(), env.to_vec())
}

fn joined(strings: &[Bytes]) -> Vec<u8> {
    strings
        .iter()
        .flat_map(|string| string.0.iter().copied().chain([0]))
        .collect()
}

fn assert_identical(link: &mut Link, spec: &Spec) {
    let (args, env) = echoed(link, spec.clone());
    assert_eq!(args, joined(&spec.args), "the arguments");
    assert_eq!(env, joined(&spec.env), "the environment");
}

#[test]
fn arguments_and_environment_arrive_byte_by_byte() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut spec = stage.fixture("prints-args-env", &["", "a b", "\n", "--", "'\"$x"]);
    spec.args.push(Bytes::from(vec![0xff, 0xfe, 0x80]));
    spec.args.push(Bytes::from(""));
    let odd: [&[u8]; 7] = [
        b"=x",
        b"no-equals",
        b"",
        b"A=",
        b"A=again",
        b"B=\xff\x01",
        b"==",
    ];
    spec.env
        .extend(odd.map(|entry| Bytes::from(entry.to_vec())));
    assert_identical(&mut link, &spec);
}

#[test]
fn name_of_the_program_for_itself_is_free() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut spec = stage.fixture("prints-args-env", &["x"]);
    *spec.args.first_mut().expect("a first argument") = Bytes::from("-another name");
    assert_identical(&mut link, &spec);
}

#[test]
fn empty_environment_arrives_empty() {
    let stage = Stage::new();
    let mut link = stage.link();
    let spec = Spec {
        env: Vec::new(),
        ..stage.fixture("prints-args-env", &[stage.tag()])
    };
    assert_identical(&mut link, &spec);
}

#[test]
fn totals_around_powers_of_two_arrive_byte_by_byte() {
    let stage = Stage::new();
    let mut link = stage.link();
    let totals = (255..=257)
        .chain(4_095..=4_097)
        .chain(65_510..=65_540)
        .chain(131_069..=131_071)
        .chain(212_990..=212_994);
    for total in totals {
        let mut spec = stage.fixture("prints-args-env", &[]);
        let mut left = total;
        while left > 0 {
            let part = left.min(100_000);
            spec.env.push(Bytes::from(vec![b'v'; part]));
            left -= part;
        }
        assert_identical(&mut link, &spec);
    }
}

#[test]
fn longest_string_that_the_kernel_takes_arrives() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut spec = stage.fixture("prints-args-env", &[]);
    spec.env.push(Bytes::from(vec![b'e'; MAX_STRING]));
    spec.args.push(Bytes::from(vec![b'a'; MAX_STRING]));
    assert_identical(&mut link, &spec);
}

#[test]
fn environment_of_one_mebibyte_arrives() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut spec = stage.fixture("prints-args-env", &[]);
    spec.env
        .extend(std::iter::repeat_n(Bytes::from(vec![b'm'; 65_535]), 16));
    assert_identical(&mut link, &spec);
}

#[test]
fn environment_above_the_kernels_total_fails_at_exec_and_the_link_lives() {
    let stage = Stage::new();
    let mut link = stage.link();
    for count in [33, 50] {
        let mut spec = stage.command("/bin/true", &[]);
        spec.env
            .extend(std::iter::repeat_n(Bytes::from(vec![b'm'; 65_535]), count));
        assert_eq!(
            link.spawn_failure(spec),
            (Step::Exec, libc::E2BIG),
            "{count} times 64 KiB"
        );
        let running = link.spawn(stage.command("/bin/true", &[]));
        assert_eq!(link.exit(running.session).status, 0);
    }
}

#[test]
fn environment_above_the_frame_limit_is_refused_before_it_is_sent() {
    let stage = Stage::new();
    let mut spec = stage.command("/bin/true", &[]);
    spec.env
        .extend(std::iter::repeat_n(Bytes::from(vec![b'm'; 65_535]), 96));
    let request = Request::Spawn {
        session: SessionId(1),
        spec: Box::new(spec),
    };
    let refused = encode_call(&Call {
        id: RequestId(1),
        request,
    });
    assert!(
        matches!(refused, Err(EncodeError::TooLong { .. })),
        "{refused:?}"
    );
}

#[test]
fn hundred_thousand_variables_arrive_or_are_refused_by_the_kernel() {
    let stage = Stage::new();
    let mut link = stage.link();
    let mut spec = stage.fixture("prints-args-env", &[]);
    spec.env
        .extend((0..100_000).map(|n| Bytes::from(format!("V{n}=").as_str())));
    // Strings and their pointers count: about 0.9 MB and 0.8 MB of 2 MiB.
    assert_identical(&mut link, &spec);
    spec.env
        .extend((0..100_000).map(|n| Bytes::from(format!("W{n}=").as_str())));
    let (_, reply) = link.try_spawn(spec);
    assert_eq!(
        reply,
        Reply::SpawnFailed {
            step: Step::Exec,
            errno: libc::E2BIG
        }
    );
    link.ping();
}
