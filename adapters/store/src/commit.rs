//! Commits: turns a batch into records, and applies written records to the index.
//!
//! `validator.rs` of `adapters/records` has the rules that a batch must keep. `record_builder.rs`
//! encodes the records, `writer.rs` appends them, and `index.rs` says what the log contains. The
//! log knows a content by a *name*: its hash, or in an encrypted store a keyed hash of that. A
//! commit *pins* each content that it names, so that a garbage collection which has begun already
//! does not free it (`gc_pins.rs` of `adapters/records`).

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use dormouse_actors::ports::{Batch, StoreError, WriteOp};
use dormouse_proto::id::{CheckpointId, ContentHash, FactNumber, Pid};

use crate::index::{Index, IndexError};
use crate::log::{Log, hash_mismatch};
use crate::log_position::LogPosition;
use crate::log_store::LogStore;
use crate::process_table::{ProcessEntry, row_is_lost};
use crate::record_builder::RecordBuilder;
use crate::writer::{Writer, WrittenRecord};
use dormouse_records::chunks::Chunks;
use dormouse_records::validator::{
    StoredCheckpoints, check_content_hash, check_ops, earliest_needed_fact, no_image_error,
};

impl LogStore {
    /// Rebuilds the index if it is too incomplete to validate `ops`. Truncations, and references to
    /// contents that `ops` do not add, are checked against the index. An index from disk may have
    /// lost keys, so it is rebuilt before a reference is refused.
    pub(crate) fn prepare_index(&self, writer: &Writer, ops: &[WriteOp]) -> Result<(), StoreError> {
        let may_be_unknown = |hash: &ContentHash| {
            !self
                .index()
                .has_content_entry(self.log.keys().content_name(*hash))
                && !adds_content(ops, *hash)
        };
        let depends_on_index = ops.iter().any(|op| match op {
            WriteOp::HistoryTruncated { .. } => true,
            WriteOp::ContentReferenced { hash } => may_be_unknown(hash),
            _ => false,
        });
        if !depends_on_index {
            return Ok(());
        }
        let mut must_rebuild = self.flush_index().is_err();
        if !must_rebuild {
            // The index answers with an error if it is not authoritative about an absent content.
            must_rebuild = ops.iter().any(|op| match op {
                WriteOp::ContentReferenced { hash } => {
                    let name = self.log.keys().content_name(*hash);
                    may_be_unknown(hash) && self.index().content(name).is_err()
                }
                _ => false,
            });
        }
        if must_rebuild {
            return self.index_mut().rebuild(&self.log, writer.position());
        }
        Ok(())
    }

    /// Validates a batch, and returns the builders of its records.
    pub(crate) fn build_records(&self, batch: Batch<'_>) -> Result<Vec<RecordBuilder>, StoreError> {
        let exists = |id: CheckpointId| {
            self.index()
                .processes()
                .checkpoint_entry(id)
                .is_some_and(|entry| entry.exists())
        };
        let earliest_needed =
            |pid: Pid| earliest_needed_fact(self.index().processes().checkpoints(), pid);
        let checkpoints = StoredCheckpoints {
            last: self.index().processes().last_checkpoint(),
            exists: &exists,
            earliest_needed: &earliest_needed,
        };
        let progress_of = |pid: Pid| {
            let index = self.index();
            index
                .processes()
                .entry(pid)
                .as_ref()
                .map(ProcessEntry::progress)
        };
        let checked_commit = check_ops(batch, checkpoints, progress_of)?;
        let mut checkpoints = checked_commit.checkpoints.iter();
        let mut builders = Vec::new();
        let mut new_contents = HashSet::new();
        let mut last_facts = HashMap::new();
        let last_waiting = last_waiting_ops(batch.ops);
        for (index, op) in batch.ops.iter().enumerate() {
            if let WriteOp::Facts { pid, first, facts } = op {
                let next = first.0 + facts.len() as u64;
                last_facts.insert(*pid, FactNumber(next.saturating_sub(1)));
            }
            match op {
                WriteOp::ProcessEnded { pid, exit } => {
                    // The end names the last fact, which this commit may add.
                    let last = match last_facts.get(pid) {
                        Some(last) => *last,
                        None => progress_of(*pid).map_or(FactNumber(0), |progress| progress.last),
                    };
                    builders.push(RecordBuilder::process_ended(*pid, exit, last)?);
                }
                WriteOp::Content { hash, bytes, index } => {
                    builders.extend(self.build_content(*hash, bytes, index, &mut new_contents)?);
                }
                WriteOp::Checkpoint { .. } => {
                    // The checkpoint's commit number is not encoded: a reader takes it from the
                    // record's header.
                    if let Some(checkpoint) = checkpoints.next() {
                        builders.push(RecordBuilder::checkpoint(checkpoint)?);
                    }
                }
                WriteOp::ContentReferenced { hash } => {
                    self.check_content_exists(*hash, &new_contents)?
                }
                WriteOp::HistoryTruncated { pid, below } => {
                    builders.push(self.build_truncation(*pid, *below)?)
                }
                WriteOp::Waiting { pid, .. } if last_waiting.get(pid) != Some(&index) => {}
                _ => builders.extend(RecordBuilder::for_op(op)?),
            }
        }
        Ok(builders)
    }

    /// Refuses a reference to a content that the store neither holds nor has lost.
    fn check_content_exists(
        &self,
        hash: ContentHash,
        new_contents: &HashSet<ContentHash>,
    ) -> Result<(), StoreError> {
        let name = self.log.keys().content_name(hash);
        self.gc_pins.pin(name);
        let index = self.index();
        // After damage, a missing content may be one that was lost. Refusing the reference would
        // block the process for good.
        let exists = new_contents.contains(&hash)
            || index.has_content_entry(name)
            || !index.processes().lost_ranges().is_empty();
        if exists {
            Ok(())
        } else {
            Err(StoreError::UnknownContent(hash))
        }
    }

    /// Builds the record that truncates a history. The record contains the row of the process (what
    /// the process table says of it), because the creation record, which contained it so far,
    /// becomes garbage.
    fn build_truncation(&self, pid: Pid, below: FactNumber) -> Result<RecordBuilder, StoreError> {
        let entry = self.entry(pid)?;
        if below < entry.oldest_image_at() {
            return Err(StoreError::DeletedFact {
                pid,
                requested: below,
                first_kept: entry.oldest_image_at(),
            });
        }
        let index = self.index();
        if index
            .image(pid, below)
            .ok()
            .flatten()
            .is_none_or(|(at, _)| at != below)
        {
            return Err(no_image_error(pid, below));
        }
        let mut row = entry.row().ok_or_else(|| row_is_lost(pid))?;
        if entry.end.is_some() {
            // The record of the end contains the exit, and a reopening supersedes that record. An
            // exit in this row would outlast both.
            row.exit = None;
        }
        RecordBuilder::history_truncated(&row, below)
    }

    /// Builds the record of a content; `None` if the log contains the content, or an earlier entry
    /// of the batch adds it.
    fn build_content(
        &self,
        hash: ContentHash,
        bytes: &Bytes,
        index: &Bytes,
        new_contents: &mut HashSet<ContentHash>,
    ) -> Result<Option<RecordBuilder>, StoreError> {
        let name = self.log.keys().content_name(hash);
        self.gc_pins.pin(name);
        // A content that a read found damaged counts as absent, so that it is stored again.
        let exists = self.index().has_readable_content(name)
            && !self.corrupt_contents.lock().contains(&name);
        if exists || new_contents.contains(&hash) {
            return Ok(None);
        }
        let chunks = Chunks::hash_content(bytes);
        check_content_hash(hash, &chunks)?;
        new_contents.insert(hash);
        Ok(Some(RecordBuilder::content(hash, bytes, index, &chunks)))
    }

    /// Applies a commit to the index after it was written. A failure here is repaired by rebuilding
    /// the index.
    pub(crate) fn apply_commit(&self, writer: &Writer, written: &[WrittenRecord]) {
        let mut index = self.index_mut();
        let applied = apply_records(&mut index, &self.log, written, writer.position());
        if let Err(fault) = applied {
            tracing::warn!(%fault, "the index did not accept a commit and will be rebuilt");
        }
        let mut corrupt_contents = self.corrupt_contents.lock();
        if !corrupt_contents.is_empty() {
            for record in written {
                corrupt_contents.remove(&record.header.payload_hash);
            }
        }
    }
}

/// The position of what each process waits for last. Only this one is written: the records of one
/// commit have no order once a compaction has moved them.
fn last_waiting_ops(ops: &[WriteOp]) -> HashMap<Pid, usize> {
    let positions = ops.iter().enumerate().filter_map(|(index, op)| match op {
        WriteOp::Waiting { pid, .. } => Some((*pid, index)),
        _ => None,
    });
    positions.collect()
}

fn adds_content(ops: &[WriteOp], wanted: ContentHash) -> bool {
    ops.iter()
        .any(|op| matches!(op, WriteOp::Content { hash, .. } if *hash == wanted))
}

fn apply_records(
    index: &mut Index,
    log: &Log,
    written: &[WrittenRecord],
    end: LogPosition,
) -> Result<(), IndexError> {
    for record in written {
        let payload = || {
            let decrypted = log.decrypt_payload(&record.header, record.payload.concat());
            decrypted
                .map(Bytes::from)
                .ok_or_else(|| hash_mismatch(record.at))
        };
        index.apply_record(record.at, &record.header, &payload)?;
    }
    Ok(index.advance_to(end, log)?)
}
