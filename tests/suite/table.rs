//! The table of `tests/README.md`: every test that it names exists, and every promise has one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of this package.
fn package() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust source below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the folder is readable") {
            let path = entry.expect("the folder is readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// Every test below `suite/` and `windows/` as `file::name`, the file without its ending.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let folders = ["suite", "windows"].map(|name| sources(&package().join(name)));
    for path in folders.into_iter().flatten() {
        let text = fs::read_to_string(&path).expect("the source is readable");
        let file = path
            .file_stem()
            .expect("a file has a name")
            .to_string_lossy()
            .into_owned();
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            if line == "#[test]" {
                is_test = true;
            } else if let (true, Some(rest)) = (is_test, line.strip_prefix("fn ")) {
                let name = rest.split('(').next().unwrap_or_default();
                found.insert(format!("{file}::{name}"));
                is_test = false;
            }
        }
    }
    found
}

/// The rows of every table of the page: the cells, without the head.
fn rows() -> Vec<Vec<String>> {
    let page = fs::read_to_string(package().join("README.md")).expect("the page is readable");
    let lines = page.lines().filter(|line| line.starts_with('|'));
    let rows = lines.map(|line| {
        line.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned())
    });
    rows.map(Iterator::collect)
        .filter(|row: &Vec<String>| row.len() == 2)
        .collect()
}

/// The names in backquotes of a cell.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.contains("::"))
        .collect()
}

#[test]
fn every_test_that_the_table_names_exists() {
    let tests = tests();
    let named: Vec<String> = rows()
        .iter()
        .filter_map(|row| row.get(1))
        .flat_map(|cell| names(cell))
        .map(str::to_owned)
        .collect();
    assert!(named.len() > 50, "the table names {} tests", named.len());
    let missing: Vec<&String> = named.iter().filter(|name| !tests.contains(*name)).collect();
    assert!(
        missing.is_empty(),
        "named in tests/README.md and not there: {missing:#?}"
    );
}

#[test]
fn every_row_of_the_table_names_a_test() {
    let is_rule = |row: &Vec<String>| row.iter().all(|cell| cell.starts_with('-'));
    for row in rows().iter().filter(|row| !is_rule(row)) {
        let cell = row.get(1).expect("two cells");
        let is_head = cell == "tests";
        assert!(
            is_head || !names(cell).is_empty(),
            "a row without a test: {row:?}"
        );
    }
}

#[test]
fn every_test_is_named_in_a_sentence() {
    let short: Vec<String> = tests()
        .into_iter()
        .filter(|test| {
            test.split("::")
                .nth(1)
                .is_some_and(|name| name.matches('_').count() < 2)
        })
        .collect();
    assert!(short.is_empty(), "names that are no sentences: {short:#?}");
}
