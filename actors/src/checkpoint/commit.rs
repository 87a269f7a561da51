//! Encodes the appends of one commit, and commits them.

use std::sync::Arc;

use dormouse_content::Content;
use dormouse_proto::record::ContentRef;
use dormouse_proto::record::codec::{self, CodecError};

use super::{
    Acknowledge, Append, AppendSize, CommitError, LogRecord, NewCheckpoint, SnapshotOutcome,
};
use crate::clock::now_ms;
use crate::ports::{Batch, OwnerToken, Store, StoreError, SyncLevel, WriteOp};

/// The result of a commit.
pub(crate) struct Committed {
    /// The callback of each append, and the result to call it with.
    pub(super) results: Vec<(Acknowledge, Result<AppendSize, CommitError>)>,
    /// The error of the commit, if none of its appends has records and can report the error.
    pub(super) unreported: Option<CommitError>,
}

/// Commits the batch. Returns its result, and the contents that are durable now.
pub(super) fn commit(
    store: &dyn Store,
    owner: OwnerToken,
    batch: Vec<Append>,
    sync_level: Option<SyncLevel>,
) -> (Committed, Vec<Content>) {
    let mut encoded_batch = EncodedBatch::default();
    let mut appends = Vec::with_capacity(batch.len());
    for Append {
        entries: records,
        acknowledge,
    } in batch
    {
        let first_entry = encoded_batch.entries.len();
        let first_content = encoded_batch.contents.len();
        let mut size = AppendSize::default();
        let encoded = records
            .into_iter()
            .try_for_each(|record| encode(record, &mut encoded_batch, &mut size));
        if encoded.is_err() {
            encoded_batch.entries.truncate(first_entry);
            encoded_batch.contents.truncate(first_content);
        }
        let entries = encoded_batch.entries.len() - first_entry;
        let contents = encoded_batch.contents.len() - first_content;
        let outcome = encoded
            .map(|()| size)
            .map_err(|error| CommitError::Codec(Arc::new(error)));
        appends.push(EncodedAppend {
            acknowledge,
            outcome,
            entries,
            contents,
        });
    }
    let committed = match sync_level {
        Some(sync_level) => encoded_batch.commit(store, owner, &mut appends, sync_level),
        None => Ok(()),
    };
    let mut contents = encoded_batch.contents;
    let committed = committed.map_err(|error| CommitError::Store(Arc::new(error)));
    // An append without records only waits for those before it, and reports no error.
    let is_reported = appends.iter().any(|append| append.entries > 0);
    let unreported = committed.clone().err().filter(|_| !is_reported);
    if committed.is_err() {
        contents.clear();
    }
    let mut results = Vec::with_capacity(appends.len());
    for append in appends {
        let result = append
            .outcome
            .and_then(|size| committed.clone().map(|()| size));
        results.push((append.acknowledge, result));
    }
    let committed = Committed {
        results,
        unreported,
    };
    (committed, contents)
}

/// One append of a commit, after encoding.
struct EncodedAppend {
    acknowledge: Acknowledge,
    /// The result of encoding, before the commit.
    outcome: Result<AppendSize, CommitError>,
    /// The number of entries in the batch that belong to this append.
    entries: usize,
    /// The number of contents in the batch that belong to this append.
    contents: usize,
}

/// The encoded entries of a commit, and the contents among them that are in memory.
#[derive(Default)]
struct EncodedBatch {
    entries: Vec<WriteOp>,
    contents: Vec<Content>,
}

impl EncodedBatch {
    /// Commits all appends in one batch. If the store refuses the batch because of one append, each
    /// append is committed by itself: an append never fails because of the data of another.
    fn commit(
        &mut self,
        store: &dyn Store,
        owner: OwnerToken,
        appends: &mut [EncodedAppend],
        sync_level: SyncLevel,
    ) -> Result<(), StoreError> {
        match store.commit(
            owner,
            Batch {
                ops: &self.entries,
                at_ms: now_ms(),
                sync_level,
            },
        ) {
            Err(error)
                if is_refusal(&error)
                    && appends
                        .iter()
                        .filter(|append| append.outcome.is_ok())
                        .count()
                        > 1 =>
            {
                self.commit_each(store, owner, appends);
                // The appends that succeeded were only written. This empty batch makes them as
                // durable as the whole batch would have been.
                store.commit(
                    owner,
                    Batch {
                        ops: &[],
                        at_ms: now_ms(),
                        sync_level,
                    },
                )
            }
            committed => committed,
        }
    }

    fn commit_each(&mut self, store: &dyn Store, owner: OwnerToken, appends: &mut [EncodedAppend]) {
        let mut entries = std::mem::take(&mut self.entries).into_iter();
        let mut contents = std::mem::take(&mut self.contents).into_iter();
        for append in appends {
            let entries: Vec<_> = entries.by_ref().take(append.entries).collect();
            let contents = contents.by_ref().take(append.contents);
            if append.outcome.is_err() {
                continue;
            }
            let batch = Batch {
                ops: &entries,
                at_ms: now_ms(),
                sync_level: SyncLevel::Written,
            };
            match store.commit(owner, batch) {
                Ok(()) => self.contents.extend(contents),
                Err(error) => {
                    contents.for_each(drop);
                    append.outcome = Err(CommitError::Store(Arc::new(error)));
                }
            }
        }
    }
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
    EncodedBatch { entries, contents }: &mut EncodedBatch,
    size: &mut AppendSize,
) -> Result<(), CodecError> {
    let first_entry = entries.len();
    let first_content = contents.len();
    let mut add_content = |content: Content| {
        let reference = content.reference();
        match content.resident() {
            Some(bytes) => {
                entries.push(WriteOp::Content {
                    hash: reference.hash,
                    bytes,
                    index: content.serialized_index(),
                });
                contents.push(content);
            }
            // The content is in the store already. The reference pins it, so that a running
            // garbage collection does not free it.
            None => entries.push(WriteOp::ContentReferenced {
                hash: reference.hash,
            }),
        }
        Ok::<ContentRef, CodecError>(reference)
    };
    let entry = match record {
        LogRecord::Created { row, image } => WriteOp::ProcessCreated {
            row,
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
                size.snapshot = SnapshotOutcome::TooLong;
                entries.truncate(first_entry);
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
                    of,
                    root,
                    scope,
                    members,
                },
        } => WriteOp::Checkpoint {
            id,
            label,
            of,
            root,
            scope,
            members,
        },
        LogRecord::CheckpointDropped { id } => WriteOp::CheckpointDropped { id },
        LogRecord::Content(content) => return add_content(content).map(drop),
    };
    entries.push(entry);
    Ok(())
}
