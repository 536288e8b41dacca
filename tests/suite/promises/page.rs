//! The pages: `docs/GUARANTEES.md` and the short table of `README.md`, made of what the cells
//! have shown. A cell that has not run keeps what the page says of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cell::{Cell, level_name};
use crate::events::{EVENTS, Event};
use crate::outcome::REASONS;
use crate::shapes::{SHAPES, Shape};
use crate::table::LEVELS;

/// What stands where nothing is known.
pub(crate) const UNKNOWN: &str = "?";

/// The cells as texts, by their numbers.
pub(crate) type Texts = BTreeMap<u32, String>;

/// A page, and what it should be.
pub(crate) struct Page {
    path: PathBuf,
    is: String,
}

impl Page {
    /// Reads one, by its path from the workspace's root.
    pub(crate) fn read(path: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
        let is = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        Self { path, is }
    }

    /// What stands between two marks of this name.
    fn section(&self, name: &str) -> &str {
        self.between(name).trim()
    }

    fn between(&self, name: &str) -> &str {
        let (begin, end) = marks(name);
        let rest = self.is.split_once(&begin).map(|(_, rest)| rest);
        let text = rest.and_then(|rest| rest.split_once(&end));
        let (text, _) = text.unwrap_or_else(|| panic!("{:?} lacks {begin}", self.path));
        text
    }

    /// The page with other sections.
    fn with(&self, sections: &[(String, String)]) -> String {
        let mut page = self.is.clone();
        for (name, text) in sections {
            let (begin, end) = marks(name);
            let old = format!("{begin}{}{end}", self.between(name));
            page = page.replace(&old, &format!("{begin}\n{text}\n{end}"));
        }
        page
    }

    /// Compares it with other sections. Where it differs, what it should be is written beside the
    /// tests, and the command that puts it here is given.
    pub(crate) fn differs_from(&self, sections: &[(String, String)]) -> Option<String> {
        let should_be = self.with(sections);
        if should_be == self.is {
            return None;
        }
        let name = self.path.file_name().expect("a page has a name");
        let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&made, should_be).expect("the target folder can be written");
        let place = self.path.canonicalize().expect("the page is there");
        Some(format!("cp {} {}", made.display(), place.display()))
    }

    /// The texts of the cells as the page has them.
    pub(crate) fn texts(&self, cells: &[Cell]) -> Texts {
        let mut texts = Texts::new();
        for level in LEVELS {
            let rows = self.section(level_name(level)).lines();
            let rows: Vec<Vec<&str>> = rows
                .map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
                .collect();
            for cell in cells.iter().filter(|cell| cell.level == level) {
                let is_row = |row: &&Vec<&str>| row.first() == Some(&cell.event.name());
                let column = SHAPES.iter().position(|shape| *shape == cell.shape);
                let row = rows.iter().find(is_row);
                let text = row.and_then(|row| row.get(column? + 1));
                texts.insert(cell.number, text.copied().unwrap_or(UNKNOWN).to_owned());
            }
        }
        texts
    }
}

fn marks(name: &str) -> (String, String) {
    (
        format!("<!-- {name} -->"),
        format!("<!-- end of {name} -->"),
    )
}

/// The sections of `docs/GUARANTEES.md`: a table for each level, and the notes.
pub(crate) fn tables(cells: &[Cell], texts: &Texts) -> Vec<(String, String)> {
    let mut sections = Vec::new();
    for level in LEVELS {
        let mut text = String::from("| event |");
        for shape in SHAPES {
            let _ = write!(text, " {} |", shape.name());
        }
        let _ = write!(text, "\n|---|{}", "---|".repeat(SHAPES.len()));
        for event in EVENTS {
            let _ = write!(text, "\n| {} |", event.name());
            for cell in row(cells, level, event) {
                let _ = write!(text, " {} |", text_of(texts, cell));
            }
        }
        sections.push((level_name(level).to_owned(), text));
    }
    let mut notes = String::new();
    for ((name, meaning), number) in REASONS.iter().zip(1..) {
        let number: u32 = number;
        let _ = writeln!(notes, "{number}. `{name}`: {meaning}.");
    }
    sections.push(("notes".to_owned(), notes.trim_end().to_owned()));
    sections
}

/// The section of `README.md`: events by levels, and the shapes that are not gone.
pub(crate) fn summary(cells: &[Cell], texts: &Texts) -> Vec<(String, String)> {
    let mut text = String::from("| event |");
    for level in LEVELS {
        let _ = write!(text, " `{}` |", level_name(level));
    }
    let _ = write!(text, "\n|---|{}", "---|".repeat(LEVELS.len()));
    for event in EVENTS {
        let _ = write!(text, "\n| {} |", event.name());
        for level in LEVELS {
            let row = row(cells, level, event);
            let row = row.map(|cell| (cell.shape, text_of(texts, cell)));
            let _ = write!(text, " {} |", in_short(&row.collect::<Vec<_>>()));
        }
    }
    vec![("guarantees".to_owned(), text)]
}

/// One row of a level: the shapes of each outcome but the best.
fn in_short(row: &[(Shape, &str)]) -> String {
    let names = |is: &dyn Fn(&str) -> bool| -> Vec<&str> {
        let row = row.iter().filter(|(_, text)| is(text));
        row.map(|(shape, _)| shape.name()).collect()
    };
    let void = names(&|text| text == "–");
    if void.len() == row.len() {
        return "–".to_owned();
    }
    let gone = names(&|text| text == "gone");
    let swept = names(&|text| text == "sweep");
    let left = names(&|text| text.contains("left"));
    let named = names(&|text| text.contains("named") && !text.contains("left"));
    // The first that there is stands for the rest of the row.
    let mut parts = Vec::new();
    for (word, shapes) in [
        ("gone", gone),
        ("named", named),
        ("sweep", swept),
        ("left", left),
    ] {
        match (parts.is_empty(), shapes.is_empty()) {
            (_, true) => {}
            (true, false) => parts.push(word.to_owned()),
            (false, false) => parts.push(format!("{word}: {}", shapes.join(", "))),
        }
    }
    parts.join("; ")
}

fn row(cells: &[Cell], level: foster_protocol::Level, event: Event) -> impl Iterator<Item = &Cell> {
    cells
        .iter()
        .filter(move |cell| cell.level == level && cell.event == event)
}

fn text_of<'a>(texts: &'a Texts, cell: &Cell) -> &'a str {
    texts.get(&cell.number).map_or(UNKNOWN, String::as_str)
}
