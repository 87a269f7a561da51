//! Decides which records are live: a live record is one that the result of a query depends on. A
//! compaction moves the live records of a segment and drops the others.
//!
//! The table in `record_header.rs` says what `subject`, `first` and `count` mean for each kind of
//! record. Whether anything refers to a content is not decided here, but in
//! `compaction/inspection.rs`.

use dormouse_actors::ports::Deletions;
use dormouse_proto::id::{CheckpointId, FactNumber, Pid};

use crate::index::Index;
use crate::location_index::{IndexFault, RecordKey};
use crate::log_position::Location;
use crate::process_table::{CheckpointEntry, RetainedHistory};
use crate::record_header::{RecordHeader, RecordKind};

/// Whether the record at a location is live if `deletions` are applied as well. For a content:
/// whether the index points to this copy.
pub(crate) fn is_live(
    index: &Index,
    deletions: &Deletions,
    at: Location,
    header: &RecordHeader,
) -> Result<bool, IndexFault> {
    let pid = Pid(header.subject);
    let id = CheckpointId(header.subject);
    let is_indexed_here =
        || record_key(header).map_or(Ok(false), |name| index.points_to(&name, at));
    let entry = index
        .processes()
        .entry(pid)
        .filter(|entry| !entry.is_deleted() && !deletions.processes.contains(&pid));
    let entry = entry.as_ref();
    let history_start = entry.map(|entry| {
        deletions
            .histories
            .get(&pid)
            .copied()
            .unwrap_or_default()
            .max(entry.oldest_image_at())
    });
    let checkpoint = index
        .processes()
        .checkpoint_entry(id)
        .filter(|entry| entry.at == at);
    match header.kind {
        RecordKind::SegmentOpened | RecordKind::SegmentCompacted => Ok(false),
        RecordKind::Content | RecordKind::ContentLost => is_indexed_here(),
        RecordKind::ProcessCreated => {
            Ok(history_start == Some(FactNumber(0)) && entry.is_some_and(|entry| entry.creation_at == at))
        }
        RecordKind::Facts => match history_start {
            Some(history_start) if header.first + header.count > history_start.0 + 1 => is_indexed_here(),
            _ => Ok(false),
        },
        RecordKind::Snapshot => match history_start {
            Some(history_start) if header.first >= history_start.0 => is_indexed_here(),
            _ => Ok(false),
        },
        RecordKind::SnapshotDropped => {
            let image = RecordKey::Image(pid, FactNumber(header.first));
            Ok(
                history_start.is_some_and(|history_start| header.first >= history_start.0)
                    && !index.contains_key(&image)?,
            )
        }
        RecordKind::ProcessEnded => Ok(entry
            .and_then(|entry| entry.end.as_ref())
            .is_some_and(|end| end.at == at)),
        RecordKind::Waiting => Ok(entry
            .filter(|entry| entry.end.is_none())
            .and_then(|entry| entry.waiting.as_ref())
            .is_some_and(|waiting| waiting.at == at)),
        RecordKind::ProcessReopened => Ok(entry
            .and_then(|entry| entry.reopened.as_ref())
            .is_some_and(|reopened| reopened.at == at)),
        RecordKind::TempFile if entry.is_some() => is_indexed_here(),
        RecordKind::TempFile => Ok(false),
        RecordKind::Checkpoint => Ok(checkpoint.is_some_and(CheckpointEntry::exists)
            && !deletions.checkpoints.contains(&id)),
        RecordKind::CheckpointDropped => Ok(checkpoint.is_some()),
        // If there are two copies of such a record, both count as live: a compaction that moves
        // them merges them.
        RecordKind::DeletedPids | RecordKind::DroppedCheckpoints => Ok(true),
        RecordKind::Label => Ok(index
            .processes()
            .label_entry(header.subject)
            .is_some_and(|label| label.at == at)),
        RecordKind::LossAcknowledged => Ok(index
            .processes()
            .acknowledged_in(header.first_commit)
            .is_some_and(|losses| losses.at == at)),
        RecordKind::HistoryTruncated => Ok(entry.is_some_and(
            |entry| matches!(entry.retained, RetainedHistory::From(_, record_at) if record_at == at),
        )),
        RecordKind::ProcessDeleted => {
            let entry = index.processes().entry(pid);
            Ok(entry.is_some_and(
                |entry| matches!(entry.retained, RetainedHistory::Deleted(record_at) if record_at == at),
            ))
        }
    }
}

/// The index key of a record; `None` for kinds that the index has no entries for.
pub(crate) fn record_key(header: &RecordHeader) -> Option<RecordKey> {
    let pid = Pid(header.subject);
    let first = FactNumber(header.first);
    match header.kind {
        RecordKind::Content | RecordKind::ContentLost => {
            Some(RecordKey::Content(header.payload_hash))
        }
        RecordKind::ProcessCreated => Some(RecordKey::Image(pid, FactNumber(0))),
        RecordKind::Facts => Some(RecordKey::Facts(pid, first)),
        RecordKind::Snapshot => Some(RecordKey::Image(pid, first)),
        RecordKind::TempFile => Some(RecordKey::TempFile(pid, header.first)),
        RecordKind::SegmentOpened
        | RecordKind::SegmentCompacted
        | RecordKind::ProcessEnded
        | RecordKind::Checkpoint
        | RecordKind::CheckpointDropped
        | RecordKind::HistoryTruncated
        | RecordKind::ProcessDeleted
        | RecordKind::SnapshotDropped
        | RecordKind::DeletedPids
        | RecordKind::DroppedCheckpoints
        | RecordKind::LossAcknowledged
        | RecordKind::Label
        | RecordKind::Waiting
        | RecordKind::ProcessReopened => None,
    }
}
