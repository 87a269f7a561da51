//! The store on disk: implements the port [`Store`] with a writer, an index and the log.
//!
//! `recovery.rs` opens it, `commit.rs` validates and builds commits, `queries.rs` answers queries,
//! and `inventory_pass.rs` and `compaction.rs` collect garbage.
//!
//! Commits are serialised by the writer's lock. Reads do not take that lock, and wait only while
//! the index is updated in memory. No lock is held while contents or facts are read.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use dormouse_actors::ports::{
    Batch, BlobReader, History, InventoryReport, InventoryUpdate, Journal, MarkToken, OwnerToken,
    ProcessListing, Store, StoreError, SweepMode, SweepReport, SweepRequest, SyncLevel,
    TempFileChange,
};
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::id::{CommitNumber, ContentHash, FactNumber, Pid};

use crate::compaction::Compaction;
use crate::disk::{Disk, OsDisk};
use crate::error::io;
use crate::index::Index;
use crate::inventory_pass::{InventoryPass, next_store_instance};
use crate::location_index::IndexFault;
use crate::lock::StoreLock;
use crate::log::Log;
use crate::options::Options;
use crate::quota::Quota;
use crate::recovery::{self, RecoveredStore};
use crate::stored_content::CorruptContents;
use crate::writer::Writer;
use dormouse_records::GcPins;
use dormouse_records::validator::check_owner;

/// A durable store in a folder. Only one `LogStore` can have the folder open for writing, across
/// all processes of the system.
#[derive(Debug)]
pub struct LogStore {
    dir: PathBuf,
    /// `dir` as an absolute path.
    folder: PathBuf,
    pub(crate) log: Arc<Log>,
    index: RwLock<Index>,
    writer: Mutex<Writer>,
    pub(crate) corrupt_contents: Arc<CorruptContents>,
    /// Contents that commits referenced since the GC mark began. Changed only under the writer's
    /// lock.
    pub(crate) gc_pins: GcPins,
    pub(crate) quota: Quota,
    /// Distinguishes this store from every other that this program opens.
    pub(crate) instance: u64,
    /// `None` if the store is read-only.
    lock: Option<StoreLock>,
}

impl LogStore {
    /// Opens the store in `dir`, and creates folder and store if they do not exist. Costs a pass
    /// over the headers written since the index was last flushed; over all headers if the index is
    /// missing or wrong, or if the log was damaged when the index was built.
    ///
    /// # Errors
    /// [`StoreError::InUse`] while another store has the folder open. [`StoreError::Key`] if it is
    /// encrypted with another key, or not encrypted. [`StoreError::Damaged`] if log and HEAD do not
    /// belong together: the log was replaced by an older, empty or foreign one.
    /// [`StoreError::Newer`], [`StoreError::Io`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, StoreError> {
        Options::default().open(dir)
    }

    /// Opens the store in `dir` for reading, whether or not another program writes it. Takes no
    /// lock and writes nothing. Queries see the log as it was when it was opened, up to its last
    /// whole commit, synced or not. Claims and commits fail as [`StoreError::ReadOnly`].
    ///
    /// Costs a pass over all headers of the log: 1 to 2 microseconds and about 150 bytes of memory
    /// per record. A segment that is compacted in the meantime stays readable here, and occupies
    /// its space until this store is dropped.
    ///
    /// # Errors
    /// [`StoreError::Io`] of kind `NotFound` if there is no store, otherwise as [`LogStore::open`];
    /// never [`StoreError::InUse`].
    pub fn read_only(dir: impl AsRef<Path>) -> Result<Self, StoreError> {
        Options::default().read_only(dir)
    }

    /// Options to open a store with.
    #[must_use]
    pub fn options() -> Options {
        Options::default()
    }

    /// Opens the store on any [`Disk`].
    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: &Options,
    ) -> Result<Self, StoreError> {
        let opened = recovery::open(disk, dir, options)?;
        Ok(Self::from_recovered(dir, opened, options))
    }

    /// Opens the store in `dir` under a lock that the caller has taken. `dir` contains no symbolic
    /// links.
    ///
    /// # Errors
    /// As [`LogStore::open`], except [`StoreError::InUse`].
    pub(crate) fn open_locked(
        dir: &Path,
        options: &Options,
        lock: StoreLock,
    ) -> Result<Self, StoreError> {
        let opened = recovery::open_locked(Arc::new(OsDisk), dir, options, lock)?;
        Ok(Self::from_recovered(dir, opened, options))
    }

    /// Closes a store that [`LogStore::open_locked`] opened, and opens it again under the same
    /// lock.
    ///
    /// # Errors
    /// As [`LogStore::open_locked`]; [`StoreError::ReadOnly`] for a store without a lock.
    pub(crate) fn reopen(mut self, options: &Options) -> Result<Self, StoreError> {
        let dir = self.dir.clone();
        let lock = self.lock.take().ok_or_else(|| StoreError::ReadOnly {
            path: dir.display().to_string(),
        })?;
        drop(self);
        Self::open_locked(&dir, options, lock)
    }

    fn from_recovered(dir: &Path, opened: RecoveredStore, options: &Options) -> Self {
        let mut store = Self::from_parts(
            dir,
            opened.log,
            opened.index,
            opened.writer,
            Some(opened.lock),
        );
        store.quota = options.quota;
        store
    }

    /// A store whose parts have been opened. `lock` is `None` for a read-only store.
    pub(crate) fn from_parts(
        dir: &Path,
        log: Arc<Log>,
        index: Index,
        writer: Writer,
        lock: Option<StoreLock>,
    ) -> Self {
        Self {
            dir: dir.to_owned(),
            folder: std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()),
            log,
            index: RwLock::new(index),
            writer: Mutex::new(writer),
            corrupt_contents: Arc::default(),
            gc_pins: GcPins::default(),
            quota: Quota::default(),
            instance: next_store_instance(),
            lock,
        }
    }

    /// The store's folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        // The poison of the mutex is ignored: a panic during a write leaves the `Writer` itself
        // poisoned, and it refuses the next write.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queries the index. If the index cannot answer, rebuilds it and queries once more.
    pub(crate) fn query_index<T>(
        &self,
        query: impl Fn(&Index) -> Result<T, IndexFault>,
    ) -> Result<T, StoreError> {
        let fault = match self
            .flush_index_for_reading()
            .and_then(|()| query(&self.index()))
        {
            Ok(answer) => return Ok(answer),
            Err(fault) => fault,
        };
        tracing::info!(%fault, "rebuilding the index");
        let writer = self.writer();
        let mut index = self.index_mut();
        index.rebuild(&self.log, writer.position())?;
        query(&index).map_err(|fault| io("query its index")(std::io::Error::other(fault)))
    }

    /// Repeats a failed read if a segment was compacted meanwhile: the records may have been moved.
    fn retry_if_moved<T>(&self, read: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        loop {
            let compacted = self.log.compacted().count();
            match read() {
                Err(StoreError::Damaged { .. } | StoreError::Lost { .. })
                    if self.log.compacted().count() != compacted => {}
                other => return other,
            }
        }
    }

    /// Flushes the index if pending changes would hide an answer.
    fn flush_index_for_reading(&self) -> Result<(), IndexFault> {
        if self.index().is_queryable() {
            Ok(())
        } else {
            self.flush_index()
        }
    }

    /// Flushes the pending changes of the index.
    pub(crate) fn flush_index(&self) -> Result<(), IndexFault> {
        if self.index().has_pending() {
            self.index_mut().flush(&self.log)
        } else {
            Ok(())
        }
    }
}

impl Store for LogStore {
    fn folder(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    fn claim(&self) -> Result<OwnerToken, StoreError> {
        self.writer().claim()
    }

    fn commit(&self, owner: OwnerToken, batch: Batch<'_>) -> Result<CommitNumber, StoreError> {
        let mut writer = self.writer();
        writer.check_writable()?;
        check_owner(owner, writer.owner())?;
        self.prepare_index(&writer, batch.ops)?;
        let builders = self.build_records(batch)?;
        if builders.is_empty() {
            if batch.sync_level == SyncLevel::Synced {
                writer.sync()?;
            }
            return Ok(writer.last_commit());
        }
        let encoded = writer.encode(builders, batch.at_ms)?;
        self.quota
            .check(self.log.bytes(), encoded.length(), batch.ops)?;
        let written = writer.append(encoded, batch.sync_level)?;
        self.apply_commit(&writer, &written);
        Ok(writer.last_commit())
    }

    fn processes(&self) -> Result<ProcessListing, StoreError> {
        Ok(self.index().processes().listing())
    }

    fn journal(&self, pid: Pid, up_to: Option<FactNumber>) -> Result<Journal, StoreError> {
        self.retry_if_moved(|| self.read_journal(pid, up_to))
    }

    fn facts(
        &self,
        pid: Pid,
        first: FactNumber,
        up_to: FactNumber,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.retry_if_moved(|| self.read_facts(pid, first, up_to))
    }

    fn history(&self, pid: Pid) -> Result<History, StoreError> {
        self.retry_if_moved(|| self.read_history(pid, CommitNumber(0)))
    }

    fn history_after(&self, pid: Pid, after: CommitNumber) -> Result<History, StoreError> {
        self.retry_if_moved(|| self.read_history(pid, after))
    }

    fn check_end(&self, pid: Pid) -> Result<(), StoreError> {
        self.check_not_reopened_in_loss(pid)
    }

    fn checkpoints(&self) -> Result<Vec<Checkpoint>, StoreError> {
        Ok(self.index().processes().checkpoints().cloned().collect())
    }

    fn last_checkpoint(&self) -> Result<u64, StoreError> {
        Ok(self.index().processes().last_checkpoint())
    }

    fn labels(&self) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        let index = self.index();
        let labels = index.processes().labels();
        Ok(labels
            .map(|(number, record)| (number, record.clone()))
            .collect())
    }

    fn content(&self, hash: ContentHash) -> Result<Arc<dyn BlobReader>, StoreError> {
        let opened = self.retry_if_moved(|| self.open_content(hash));
        if matches!(opened, Err(StoreError::Damaged { .. })) {
            self.corrupt_contents
                .lock()
                .insert(self.log.keys().content_name(hash));
        }
        Ok(Arc::new(opened?))
    }

    fn temp_files(&self, root: Pid) -> Result<Vec<TempFileChange>, StoreError> {
        self.retry_if_moved(|| self.read_temp_files(root, CommitNumber(u64::MAX)))
    }

    fn temp_files_up_to(
        &self,
        root: Pid,
        commit: CommitNumber,
    ) -> Result<Vec<TempFileChange>, StoreError> {
        self.retry_if_moved(|| self.read_temp_files(root, commit))
    }

    fn begin_mark(&self, owner: OwnerToken) -> Result<MarkToken, StoreError> {
        let writer = self.writer();
        writer.check_writable()?;
        check_owner(owner, writer.owner())?;
        Ok(self.gc_pins.begin())
    }

    fn end_mark(&self, mark: MarkToken) {
        self.gc_pins.end(mark);
    }

    fn update_inventory(&self, update: InventoryUpdate<'_>) -> Result<InventoryReport, StoreError> {
        InventoryPass::new(self, update).run()
    }

    fn sweep(&self, owner: OwnerToken, sweep: SweepRequest<'_>) -> Result<SweepReport, StoreError> {
        if sweep.mode == SweepMode::Free {
            check_owner(owner, self.writer().owner())?;
        }
        Compaction::new(self, owner, sweep)?.run()
    }
}

impl Drop for LogStore {
    /// Writes HEAD at the log's end, so that the next opening detects any change of the log.
    fn drop(&mut self) {
        if let Err(fault) = self.flush_index() {
            tracing::warn!(%fault, "cannot flush the index while closing the store");
        }
        if let Err(error) = self.writer().close() {
            tracing::warn!(%error, "cannot write HEAD while closing the store");
        }
    }
}

#[cfg(test)]
mod tests;
