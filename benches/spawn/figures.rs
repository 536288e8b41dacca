//! Samples and what is said of them.

use std::time::Duration;

/// The times of one way.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    times: Vec<Duration>,
}

impl Samples {
    pub(crate) fn add(&mut self, time: Duration) {
        self.times.push(time);
    }

    pub(crate) fn len(&self) -> usize {
        self.times.len()
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
    println!("| what | std: median, us | p99 | foster: median, us | p99 | ratio of medians |");
    println!("|---|---|---|---|---|---|");
}

/// Prints one row.
pub(crate) fn print_pair(what: &str, mut std: Samples, mut foster: Samples) {
    let (ours, theirs) = (foster.quantile(500), std.quantile(500));
    println!(
        "| {what} | {theirs:.0} | {:.0} | {ours:.0} | {:.0} | {:.2} |",
        std.quantile(990),
        foster.quantile(990),
        ours / theirs,
    );
}
