//! The checkpoint actor: the one writer of journals, with group commit.
//!
//! An *append* is a list of records that one caller hands over; it becomes durable as a whole or
//! not at all (only a snapshot in it may be left out). All durable data passes through this actor.
//! While one commit is being written, further appends collect in a queue; the next commit writes
//! all of them together. `checkpoint/commit.rs` encodes and writes a commit, and `durability.rs`
//! decides whether the commit waits for the disk. Checkpoints are records among the others: a
//! checkpoint covers exactly the appends that were queued before it.
//!
//! Invariants:
//!
//! * DUR-1: an append is acknowledged only when it is as durable as the configured [`Durability`]
//!   requires. An append that fails is refused and never acknowledged.
//! * DUR-3: a content is written before the first record that refers to it.
//! * No commit begins once the kernel may have lost its store (OWNER-1, `ownership.rs`).
//! * An append that cannot be encoded, or that the store refuses, does not fail the other appends
//!   of its commit.
//! * The store is called on a blocking thread, never in a message handler.
//! * Data that was written without a sync is synced at most one second later. A sync that fails is
//!   tried again a second later, unless the store accepts no further commits.

mod commit;

use std::sync::Arc;
use std::time::Duration;

use dormouse_content::Content;
use dormouse_kernel::labels::LabelChange;
use dormouse_kernel::process::{Fact, Image};
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CheckpointId, FactNumber, Pid};
use dormouse_proto::process::{Exit, ProcessRow, Waiting};
use dormouse_proto::record::codec::CodecError;
use dormouse_proto::temp_file::TempFileRecord;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;

use commit::{CommitResult, commit_batch};

use crate::commit_feed::CommitFeed;
use crate::content_cache::ContentCache;
use crate::durability::Durability;
use crate::error::{KernelError, StoreFailure};
use crate::in_use::{CheckpointGuard, InUse};
use crate::labels::Labels;
use crate::ownership::{CloseReason, Ownership};
use crate::ports::{OwnerToken, StoreError, SyncLevel};
use crate::store_handle::StoreHandle;

/// How long data may stay written but not synced.
const SYNC_AFTER: Duration = Duration::from_secs(1);

/// A record to make durable. The store receives it as a [`WriteOp`], with contents replaced by
/// their hashes.
pub(crate) enum LogRecord {
    Created {
        row: ProcessRow,
        image: Box<Image>,
    },
    Facts {
        pid: Pid,
        first: FactNumber,
        facts: Arc<[Fact]>,
    },
    /// The process state at fact `at`. The record is skipped if its encoding has more than
    /// `max_bytes` bytes.
    Snapshot {
        pid: Pid,
        at: FactNumber,
        image: Box<Image>,
        max_bytes: u64,
    },
    Ended {
        pid: Pid,
        exit: Exit,
    },
    /// An ended process was opened again. Its facts follow in the same append.
    Reopened {
        pid: Pid,
        reopenings: u32,
    },
    /// What a process waits for, and whether it is paused at a limit, as of the facts before this
    /// record.
    Waiting {
        pid: Pid,
        waiting: Waiting,
        is_paused: bool,
    },
    TempFile {
        root: Pid,
        record: TempFileRecord<Content>,
    },
    Checkpoint {
        id: CheckpointId,
        new_checkpoint: NewCheckpoint,
    },
    CheckpointDropped {
        id: CheckpointId,
    },
    /// The verdict of a person is among the facts before this record, and is acknowledged once they
    /// are durable. Nothing is written for it.
    VerdictGiven,
    /// A content that no other record refers to yet.
    Content(Content),
    /// A change of the records of labels: of the usage in the facts of the same append, or of a
    /// budget. A commit writes each record once, after all of its changes.
    Label(LabelChange),
}

/// A checkpoint to create. It covers everything that was appended before it.
pub(crate) struct NewCheckpoint {
    pub(crate) label: Arc<str>,
    /// The process that the checkpoint is requested for.
    pub(crate) pid: Pid,
    /// The root process of the tree.
    pub(crate) root: Pid,
    pub(crate) scope: Scope,
    /// The processes whose states the checkpoint names.
    pub(crate) members: Vec<Pid>,
}

/// Receives the guard of the checkpoint once the checkpoint is durable, or the reason why it was
/// not created.
pub(crate) type NewCheckpointReply = oneshot::Sender<Result<CheckpointGuard, KernelError>>;

/// Why an append was not made durable.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CommitError {
    #[error("{0}")]
    Store(Arc<StoreError>),
    #[error("{0}")]
    Codec(Arc<CodecError>),
    #[error("the kernel is shutting down")]
    Closed,
    #[error("{}", CloseReason::LeaseLost)]
    LeaseLost,
}

impl CommitError {
    /// The error, if the store accepts no further commits.
    fn final_store_error(&self) -> Option<&Arc<StoreError>> {
        match self {
            Self::Store(error)
                if matches!(**error, StoreError::Failed(_) | StoreError::Stale { .. }) =>
            {
                Some(error)
            }
            _ => None,
        }
    }

    /// Whether nothing is committed any more.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::LeaseLost) || self.final_store_error().is_some()
    }

    /// Whether the store refused the commit, or would have. The same commit may succeed later, for
    /// instance once the disk has room.
    pub(crate) fn is_from_store(&self) -> bool {
        matches!(self, Self::Store(_) | Self::LeaseLost)
    }
}

/// Receives the result of closing: the first failed sync that no append has reported.
pub(crate) type CloseReply = oneshot::Sender<Result<(), CommitError>>;

/// Called exactly once with the result of an append.
pub(crate) type Acknowledge = Box<dyn FnOnce(Result<AppendSize, CommitError>) + Send>;

/// Encoded sizes of an append, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AppendSize {
    pub(crate) facts: u64,
    pub(crate) snapshot: SnapshotOutcome,
}

/// Whether an append contained a snapshot, and whether it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SnapshotOutcome {
    #[default]
    None,
    /// The snapshot was written; the value is its size in bytes.
    Written(u64),
    /// The snapshot was not written: it is larger than the limit, or cannot be encoded.
    Skipped,
}

/// An append in the queue. An append without records is acknowledged after all appends before it.
pub(crate) struct Append {
    pub(crate) records: Vec<LogRecord>,
    pub(crate) acknowledge: Acknowledge,
}

/// The messages of the checkpoint actor.
pub(crate) enum CheckpointMessage {
    /// Add an append to the queue.
    Append(Append),
    /// A commit has finished, successfully or not.
    Committed {
        commit_result: CommitResult,
        sync_level: Option<SyncLevel>,
    },
    /// The delay after an unsynced write has elapsed.
    Sync,
    /// Create a checkpoint after everything that was appended before. The actor assigns its number.
    MakeCheckpoint {
        new_checkpoint: NewCheckpoint,
        in_use: Arc<InUse>,
        reply: NewCheckpointReply,
    },
    /// Commit the queue, release the store, then reply.
    Close { reply: CloseReply },
}

/// Makes `records` durable in one commit, then calls `acknowledge` with the result.
pub(crate) fn append_records(
    checkpoint: &ActorRef<CheckpointMessage>,
    records: Vec<LogRecord>,
    acknowledge: Acknowledge,
) {
    let message = CheckpointMessage::Append(Append {
        records,
        acknowledge,
    });
    if let Err(ractor::MessagingErr::SendErr(CheckpointMessage::Append(append))) =
        checkpoint.cast(message)
    {
        (append.acknowledge)(Err(CommitError::Closed));
    }
}

pub(crate) struct CheckpointActor;

/// The state of the checkpoint actor: the queue of appends, and what is known of the last commits.
pub(crate) struct JournalWriter {
    store: Option<(StoreHandle, OwnerToken)>,
    content_cache: Arc<ContentCache>,
    labels: Arc<Labels>,
    feed: Arc<CommitFeed>,
    ownership: Arc<Ownership>,
    durability: Durability,
    /// The highest checkpoint number that was assigned so far.
    last_checkpoint_id: u64,
    queue: Vec<Append>,
    is_committing: bool,
    /// Whether written data waits for a sync.
    has_unsynced_writes: bool,
    /// Whether a message is on its way that makes the next commit sync.
    is_sync_scheduled: bool,
    /// Whether the next commit must sync.
    is_sync_due: bool,
    /// The final error of the store. All further appends fail with it.
    final_error: Option<CommitError>,
    /// The first failure of a sync that no append waited for. Closing the store returns it.
    unreported_error: Option<CommitError>,
    /// The callers that wait until the store is closed.
    close_replies: Vec<CloseReply>,
}

impl Actor for CheckpointActor {
    type Msg = CheckpointMessage;
    type State = JournalWriter;
    type Arguments = (
        Option<(StoreHandle, OwnerToken)>,
        u64,
        Arc<ContentCache>,
        Arc<Labels>,
        Arc<CommitFeed>,
        Arc<Ownership>,
        Durability,
    );

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        (store, last_checkpoint_id, content_cache, labels, feed, ownership, durability): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(JournalWriter {
            store,
            last_checkpoint_id,
            content_cache,
            labels,
            feed,
            ownership,
            durability,
            queue: Vec::new(),
            is_committing: false,
            has_unsynced_writes: false,
            is_sync_scheduled: false,
            is_sync_due: false,
            final_error: None,
            unreported_error: None,
            close_replies: Vec::new(),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        writer: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            CheckpointMessage::Append(append) => writer.enqueue(append),
            CheckpointMessage::Committed {
                commit_result,
                sync_level,
            } => writer.acknowledge_commit(commit_result, sync_level, &myself),
            CheckpointMessage::Sync => {
                writer.is_sync_scheduled = false;
                writer.is_sync_due = writer.has_unsynced_writes && writer.final_error.is_none();
            }
            CheckpointMessage::MakeCheckpoint {
                new_checkpoint,
                in_use,
                reply,
            } => writer.make_checkpoint(new_checkpoint, &in_use, reply),
            CheckpointMessage::Close { reply } => writer.close_replies.push(reply),
        }
        writer.start_commit(&myself);
        Ok(())
    }
}

impl JournalWriter {
    fn enqueue(&mut self, append: Append) {
        match (&self.store, &self.final_error) {
            (_, Some(error)) => (append.acknowledge)(Err(error.clone())),
            (None, None) => (append.acknowledge)(Ok(AppendSize::default())),
            (Some(_), None) => self.queue.push(append),
        }
    }

    /// Assigns a number to the checkpoint and appends it. A number is never reused, even if the
    /// commit fails.
    fn make_checkpoint(
        &mut self,
        new_checkpoint: NewCheckpoint,
        in_use: &Arc<InUse>,
        reply: NewCheckpointReply,
    ) {
        if self.store.is_none() {
            // The requester has dropped its receiver if it no longer waits.
            return drop(reply.send(Err(StoreFailure::NoStore.into())));
        }
        self.last_checkpoint_id += 1;
        let id = CheckpointId(self.last_checkpoint_id);
        let guard = in_use.guard_checkpoint(id);
        let acknowledge = Box::new(move |result: Result<AppendSize, CommitError>| {
            let _ = reply.send(result.map(|_| guard).map_err(KernelError::from));
        });
        self.enqueue(Append {
            records: vec![LogRecord::Checkpoint { id, new_checkpoint }],
            acknowledge,
        });
    }

    fn acknowledge_commit(
        &mut self,
        CommitResult {
            results,
            unreported_error,
            is_committed,
            commits,
        }: CommitResult,
        sync_level: Option<SyncLevel>,
        myself: &ActorRef<CheckpointMessage>,
    ) {
        self.is_committing = false;
        self.feed.publish(commits);
        if let Some(error) = unreported_error {
            tracing::error!(%error, "written data could not be synced");
            self.record_failure(&error);
            self.unreported_error.get_or_insert(error);
            // Closing tries it once, and returns the error.
            self.has_unsynced_writes &= self.close_replies.is_empty();
        }
        match sync_level {
            Some(SyncLevel::Synced) if is_committed => self.has_unsynced_writes = false,
            // What earlier commits wrote is not synced by a commit that the store refused.
            Some(SyncLevel::Synced) | None => {}
            Some(SyncLevel::Written) => self.has_unsynced_writes = true,
        }
        for (acknowledge, result) in results {
            if let Err(error) = &result {
                tracing::error!(%error, "not made durable");
                self.record_failure(error);
            }
            acknowledge(result);
        }
        if let Some(error) = &self.final_error {
            for append in std::mem::take(&mut self.queue) {
                (append.acknowledge)(Err(error.clone()));
            }
        } else if self.has_unsynced_writes && !self.is_sync_scheduled {
            self.is_sync_scheduled = true;
            // If the actor has stopped by then, closing has already synced the store.
            myself.send_after(SYNC_AFTER, || CheckpointMessage::Sync);
        }
    }

    /// After a final error every further append fails as well. The kernel closes before any process
    /// learns of it.
    fn record_failure(&mut self, error: &CommitError) {
        if let Some(error) = error.final_store_error() {
            self.ownership.close(CloseReason::Store(error.clone()));
        }
        if self.final_error.is_none() && error.is_final() {
            self.final_error = Some(error.clone());
        }
    }

    /// Starts the next commit unless one is running. Closes the store if nothing is left to commit
    /// and a close was requested.
    fn start_commit(&mut self, myself: &ActorRef<CheckpointMessage>) {
        if self.is_committing {
            return;
        }
        self.is_sync_due |= !self.close_replies.is_empty() && self.has_unsynced_writes;
        let has_work = !self.queue.is_empty() || self.is_sync_due;
        if has_work && self.final_error.is_none() && !self.ownership.may_act() {
            self.refuse_queue();
        }
        if self.queue.is_empty() && !self.is_sync_due {
            self.close_if_requested();
        } else if let Some((store, owner)) = self.store.clone() {
            self.commit_queue(store, owner, myself.clone());
        }
    }

    /// The lease is lost: nothing is written any more, and what was written is not synced.
    fn refuse_queue(&mut self) {
        let error = CommitError::LeaseLost;
        self.is_sync_due = false;
        if std::mem::take(&mut self.has_unsynced_writes) {
            self.unreported_error.get_or_insert(error.clone());
        }
        for append in std::mem::take(&mut self.queue) {
            (append.acknowledge)(Err(error.clone()));
        }
        self.final_error = Some(error);
    }

    fn commit_queue(
        &mut self,
        store: StoreHandle,
        owner: OwnerToken,
        myself: ActorRef<CheckpointMessage>,
    ) {
        let batch = std::mem::take(&mut self.queue);
        let records = batch.iter().flat_map(|append| &append.records);
        let sync_level = if self.is_sync_due {
            Some(SyncLevel::Synced)
        } else {
            self.durability.sync_level(records)
        };
        self.is_committing = true;
        self.is_sync_due = false;
        let content_cache = self.content_cache.clone();
        let labels = self.labels.clone();
        tokio::task::spawn_blocking(move || {
            let (commit_result, contents) =
                commit_batch((&*store, owner), &labels, batch, sync_level);
            // The store handle is released before the acknowledgement, so that a caller that waits
            // for it can reopen the store.
            drop(store);
            let _ = myself.cast(CheckpointMessage::Committed {
                commit_result,
                sync_level,
            });
            content_cache.insert_durable(contents);
        });
    }

    fn close_if_requested(&mut self) {
        if self.close_replies.is_empty() {
            return;
        }
        self.store = None;
        self.final_error = Some(CommitError::Closed);
        for reply in std::mem::take(&mut self.close_replies) {
            // The requester has dropped its receiver if it no longer waits.
            let _ = reply.send(self.unreported_error.clone().map_or(Ok(()), Err));
        }
    }
}
