//! The whole table: which cells run, how many at once, and the comparison with the pages.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use foster_protocol::Level;

use crate::cell::Cell;
use crate::events::EVENTS;
use crate::outcome::Outcome;
use crate::shapes::{SHAPES, Shape};

/// Set to 1, the bombs of 1,000 run too. `.ci/run` sets it.
const ALL: &str = "FOSTER_TEST_BOMBS";

/// How many cells run at once, and how many of those with bombs.
const AT_ONCE: usize = 12;
const BOMBS_AT_ONCE: usize = 1;

pub(crate) const LEVELS: [Level; 4] = [Level::Group, Level::Tree, Level::Cgroup, Level::Namespace];

/// What every cell has shown.
type Results = BTreeMap<u32, (Cell, Result<Outcome, String>)>;

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for level in LEVELS {
        for event in EVENTS {
            for shape in SHAPES {
                let number = u32::try_from(cells.len()).expect("few cells");
                cells.push(Cell { level, event, shape, number });
            }
        }
    }
    cells
}

/// Runs cells, this many at once.
fn run(cells: Vec<Cell>, at_once: usize) -> Results {
    let queue = Mutex::new(VecDeque::from(cells));
    let results = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no cell panics").pop_front();
                    let Some(cell) = next else { break };
                    let begin = Instant::now();
                    let result = cell.run();
                    if std::env::var_os("FOSTER_TEST_SHOW").is_some() {
                        eprintln!("{:?} {:?} {:?}: {result:?} in {:?}", cell.level, cell.event, cell.shape, begin.elapsed());
                    }
                    let mut results = results.lock().expect("no cell panics");
                    results.insert(cell.number, (cell, result));
                }
            });
        }
    });
    results.into_inner().expect("no cell panics")
}

#[test]
fn every_cell_of_the_table_shows_what_the_page_says() {
    let only = std::env::var("FOSTER_TEST_CELLS").unwrap_or_default();
    let mut cells = cells();
    cells.retain(|cell| format!("{:?} {:?} {:?}", cell.level, cell.event, cell.shape).contains(&only));
    let (bombs, others): (Vec<_>, Vec<_>) = cells.into_iter().partition(|cell| cell.shape.bomb().is_some());
    let (thousands, hundreds): (Vec<_>, Vec<_>) = bombs.into_iter().partition(|cell| cell.shape == Shape::Bomb1000);
    let t = Instant::now();
    let mut results = run(others, AT_ONCE);
    eprintln!("others {:?}", t.elapsed());
    results.extend(run(hundreds, BOMBS_AT_ONCE));
    eprintln!("hundreds {:?}", t.elapsed());
    if std::env::var_os(ALL).is_some() {
        results.extend(run(thousands, 1));
    }
    eprintln!("all {:?}", t.elapsed());
}
