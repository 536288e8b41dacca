//! `docs/PROTOCOL.md` says what the sources say: its layout tables are those that the types
//! themselves give, its numbers are the constants, its example bytes are what is encoded.

mod schema;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use foster_protocol::{
    Answer, Bytes, Call, HELLO_TIMEOUT, MAX_BODY, MAX_DESCRIPTORS, MAX_SESSIONS, MAX_STRING,
    MAX_WAITING, Micros, OnExit, Outbox, Request, RequestId, SessionId, Spec, VERSION, encode_call,
};
use schema::{Field, Shape};

const PAGE: &str = include_str!("../../docs/PROTOCOL.md");
const EXAMPLE: &str = include_str!("../../examples/minimal_client.py");
const SOURCES: [&str; 4] = [
    include_str!("../src/message.rs"),
    include_str!("../src/spec.rs"),
    include_str!("../src/ending.rs"),
    include_str!("../src/types.rs"),
];

/// The doc comments of the sources by `Type`, `Type.field`, `Type.Variant` and
/// `Type.Variant.field`, and the types in their order.
#[derive(Default)]
struct Docs {
    text: BTreeMap<String, String>,
    types: Vec<String>,
}

impl Docs {
    fn read() -> Self {
        let mut docs = Self::default();
        for source in SOURCES {
            let (mut comment, mut kind, mut variant) = (String::new(), "", "");
            for line in source.lines() {
                let indent = line.len() - line.trim_start().len();
                let item = line.trim_start();
                if let Some(text) = item.strip_prefix("///") {
                    comment.push_str(text);
                    continue;
                }
                let word = |text: &'static str| {
                    text.split(|c: char| !c.is_alphanumeric() && c != '_')
                        .next()
                        .unwrap_or("")
                };
                let item_of = |prefix| item.strip_prefix(prefix).map(word);
                let key = match (indent, item_of("pub struct ").or(item_of("pub enum "))) {
                    (0, Some(name)) => {
                        (kind, variant) = (name, "");
                        docs.types.push(name.to_owned());
                        Some(name.to_owned())
                    }
                    (4, None) if item.starts_with("pub ") => {
                        item_of("pub ").map(|field| format!("{kind}.{field}"))
                    }
                    (4, None) if item.starts_with(char::is_uppercase) => {
                        variant = word(item);
                        Some(format!("{kind}.{variant}"))
                    }
                    (8, None) if !variant.is_empty() => {
                        Some(format!("{kind}.{variant}.{}", word(item)))
                    }
                    (_, _) => None,
                };
                if let (Some(key), false) = (key, comment.is_empty()) {
                    docs.text
                        .entry(key)
                        .or_insert_with(|| comment.trim().replace('|', "\\|"));
                }
                if !item.starts_with("#[") {
                    comment.clear();
                }
            }
        }
        docs
    }

    fn of(&self, key: &str) -> &str {
        self.text.get(key).map_or("", String::as_str)
    }
}

fn fields_of(docs: &Docs, owner: &str, fields: &[Field]) -> String {
    let field = |(name, kind): &Field| match (*name, docs.of(&format!("{owner}.{name}"))) {
        ("0", _) => format!("`{kind}`"),
        (name, text) => format!("`{name}: {kind}` {text}"),
    };
    if fields.is_empty() {
        return "none".to_owned();
    }
    fields.iter().map(field).collect::<Vec<_>>().join("<br>")
}

/// The tables of every type, as the page shows them.
fn layout() -> String {
    let docs = Docs::read();
    let mut shapes = schema::learn::<Call>();
    shapes.extend(schema::learn::<Answer>());
    // `Bytes` is a run of bytes, as the page's table of encodings has it.
    shapes.insert("Bytes", Shape::Newtype("Vec<u8>".to_owned()));
    let mut text = String::new();
    for name in &docs.types {
        let Some(shape) = shapes.remove(name.as_str()) else {
            continue;
        };
        let _ = write!(text, "### `{name}`\n\n{}\n\n", docs.of(name));
        match shape {
            Shape::Newtype(kind) => {
                let _ = write!(text, "The bytes of a `{kind}`.\n\n");
            }
            Shape::Struct(fields) => {
                text.push_str("| # | field | type | meaning |\n|---|---|---|---|\n");
                for (place, (field, kind)) in fields.iter().enumerate() {
                    let meaning = docs.of(&format!("{name}.{field}"));
                    let _ = writeln!(text, "| {} | `{field}` | `{kind}` | {meaning} |", place + 1);
                }
                text.push('\n');
            }
            Shape::Enum(variants) => {
                text.push_str("| tag | variant | fields in order | meaning |\n|---|---|---|---|\n");
                for (tag, (variant, fields)) in &variants {
                    let owner = format!("{name}.{variant}");
                    let (fields, meaning) = (fields_of(&docs, &owner, fields), docs.of(&owner));
                    let _ = writeln!(text, "| {tag} | `{variant}` | {fields} | {meaning} |");
                }
                text.push('\n');
            }
        }
    }
    assert!(
        shapes.is_empty(),
        "types that no source file declares: {shapes:?}"
    );
    text.trim_end().to_owned()
}

/// What stands between two lines of the page.
fn between(begin: &str, end: &str) -> &'static str {
    let (_, rest) = PAGE
        .split_once(begin)
        .unwrap_or_else(|| panic!("the page lacks {begin}"));
    let (text, _) = rest
        .split_once(end)
        .unwrap_or_else(|| panic!("the page lacks {end}"));
    text.trim()
}

#[test]
fn layout_tables_are_those_of_the_sources() {
    let layout = layout();
    if between("<!-- layout -->", "<!-- end of layout -->") != layout {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layout.md");
        fs::write(&path, &layout).expect("the target folder can be written");
        panic!(
            "the layout tables of docs/PROTOCOL.md should be as in {}",
            path.display()
        );
    }
}

#[test]
fn every_reject_stands_in_the_error_table() {
    let table = between("<!-- rejects -->", "<!-- end of rejects -->");
    let rows: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let shapes = schema::learn::<Answer>();
    let Some(Shape::Enum(variants)) = shapes.get("Reject") else {
        panic!("rejects are an enum")
    };
    let names: Vec<&str> = variants.values().map(|(name, _)| *name).collect();
    assert_eq!(rows, names);
}

#[test]
fn every_request_has_a_row_of_states_and_every_state_a_column() {
    let table = between("<!-- states -->", "<!-- end of states -->");
    let mut lines = table.lines();
    let head = lines.next().expect("the table has a head");
    let shapes = schema::learn::<Answer>();
    let Some(Shape::Enum(states)) = shapes.get("StateName") else {
        panic!("states are an enum")
    };
    let columns: Vec<&str> = head
        .split('|')
        .map(str::trim)
        .filter(|c| !c.is_empty())
        .collect();
    let names: Vec<&str> = states.values().map(|(name, _)| *name).collect();
    assert_eq!(columns.get(1..), Some(&names[..]));
    for request in [
        "Open",
        "Wait Exit",
        "Wait End",
        "Kill Signal",
        "Kill End",
        "Release",
        "Close",
    ] {
        assert!(
            table.contains(&format!("| `{request}` |")),
            "no row for {request}"
        );
    }
}

#[test]
fn limits_are_the_constants() {
    let grouped = |number: usize| {
        let digits = number.to_string();
        let mut text = String::new();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        text
    };
    let table = between("<!-- limits -->", "<!-- end of limits -->");
    let hello = usize::try_from(HELLO_TIMEOUT.as_secs()).expect("it is short");
    for (name, value) in [
        ("VERSION", usize::try_from(VERSION).expect("it is small")),
        ("MAX_BODY", MAX_BODY),
        ("MAX_DESCRIPTORS", MAX_DESCRIPTORS),
        ("MAX_STRING", MAX_STRING),
        ("MAX_SESSIONS", MAX_SESSIONS),
        ("MAX_WAITING", MAX_WAITING),
        ("HELLO_TIMEOUT", hello),
    ] {
        let row = format!("| `{name}` | {} |", grouped(value));
        assert!(table.contains(&row), "the table of limits lacks {row}");
    }
}

/// The hexadecimal words of an example; a line's text behind two spaces is a remark.
fn bytes_of(example: &str) -> Vec<u8> {
    let hex = example
        .lines()
        .filter_map(|line| line.trim().split("  ").next());
    let pair = |word: &str| u8::from_str_radix(word, 16).expect("an example is pairs of digits");
    hex.flat_map(str::split_whitespace).map(pair).collect()
}

fn frame_of(request: Request, id: u64) -> Vec<u8> {
    let mut outbox = Outbox::new();
    let body = encode_call(&Call {
        id: RequestId(id),
        request,
    })
    .expect("it is small");
    outbox.push(&body, Vec::new()).expect("it is small");
    outbox.front().expect("one frame").0.to_vec()
}

#[test]
fn example_frames_are_what_is_encoded() {
    let hello = Request::Hello {
        version: VERSION,
        build: "example".into(),
        cgroup_root: None,
    };
    let shown = between("<!-- hello frame -->\n```text", "```");
    assert_eq!(bytes_of(shown), frame_of(hello, 1));
    let spec = Spec {
        program: "/bin/true".into(),
        args: vec![Bytes::from("true")],
        env: vec!["PATH=/usr/bin:/bin".into()],
        on_exit: OnExit::End {
            grace: Micros(1_000_000),
        },
        grace: Micros(1_000_000),
        ..Spec::default()
    };
    let spawn = Request::Spawn {
        session: SessionId(1),
        spec: Box::new(spec),
    };
    let shown = between("<!-- spawn frame -->\n```text", "```");
    assert_eq!(bytes_of(shown), frame_of(spawn, 2));
}

#[test]
fn minimal_client_of_the_page_is_the_one_in_the_examples_folder() {
    let shown = between("<!-- minimal client -->\n```python", "```\n");
    assert_eq!(shown, EXAMPLE.trim());
    assert!(EXAMPLE.lines().count() < 80, "it is not minimal");
}
