//! Figures of a cluster, each next to what the database alone takes for it in the same run.
//!
//! ```sh
//! .ci/cluster-figures              # all rows
//! .ci/cluster-figures commits …    # some of them, by the names in `ROWS`
//! ```
//!
//! `benches/README.md` says what the rows mean and keeps the figures of a run.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod baseline;
mod claims;
mod commits;
mod cpu;
mod drain;
mod failover;
mod link;
mod messages;
mod nodes;
mod opening;
mod programs;
mod report;
mod rest;
mod schema;
mod swarm;

use anyhow::{Result, bail};

/// The names of the rows, in the order in which they are measured.
const ROWS: &[&str] = &[
    "commits", "claims", "messages", "failover", "opening", "drain", "swarm", "rest",
];

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let words = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"));
    let mut rows: Vec<String> = words.collect();
    if let Some(unknown) = rows.iter().find(|row| !ROWS.contains(&&***row)) {
        bail!("{unknown:?} is no row. Rows: {}", ROWS.join(", "));
    }
    if rows.is_empty() {
        rows = ROWS.iter().map(|row| (*row).to_owned()).collect();
    }
    let runtime = tokio::runtime::Runtime::new()?;
    for row in rows {
        println!("\n# {row}");
        runtime.block_on(measure(&row))?;
    }
    Ok(())
}

async fn measure(row: &str) -> Result<()> {
    match row {
        "commits" => commits::measure().await,
        "claims" => claims::measure().await,
        "messages" => messages::measure().await,
        "failover" => failover::measure().await,
        "opening" => opening::measure().await,
        "drain" => drain::measure().await,
        "swarm" => swarm::measure().await,
        _ => rest::measure().await,
    }
}
