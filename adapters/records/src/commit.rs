//! Validates a commit against the stored records, and turns it into record operations.
//!
//! `validator.rs` has the rules, `frame.rs` the encoding of records (`Codec`), `content.rs` that of
//! contents, and `log.rs` is the port that writes them. A commit *pins* each content that it names,
//! so that a garbage collection which has begun already does not free it (`gc_pins.rs`).

use std::collections::{BTreeMap, HashMap, HashSet, btree_map};

use dormouse_actors::ports::{Batch, OwnerToken, Store as _, StoreError, WriteOp};
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::id::{CheckpointId, CommitNumber, ContentHash, FactNumber, Pid};
use dormouse_proto::process::Waiting;

use crate::content;
use crate::error::refused;
use crate::frame::Codec;
use crate::log::{NewContent, RecordBatch, RecordLog, RecordOp, Stream, StreamKind};
use crate::row::{ExistingRow, StoredRow};
use crate::store::{
    LAST_CHECKPOINT, RecordStore, checkpoint_stream, label_stream, read_checkpoint, stream,
};
use crate::validator::{
    CheckedCommit, ProcessProgress, StoredCheckpoints, check_ops, earliest_needed_fact,
    no_image_error,
};

/// Facts about the stored records that the validation of commits needs. Caching them is safe while
/// this store is the only writer.
#[derive(Debug, Default)]
pub(crate) struct WriterCache {
    progress: HashMap<Pid, ProcessProgress>,
    /// `None` until a commit drops a checkpoint or deletes facts.
    checkpoints: Option<CachedCheckpoints>,
    /// The highest number that a checkpoint ever had. `None` until a commit creates one.
    last_checkpoint: Option<u64>,
}

/// All stored checkpoints.
#[derive(Debug, Default)]
struct CachedCheckpoints {
    readable: BTreeMap<CheckpointId, Checkpoint>,
    /// The errors of unreadable checkpoints, which can only be dropped.
    damaged: BTreeMap<CheckpointId, String>,
}

impl CachedCheckpoints {
    fn contains(&self, id: CheckpointId) -> bool {
        self.readable.contains_key(&id) || self.damaged.contains_key(&id)
    }

    fn remove(&mut self, id: CheckpointId) {
        self.readable.remove(&id);
        self.damaged.remove(&id);
    }

    /// Refuses to delete facts that a damaged checkpoint may need.
    fn check_undamaged(&self) -> Result<(), StoreError> {
        match self.damaged.first_key_value() {
            None => Ok(()),
            Some((id, damage)) => Err(refused(format!(
                "no fact can be deleted while {id} is damaged, because it may need any of them \
                 ({damage}): drop {id} first"
            ))),
        }
    }
}

/// The record operations of a commit.
#[derive(Default)]
struct Changes {
    contents: Vec<NewContent>,
    ops: Vec<RecordOp>,
    /// Rows that the commit changes; each is written once.
    rows: BTreeMap<Pid, StoredRow>,
}

impl<L: RecordLog> RecordStore<L> {
    /// Validates and writes a batch. After an error the cache may be wrong, and must be discarded.
    pub(crate) fn commit_with(
        &self,
        cache: &mut WriterCache,
        owner: OwnerToken,
        batch: Batch<'_>,
    ) -> Result<CommitNumber, StoreError> {
        self.load_cache(cache, batch.ops)?;
        let checked = self.check(cache, batch)?;
        let (codec, new_header) = self.codec_to_write(owner)?;
        let mut changes = self.record_changes(&codec, batch, &checked.checkpoints)?;
        if let Some(header) = new_header
            && !changes.is_empty()
        {
            changes.ops.insert(0, header.to_op()?);
        }
        let commit = self.log().append(
            owner,
            &RecordBatch {
                contents: &changes.contents,
                ops: &changes.ops,
                at_ms: batch.at_ms,
                sync_level: batch.sync_level,
            },
        )?;
        if !changes.is_empty() {
            self.remember_codec(codec);
        }
        update_cache(cache, batch.ops, checked, commit);
        Ok(commit)
    }

    /// Loads the records that the validation of these ops needs into the cache.
    fn load_cache(&self, cache: &mut WriterCache, ops: &[WriteOp]) -> Result<(), StoreError> {
        let pids = ops.iter().flat_map(|op| match op {
            WriteOp::ProcessCreated { row, .. } => vec![row.pid],
            WriteOp::Facts { pid, .. }
            | WriteOp::Snapshot { pid, .. }
            | WriteOp::ProcessEnded { pid, .. }
            | WriteOp::Waiting { pid, .. }
            | WriteOp::ProcessReopened { pid, .. }
            | WriteOp::ProcessDeleted { pid }
            | WriteOp::HistoryTruncated { pid, .. } => vec![*pid],
            WriteOp::TempFile { root, .. } => vec![*root],
            WriteOp::Checkpoint { members, .. } => members.clone(),
            WriteOp::Content { .. }
            | WriteOp::ContentReferenced { .. }
            | WriteOp::Label { .. }
            | WriteOp::CheckpointDropped { .. } => Vec::new(),
        });
        for pid in pids {
            if !cache.progress.contains_key(&pid)
                && let Some(progress) = self.progress(pid)?
            {
                cache.progress.insert(pid, progress);
            }
        }
        let needs_checkpoints =
            |op: &WriteOp| matches!(op, WriteOp::CheckpointDropped { .. }) || deletes_facts(op);
        if cache.checkpoints.is_none() && ops.iter().any(needs_checkpoints) {
            cache.checkpoints = Some(self.load_checkpoints()?);
        }
        let creates_checkpoint = |op: &WriteOp| matches!(op, WriteOp::Checkpoint { .. });
        if cache.last_checkpoint.is_none() && ops.iter().any(creates_checkpoint) {
            cache.last_checkpoint = Some(self.last_checkpoint()?);
        }
        Ok(())
    }

    fn load_checkpoints(&self) -> Result<CachedCheckpoints, StoreError> {
        let mut checkpoints = CachedCheckpoints::default();
        let records = self.log().read_kind(StreamKind::Checkpoint)?;
        let codec = self.codec()?;
        for (id, record) in records {
            let id = CheckpointId(id);
            match read_checkpoint(&codec, id, &record) {
                Ok(checkpoint) => drop(checkpoints.readable.insert(id, checkpoint)),
                Err(damage) => drop(checkpoints.damaged.insert(id, damage.to_string())),
            }
        }
        Ok(checkpoints)
    }

    /// The last numbers in the streams of a process; `None` for an unknown process.
    fn progress(&self, pid: Pid) -> Result<Option<ProcessProgress>, StoreError> {
        let Some(row) = self.row(pid)? else {
            return Ok(None);
        };
        let state = row.state();
        let StoredRow::Existing(existing_row) = row else {
            return Ok(Some(ProcessProgress {
                last: FactNumber(0),
                temp_files: 0,
                state,
            }));
        };
        Ok(Some(ProcessProgress {
            last: self.last_fact(pid, &existing_row)?,
            temp_files: self.last_number(stream(StreamKind::TempFile, pid))?,
            state,
        }))
    }

    fn check(&self, cache: &WriterCache, batch: Batch<'_>) -> Result<CheckedCommit, StoreError> {
        let none = CachedCheckpoints::default();
        let stored = cache.checkpoints.as_ref().unwrap_or(&none);
        let exists = |id: CheckpointId| stored.contains(id);
        let earliest_needed = |pid: Pid| earliest_needed_fact(stored.readable.values(), pid);
        let checkpoints = StoredCheckpoints {
            last: cache.last_checkpoint.unwrap_or_default(),
            exists: &exists,
            earliest_needed: &earliest_needed,
        };
        let progress_of = |pid: Pid| cache.progress.get(&pid).copied();
        let checked = check_ops(batch, checkpoints, progress_of)?;
        if batch.ops.iter().any(deletes_facts) {
            stored.check_undamaged()?;
        }
        for op in batch.ops {
            if let WriteOp::HistoryTruncated { pid, below } = op {
                self.check_truncation(*pid, *below)?;
            }
        }
        Ok(checked)
    }

    /// Refuses to truncate a history at a fact without an image.
    fn check_truncation(&self, pid: Pid, below: FactNumber) -> Result<(), StoreError> {
        let oldest_snapshot = self.existing_row(pid)?.oldest_snapshot;
        if below < oldest_snapshot {
            return Err(StoreError::DeletedFact {
                pid,
                requested: below,
                first_kept: oldest_snapshot,
            });
        }
        match self
            .log()
            .latest(stream(StreamKind::Snapshot, pid), below.0)?
        {
            Some(image) if image.number == below.0 => Ok(()),
            _ => Err(no_image_error(pid, below)),
        }
    }

    /// Encodes a valid batch as operations on records and contents.
    fn record_changes(
        &self,
        codec: &Codec,
        Batch { ops, at_ms, .. }: Batch<'_>,
        checkpoints: &[Checkpoint],
    ) -> Result<Changes, StoreError> {
        let mut changes = Changes::default();
        let mut added = HashSet::new();
        for checkpoint in checkpoints {
            let target = checkpoint_stream(checkpoint.id);
            changes.ops.push(codec.put_value_op(target, 0, checkpoint)?);
            let last = codec.put_value_op(LAST_CHECKPOINT, 0, &checkpoint.id.0)?;
            changes.ops.push(last);
        }
        for op in ops {
            match op {
                WriteOp::Content { hash, bytes, index } => {
                    self.pins().pin(codec.content_name(*hash).0);
                    if added.insert(*hash) && !self.contains_content(codec, *hash)? {
                        let content = content::encode_content(codec, *hash, bytes, index)?;
                        changes.contents.push(content);
                    }
                }
                WriteOp::ContentReferenced { hash } => self.pins().pin(codec.content_name(*hash).0),
                WriteOp::CheckpointDropped { id } => {
                    changes.delete(checkpoint_stream(*id), u64::MAX)
                }
                WriteOp::Label { number, record } => {
                    let target = label_stream(*number);
                    changes.ops.push(codec.put_op(target, 0, record)?);
                }
                _ => self.change_process(codec, &mut changes, op, at_ms)?,
            }
        }
        for op in ops {
            if let WriteOp::ContentReferenced { hash } = op
                && !added.contains(hash)
                && !self.contains_content(codec, *hash)?
            {
                return Err(StoreError::UnknownContent(*hash));
            }
        }
        for (pid, row) in std::mem::take(&mut changes.rows) {
            changes.ops.push(row.to_op(codec, pid)?);
        }
        Ok(changes)
    }

    /// Whether the log contains a content.
    fn contains_content(&self, codec: &Codec, hash: ContentHash) -> Result<bool, StoreError> {
        Ok(self.log().content(codec.content_name(hash))?.is_some())
    }

    /// Adds the record operations of an op about one process to `changes`.
    fn change_process(
        &self,
        codec: &Codec,
        changes: &mut Changes,
        op: &WriteOp,
        at_ms: u64,
    ) -> Result<(), StoreError> {
        match op {
            WriteOp::ProcessCreated { row, image } => {
                changes
                    .rows
                    .insert(row.pid, StoredRow::new((**row).clone()));
                let snapshots = stream(StreamKind::Snapshot, row.pid);
                changes.ops.push(codec.put_op(snapshots, 0, image)?);
            }
            WriteOp::Facts { pid, first, facts } => {
                let target = stream(StreamKind::Fact, *pid);
                for (number, fact) in (first.0..).zip(facts) {
                    changes.ops.push(codec.put_op(target, number, fact)?);
                }
            }
            WriteOp::Snapshot { pid, at, image } => {
                let snapshots = stream(StreamKind::Snapshot, *pid);
                changes.ops.push(codec.put_op(snapshots, at.0, image)?);
            }
            WriteOp::TempFile {
                root,
                number,
                record,
            } => {
                let target = stream(StreamKind::TempFile, *root);
                changes.ops.push(codec.put_op(target, *number, record)?);
            }
            WriteOp::ProcessEnded { pid, exit } => {
                let existing_row = self.row_to_change(changes, *pid)?;
                existing_row.process_row.exit = Some(exit.clone());
                existing_row.process_row.waiting = Waiting::Nothing;
                existing_row.process_row.is_paused = false;
                existing_row.ended_ms = Some(at_ms);
            }
            WriteOp::ProcessReopened { pid, reopenings } => {
                let existing_row = self.row_to_change(changes, *pid)?;
                existing_row.process_row.exit = None;
                existing_row.process_row.waiting = Waiting::Nothing;
                existing_row.process_row.reopenings = *reopenings;
                existing_row.ended_ms = None;
            }
            WriteOp::Waiting {
                pid,
                waiting,
                is_paused,
            } => {
                let row = &mut self.row_to_change(changes, *pid)?.process_row;
                row.waiting = *waiting;
                row.is_paused = *is_paused;
            }
            WriteOp::ProcessDeleted { pid } => {
                changes.rows.insert(*pid, StoredRow::Deleted);
                for kind in [StreamKind::Snapshot, StreamKind::Fact, StreamKind::TempFile] {
                    changes.delete(stream(kind, *pid), u64::MAX);
                }
            }
            WriteOp::HistoryTruncated { pid, below } => {
                self.row_to_change(changes, *pid)?.oldest_snapshot = *below;
                changes.delete(stream(StreamKind::Fact, *pid), below.0);
                if let Some(before) = below.0.checked_sub(1) {
                    changes.delete(stream(StreamKind::Snapshot, *pid), before);
                }
            }
            WriteOp::Content { .. }
            | WriteOp::ContentReferenced { .. }
            | WriteOp::Checkpoint { .. }
            | WriteOp::Label { .. }
            | WriteOp::CheckpointDropped { .. } => {}
        }
        Ok(())
    }

    /// The row of a process, to be changed by this commit.
    fn row_to_change<'a>(
        &self,
        changes: &'a mut Changes,
        pid: Pid,
    ) -> Result<&'a mut ExistingRow, StoreError> {
        let row = match changes.rows.entry(pid) {
            btree_map::Entry::Occupied(changed) => changed.into_mut(),
            btree_map::Entry::Vacant(entry) => {
                entry.insert(self.row(pid)?.ok_or(StoreError::UnknownProcess(pid))?)
            }
        };
        match row {
            StoredRow::Existing(existing_row) => Ok(existing_row),
            StoredRow::Deleted => Err(StoreError::UnknownProcess(pid)),
        }
    }
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.contents.is_empty() && self.ops.is_empty()
    }

    fn delete(&mut self, stream: Stream, up_to: u64) {
        self.ops.push(RecordOp::Delete { stream, up_to });
    }
}

fn deletes_facts(op: &WriteOp) -> bool {
    matches!(
        op,
        WriteOp::ProcessDeleted { .. } | WriteOp::HistoryTruncated { .. }
    )
}

/// Updates the cache after a commit.
fn update_cache(
    cache: &mut WriterCache,
    ops: &[WriteOp],
    checked: CheckedCommit,
    commit: CommitNumber,
) {
    cache.progress.extend(checked.progress);
    if let Some(checkpoint) = checked.checkpoints.last() {
        cache.last_checkpoint = Some(checkpoint.id.0);
    }
    let Some(stored) = &mut cache.checkpoints else {
        return;
    };
    for checkpoint in checked.checkpoints {
        let checkpoint = Checkpoint {
            commit,
            ..checkpoint
        };
        stored.readable.insert(checkpoint.id, checkpoint);
    }
    for op in ops {
        if let WriteOp::CheckpointDropped { id } = op {
            stored.remove(*id);
        }
    }
}
