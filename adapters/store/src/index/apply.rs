//! Applies a record to the process table and to the index.
//!
//! The table in `record_header.rs` says what `subject`, `first` and `count` of a header mean for
//! each kind of record; `process_table/entry.rs` says what is kept of a process. Records are
//! applied in the order of the log, where a compaction may have moved an old record behind a newer
//! one. So where only the latest record counts, the commit in which each was first written decides.

use dormouse_actors::ports::StoreError;
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::id::{CheckpointId, CommitNumber, FactNumber, Pid};
use dormouse_proto::process::Waiting;

use super::{Index, IndexError, PayloadOf, unencodable};
use crate::log_position::Location;
use crate::payload::{
    decode_checkpoint, decode_created, decode_exit, decode_losses, decode_truncated,
    decode_waiting, number_range,
};
use crate::process_table::{
    AcknowledgedLosses, CheckpointEntry, CheckpointState, EndEntry, LabelEntry, LastRecord,
    NumberedRecords, ProcessEntry, ReopenedEntry, RetainedHistory, WaitingEntry,
};
use crate::record_header::{RecordHeader, RecordKind};

impl Index {
    /// Applies a record to the process table and queues its index entries.
    ///
    /// # Errors
    /// The errors of `payload`, except damage, which is recorded.
    pub(crate) fn apply_record(
        &mut self,
        at: Location,
        header: &RecordHeader,
        payload: PayloadOf<'_>,
    ) -> Result<(), IndexError> {
        match header.kind {
            RecordKind::SegmentOpened | RecordKind::SegmentCompacted => Ok(()),
            RecordKind::Content => {
                self.pending
                    .put_content(header.payload_hash, at, self.processes.key());
                Ok(())
            }
            RecordKind::ContentLost => {
                self.pending
                    .put_lost_content(header.payload_hash, at, self.processes.key());
                Ok(())
            }
            RecordKind::DeletedPids | RecordKind::DroppedCheckpoints => {
                self.apply_deleted_numbers(header)
            }
            RecordKind::Checkpoint => {
                let read = unless_damaged(payload().and_then(|bytes| decode_checkpoint(&bytes)))?;
                // The record itself cannot contain its commit number, because the number is
                // assigned when it is written.
                let state = read.map_or(CheckpointState::Damaged, |read| {
                    CheckpointState::Retained(Checkpoint {
                        commit: CommitNumber(header.first_commit),
                        ..read
                    })
                });
                self.apply_checkpoint(CheckpointId(header.subject), CheckpointEntry { state, at })
            }
            RecordKind::Label => self.apply_label(at, header, payload),
            RecordKind::LossAcknowledged => {
                // An unreadable record acknowledges nothing.
                let losses = unless_damaged(payload().and_then(|bytes| decode_losses(&bytes)))?
                    .unwrap_or_default();
                let losses = self
                    .processes
                    .put_losses(header.first_commit, AcknowledgedLosses { at, losses })
                    .map_err(unencodable)?;
                self.pending.put_losses(header.first_commit, losses);
                Ok(())
            }
            RecordKind::CheckpointDropped => self.apply_checkpoint(
                CheckpointId(header.subject),
                CheckpointEntry {
                    state: CheckpointState::Dropped,
                    at,
                },
            ),
            RecordKind::ProcessCreated
            | RecordKind::Facts
            | RecordKind::Snapshot
            | RecordKind::ProcessEnded
            | RecordKind::TempFile
            | RecordKind::HistoryTruncated
            | RecordKind::ProcessDeleted
            | RecordKind::SnapshotDropped
            | RecordKind::Waiting
            | RecordKind::ProcessReopened => self.apply_to_process(at, header, payload),
        }
    }

    /// Numbers that are already recorded as deleted keep their entries, which hold the location of
    /// the record.
    fn apply_deleted_numbers(&mut self, header: &RecordHeader) -> Result<(), IndexError> {
        let entry = ProcessEntry::deleted(Location::START);
        for number in number_range(header) {
            let pid = Pid(number);
            let id = CheckpointId(number);
            let dropped = CheckpointEntry {
                state: CheckpointState::Dropped,
                at: Location::START,
            };
            if header.kind == RecordKind::DroppedCheckpoints
                && self.processes.checkpoint_entry(id) != Some(&dropped)
            {
                self.apply_checkpoint(id, dropped)?;
            } else if header.kind == RecordKind::DeletedPids
                && self.processes.entry(pid).as_ref() != Some(&entry)
            {
                *self.processes.entry_mut(pid, || entry.clone()) = entry.clone();
            }
        }
        Ok(())
    }

    fn apply_checkpoint(
        &mut self,
        id: CheckpointId,
        entry: CheckpointEntry,
    ) -> Result<(), IndexError> {
        self.pending.put_checkpoint(
            id,
            self.processes
                .put_checkpoint(id, entry)
                .map_err(unencodable)?,
        );
        Ok(())
    }

    /// A compaction may move a record behind a newer one of its label.
    fn apply_label(
        &mut self,
        at: Location,
        header: &RecordHeader,
        payload: PayloadOf<'_>,
    ) -> Result<(), IndexError> {
        let (number, first_commit) = (header.subject, header.first_commit);
        let known = self.processes.label_entry(number);
        if known.is_some_and(|known| known.first_commit > first_commit) {
            return Ok(());
        }
        let record = unless_damaged(payload().map(|bytes| bytes.to_vec()))?;
        let entry = LabelEntry {
            first_commit,
            at,
            record,
        };
        let entry = self.processes.put_label(number, entry);
        self.pending.put_label(number, entry.map_err(unencodable)?);
        Ok(())
    }

    fn apply_to_process(
        &mut self,
        at: Location,
        header: &RecordHeader,
        payload: PayloadOf<'_>,
    ) -> Result<(), IndexError> {
        let pid = Pid(header.subject);
        let first = FactNumber(header.first);
        let last_record = LastRecord::from_header(at, header);
        let key = *self.processes.key();
        let entry = self
            .processes
            .entry_mut(pid, || ProcessEntry::new(LastRecord::NONE));
        if entry.is_deleted() && header.kind != RecordKind::ProcessDeleted {
            return Ok(());
        }
        let changes = &mut self.pending;
        match header.kind {
            RecordKind::ProcessCreated => {
                changes.put_image(pid, FactNumber(0), at, &key);
                entry.creation_row =
                    unless_damaged(payload().and_then(|bytes| Ok(decode_created(&bytes)?.0)))?
                        .or(entry.creation_row.take());
                entry.creation_at = at;
                // A tree has no temporary files before its root is created. If the creation record
                // is lost, changes of the files may be lost as well.
                entry.temp_files.last_record = entry.temp_files.last_record.max(last_record);
            }
            RecordKind::Facts => {
                changes.put_facts(pid, first, at, header.count, &key);
                entry.last = entry
                    .last
                    .max(FactNumber(header.first + header.count.saturating_sub(1)));
            }
            // A snapshot proves that the last fact in it existed, even if that fact is lost.
            RecordKind::Snapshot => {
                changes.put_image(pid, first, at, &key);
                entry.last = entry.last.max(first);
            }
            RecordKind::SnapshotDropped => {
                changes.remove_image(pid, first);
                entry.last = entry.last.max(first);
            }
            RecordKind::TempFile => {
                changes.put_temp_file(pid, header.first, at, &key);
                let last = entry.temp_files.last.max(header.first);
                entry.temp_files = NumberedRecords {
                    last,
                    last_record: entry.temp_files.last_record.max(last_record),
                };
            }
            RecordKind::ProcessEnded => {
                let end = EndEntry {
                    first_commit: header.first_commit,
                    at,
                    exit: None,
                    last: first,
                };
                let is_newer = entry
                    .end
                    .as_ref()
                    .is_none_or(|known| known.first_commit <= end.first_commit);
                let is_over = entry
                    .reopened
                    .is_some_and(|reopened| reopened.first_commit > end.first_commit);
                if is_newer && !is_over {
                    let exit = unless_damaged(payload().and_then(|bytes| decode_exit(&bytes)))?;
                    entry.end = Some(EndEntry { exit, ..end });
                }
                entry.last = entry.last.max(first);
            }
            RecordKind::Waiting => {
                let is_newer = entry
                    .waiting
                    .as_ref()
                    .is_none_or(|known| known.first_commit <= header.first_commit);
                if is_newer {
                    let read = unless_damaged(payload().and_then(|bytes| decode_waiting(&bytes)))?;
                    let (waiting, is_paused) = read.unwrap_or((Waiting::Unknown, false));
                    entry.waiting = Some(WaitingEntry {
                        first_commit: header.first_commit,
                        at,
                        waiting,
                        is_paused,
                    });
                }
            }
            RecordKind::ProcessReopened => {
                let first_commit = header.first_commit;
                let is_newer = entry
                    .reopened
                    .is_none_or(|known| known.first_commit <= first_commit);
                if is_newer {
                    entry.reopened = Some(ReopenedEntry {
                        first_commit,
                        at,
                        reopenings: u32::try_from(header.count).unwrap_or(u32::MAX),
                    });
                }
                let ended_before = |end: &EndEntry| end.first_commit <= first_commit;
                entry.end = entry.end.take().filter(|end| !ended_before(end));
            }
            RecordKind::HistoryTruncated => {
                entry.creation_row =
                    unless_damaged(payload().and_then(|bytes| decode_truncated(&bytes)))?
                        .or(entry.creation_row.take());
                entry.retained = RetainedHistory::From(first.max(entry.oldest_image_at()), at);
                entry.last = entry.last.max(first);
            }
            RecordKind::ProcessDeleted => *entry = ProcessEntry::deleted(at),
            RecordKind::SegmentOpened
            | RecordKind::SegmentCompacted
            | RecordKind::Content
            | RecordKind::ContentLost
            | RecordKind::Checkpoint
            | RecordKind::CheckpointDropped
            | RecordKind::DeletedPids
            | RecordKind::DroppedCheckpoints
            | RecordKind::Label
            | RecordKind::LossAcknowledged => return Ok(()),
        }
        // Facts have no gaps and only a reopening follows an end, whose facts are in the same commit,
        // so these records show how far the journal goes. A snapshot does not: it may be written long after its fact.
        if matches!(
            header.kind,
            RecordKind::ProcessCreated | RecordKind::Facts | RecordKind::ProcessEnded
        ) {
            entry.last_record = entry.last_record.max(last_record);
        }
        Ok(())
    }
}

/// Turns the error of a damaged payload into `None`.
fn unless_damaged<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(StoreError::Damaged { what }) => {
            tracing::warn!(what, "an entry of the process table is lost");
            Ok(None)
        }
        other => other.map(Some),
    }
}
