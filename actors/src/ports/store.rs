//! The port for the store, which keeps journals, contents, and the process table.

mod batch;
mod error;

use std::path::Path;
use std::sync::Arc;

pub use dormouse_content::{BlobReader, Unreadable};
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::id::{CommitNumber, ContentHash, FactNumber, Pid};
use dormouse_proto::process::ProcessRow;

use super::garbage_collection::{
    InventoryReport, InventoryUpdate, MarkToken, SweepReport, SweepRequest,
};
use super::history::History;

pub use self::batch::{Batch, SyncLevel, WriteOp};
pub use self::error::{KeyFault, StoreError};

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
    /// [`StoreError::ReadOnly`], [`StoreError::Failed`], [`StoreError::Io`].
    fn claim(&self) -> Result<OwnerToken, StoreError>;

    /// Appends the operations of `batch` in order, all or nothing. When it returns, they are as
    /// durable as the batch requires. Costs one append and at most one fdatasync, regardless of the
    /// number of operations. A content that the store already has is not written again. A batch
    /// without operations that requires a sync makes everything durable that was written before it.
    ///
    /// Returns the number of the commit, which is greater than that of every earlier commit. For a
    /// batch without operations, returns the number of the last commit, or 0 if there is none.
    ///
    /// # Errors
    /// After an error, none of the operations counts as committed.
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
    /// After [`StoreError::Io`] or [`StoreError::Failed`], part of the batch may be on the disk. After
    /// any other error nothing was written.
    fn commit(&self, owner: OwnerToken, batch: Batch<'_>) -> Result<CommitNumber, StoreError>;

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

    /// Like [`history`](Self::history), without the commits up to and including `after`. Costs a
    /// read for each commit after it, and a few more; the default costs the whole history.
    ///
    /// # Errors
    /// As [`Store::history`].
    fn history_after(&self, pid: Pid, after: CommitNumber) -> Result<History, StoreError> {
        let mut history = self.history(pid)?;
        history.commits.retain(|committed| committed.commit > after);
        Ok(history)
    }

    /// Checks that the end of a process is its last word: fails if a lost record may have reopened
    /// it. Reading its journal does not fail for that. A store that reports no losses needs no
    /// check.
    ///
    /// # Errors
    /// [`StoreError::UnknownProcess`]; [`StoreError::Damaged`] or [`StoreError::Lost`] if there may be
    /// such a record.
    fn check_end(&self, pid: Pid) -> Result<(), StoreError> {
        let _ = pid;
        Ok(())
    }

    /// The checkpoints, sorted by number. One that is lost is left out, and is a loss of the process
    /// table, or fails the query.
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
    /// If the latest record of a label cannot be read, the store either leaves the label out and
    /// lists it in [`ProcessListing::losses`], or returns an error.
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
    /// [`StoreError::Stale`], [`StoreError::ReadOnly`], [`StoreError::Failed`].
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

/// Identifies the writer. Each [`Store::claim`] issues a greater token; a commit with an older one
/// is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerToken(pub u64);

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

impl<S: Store + ?Sized> Store for Arc<S> {
    fn folder(&self) -> Option<&Path> {
        (**self).folder()
    }

    fn claim(&self) -> Result<OwnerToken, StoreError> {
        (**self).claim()
    }

    fn commit(&self, owner: OwnerToken, batch: Batch<'_>) -> Result<CommitNumber, StoreError> {
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

    fn history_after(&self, pid: Pid, after: CommitNumber) -> Result<History, StoreError> {
        (**self).history_after(pid, after)
    }

    fn check_end(&self, pid: Pid) -> Result<(), StoreError> {
        (**self).check_end(pid)
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
