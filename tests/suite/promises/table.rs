//! The whole table: which cells run, how many at once, and the comparison with the pages.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use foster_protocol::Level;
use foster_tests::note_not_run;

use crate::cell::Cell;
use crate::events::EVENTS;
use crate::outcome::Outcome;
use crate::page::{Page, Texts, UNKNOWN, summary, tables};
use crate::shapes::{SHAPES, Shape};
use crate::stranger::Strangers;

/// Set to 1, the bombs of 200 run too, as `.ci/run promises` sets it; set to 2, those of 1,000.
const ALL: &str = "FOSTER_TEST_ALL_CELLS";

/// Runs only the cells whose name, `Tree Host Setsid`, has this part, and says what each shows.
const ONLY: &str = "FOSTER_TEST_CELLS";

/// How many cells run at once that hardly use a processor, how many of those that take as long as
/// a supervisor or a sweep may try, and how many that use all.
const AT_ONCE: usize = 10;
const SLOW_AT_ONCE: usize = 6;
const BOMBS_AT_ONCE: usize = 1;

/// How often a cell is run that shows something else than the page: a machine without a free core
/// delays one run, and what does not hold does not hold in any.
const TRIES: usize = 3;

/// Every level.
pub(crate) const LEVELS: [Level; 4] = [Level::Group, Level::Tree, Level::Cgroup, Level::Namespace];

/// What every cell has shown.
type Results = BTreeMap<u32, (Cell, Result<Outcome, String>)>;

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for level in LEVELS {
        for event in EVENTS {
            for shape in SHAPES {
                let number = u32::try_from(cells.len()).expect("few cells");
                cells.push(Cell {
                    level,
                    event,
                    shape,
                    number,
                });
            }
        }
    }
    cells
}

/// Runs cells, this many at once, each until it shows what the page says.
fn run(cells: Vec<Cell>, at_once: usize, page: &Texts) -> Results {
    let queue = Mutex::new(VecDeque::from(cells));
    let results = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no cell panics").pop_front();
                    let Some(cell) = next else { break };
                    let result = run_cell(cell, page);
                    let mut results = results.lock().expect("no cell panics");
                    results.insert(cell.number, (cell, result));
                }
            });
        }
    });
    results.into_inner().expect("no cell panics")
}

fn run_cell(cell: Cell, page: &Texts) -> Result<Outcome, String> {
    let said = page.get(&cell.number);
    let mut tries = 0;
    loop {
        tries += 1;
        let begin = Instant::now();
        let result = cell.run();
        let is_as_said = match &result {
            Ok(outcome) => cell.text(outcome).is_none_or(|text| Some(&text) == said),
            Err(_) => false,
        };
        if !is_as_said || std::env::var_os(ONLY).is_some() {
            report(&format!("{cell}: {result:?} in {:?}", begin.elapsed()));
        }
        let is_unknown = said.is_none_or(|said| said == UNKNOWN);
        if is_as_said || is_unknown || tries == TRIES {
            return result;
        }
    }
}

/// Runs what is to run here, and says what is not.
fn run_all(page: &Texts) -> Results {
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut cells = cells();
    cells.retain(|cell| cell.to_string().contains(&only));
    let is_bomb = |cell: &Cell| cell.shape.bomb().is_some();
    let (mut bombs, others): (Vec<_>, Vec<_>) = cells.into_iter().partition(is_bomb);
    let wanted = std::env::var(ALL).unwrap_or_default();
    if wanted != "2" {
        let before = bombs.len();
        bombs.retain(|cell| wanted == "1" && cell.shape == Shape::Bomb200);
        let count = before - bombs.len();
        note_not_run(
            &format!("{count} cells with bombs"),
            &format!("{ALL} is not 1, or 2 for those of 1,000"),
        );
    }
    let begin = Instant::now();
    let (slow, others): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|cell| cell.shape.is_slow());
    // Bombs are nice to the others, which mostly wait.
    let results = thread::scope(|scope| {
        let others = scope.spawn(|| run(others, AT_ONCE, page));
        let slow = scope.spawn(|| run(slow, SLOW_AT_ONCE, page));
        let mut results = run(bombs, BOMBS_AT_ONCE, page);
        results.extend(others.join().expect("no cell panics"));
        results.extend(slow.join().expect("no cell panics"));
        results
    });
    report(&format!("{} cells in {:?}", results.len(), begin.elapsed()));
    results
}

#[test]
fn every_cell_of_the_table_shows_what_the_pages_say() {
    let (guarantees, readme) = (Page::read("docs/GUARANTEES.md"), Page::read("README.md"));
    let cells = cells();
    let mut texts = guarantees.texts(&cells);
    let strangers = Strangers::new();
    let results = run_all(&texts);
    strangers.assert_unharmed();
    let mut not_run: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (cell, result) in results.values() {
        match result {
            Ok(Outcome::NotRun(missing)) => *not_run.entry(missing.clone()).or_default() += 1,
            Ok(outcome) => {
                let text = cell.text(outcome).expect("it has run");
                let said = texts.insert(cell.number, text.clone());
                let said = said.unwrap_or_default();
                if said != text {
                    wrong.push(format!("{cell}: {text:?} where the page says {said:?}"));
                }
            }
            Err(failure) => wrong.push(format!("{cell}: {failure}")),
        }
    }
    for (missing, count) in not_run {
        note_not_run(&format!("{count} cells"), &missing);
    }
    let pages = [
        guarantees.differs_from(&tables(&cells, &texts)),
        readme.differs_from(&summary(&cells, &texts)),
    ];
    let commands: Vec<String> = pages.into_iter().flatten().collect();
    assert!(
        wrong.is_empty() && commands.is_empty(),
        "the pages say something else:\n{}\nwhat was shown is put there by:\n{}\n",
        wrong.join("\n"),
        commands.join("\n")
    );
}

#[test]
fn every_cell_of_the_page_is_known() {
    let unknown = |text: &&String| text.as_str() == UNKNOWN;
    let texts = Page::read("docs/GUARANTEES.md").texts(&cells());
    assert_eq!(texts.values().filter(unknown).count(), 0, "{texts:?}");
}

#[expect(clippy::print_stderr, reason = "what was run is to be read")]
fn report(line: &str) {
    eprintln!("{line}");
}
