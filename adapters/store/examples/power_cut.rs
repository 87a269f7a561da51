//! The writer and the verifier of a power cut test: what was acknowledged must be there afterwards.
//!
//! `power_cut write DIR START` writes numbered records, each with a content and a change of
//! temporary files, and prints each number once it is durable. `power_cut verify DIR ACKED` opens
//! the store and prints `missing=N wrong=N` about the records before ACKED.

use std::io::Write as _;

use bytes::Bytes;
use dormouse_actors::ports::{Batch, Store as _, StoreError, WriteOp};
use dormouse_proto::id::{ContentHash, FactNumber, Pid};
use dormouse_proto::process::ProcessRow;
use dormouse_store::LogStore;

const PID: Pid = Pid(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", dir, start] => write(dir, start.parse()?),
        ["verify", dir, acked] => verify(dir, acked.parse()?),
        _ => Err("usage: power_cut write DIR START | power_cut verify DIR ACKED".into()),
    }
}

/// Record `number` is fact `number + 1`.
fn write(dir: &str, start: u64) -> Result<(), Box<dyn std::error::Error>> {
    let store = LogStore::options().segment_bytes(16 << 20).open(dir)?;
    let owner = store.claim()?;
    if store.processes()?.rows.is_empty() {
        let row = ProcessRow::started(PID, "writer");
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
    }
    let stored_facts = store.journal(PID, None)?.facts.len() as u64;
    let mut out = std::io::stdout().lock();
    // Records after the last acknowledged one may have become durable too: they are reported now.
    for number in start.. {
        if number >= stored_facts {
            store.commit(owner, Batch::durable(&write_ops(number), 0))?;
        }
        writeln!(out, "{number}")?;
        out.flush()?;
    }
    Ok(())
}

fn verify(dir: &str, acked: u64) -> Result<(), Box<dyn std::error::Error>> {
    let store = LogStore::open(dir)?;
    let facts = match store.journal(PID, None) {
        Err(StoreError::UnknownProcess(_)) => Vec::new(),
        other => other?.facts,
    };
    let changes = if facts.is_empty() {
        Vec::new()
    } else {
        store.temp_files(PID)?
    };
    let (mut missing, mut wrong) = (
        acked.saturating_sub(facts.len().min(changes.len()) as u64),
        0,
    );
    for ((number, fact), change) in (0..acked).zip(&facts).zip(&changes) {
        let expected = content(number);
        wrong += u64::from(*fact != hash(&expected).0 || change.record != *fact);
        match store.content(hash(&expected)) {
            Ok(found) => wrong += u64::from(found.slice(0..found.length()).ok() != Some(expected)),
            Err(StoreError::UnknownContent(_)) => missing += 1,
            Err(_) => wrong += 1,
        }
    }
    writeln!(std::io::stdout(), "missing={missing} wrong={wrong}")?;
    Ok(())
}

fn write_ops(number: u64) -> [WriteOp; 3] {
    let bytes = content(number);
    let hash = hash(&bytes);
    let facts = vec![hash.0.to_vec()];
    let change = WriteOp::TempFile {
        root: PID,
        number: number + 1,
        record: hash.0.to_vec(),
    };
    [
        WriteOp::Content {
            hash,
            bytes,
            index: Bytes::new(),
        },
        WriteOp::Facts {
            pid: PID,
            first: FactNumber(number + 1),
            facts,
        },
        change,
    ]
}

/// Mostly small, sometimes larger than a chunk.
fn content(number: u64) -> Bytes {
    let length = if number.is_multiple_of(20) {
        200_000
    } else {
        100
    };
    number
        .to_le_bytes()
        .into_iter()
        .cycle()
        .take(length)
        .collect()
}

fn hash(bytes: &[u8]) -> ContentHash {
    ContentHash(*blake3::hash(bytes).as_bytes())
}
