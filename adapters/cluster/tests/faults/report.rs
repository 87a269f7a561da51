//! What a run was and what it found.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::check::{Findings, Violation};
use crate::postgres::Replication;

/// What an asynchronous failover may lose, and then does: these are counted and are no violations.
const LOST_BY_ASYNC_FAILOVER: [&str; 17] = [
    "answer-without-effect",
    "call-ran-twice",
    "checkpoint-lost",
    "checkpoint-made-twice",
    "commit-of-older-epoch",
    "content-lost",
    "continue-lost",
    "durable-fact-lost",
    "effect-not-named",
    "effect-without-intent",
    "end-lost",
    "input-arrived-twice",
    "input-lost",
    "message-kept-twice",
    "message-lost",
    "start-lost",
    "start-made-twice",
];

/// The end of the name of a count of what was lost.
const LOST: &str = " (lost by a failover)";

/// The sums of all histories of a run.
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) replication: Replication,
    pub(crate) histories: u64,
    pub(crate) under_faults: Duration,
    pub(crate) faults: BTreeMap<&'static str, usize>,
    counts: BTreeMap<String, u64>,
    /// The violations, with the seed of the history.
    violations: Vec<(u64, Violation)>,
}

impl Report {
    pub(crate) fn new(seed: u64, replication: Replication) -> Self {
        Self {
            seed,
            replication,
            histories: 0,
            under_faults: Duration::ZERO,
            faults: BTreeMap::new(),
            counts: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    /// Adds a history. `promotions` says how often its standby took over. Returns whether it is
    /// without a violation.
    pub(crate) fn add(&mut self, seed: u64, findings: Findings, promotions: usize) -> bool {
        self.histories += 1;
        for (name, count) in findings.counts {
            *self.counts.entry(name.to_owned()).or_default() += count;
        }
        let may_lose = self.replication == Replication::Async && promotions > 0;
        let before = self.violations.len();
        for violation in findings.violations {
            if may_lose && LOST_BY_ASYNC_FAILOVER.contains(&violation.name) {
                *self
                    .counts
                    .entry(format!("{}{LOST}", violation.name))
                    .or_default() += 1;
            } else {
                self.violations.push((seed, violation));
            }
        }
        self.violations.len() == before
    }

    pub(crate) fn has_violations(&self) -> bool {
        !self.violations.is_empty()
    }

    /// The report as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let hours = self.under_faults.as_secs_f64() / 3600.0;
        // Writing to a string never fails.
        let _ = writeln!(
            text,
            "seed {}, replication {:?}: {} histories, {hours:.2} hours under faults",
            self.seed, self.replication, self.histories
        );
        let total: usize = self.faults.values().sum();
        let _ = writeln!(text, "{total} faults:");
        for (kind, count) in &self.faults {
            let _ = writeln!(text, "  {count:8} {kind}");
        }
        let _ = writeln!(text, "what was checked:");
        for (name, count) in &self.counts {
            let _ = writeln!(text, "  {count:8} {name}");
        }
        let mut by_name: BTreeMap<&str, Vec<&(u64, Violation)>> = BTreeMap::new();
        for violation in &self.violations {
            by_name.entry(violation.1.name).or_default().push(violation);
        }
        let _ = writeln!(text, "{} violations", self.violations.len());
        for (name, violations) in by_name {
            let _ = writeln!(text, "  {name}: {}", violations.len());
            for (seed, violation) in violations.iter().take(5) {
                let evidence: String = violation.evidence.chars().take(1500).collect();
                let _ = writeln!(text, "    seed {seed}: {evidence}");
            }
        }
        text
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        std::fs::write(folder.join("report.txt"), self.text())?;
        Ok(())
    }
}
