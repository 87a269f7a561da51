//! Builds operations to commit, and the values that a store returns for them. For the suite, and
//! for other tests of a store.

use std::ops::RangeInclusive;

use bytes::Bytes;
use dormouse_actors::ports::{Batch, OwnerToken, Store, StoreError, TempFileChange, WriteOp};
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CheckpointId, ContentHash, FactNumber, Pid};
use dormouse_proto::process::{Exit, ExitStatus, ProcessRow, Waiting};

/// The time of every commit: milliseconds since the epoch, UTC.
pub const NOW_MS: u64 = 1_700_000_000_000;

/// The row of a process.
#[must_use]
pub fn row(pid: u64) -> ProcessRow {
    ProcessRow::started(Pid(pid), "worker")
}

/// The operation that creates a process.
#[must_use]
pub fn created(pid: u64) -> WriteOp {
    WriteOp::ProcessCreated {
        row: Box::new(row(pid)),
        image: format!("image of {pid}").into_bytes(),
    }
}

/// The bytes of a fact.
#[must_use]
pub fn fact(pid: u64, number: u64) -> Vec<u8> {
    format!("fact {number} of {pid}").into_bytes()
}

/// The operation that adds the facts `numbers` of a process.
#[must_use]
pub fn facts(pid: u64, numbers: RangeInclusive<u64>) -> WriteOp {
    let first = FactNumber(*numbers.start());
    WriteOp::Facts {
        pid: Pid(pid),
        first,
        facts: numbers.map(|number| fact(pid, number)).collect(),
    }
}

/// The operation that adds an image of a process after a fact.
#[must_use]
pub fn snapshot(pid: u64, at: u64) -> WriteOp {
    WriteOp::Snapshot {
        pid: Pid(pid),
        at: FactNumber(at),
        image: format!("image of {pid} at {at}").into_bytes(),
    }
}

/// The operation that ends a process.
#[must_use]
pub fn ended(pid: u64) -> WriteOp {
    WriteOp::ProcessEnded {
        pid: Pid(pid),
        exit: exit(),
    }
}

/// The operation that opens an ended process again.
#[must_use]
pub fn reopened(pid: u64, reopenings: u32) -> WriteOp {
    WriteOp::ProcessReopened {
        pid: Pid(pid),
        reopenings,
    }
}

/// The operation that sets what a process waits for.
#[must_use]
pub fn waiting(pid: u64, waiting: Waiting) -> WriteOp {
    WriteOp::Waiting {
        pid: Pid(pid),
        waiting,
        is_paused: false,
    }
}

/// The operation by which a process is paused at a limit, or goes on.
#[must_use]
pub fn paused(pid: u64, is_paused: bool) -> WriteOp {
    WriteOp::Waiting {
        pid: Pid(pid),
        waiting: Waiting::Nothing,
        is_paused,
    }
}

/// What a process waits for that has an alarm at this time.
#[must_use]
pub fn alarm(due_ms: u64) -> Waiting {
    Waiting::Alarm { due_ms }
}

/// The bytes of a change of temporary files.
#[must_use]
pub fn change(root: u64, number: u64) -> Vec<u8> {
    format!("change {number} of the files of {root}").into_bytes()
}

/// The operation that adds a change of the temporary files of a tree.
#[must_use]
pub fn temp_file(root: u64, number: u64) -> WriteOp {
    WriteOp::TempFile {
        root: Pid(root),
        number,
        record: change(root, number),
    }
}

/// The bytes of changes of temporary files.
#[must_use]
pub fn records(changes: Vec<TempFileChange>) -> Vec<Vec<u8>> {
    changes.into_iter().map(|change| change.record).collect()
}

/// The operation that creates a checkpoint of a tree whose root is process 1.
#[must_use]
pub fn checkpoint(id: u64, members: &[u64]) -> WriteOp {
    WriteOp::Checkpoint {
        id: CheckpointId(id),
        label: "before".into(),
        pid: Pid(1),
        root: Pid(1),
        scope: Scope::Tree,
        members: members.iter().copied().map(Pid).collect(),
    }
}

/// The exit of every process that [`ended`] ends.
#[must_use]
pub fn exit() -> Exit {
    Exit::new(ExitStatus::Done, "all found")
}

/// The bytes of a content, which differ for each seed and length.
#[must_use]
pub fn bytes(seed: u8, length: usize) -> Bytes {
    (0..length)
        .map(|at| (at / 251 + at * 7) as u8 ^ seed)
        .collect()
}

/// The hash of a content.
#[must_use]
pub fn hash(bytes: &[u8]) -> ContentHash {
    ContentHash(*blake3::hash(bytes).as_bytes())
}

/// The operation that adds a content without an index.
#[must_use]
pub fn content(bytes: &Bytes) -> WriteOp {
    WriteOp::Content {
        hash: hash(bytes),
        bytes: bytes.clone(),
        index: Bytes::new(),
    }
}

/// Reads all bytes of a content.
///
/// # Errors
/// Those of [`Store::content`], and [`StoreError::Damaged`] if the bytes are unreadable.
pub fn read(store: &dyn Store, hash: ContentHash) -> Result<Bytes, StoreError> {
    let content = store.content(hash)?;
    content
        .slice(0..content.length())
        .map_err(|error| StoreError::Damaged {
            what: error.to_string(),
        })
}

/// Commits operations, durably.
///
/// # Panics
/// If the store refuses them.
pub fn commit(store: &dyn Store, owner: OwnerToken, entries: &[WriteOp]) {
    store
        .commit(owner, Batch::durable(entries, NOW_MS))
        .unwrap_or_else(|error| panic!("{entries:?} is refused: {error}"));
}

/// The operation that deletes a process.
#[must_use]
pub fn process_deleted(pid: u64) -> WriteOp {
    WriteOp::ProcessDeleted { pid: Pid(pid) }
}

/// The operation that deletes the history of a process before a fact.
#[must_use]
pub fn history_truncated(pid: u64, below: u64) -> WriteOp {
    WriteOp::HistoryTruncated {
        pid: Pid(pid),
        below: FactNumber(below),
    }
}
