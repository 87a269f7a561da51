//! The stored row of a process: what is known of the process without its journal (parent, program,
//! exit, what it waits for), and where its history begins.

use dormouse_actors::ports::StoreError;
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_proto::process::ProcessRow;
use serde::{Deserialize, Serialize};

use crate::error::damaged;
use crate::frame::Codec;
use crate::log::{Record, RecordOp, Stream, StreamKind};
use crate::validator::ProcessState;

/// A row of the process table.
#[expect(
    clippy::large_enum_variant,
    reason = "almost all rows are of the large variant"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StoredRow {
    /// A process that was not deleted.
    Existing(ExistingRow),
    /// A deleted process: its pid is never used again.
    Deleted,
}

/// The row of a process that was not deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExistingRow {
    pub(crate) process_row: ProcessRow,
    /// The fact of the oldest snapshot. Earlier facts were deleted, or there were none.
    pub(crate) oldest_snapshot: FactNumber,
    /// When the process ended: milliseconds since the epoch, UTC.
    pub(crate) ended_ms: Option<u64>,
}

impl StoredRow {
    /// The row of a new process.
    pub(crate) fn new(row: ProcessRow) -> Self {
        Self::Existing(ExistingRow {
            process_row: row,
            oldest_snapshot: FactNumber(0),
            ended_ms: None,
        })
    }

    /// Decodes the row in a record.
    ///
    /// # Errors
    /// Those of [`Codec::value`].
    pub(crate) fn read(codec: &Codec, pid: Pid, record: &Record) -> Result<Self, StoreError> {
        let stored = codec.value(stream(pid), record)?;
        match &stored {
            // A parent has a lower pid than its children, so that a walk up the tree terminates.
            Self::Existing(existing) if !existing.process_row.has_higher_pid_than_parent() => Err(
                damaged(format!("process {pid} claims to be older than its parent")),
            ),
            _ => Ok(stored),
        }
    }

    /// The operation that stores the row.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if it cannot be encoded, and [`StoreError::Io`].
    pub(crate) fn to_op(&self, codec: &Codec, pid: Pid) -> Result<RecordOp, StoreError> {
        codec.put_value_op(stream(pid), 0, self)
    }

    pub(crate) fn state(&self) -> ProcessState {
        match self {
            Self::Existing(row)
                if row.process_row.reopenings > 0 && row.process_row.exit.is_none() =>
            {
                ProcessState::Reopened
            }
            Self::Existing(_) => ProcessState::Exists,
            Self::Deleted => ProcessState::Deleted,
        }
    }
}

/// The stream of a process's row.
pub(crate) fn stream(pid: Pid) -> Stream {
    Stream {
        kind: StreamKind::Process,
        id: pid.0,
    }
}
