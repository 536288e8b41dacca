//! The bytes of every variant, as `golden/v1.txt` records them.

mod schema;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use foster_protocol::{
    Answer, Call, VERSION, decode_answer, decode_call, encode_answer, encode_call,
};
use schema::{Choices, Registry, Shape};

const RECORD: &str = include_str!("../golden/v1.txt");

/// One entry of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// The value, as `Debug` shows it.
    value: String,
    /// Its bytes.
    bytes: Vec<u8>,
}

/// Aims at one variant and fills everything else with numbers that count up, so that two
/// fields that change places change the bytes.
struct Aim<'a> {
    registry: &'a Registry,
    name: &'a str,
    number: usize,
    counter: u64,
    is_full: bool,
}

impl Choices for Aim<'_> {
    fn number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn variant(&mut self, name: &'static str, _: usize) -> usize {
        if name == self.name {
            return self.number;
        }
        let Some(Shape::Enum(variants)) = self.registry.get(name) else {
            return 0;
        };
        let leads = |fields: &Vec<schema::Field>| {
            fields
                .iter()
                .any(|(_, kind)| reaches(self.registry, kind, self.name))
        };
        variants
            .iter()
            .find(|(_, (_, fields))| leads(fields))
            .map_or(0, |(number, _)| *number)
    }

    fn is_some(&mut self) -> bool {
        self.is_full
    }

    fn list(&mut self) -> usize {
        usize::from(self.is_full)
    }

    fn bytes(&mut self) -> Vec<u8> {
        if self.is_full {
            format!("b{}", self.number()).into_bytes()
        } else {
            Vec::new()
        }
    }
}

/// Whether a value of this type can hold one of the type `target`.
fn reaches(registry: &Registry, kind: &str, target: &str) -> bool {
    let name = kind
        .rsplit('<')
        .next()
        .unwrap_or(kind)
        .trim_end_matches('>');
    if name == target {
        return true;
    }
    let any = |fields: &Vec<schema::Field>| {
        fields
            .iter()
            .any(|(_, kind)| reaches(registry, kind, target))
    };
    match registry.get(name) {
        Some(Shape::Newtype(kind)) => reaches(registry, kind, target),
        Some(Shape::Struct(fields)) => any(fields),
        Some(Shape::Enum(variants)) => variants.values().any(|(_, fields)| any(fields)),
        None => false,
    }
}

fn encoded(registry: &Registry, root: &str, name: &str, number: usize, is_full: bool) -> Entry {
    let mut aim = Aim {
        registry,
        name,
        number,
        counter: 0,
        is_full,
    };
    if root == "Call" {
        let call: Call = schema::read(&mut aim, &mut Registry::new());
        Entry {
            value: format!("{call:?}"),
            bytes: encode_call(&call).expect("it is small"),
        }
    } else {
        let answer: Answer = schema::read(&mut aim, &mut Registry::new());
        Entry {
            value: format!("{answer:?}"),
            bytes: encode_answer(&answer).expect("it is small"),
        }
    }
}

/// What the record has to hold: each variant of each enum once, in a whole message, and
/// each message a second time with every option and list empty, where that differs.
fn wanted() -> BTreeMap<String, Entry> {
    let mut wanted = BTreeMap::new();
    for (root, registry) in [
        ("Call", schema::learn::<Call>()),
        ("Answer", schema::learn::<Answer>()),
    ] {
        for (name, shape) in &registry {
            let Shape::Enum(variants) = shape else {
                continue;
            };
            for (number, (variant, _)) in variants {
                let key = format!("{name}::{variant}");
                let full = encoded(&registry, root, name, *number, true);
                let empty = encoded(&registry, root, name, *number, false);
                if matches!(*name, "Request" | "Reply") && full != empty {
                    wanted.insert(format!("{key} (empty)"), empty);
                }
                // A type of both directions is shown in the request.
                wanted.entry(key).or_insert(full);
            }
        }
    }
    wanted
}

fn recorded() -> BTreeMap<String, Entry> {
    let mut entries = BTreeMap::new();
    let mut lines = RECORD
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    while let (Some(name), Some(value), Some(hex)) = (lines.next(), lines.next(), lines.next()) {
        let digits: Vec<u8> = hex
            .bytes()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        let pair = |pair: &[u8]| {
            let text = std::str::from_utf8(pair).expect("hex is ASCII");
            u8::from_str_radix(text, 16).expect("two hex digits")
        };
        let entry = Entry {
            value: value.trim().to_owned(),
            bytes: digits.chunks(2).map(pair).collect(),
        };
        assert!(
            entries.insert(name.to_owned(), entry).is_none(),
            "{name} stands twice"
        );
    }
    entries
}

fn shown(entries: &BTreeMap<String, Entry>) -> String {
    let mut text = String::new();
    for (name, Entry { value, bytes }) in entries {
        let _ = write!(text, "\n{name}\n    {value}\n    ");
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
    }
    text
}

/// A type that both directions carry is recorded as a request.
fn is_call(value: &str) -> bool {
    value.starts_with("Call ")
}

#[test]
fn recorded_bytes_decode_to_the_recorded_value_and_encode_back() {
    let entries = recorded();
    assert!(!entries.is_empty(), "the record is empty");
    for (name, Entry { value, bytes }) in entries {
        let (shown, again) = if is_call(&value) {
            let call = decode_call(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
            (format!("{call:?}"), encode_call(&call))
        } else {
            let answer = decode_answer(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
            (format!("{answer:?}"), encode_answer(&answer))
        };
        assert_eq!(shown, value, "{name} has another meaning");
        assert_eq!(again.expect("it is small"), bytes, "{name} has other bytes");
        let variant = name
            .split("::")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let variant = variant.expect("a name is Type::Variant");
        assert!(
            value
                .split(|c: char| !c.is_alphanumeric())
                .any(|word| word == variant),
            "{name} does not hold what it is named for"
        );
    }
}

#[test]
fn every_variant_of_every_enum_is_recorded() {
    assert!(RECORD.starts_with(&format!("# Golden bytes of protocol version {VERSION}.\n")));
    let (wanted, recorded) = (wanted(), recorded());
    let missing: BTreeMap<_, _> = wanted
        .iter()
        .filter(|(name, entry)| recorded.get(*name) != Some(*entry))
        .map(|(name, entry)| (name.clone(), entry.clone()))
        .collect();
    assert!(
        missing.is_empty(),
        "golden/v1.txt lacks, or has otherwise:\n{}",
        shown(&missing)
    );
    let unknown: Vec<_> = recorded
        .keys()
        .filter(|name| !wanted.contains_key(*name))
        .collect();
    assert!(
        unknown.is_empty(),
        "golden/v1.txt names what is not there: {unknown:?}"
    );
}
