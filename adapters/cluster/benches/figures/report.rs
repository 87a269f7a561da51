//! Rows: a median, the 99th percentile, and the cost of the database alone.

use std::fmt::Display;
use std::time::Duration;

/// Durations that were measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durations(pub(crate) Vec<Duration>);

impl Durations {
    pub(crate) fn push(&mut self, duration: Duration) {
        self.0.push(duration);
    }

    /// The duration below which this part of all is; zero if there are none.
    pub(crate) fn at(&self, part: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let index = (sorted.len().saturating_sub(1) as f64 * part).round();
        sorted.get(index as usize).copied().unwrap_or_default()
    }

    pub(crate) fn median(&self) -> Duration {
        self.at(0.5)
    }
}

/// Prints the head of rows of durations.
pub(crate) fn print_head() {
    println!(
        "{:46} {:>6} {:>9} {:>9}  {:24} {:>9} {:>9} {:>7}",
        "", "n", "median", "p99", "the database alone", "median", "p99", "ratio"
    );
}

/// Prints durations and, next to them, what the database alone takes. Below 100 durations the 99th
/// percentile is the longest one.
pub(crate) fn print_row(what: impl Display, measured: &Durations, name: &str, alone: &Durations) {
    println!(
        "{:46} {:6} {:>9} {:>9}  {name:24} {:>9} {:>9} {:>6.2}x",
        what.to_string(),
        measured.0.len(),
        shown(measured.median()),
        shown(measured.at(0.99)),
        shown(alone.median()),
        shown(alone.at(0.99)),
        measured.median().as_secs_f64() / alone.median().as_secs_f64(),
    );
}

/// A duration with three digits and a unit.
pub(crate) fn shown(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        ..0.000_999_5 => format!("{:.0} us", seconds * 1e6),
        ..0.1 => format!("{:.2} ms", seconds * 1e3),
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}
