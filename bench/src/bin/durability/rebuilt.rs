//! A store of 1 GB whose index is gone: what building it again costs.

use std::fs;
use std::path::Path;

use dormouse::id::{FactNumber, Pid};
use dormouse::ports::{Batch, Store as _, SyncLevel, WriteOp};
use dormouse::process::ProcessRow;
use dormouse::store::LogStore;
use dormouse_bench::{Outcome, line, ratio, shown};

use crate::timed;

const FACT_BYTES: usize = 1_000;
const FACTS: u64 = 850_000;
/// Records of a commit.
const TOGETHER: u64 = 1_000;

/// A record for each fact. Beside it stands a pass over the log's bytes.
pub(crate) fn rebuilt(folder: &Path) -> Outcome {
    let folder = folder.join("store");
    let store = LogStore::open(&folder)?;
    let owner = store.claim()?;
    let row = ProcessRow::started(Pid(1), "bench");
    store.commit(
        owner,
        Batch::durable(
            &[WriteOp::ProcessCreated {
                row,
                image: Vec::new(),
            }],
            0,
        ),
    )?;
    for first in (1..=FACTS).step_by(TOGETHER as usize) {
        let fact = |number| WriteOp::Facts {
            pid: Pid(1),
            first: FactNumber(number),
            facts: vec![vec![7; FACT_BYTES]],
        };
        let entries: Vec<_> = (first..first + TOGETHER).map(fact).collect();
        store.commit(
            owner,
            Batch {
                ops: &entries,
                at_ms: 0,
                until: SyncLevel::Written,
            },
        )?;
    }
    drop(store);
    fs::remove_dir_all(folder.join("index"))?;
    let (store, took) = timed(|| LogStore::open(&folder));
    assert_eq!(
        store?.journal(Pid(1), Some(FactNumber(FACTS)))?.facts.len() as u64,
        FACTS
    );
    let (bytes, plainly) = timed(|| {
        let segments = fs::read_dir(folder.join("log"))?;
        segments
            .map(|segment| Ok(fs::read(segment?.path())?.len() as u64))
            .sum::<Outcome<u64>>()
    });
    line(format_args!(
        "index of {FACTS} records in {:.1} GB built again in {}; read plainly in {}: {:.1}x",
        bytes? as f64 / 1e9,
        shown(took),
        shown(plainly),
        ratio(took, plainly)
    ))?;
    Ok(())
}
