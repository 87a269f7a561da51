//! What is written to a store: operations that are committed together.

use std::sync::Arc;

use bytes::Bytes;
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CheckpointId, ContentHash, FactNumber, Pid};
use dormouse_proto::process::{Exit, ProcessRow, Waiting};

/// Operations that are committed together.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The operations, in order.
    pub ops: &'a [WriteOp],
    /// The time of the commit: milliseconds since the epoch, UTC.
    pub at_ms: u64,
    /// How durable the commit must be.
    pub sync_level: SyncLevel,
}

impl<'a> Batch<'a> {
    /// A batch that must survive a power loss.
    #[must_use]
    pub fn durable(ops: &'a [WriteOp], at_ms: u64) -> Self {
        Self {
            ops,
            at_ms,
            sync_level: SyncLevel::Synced,
        }
    }
}

/// How durable a commit is when it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncLevel {
    /// The operating system has the data: it survives the end of this program, but not a power
    /// loss.
    Written,
    /// The disk has the data: it survives a power loss.
    Synced,
}

/// One operation of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOp {
    /// A content. Precedes the first operation that refers to it (DUR-3).
    Content {
        /// The hash of its bytes, by which other records refer to it.
        hash: ContentHash,
        /// Its bytes.
        bytes: Bytes,
        /// A serialized index that serves reads without a pass over the bytes; opaque to the store,
        /// may be empty.
        index: Bytes,
    },
    /// A content that the store already has and that a later operation refers to: a running mark
    /// pins it. Refused as [`StoreError::UnknownContent`](super::StoreError::UnknownContent) if the
    /// store does not have it.
    ContentReferenced {
        /// The hash of its bytes.
        hash: ContentHash,
    },
    /// A process is created: its row in the process table, and its initial state (fact number 0).
    ProcessCreated {
        /// The row.
        row: Box<ProcessRow>,
        /// The encoded image.
        image: Vec<u8>,
    },
    /// Facts of a process, numbered without gaps.
    Facts {
        /// The process.
        pid: Pid,
        /// The number of the first fact.
        first: FactNumber,
        /// The encoded facts.
        facts: Vec<Vec<u8>>,
    },
    /// The state of a process after fact `at`. Loading starts here instead of at the birth.
    Snapshot {
        /// The process.
        pid: Pid,
        /// The last fact that the state includes.
        at: FactNumber,
        /// The encoded image.
        image: Vec<u8>,
    },
    /// A process ended. Its row in the process table gets the exit.
    ProcessEnded {
        /// The process.
        pid: Pid,
        /// How the process ended.
        exit: Exit,
    },
    /// What a process waits for, and whether it is paused at a limit. Its row in the process table
    /// gets both, so that a kernel finds the processes that are due, those that wait for a person,
    /// and those below a paused one, without reading a journal. They repeat what the facts of the
    /// process say: a store that has lost them answers with [`Waiting::Unknown`] and `false`, so that
    /// the journal is read.
    Waiting {
        /// The process.
        pid: Pid,
        /// What it waits for.
        waiting: Waiting,
        /// Whether it is paused at a limit of its budget.
        is_paused: bool,
    },
    /// An ended process was opened again: its row loses the exit and what it waited for, and gets
    /// the number. Facts of the process follow. A store refuses to delete the process until it has ended
    /// once more.
    ProcessReopened {
        /// The process.
        pid: Pid,
        /// How often the process was opened again, this time included.
        reopenings: u32,
    },
    /// A change of the temporary files of a tree, numbered without gaps.
    TempFile {
        /// The root of its tree.
        root: Pid,
        /// The number of the change, from 1.
        number: u64,
        /// The encoded change.
        record: Vec<u8>,
    },
    /// A named position that processes can return to: each member as of this operation. A process
    /// that does not exist yet is not a member.
    Checkpoint {
        /// Its number, greater than that of any before it.
        id: CheckpointId,
        /// The label that its creator chose.
        label: Arc<str>,
        /// The process that the checkpoint was requested for.
        pid: Pid,
        /// The root process of the tree.
        root: Pid,
        /// Whether the checkpoint covers one process or a tree.
        scope: Scope,
        /// The members.
        members: Vec<Pid>,
    },
    /// A checkpoint is deleted.
    CheckpointDropped {
        /// The checkpoint.
        id: CheckpointId,
    },
    /// The budget of a label and what was used of it. Replaces the record before it.
    Label {
        /// The number of the label, which the writer chose.
        number: u64,
        /// The encoded record.
        record: Vec<u8>,
    },
    /// A process is deleted: its journal, its row in the process table, and the temporary files of
    /// the tree that it is the root of. Its pid is never reused. Refused if the process is in a
    /// checkpoint: one that the same commit makes, or one that an earlier commit did not drop.
    ProcessDeleted {
        /// The process.
        pid: Pid,
    },
    /// The history of a process before a snapshot is deleted. Refused if a checkpoint has an earlier
    /// fact of the process.
    HistoryTruncated {
        /// The process.
        pid: Pid,
        /// The fact of the snapshot. It is the first fact whose state can still be loaded; the first
        /// that can itself be read is the next one.
        below: FactNumber,
    },
}
