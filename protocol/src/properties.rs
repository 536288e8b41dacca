//! Properties of the encoding that hold for every message, and the proof that `wincode`
//! reads and writes the same bytes.

use proptest::prelude::*;
use serde::de::DeserializeOwned;

use crate::codec::{decode_answer, decode_call, encode_answer, encode_call};
use crate::error::{DecodeError, EncodeError};
use crate::message::{Answer, Call, Request};
use crate::schema::{Choices, Registry, Shape, learn, read};
use crate::spec::Spec;
use crate::types::{Bytes, RequestId, SessionId};
use crate::version::MAX_BODY;

/// Chooses by numbers that were drawn before; when they run out, what is smallest.
struct Drawn(std::vec::IntoIter<u64>);

impl Drawn {
    fn below(&mut self, limit: u64) -> usize {
        usize::try_from(self.number() % limit).expect("the limit is small")
    }
}

impl Choices for Drawn {
    fn number(&mut self) -> u64 {
        self.0.next().unwrap_or(0)
    }

    fn variant(&mut self, _: &'static str, variants: usize) -> usize {
        self.below(variants as u64)
    }

    fn is_some(&mut self) -> bool {
        self.number() % 2 == 1
    }

    fn list(&mut self) -> usize {
        self.below(4)
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.below(12))
            .flat_map(|_| self.number().to_le_bytes())
            .collect()
    }
}

fn message<T: DeserializeOwned + std::fmt::Debug>() -> impl Strategy<Value = T> {
    let number = prop_oneof![4 => any::<u64>(), 1 => Just(u64::MAX), 1 => 0_u64..4];
    proptest::collection::vec(number, 0..250)
        .prop_map(|drawn| read(&mut Drawn(drawn.into_iter()), &mut Registry::new()))
}

proptest! {
    #[test]
    fn calls_survive_the_wire(call in message::<Call>()) {
        let bytes = encode_call(&call).expect("it is small");
        prop_assert_eq!(decode_call(&bytes).expect("it was encoded"), call);
    }

    #[test]
    fn answers_survive_the_wire(answer in message::<Answer>()) {
        let bytes = encode_answer(&answer).expect("it is small");
        prop_assert_eq!(decode_answer(&bytes).expect("it was encoded"), answer);
    }

    #[test]
    fn no_strict_prefix_of_a_message_is_a_message(
        call in message::<Call>(),
        answer in message::<Answer>(),
    ) {
        let bytes = encode_call(&call).expect("it is small");
        for end in 0..bytes.len() {
            prop_assert!(decode_call(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len());
        }
        let bytes = encode_answer(&answer).expect("it is small");
        for end in 0..bytes.len() {
            prop_assert!(decode_answer(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len());
        }
    }

    #[test]
    fn bytes_behind_a_message_are_refused(
        call in message::<Call>(),
        rest in proptest::collection::vec(any::<u8>(), 1..20),
    ) {
        let mut bytes = encode_call(&call).expect("it is small");
        bytes.extend_from_slice(&rest);
        let refused = matches!(decode_call(&bytes), Err(DecodeError::Trailing(n)) if n == rest.len());
        prop_assert!(refused);
    }

    #[test]
    fn any_bytes_decode_to_a_message_with_the_same_bytes_or_to_an_error(
        bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..600),
            proptest::collection::vec(prop_oneof![5 => 0_u8..16, 1 => any::<u8>()], 0..600),
        ],
    ) {
        if let Ok(call) = decode_call(&bytes) {
            prop_assert_eq!(encode_call(&call).expect("it is small"), bytes.clone());
        }
        if let Ok(answer) = decode_answer(&bytes) {
            prop_assert_eq!(encode_answer(&answer).expect("it is small"), bytes);
        }
    }

    #[test]
    fn a_message_with_one_byte_changed_is_itself_or_an_error(
        call in message::<Call>(),
        place in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut bytes = encode_call(&call).expect("it is small");
        let place = place.index(bytes.len());
        bytes[place] = value;
        if let Ok(call) = decode_call(&bytes) {
            prop_assert_eq!(encode_call(&call).expect("it is small"), bytes);
        }
    }

    #[test]
    fn wincode_reads_and_writes_the_same_bytes(
        call in message::<Call>(),
        answer in message::<Answer>(),
    ) {
        let bytes = encode_call(&call).expect("it is small");
        prop_assert_eq!(&wincode::serialize(&call).expect("wincode writes it"), &bytes);
        prop_assert_eq!(wincode::deserialize_exact::<Call>(&bytes).expect("wincode reads it"), call);
        let bytes = encode_answer(&answer).expect("it is small");
        prop_assert_eq!(&wincode::serialize(&answer).expect("wincode writes it"), &bytes);
        let read = wincode::deserialize_exact::<Answer>(&bytes).expect("wincode reads it");
        prop_assert_eq!(read, answer);
    }
}

#[test]
fn wincode_reads_and_writes_every_golden_value() {
    let mut lines = include_str!("../golden/v1.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut count = 0;
    while let (Some(name), Some(value), Some(hex)) = (lines.next(), lines.next(), lines.next()) {
        let pair = |at| u8::from_str_radix(&hex.trim()[at..at + 2], 16).expect("two hex digits");
        let bytes: Vec<u8> = (0..hex.trim().len()).step_by(2).map(pair).collect();
        let (read, written) = if value.trim().starts_with("Call ") {
            let call: Call = wincode::deserialize_exact(&bytes).expect(name);
            (format!("{call:?}"), wincode::serialize(&call))
        } else {
            let answer: Answer = wincode::deserialize_exact(&bytes).expect(name);
            (format!("{answer:?}"), wincode::serialize(&answer))
        };
        assert_eq!(read, value.trim(), "{name}");
        assert_eq!(written.expect(name), bytes, "{name}");
        count += 1;
    }
    assert!(count > 100, "the record has {count} entries");
}

/// A spawn whose body has exactly this many bytes.
fn spawn_of(length: usize) -> Call {
    let spec = |program| {
        let spec = Box::new(Spec {
            program: Bytes(program),
            ..Spec::default()
        });
        Call {
            id: RequestId(1),
            request: Request::Spawn {
                session: SessionId(1),
                spec,
            },
        }
    };
    let empty = encode_call(&spec(Vec::new())).expect("it is small").len();
    spec(vec![b'x'; length - empty])
}

#[test]
fn body_at_the_limit_passes_both_ways_and_one_byte_more_neither() {
    let call = spawn_of(MAX_BODY);
    let mut bytes = encode_call(&call).expect("it is at the limit");
    assert_eq!(bytes.len(), MAX_BODY);
    assert_eq!(decode_call(&bytes).expect("it is at the limit"), call);
    let error = encode_call(&spawn_of(MAX_BODY + 1)).expect_err("it is above the limit");
    assert_eq!(
        error,
        EncodeError::TooLong {
            length: MAX_BODY + 1
        }
    );
    bytes.push(0);
    assert!(decode_call(&bytes).is_err());
}

#[test]
fn unknown_tags_flags_and_options_are_refused() {
    let Some(Shape::Enum(requests)) = learn::<Call>().remove("Request") else {
        panic!("requests are an enum");
    };
    let above = u32::try_from(requests.len()).expect("they are few");
    let mut bytes = 1_u64.to_le_bytes().to_vec();
    bytes.extend_from_slice(&above.to_le_bytes());
    assert!(matches!(
        decode_call(&bytes),
        Err(DecodeError::Malformed(_))
    ));
    // The last byte of an empty spawn is the length of its label; before it stand the flags.
    let call = spawn_of(encode_call(&spawn_of(1000)).expect("it is small").len());
    let bytes = encode_call(&call).expect("it is small");
    for place in [bytes.len() - 9, bytes.len() - 10] {
        let mut bytes = bytes.clone();
        bytes[place] = 2;
        assert!(matches!(
            decode_call(&bytes),
            Err(DecodeError::Malformed(_))
        ));
    }
}
