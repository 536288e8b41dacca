//! Who takes turns, and how.

use std::time::Duration;

use foster::Level;

use crate::Outcome;
use crate::figures::Samples;

/// Samples of one way in a row before the next has its turn.
const BLOCK: usize = 10;

/// A way of doing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// `std::process::Command`.
    Std,
    /// The helper, at this level.
    Foster(Level),
    /// A launch of a helper, which nothing else is beside.
    Launch,
}

/// What one way took.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) way: Way,
    pub(crate) samples: Samples,
}

/// All ways in turns, one block each, until each has its samples. The first of a block is
/// measured by nobody: what the way before it has left to do is done meanwhile. So is the first
/// round.
pub(crate) fn in_turns(
    ways: &[Way],
    count: usize,
    mut measure: impl FnMut(Way) -> Outcome<Duration>,
) -> Outcome<Vec<Cell>> {
    let mut cells: Vec<Cell> = ways
        .iter()
        .map(|way| Cell {
            way: *way,
            samples: Samples::default(),
        })
        .collect();
    for round in 0..=count.div_ceil(BLOCK) {
        for cell in &mut cells {
            measure(cell.way)?;
            for _ in 0..BLOCK {
                let took = measure(cell.way)?;
                if round > 0 {
                    cell.samples.add(took);
                }
            }
        }
    }
    Ok(cells)
}
