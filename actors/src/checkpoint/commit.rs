//! Encodes the appends of one commit (the lists of records that callers handed to the checkpoint
//! actor), and commits them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use dormouse_content::Content;
use dormouse_kernel::labels::{LabelChange, LabelDraft};
use dormouse_kernel::process::waiting_of_image;
use dormouse_proto::id::CommitNumber;
use dormouse_proto::process::ProcessRow;
use dormouse_proto::record::ContentRef;
use dormouse_proto::record::codec::{self, CodecError};

use super::{
    Acknowledge, Append, AppendSize, CommitError, LogRecord, NewCheckpoint, SnapshotOutcome,
};
use crate::clock::now_ms;
use crate::commit_feed::{AppendedFacts, PublishedCommit};
use crate::labels::{Labels, label_ops};
use crate::ports::{Batch, OwnerToken, Store, StoreError, SyncLevel, WriteOp};
use crate::process::tool_call::panic_text;

/// The result of a commit.
pub(crate) struct CommitResult {
    /// The callback of each append, and the result to call it with.
    pub(super) results: Vec<(Acknowledge, Result<AppendSize, CommitError>)>,
    /// The error of the commit, if none of its appends has records and can report the error.
    pub(super) unreported_error: Option<CommitError>,
    /// Whether the store accepted the commit. Everything that was written before it is then as
    /// durable as the commit was to be.
    pub(super) is_committed: bool,
    /// The commits that were made, in their order.
    pub(super) commits: Vec<PublishedCommit>,
}

/// Commits the batch. Returns its result, and the contents that are durable now.
pub(super) fn commit_batch(
    (store, owner): (&dyn Store, OwnerToken),
    labels: &Labels,
    batch: Vec<Append>,
    sync_level: Option<SyncLevel>,
) -> (CommitResult, Vec<Content>) {
    let mut encoded_batch = EncodedBatch::default();
    let mut appends = Vec::with_capacity(batch.len());
    for Append {
        records,
        acknowledge,
    } in batch
    {
        let first_op = encoded_batch.ops.len();
        let first_content = encoded_batch.contents.len();
        let mut size = AppendSize::default();
        let mut label_changes = Vec::new();
        let facts = records.iter().filter_map(appended_facts).collect();
        let encoded = records.into_iter().try_for_each(|record| match record {
            LogRecord::Label(change) => {
                label_changes.push(change);
                Ok(())
            }
            record => encode(record, &mut encoded_batch, &mut size),
        });
        if encoded.is_err() {
            encoded_batch.ops.truncate(first_op);
            encoded_batch.contents.truncate(first_content);
        }
        let op_count = encoded_batch.ops.len() - first_op;
        let content_count = encoded_batch.contents.len() - first_content;
        let outcome = encoded
            .map(|()| size)
            .map_err(|error| CommitError::Codec(Arc::new(error)));
        appends.push(EncodedAppend {
            acknowledge,
            outcome,
            op_count,
            content_count,
            label_changes,
            facts,
        });
    }
    let mut commits = Vec::new();
    let commit_result = match sync_level {
        Some(sync_level) => {
            let log = CommitLog {
                store,
                owner,
                labels,
                commits: &mut commits,
            };
            encoded_batch.commit(log, &mut appends, sync_level)
        }
        None => Ok(()),
    };
    let mut contents = encoded_batch.contents;
    let commit_result = commit_result.map_err(|error| CommitError::Store(Arc::new(error)));
    // An append without records only waits for those before it, and reports no error.
    let is_reported = appends.iter().any(EncodedAppend::has_records);
    let unreported_error = commit_result.clone().err().filter(|_| !is_reported);
    let is_committed = commit_result.is_ok();
    if !is_committed {
        contents.clear();
    }
    let mut results = Vec::with_capacity(appends.len());
    for append in appends {
        let result = append
            .outcome
            .and_then(|size| commit_result.clone().map(|()| size));
        if result.is_err() && !append.label_changes.is_empty() {
            labels.finish(LabelDraft::default(), &append.label_changes);
            labels.reload(store);
        }
        results.push((append.acknowledge, result));
    }
    let commit_result = CommitResult {
        results,
        unreported_error,
        is_committed,
        commits,
    };
    (commit_result, contents)
}

/// One append of a commit, after encoding.
struct EncodedAppend {
    acknowledge: Acknowledge,
    /// The result of encoding, before the commit.
    outcome: Result<AppendSize, CommitError>,
    /// The number of operations in the batch that belong to this append.
    op_count: usize,
    /// The number of contents in the batch that belong to this append.
    content_count: usize,
    /// The changes of labels. What they lead to depends on the other appends of the commit.
    label_changes: Vec<LabelChange>,
    facts: Vec<AppendedFacts>,
}

/// What a record adds to the journal of a process, for those who follow the log.
fn appended_facts(record: &LogRecord) -> Option<AppendedFacts> {
    match record {
        LogRecord::Created { row, .. } => Some(AppendedFacts::Birth {
            pid: row.pid,
            program: row.program.clone(),
        }),
        LogRecord::Facts { pid, first, facts } => Some(AppendedFacts::Facts {
            pid: *pid,
            first: *first,
            facts: facts.clone(),
        }),
        _ => None,
    }
}

/// Where commits are written, and where they are noted.
struct CommitLog<'a> {
    store: &'a dyn Store,
    owner: OwnerToken,
    labels: &'a Labels,
    commits: &'a mut Vec<PublishedCommit>,
}

impl CommitLog<'_> {
    /// Commits operations together with the records of the labels that change with them (LABEL-1),
    /// and notes the commit with its facts.
    ///
    /// What was charged for the changes stays pending if the commit fails: the caller tries again,
    /// or takes it back.
    fn commit_with_labels(
        &mut self,
        changes: &[&LabelChange],
        ops: &mut Vec<WriteOp>,
        sync_level: SyncLevel,
        facts: impl FnOnce() -> Vec<AppendedFacts>,
    ) -> Result<(), StoreError> {
        let at_ms = now_ms();
        let draft = self.labels.draft(changes.iter().copied(), at_ms);
        ops.extend(label_ops(&draft)?);
        let batch = Batch {
            ops,
            at_ms,
            sync_level,
        };
        let number = commit_to_store(self.store, self.owner, batch)?;
        self.labels.finish(draft, changes.iter().copied());
        self.commits.push(PublishedCommit {
            number,
            at_ms,
            facts: facts(),
        });
        Ok(())
    }
}

impl EncodedAppend {
    fn has_records(&self) -> bool {
        self.op_count > 0 || !self.label_changes.is_empty()
    }
}

/// The encoded operations of a commit, and the contents among them that are in memory.
#[derive(Default)]
struct EncodedBatch {
    ops: Vec<WriteOp>,
    contents: Vec<Content>,
}

impl EncodedBatch {
    /// Commits all appends in one batch. If the store refuses the batch because of one append, each
    /// append is committed by itself: an append never fails because of the data of another.
    fn commit(
        &mut self,
        mut log: CommitLog<'_>,
        appends: &mut [EncodedAppend],
        sync_level: SyncLevel,
    ) -> Result<(), StoreError> {
        let valid = appends.iter().filter(|append| append.outcome.is_ok());
        let is_single = valid.clone().count() <= 1;
        let changes: Vec<_> = valid
            .clone()
            .flat_map(|append| &append.label_changes)
            .collect();
        let facts = || {
            let facts = valid.flat_map(|append| &append.facts);
            facts.cloned().collect()
        };
        let own_ops = self.ops.len();
        let result = log.commit_with_labels(&changes, &mut self.ops, sync_level, facts);
        match result {
            Err(error) if is_refusal(&error) && !is_single => {
                self.ops.truncate(own_ops);
                self.commit_each(&mut log, appends);
                // The appends that succeeded were only written. This empty batch makes them as
                // durable as the whole batch would have been.
                let batch = Batch {
                    ops: &[],
                    at_ms: now_ms(),
                    sync_level,
                };
                commit_to_store(log.store, log.owner, batch).map(drop)
            }
            result => result,
        }
    }

    fn commit_each(&mut self, log: &mut CommitLog<'_>, appends: &mut [EncodedAppend]) {
        let mut ops = std::mem::take(&mut self.ops).into_iter();
        let mut contents = std::mem::take(&mut self.contents).into_iter();
        for append in appends {
            let mut ops: Vec<_> = ops.by_ref().take(append.op_count).collect();
            let contents = contents.by_ref().take(append.content_count);
            if append.outcome.is_err() {
                continue;
            }
            let changes: Vec<_> = append.label_changes.iter().collect();
            let facts = || append.facts.clone();
            match log.commit_with_labels(&changes, &mut ops, SyncLevel::Written, facts) {
                Ok(()) => {
                    self.contents.extend(contents);
                    append.label_changes.clear();
                }
                Err(error) => {
                    contents.for_each(drop);
                    append.outcome = Err(CommitError::Store(Arc::new(error)));
                }
            }
        }
    }
}

/// Commits to the store. One that panics has failed for good: what it has written is not known.
fn commit_to_store(
    store: &dyn Store,
    owner: OwnerToken,
    batch: Batch<'_>,
) -> Result<CommitNumber, StoreError> {
    catch_unwind(AssertUnwindSafe(|| store.commit(owner, batch)))
        .unwrap_or_else(|panic| Err(StoreError::Failed(panic_text(&*panic))))
}

/// Whether the store refused this batch only and still accepts others.
fn is_refusal(error: &StoreError) -> bool {
    match error {
        StoreError::UnknownProcess(_)
        | StoreError::UnknownFact { .. }
        | StoreError::DeletedFact { .. }
        | StoreError::UnknownCheckpoint(_)
        | StoreError::UnknownContent(_)
        | StoreError::Refused { .. }
        | StoreError::Full { .. } => true,
        StoreError::Stale { .. }
        | StoreError::InUse { .. }
        | StoreError::Key { .. }
        | StoreError::ReadOnly { .. }
        | StoreError::Newer { .. }
        | StoreError::Damaged { .. }
        | StoreError::Lost { .. }
        | StoreError::MarkSuperseded { .. }
        | StoreError::Io { .. }
        | StoreError::Failed(_) => false,
    }
}

/// Encodes one record into the batch. The contents that the record refers to precede it (DUR-3).
fn encode(
    record: LogRecord,
    EncodedBatch { ops, contents }: &mut EncodedBatch,
    size: &mut AppendSize,
) -> Result<(), CodecError> {
    let first_op = ops.len();
    let first_content = contents.len();
    let mut add_content = |content: Content| {
        let reference = content.reference();
        match content.bytes_if_resident() {
            Some(bytes) => {
                ops.push(WriteOp::Content {
                    hash: reference.hash,
                    bytes,
                    index: content.serialized_index(),
                });
                contents.push(content);
            }
            // The content is in the store already. The reference pins it, so that a running
            // garbage collection does not free it.
            None => ops.push(WriteOp::ContentReferenced {
                hash: reference.hash,
            }),
        }
        Ok::<ContentRef, CodecError>(reference)
    };
    let op = match record {
        LogRecord::Created { row, image } => WriteOp::ProcessCreated {
            row: Box::new(ProcessRow {
                waiting: waiting_of_image(&image),
                is_paused: image.pausing.paused.is_some(),
                ..row
            }),
            image: codec::encode(&image.try_map(&mut add_content)?)?,
        },
        LogRecord::Snapshot {
            pid,
            at,
            image,
            max_bytes,
        } => {
            // The snapshot only saves replay time, so a snapshot that cannot be encoded must not
            // fail the facts of the same append.
            let image = image
                .try_map(&mut add_content)
                .and_then(|image| codec::encode(&image));
            let Some(image) = image.ok().filter(|image| image.len() as u64 <= max_bytes) else {
                size.snapshot = SnapshotOutcome::Skipped;
                ops.truncate(first_op);
                contents.truncate(first_content);
                return Ok(());
            };
            size.snapshot = SnapshotOutcome::Written(image.len() as u64);
            WriteOp::Snapshot { pid, at, image }
        }
        LogRecord::Facts { pid, first, facts } => {
            let encoded = facts
                .iter()
                .map(|fact| codec::encode(&fact.clone().try_map(&mut add_content)?));
            let facts: Vec<_> = encoded.collect::<Result<_, _>>()?;
            size.facts += facts.iter().map(|fact| fact.len() as u64).sum::<u64>();
            WriteOp::Facts { pid, first, facts }
        }
        LogRecord::Ended { pid, exit } => WriteOp::ProcessEnded { pid, exit },
        LogRecord::Reopened { pid, reopenings } => WriteOp::ProcessReopened { pid, reopenings },
        LogRecord::Waiting {
            pid,
            waiting,
            is_paused,
        } => WriteOp::Waiting {
            pid,
            waiting,
            is_paused,
        },
        LogRecord::TempFile { root, record } => {
            let number = record.number;
            WriteOp::TempFile {
                root,
                number,
                record: codec::encode(&record.try_map(&mut add_content)?)?,
            }
        }
        LogRecord::Checkpoint {
            id,
            new_checkpoint:
                NewCheckpoint {
                    label,
                    pid,
                    root,
                    scope,
                    members,
                },
        } => WriteOp::Checkpoint {
            id,
            label,
            pid,
            root,
            scope,
            members,
        },
        LogRecord::CheckpointDropped { id } => WriteOp::CheckpointDropped { id },
        // The records of labels are written at the end of the commit.
        LogRecord::VerdictGiven | LogRecord::Label(_) => return Ok(()),
        LogRecord::Content(content) => return add_content(content).map(drop),
    };
    ops.push(op);
    Ok(())
}
