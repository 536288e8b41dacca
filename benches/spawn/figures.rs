//! Samples and what is said of them.

use std::time::Duration;

use foster::Level;

use crate::turns::{Cell, Way};

/// The times of one way.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    times: Vec<Duration>,
}

impl Samples {
    pub(crate) fn add(&mut self, time: Duration) {
        self.times.push(time);
    }

    /// The time that this share of the samples, in thousandths, does not exceed, in microseconds.
    fn quantile(&mut self, thousandths: usize) -> f64 {
        self.times.sort_unstable();
        let last = self.times.len().saturating_sub(1);
        let time = self.times.get(last * thousandths / 1000).copied();
        time.unwrap_or_default().as_secs_f64() * 1e6
    }
}

/// Prints the head of the table.
pub(crate) fn print_head() {
    println!("| what | way | median, us | p90 | median over `group`, us | over std | std times |");
    println!("|---|---|---|---|---|---|---|");
}

/// Prints a row for each way.
pub(crate) fn print_rows(what: &str, cells: Vec<Cell>) {
    let rows: Vec<(Way, f64, f64)> = cells
        .into_iter()
        .map(|mut cell| {
            let samples = &mut cell.samples;
            (cell.way, samples.quantile(500), samples.quantile(900))
        })
        .collect();
    let median_of = |way: Way| {
        let its = rows.iter().find(|row| row.0 == way);
        its.map(|row| row.1)
    };
    let std = median_of(Way::Std);
    let group = median_of(Way::Foster(Level::Group));
    for (way, median, high) in &rows {
        let over =
            |other: Option<f64>| other.map_or(String::new(), |it| format!("{:+.0}", median - it));
        let times = std.map_or(String::new(), |std| format!("{:.2}", median / std));
        println!(
            "| {what} | {} | {median:.0} | {high:.0} | {} | {} | {times} |",
            name(*way),
            over(group),
            over(std),
        );
    }
}

fn name(way: Way) -> String {
    match way {
        Way::Std => "std".into(),
        Way::Foster(level) => format!("`{level:?}`").to_lowercase(),
        Way::Launch => "helper".into(),
    }
}
