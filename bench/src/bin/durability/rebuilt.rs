//! Measures rebuilding the missing index of a store of 1 GB.

use std::fs;
use std::path::Path;

use dormouse::id::{FactNumber, Pid};
use dormouse::ports::{Batch, Store as _, SyncLevel, WriteOp};
use dormouse::process::ProcessRow;
use dormouse::store::LogStore;
use dormouse_bench::{Outcome, format_duration, print_line, ratio};

use crate::timed;

const FACT_BYTES: usize = 1_000;
const FACTS: u64 = 850_000;
/// The number of facts in a commit.
const FACTS_PER_COMMIT: u64 = 1_000;

/// Writes one record for each fact. Compared with reading the log's bytes.
pub(crate) fn rebuild_index(folder: &Path) -> Outcome {
    let folder = folder.join("store");
    let store = LogStore::open(&folder)?;
    let owner = store.claim()?;
    let row = ProcessRow::started(Pid(1), "bench");
    store.commit(
        owner,
        Batch::durable(
            &[WriteOp::ProcessCreated {
                row: Box::new(row),
                image: Vec::new(),
            }],
            0,
        ),
    )?;
    for first in (1..=FACTS).step_by(FACTS_PER_COMMIT as usize) {
        let fact = |number| WriteOp::Facts {
            pid: Pid(1),
            first: FactNumber(number),
            facts: vec![vec![7; FACT_BYTES]],
        };
        let entries: Vec<_> = (first..first + FACTS_PER_COMMIT).map(fact).collect();
        store.commit(
            owner,
            Batch {
                ops: &entries,
                at_ms: 0,
                sync_level: SyncLevel::Written,
            },
        )?;
    }
    drop(store);
    fs::remove_dir_all(folder.join("index"))?;
    let (store, elapsed) = timed(|| LogStore::open(&folder));
    assert_eq!(
        store?.journal(Pid(1), Some(FactNumber(FACTS)))?.facts.len() as u64,
        FACTS
    );
    let (bytes, reading) = timed(|| {
        let segments = fs::read_dir(folder.join("log"))?;
        segments
            .map(|segment| Ok(fs::read(segment?.path())?.len() as u64))
            .sum::<Outcome<u64>>()
    });
    print_line(format_args!(
        "index of {FACTS} records in {:.1} GB rebuilt in {}; the log read in {}: {:.1}x",
        bytes? as f64 / 1e9,
        format_duration(elapsed),
        format_duration(reading),
        ratio(elapsed, reading)
    ))?;
    Ok(())
}
