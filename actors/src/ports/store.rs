//! The port for the store, which keeps journals, contents, and the process table.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
pub use dormouse_content::{BlobReader, Unreadable};
use dormouse_proto::checkpoint::{Checkpoint, Scope};
use dormouse_proto::id::{CheckpointId, CommitNumber, ContentHash, FactNumber, Pid};
use dormouse_proto::process::{Exit, ProcessRow, Waiting};

use super::garbage_collection::{
    InventoryReport, InventoryUpdate, MarkToken, SweepReport, SweepRequest,
};
use super::history::History;

/// A durable store. Synchronous and object-safe; called from blocking threads only. The checkpoint
/// actor is its only writer, except for deletions by a garbage collection.
///
/// Payloads are opaque: the store keeps bytes and returns them verified. It never decodes a fact.
pub trait Store: Send + Sync + 'static {
    /// The absolute path of the folder of the store, if it is on this machine. The kernel makes it
    /// unreachable for its processes.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// Makes the caller the only writer. All tokens issued before become stale.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn claim(&self) -> Result<OwnerToken, StoreError>;

    /// Appends the operations of `batch` in order, all or nothing. When it returns, they are as
    /// durable as the batch requires. Costs one append and at most one fdatasync, regardless of the
    /// number of operations. A content that the store already has is not written again. A batch
    /// without operations that requires a sync makes everything durable that was written before it.
    ///
    /// # Errors
    /// Nothing is acknowledged after an error.
    ///
    /// * [`StoreError::Stale`] if `owner` is not the latest token.
    /// * [`StoreError::UnknownProcess`], [`StoreError::UnknownFact`],
    ///   [`StoreError::UnknownContent`], [`StoreError::UnknownCheckpoint`] if an operation names
    ///   something that the store does not have; [`StoreError::DeletedFact`] for a truncation before
    ///   the start of the history.
    /// * [`StoreError::Refused`] if an operation breaks another rule of [`WriteOp`], or deletes
    ///   something that a checkpoint needs.
    /// * [`StoreError::Full`] if the batch exceeds the quota of the store.
    /// * [`StoreError::ReadOnly`] if the store is open for reading only.
    /// * [`StoreError::Damaged`] if the store cannot read what it has to check.
    /// * [`StoreError::Io`] if the disk fails, and [`StoreError::Failed`] from then on if a sync
    ///   failed: the store takes no more commits.
    ///
    /// Nothing is written, except after the last two: then part of the batch may be on the disk.
    fn commit(&self, owner: OwnerToken, batch: Batch<'_>) -> Result<(), StoreError>;

    /// The process table. If records are lost, the result lists the readable rows and describes
    /// the losses.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn processes(&self) -> Result<ProcessListing, StoreError>;

    /// The journal of a process up to and including fact `up_to` (`None`: its end), starting with
    /// the latest usable snapshot.
    ///
    /// # Errors
    /// [`StoreError::UnknownProcess`], [`StoreError::UnknownFact`], [`StoreError::DeletedFact`],
    /// [`StoreError::Damaged`], [`StoreError::Io`].
    fn journal(&self, pid: Pid, up_to: Option<FactNumber>) -> Result<Journal, StoreError>;

    /// The encoded facts of a process from `first` up to and including `up_to`, also those before a
    /// snapshot. Empty if there is none.
    ///
    /// # Errors
    /// [`StoreError::UnknownProcess`], [`StoreError::UnknownFact`]; [`StoreError::DeletedFact`]
    /// if one of them was deleted; [`StoreError::Damaged`], [`StoreError::Io`].
    fn facts(
        &self,
        pid: Pid,
        first: FactNumber,
        up_to: FactNumber,
    ) -> Result<Vec<Vec<u8>>, StoreError>;

    /// The commits of the facts of a process, with their times; its birth first, if its history is
    /// complete. Losses are part of the result. Costs a read for each commit.
    ///
    /// # Errors
    /// [`StoreError::UnknownProcess`], [`StoreError::Damaged`], [`StoreError::Lost`],
    /// [`StoreError::Io`].
    fn history(&self, pid: Pid) -> Result<History, StoreError>;

    /// The checkpoints, sorted by number.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Damaged`].
    fn checkpoints(&self) -> Result<Vec<Checkpoint>, StoreError>;

    /// The highest number that a checkpoint ever had, even if it was dropped; 0 if there was none.
    /// The next checkpoint gets a greater number.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Damaged`].
    fn last_checkpoint(&self) -> Result<u64, StoreError>;

    /// The labels that have a record, each with its number and its latest record, sorted by number.
    /// One whose latest record cannot be read is left out, and is a loss of the process table, or
    /// fails the query.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Damaged`].
    fn labels(&self) -> Result<Vec<(u64, Vec<u8>)>, StoreError>;

    /// Opens a content for reading. Does not read all of its bytes; bytes are verified when they
    /// are read.
    ///
    /// # Errors
    /// [`StoreError::UnknownContent`], [`StoreError::Damaged`], [`StoreError::Io`].
    fn content(&self, hash: ContentHash) -> Result<Arc<dyn BlobReader>, StoreError>;

    /// The changes of the temporary files of the tree with root `root`, sorted by number from 1;
    /// empty if it never had a file.
    ///
    /// # Errors
    /// [`StoreError::UnknownProcess`], [`StoreError::Damaged`], [`StoreError::Lost`],
    /// [`StoreError::Io`].
    fn temp_files(&self, root: Pid) -> Result<Vec<TempFileChange>, StoreError>;

    /// Like [`temp_files`](Self::temp_files), up to and including a commit. Losses after that
    /// commit cause no error.
    ///
    /// # Errors
    /// As [`Store::temp_files`].
    fn temp_files_up_to(
        &self,
        root: Pid,
        commit: CommitNumber,
    ) -> Result<Vec<TempFileChange>, StoreError>;

    /// Starts a mark. From now on, the store pins every content that a commit refers to, whether it
    /// is new or already stored: pinned contents survive the [`Store::sweep`] with this mark,
    /// whatever its inventory says. A collector that reads journals after this call therefore
    /// misses no reference. A previous mark ends, and its pins are dropped.
    ///
    /// # Errors
    /// [`StoreError::Stale`].
    fn begin_mark(&self, owner: OwnerToken) -> Result<MarkToken, StoreError>;

    /// Ends a mark: no sweep will follow it. A sweep ends its mark itself.
    fn end_mark(&self, mark: MarkToken);

    /// Updates an inventory to the present data of the store. Reads only records that were written
    /// since the last update, or all records for an empty inventory. Records that cannot be read
    /// are noted in the inventory. A collection that frees space calls this after its mark began,
    /// so that everything committed later is pinned.
    ///
    /// # Errors
    /// [`StoreError::Io`]. The inventory must not be used after an error.
    fn update_inventory(&self, update: InventoryUpdate<'_>) -> Result<InventoryReport, StoreError>;

    /// Frees the space of deleted data and of unreferenced contents. No query except
    /// [`Store::content`] changes its result. Commits and reads continue; a crash at any moment
    /// loses nothing. With [`SweepMode::Count`](super::SweepMode::Count) nothing is written, and
    /// `owner` and the mark of `sweep` are ignored.
    ///
    /// # Errors
    /// [`StoreError::Stale`], [`StoreError::Damaged`], [`StoreError::Io`];
    /// [`StoreError::MarkSuperseded`] if the mark was never begun, has ended, or was superseded.
    /// What was freed before stays freed.
    fn sweep(&self, owner: OwnerToken, sweep: SweepRequest<'_>) -> Result<SweepReport, StoreError>;
}

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

/// Identifies the writer. Each [`Store::claim`] issues a greater token; a commit with an older one
/// is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerToken(pub u64);

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
    /// pins it. Refused as [`StoreError::UnknownContent`] if the store does not have it.
    ContentReferenced {
        /// The hash of its bytes.
        hash: ContentHash,
    },
    /// A process is created: its row in the process table, and its initial state (fact number 0).
    ProcessCreated {
        /// The row.
        row: ProcessRow,
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

/// The process table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessListing {
    /// The processes, sorted by pid.
    pub rows: Vec<ProcessRow>,
    /// The highest pid that was ever assigned, also to processes that are lost or deleted; 0 if
    /// there is none.
    pub last_pid: u64,
    /// Descriptions of the lost records. Empty if the table is complete.
    pub losses: Vec<String>,
    /// Losses that a repair has acknowledged. They need not be reported again, but have the same
    /// effect.
    pub acknowledged_losses: Vec<String>,
}

impl ProcessListing {
    /// All losses, acknowledged or not.
    pub fn all_losses(&self) -> impl Iterator<Item = &str> {
        self.losses
            .iter()
            .chain(&self.acknowledged_losses)
            .map(String::as_str)
    }
}

/// The data that a process is loaded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// The row of the process in the process table.
    pub row: ProcessRow,
    /// The fact number of the snapshot `image`.
    pub base: FactNumber,
    /// The encoded snapshot.
    pub image: Vec<u8>,
    /// The encoded facts after `base`.
    pub facts: Vec<Vec<u8>>,
}

/// A change of temporary files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TempFileChange {
    /// The commit of the change.
    pub commit: CommitNumber,
    /// The encoded change.
    pub record: Vec<u8>,
}

/// Why a store cannot serve a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No such process.
    #[error("the store holds no process {0}")]
    UnknownProcess(Pid),
    /// No such fact.
    #[error("process {pid} has no fact {requested}: its facts are 0-{last}")]
    UnknownFact {
        /// The process.
        pid: Pid,
        /// The requested fact.
        requested: FactNumber,
        /// The last fact of the process.
        last: FactNumber,
    },
    /// The fact is older than the retained history of the process.
    #[error(
        "fact {requested} of process {pid} was deleted: its history is kept from fact {first_kept} on"
    )]
    DeletedFact {
        /// The process.
        pid: Pid,
        /// The requested fact.
        requested: FactNumber,
        /// The first retained fact.
        first_kept: FactNumber,
    },
    /// No such checkpoint.
    #[error("the store holds no checkpoint {0}")]
    UnknownCheckpoint(CheckpointId),
    /// No such content.
    #[error("the store holds no content {0}")]
    UnknownContent(ContentHash),
    /// Another owner has claimed the store since.
    #[error("the store was claimed by a newer owner ({newest:?}); {stale:?} may no longer write")]
    Stale {
        /// The token of the caller.
        stale: OwnerToken,
        /// The valid token.
        newest: OwnerToken,
    },
    /// Another program has the store open.
    #[error("the store {path} is in use by {holder}. Stop it, or name another folder with --store")]
    InUse {
        /// The store's folder.
        path: String,
        /// The program that has the store open.
        holder: String,
    },
    /// The given key is not the key of the store. Nothing was read or changed.
    #[error("the store {path} {fault}")]
    Key {
        /// The store's folder.
        path: String,
        /// What is wrong with the key.
        fault: KeyFault,
    },
    /// The store is open for reading only.
    #[error(
        "the store {path} is open for reading only, and takes no owner and no commit. Open it for \
         writing, once nobody else has it open"
    )]
    ReadOnly {
        /// The store's folder.
        path: String,
    },
    /// The store contains a record that this version cannot read. Nothing was changed.
    #[error("the store holds {what}, as a later version writes it. Open it with that version")]
    Newer {
        /// The record, and where it is.
        what: String,
    },
    /// Data that was read differs from the data that was written.
    #[error("the store is damaged: {what}")]
    Damaged {
        /// The data, where it is, and the consequences.
        what: String,
    },
    /// The requested data is lost, which was acknowledged when the store was repaired.
    #[error("the store has lost what is asked for, as was acknowledged: {what}")]
    Lost {
        /// The data, where it is, and the consequences.
        what: String,
    },
    /// The commit breaks a rule of this port, or deletes something that is still needed. Nothing
    /// was written.
    #[error("the store refuses this commit: {why}")]
    Refused {
        /// The rule, and how the commit breaks it.
        why: String,
    },
    /// The mark was never begun, has ended, or was superseded. What was freed before stays freed.
    #[error(
        "a sweep frees only what the last mark found, and {why}. Collect garbage once at a time"
    )]
    MarkSuperseded {
        /// What happened to the mark.
        why: &'static str,
    },
    /// The commit exceeds the quota. Nothing was written.
    #[error(
        "the store is full: it holds {used} bytes of the {quota} that it may, and this commit \
         brings {needed}. Collect garbage (`dormouse gc`), or raise the quota"
    )]
    Full {
        /// Bytes in the log.
        used: u64,
        /// The largest permitted size of the log, in bytes.
        quota: u64,
        /// Bytes of the commit.
        needed: u64,
    },
    /// The disk failed or is full.
    #[error("the store cannot {doing}: {source}")]
    Io {
        /// The failed operation.
        doing: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A sync failed earlier, so the content of the disk since then is unknown.
    #[error(
        "the store takes no more commits since a sync failed: {0}. Reopen it; what was \
         acknowledged is there"
    )]
    Failed(String),
}

/// What is wrong with the key of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// The store is encrypted, and no key was given.
    #[error("is encrypted, and no key was given. Give the key that it was made with")]
    Missing,
    /// The store is encrypted with another key.
    #[error(
        "is encrypted with another key than the one that was given. Give the key that it was made \
         with"
    )]
    Wrong,
    /// A key was given, and the store is not encrypted.
    #[error(
        "is not encrypted, and a key was given. Open it without one, or name a new folder for an \
         encrypted store"
    )]
    NotEncrypted,
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn folder(&self) -> Option<&Path> {
        (**self).folder()
    }

    fn claim(&self) -> Result<OwnerToken, StoreError> {
        (**self).claim()
    }

    fn commit(&self, owner: OwnerToken, batch: Batch<'_>) -> Result<(), StoreError> {
        (**self).commit(owner, batch)
    }

    fn processes(&self) -> Result<ProcessListing, StoreError> {
        (**self).processes()
    }

    fn journal(&self, pid: Pid, up_to: Option<FactNumber>) -> Result<Journal, StoreError> {
        (**self).journal(pid, up_to)
    }

    fn facts(
        &self,
        pid: Pid,
        first: FactNumber,
        up_to: FactNumber,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        (**self).facts(pid, first, up_to)
    }

    fn history(&self, pid: Pid) -> Result<History, StoreError> {
        (**self).history(pid)
    }

    fn checkpoints(&self) -> Result<Vec<Checkpoint>, StoreError> {
        (**self).checkpoints()
    }

    fn last_checkpoint(&self) -> Result<u64, StoreError> {
        (**self).last_checkpoint()
    }

    fn labels(&self) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        (**self).labels()
    }

    fn content(&self, hash: ContentHash) -> Result<Arc<dyn BlobReader>, StoreError> {
        (**self).content(hash)
    }

    fn temp_files(&self, root: Pid) -> Result<Vec<TempFileChange>, StoreError> {
        (**self).temp_files(root)
    }

    fn temp_files_up_to(
        &self,
        root: Pid,
        commit: CommitNumber,
    ) -> Result<Vec<TempFileChange>, StoreError> {
        (**self).temp_files_up_to(root, commit)
    }

    fn begin_mark(&self, owner: OwnerToken) -> Result<MarkToken, StoreError> {
        (**self).begin_mark(owner)
    }

    fn end_mark(&self, mark: MarkToken) {
        (**self).end_mark(mark);
    }

    fn update_inventory(&self, update: InventoryUpdate<'_>) -> Result<InventoryReport, StoreError> {
        (**self).update_inventory(update)
    }

    fn sweep(&self, owner: OwnerToken, sweep: SweepRequest<'_>) -> Result<SweepReport, StoreError> {
        (**self).sweep(owner, sweep)
    }
}
