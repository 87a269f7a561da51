//! A store that fails, stalls or tears its operations as a test says: around any store, and itself
//! one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dormouse::checkpoint::Checkpoint;
use dormouse::id::{CommitNumber, ContentHash, FactNumber, Pid};
use dormouse::ports::{
    Batch, BlobReader, History, InventoryReport, InventoryUpdate, Journal, MarkToken, OwnerToken,
    ProcessListing, Store, StoreError, SweepReport, SweepRequest, SyncLevel, TempFileChange,
};

/// What is asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`Store::claim`].
    Claim,
    /// [`Store::commit`].
    Commit {
        /// Of so many entries.
        entries: usize,
        /// Which are to survive this.
        sync_level: SyncLevel,
    },
    /// [`Store::processes`].
    Processes,
    /// [`Store::journal`].
    Journal,
    /// [`Store::facts`].
    Facts,
    /// [`Store::history`].
    History,
    /// [`Store::checkpoints`], [`Store::last_checkpoint`] and [`Store::labels`].
    Checkpoints,
    /// [`Store::content`].
    Content,
    /// [`Store::temp_files`].
    TempFiles,
    /// [`Store::begin_mark`].
    BeginMark,
    /// [`Store::update_inventory`].
    UpdateInventory,
    /// [`Store::sweep`].
    Sweep,
}

/// What becomes of an operation.
#[derive(Debug)]
pub enum Fate {
    /// It is done.
    Pass,
    /// It fails, and nothing of it is done.
    Fail(StoreError),
    /// It is done, and fails all the same: whoever asked does not know. What the end of a kernel in
    /// the middle of a commit looks like from outside.
    Unheard(StoreError),
}

type Plan = Arc<dyn Fn(usize, Operation) -> Fate + Send + Sync>;

/// A store around another. `plan` is asked before each operation, with its number from 1; it may
/// block, which delays it.
#[derive(Clone)]
pub struct Faulty<S> {
    inner: S,
    plan: Plan,
    operations: Arc<AtomicUsize>,
}

impl<S: Store> Faulty<S> {
    /// `inner`, with the faults of `plan`.
    pub fn new(inner: S, plan: impl Fn(usize, Operation) -> Fate + Send + Sync + 'static) -> Self {
        Self {
            inner,
            plan: Arc::new(plan),
            operations: Arc::default(),
        }
    }

    /// A store that is cut off from its disk after so many commits, as its kernel's death would.
    pub fn crashing_after(commits: usize, inner: S) -> Self {
        let room = AtomicUsize::new(commits);
        Self::new(inner, move |_, operation| match operation {
            Operation::Commit { .. } if !take_one(&room) => {
                Fate::Fail(StoreError::Failed("the power is gone".to_owned()))
            }
            _ => Fate::Pass,
        })
    }

    /// A store whose disk is full when `room` commits were made, until there is room again.
    pub fn full_after(room: Arc<AtomicUsize>, inner: S) -> Self {
        Self::new(inner, move |_, operation| match operation {
            Operation::Commit { .. } if !take_one(&room) => Fate::Fail(disk_full()),
            _ => Fate::Pass,
        })
    }

    /// How many operations were asked so far.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.operations.load(Ordering::SeqCst)
    }

    fn ask<T>(
        &self,
        operation: Operation,
        act: impl FnOnce(&S) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let number = self.operations.fetch_add(1, Ordering::SeqCst) + 1;
        match (self.plan)(number, operation) {
            Fate::Pass => act(&self.inner),
            Fate::Fail(error) => Err(error),
            Fate::Unheard(error) => act(&self.inner).and(Err(error)),
        }
    }
}

/// The error of a disk without room.
#[must_use]
pub fn disk_full() -> StoreError {
    let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
    StoreError::Io {
        doing: "append".to_owned(),
        source,
    }
}

fn take_one(room: &AtomicUsize) -> bool {
    room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |room| {
        room.checked_sub(1)
    })
    .is_ok()
}

impl<S: Store> Store for Faulty<S> {
    fn claim(&self) -> Result<OwnerToken, StoreError> {
        self.ask(Operation::Claim, S::claim)
    }

    fn commit(&self, owner: OwnerToken, batch: Batch<'_>) -> Result<CommitNumber, StoreError> {
        // Such a batch writes nothing: it asks for the number of the last commit.
        if batch.ops.is_empty() && batch.sync_level == SyncLevel::Written {
            return self.inner.commit(owner, batch);
        }
        self.ask(
            Operation::Commit {
                entries: batch.ops.len(),
                sync_level: batch.sync_level,
            },
            |store| store.commit(owner, batch),
        )
    }

    fn processes(&self) -> Result<ProcessListing, StoreError> {
        self.ask(Operation::Processes, S::processes)
    }

    fn journal(&self, pid: Pid, up_to: Option<FactNumber>) -> Result<Journal, StoreError> {
        self.ask(Operation::Journal, |store| store.journal(pid, up_to))
    }

    fn facts(
        &self,
        pid: Pid,
        first: FactNumber,
        up_to: FactNumber,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.ask(Operation::Facts, |store| store.facts(pid, first, up_to))
    }

    fn history(&self, pid: Pid) -> Result<History, StoreError> {
        self.ask(Operation::History, |store| store.history(pid))
    }

    fn check_end(&self, pid: Pid) -> Result<(), StoreError> {
        self.ask(Operation::History, |store| store.check_end(pid))
    }

    fn checkpoints(&self) -> Result<Vec<Checkpoint>, StoreError> {
        self.ask(Operation::Checkpoints, S::checkpoints)
    }

    fn last_checkpoint(&self) -> Result<u64, StoreError> {
        self.ask(Operation::Checkpoints, S::last_checkpoint)
    }

    fn labels(&self) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        self.ask(Operation::Checkpoints, S::labels)
    }

    fn content(&self, hash: ContentHash) -> Result<Arc<dyn BlobReader>, StoreError> {
        self.ask(Operation::Content, |store| store.content(hash))
    }

    fn temp_files(&self, root: Pid) -> Result<Vec<TempFileChange>, StoreError> {
        self.ask(Operation::TempFiles, |store| store.temp_files(root))
    }

    fn temp_files_up_to(
        &self,
        root: Pid,
        commit: CommitNumber,
    ) -> Result<Vec<TempFileChange>, StoreError> {
        self.ask(Operation::TempFiles, |store| {
            store.temp_files_up_to(root, commit)
        })
    }

    fn begin_mark(&self, owner: OwnerToken) -> Result<MarkToken, StoreError> {
        self.ask(Operation::BeginMark, |store| store.begin_mark(owner))
    }

    fn end_mark(&self, mark: MarkToken) {
        self.inner.end_mark(mark);
    }

    fn update_inventory(&self, order: InventoryUpdate<'_>) -> Result<InventoryReport, StoreError> {
        self.ask(Operation::UpdateInventory, |store| {
            store.update_inventory(order)
        })
    }

    fn sweep(&self, owner: OwnerToken, sweep: SweepRequest<'_>) -> Result<SweepReport, StoreError> {
        self.ask(Operation::Sweep, |store| store.sweep(owner, sweep))
    }
}
