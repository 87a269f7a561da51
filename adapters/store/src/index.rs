//! The index of the log: the process table in memory, and the locations of records on disk.
//!
//! `process_table.rs` is the part in memory, `location_index.rs` the part on disk, and
//! `log_walk.rs` reads the log from record to record. The parameter `head` is HEAD's position, or a
//! later commit: the log was whole up to there, and may be longer.
//!
//! Live commits and recovery apply records by the same function, so that both lead to the same
//! index. Changes are batched in memory, and queries see them there until they are flushed. That
//! way no commit waits for sled, the database on disk.

mod apply;
mod backend;
mod lookup;
mod losses;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_actors::ports::StoreError;
use dormouse_proto::record::codec::CodecError;

use crate::location_index::{IndexChanges, IndexFault, IndexPosition, LocationIndex, RecordKey};
use crate::log::{CompactedSegments, Log};
use crate::log_position::LogPosition;
use crate::log_walk::{WalkItem, walk};
use crate::process_table::ProcessTable;
use crate::progress::Progress;
use crate::record_header::HEADER_BYTES;

use backend::{Backend, cannot_build};

/// The most records by which the index on disk is behind.
const MAX_PENDING_RECORDS: usize = 1024;
/// The most process entries that are kept decoded if the whole index is in memory.
const MAX_DECODED_ENTRIES: usize = 1 << 14;

/// An error while the log is applied to the index.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IndexError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] StoreError),
    /// The index failed. It can be rebuilt.
    #[error(transparent)]
    Fault(#[from] IndexFault),
}

/// Loads a record's payload, if it is needed.
pub(crate) type PayloadOf<'a> = &'a dyn Fn() -> Result<Bytes, StoreError>;

/// The process table and the locations of records, at the same log position.
#[derive(Debug)]
pub(crate) struct Index {
    processes: ProcessTable,
    locations: Option<LocationIndex>,
    /// Changes that are not yet written to `locations`.
    pending: IndexChanges,
    position: LogPosition,
    backend: Backend,
    /// Whether the index was built from the whole log since the store was opened. Only then does a
    /// missing key prove that a record does not exist: an index from disk may have lost keys.
    is_authoritative: bool,
    /// Index entries that point into these segments are ignored.
    compacted: Arc<CompactedSegments>,
}

impl Index {
    /// Opens the index in `folder` and applies the rest of the log; builds it from the log if it is
    /// missing or wrong. Returns the position of the log's last commit.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] of the log, [`StoreError::Io`].
    pub(crate) fn open(
        folder: &Path,
        log: &Log,
        head: LogPosition,
    ) -> Result<(Self, LogPosition), StoreError> {
        match Self::open_and_catch_up(folder, log, head) {
            Ok(index) => Ok(index),
            Err(IndexError::Log(error)) => Err(error),
            Err(IndexError::Fault(fault)) => {
                tracing::info!(%fault, "building the index from the log");
                Self::build_or_fall_back(&Backend::Folder(folder.to_owned()), log, head)
            }
        }
    }

    /// Builds an index in memory, and writes nothing. Costs a pass over the log's headers, and
    /// about 150 bytes of memory per record.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] of the log, [`StoreError::Io`].
    pub(crate) fn in_memory(
        log: &Log,
        head: LogPosition,
    ) -> Result<(Self, LogPosition), StoreError> {
        Self::build(&Backend::Memory, log, head)
            .map_err(|error| cannot_build(&Backend::Memory, error))
    }

    /// Rebuilds the index from the log, which ends at `head`; in memory if the folder of the index
    /// cannot be written. The process table is kept: it was complete, and contains records that may
    /// have been damaged since.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Damaged`]. There is no index afterwards, and the next
    /// query tries again.
    pub(crate) fn rebuild(&mut self, log: &Log, head: LogPosition) -> Result<(), StoreError> {
        self.locations = None;
        let (built, _) = Self::build_or_fall_back(&self.backend, log, head)?;
        // Keep `self.processes`: the new table lacks what was damaged since this one was built.
        let replaced = built.processes;
        self.locations = built.locations;
        self.pending = built.pending;
        self.backend = built.backend;
        self.position = head;
        self.is_authoritative = true;
        if let Err(fault) = self.write_whole_table(&replaced, log) {
            self.backend.fall_back_to_memory(&fault);
            return self.rebuild(log, head);
        }
        Ok(())
    }

    /// Writes every entry of the process table to an index in a folder, which was built with the
    /// table `replaced`.
    fn write_whole_table(&mut self, replaced: &ProcessTable, log: &Log) -> Result<(), IndexFault> {
        self.processes.encode_changed().map_err(unencodable)?;
        if self.backend == Backend::Memory {
            return Ok(());
        }
        let mut changes = IndexChanges::default();
        // Where the tables differ, an entry may be in its block in one, and by itself in the other.
        for (index_key, _) in replaced.entry_values() {
            changes.remove(&index_key);
        }
        for (index_key, value) in self.processes.entry_values() {
            changes.put_table_value(index_key, value.to_vec());
        }
        for (id, entry) in self.processes.encoded_checkpoints() {
            changes.put_checkpoint(id, entry.map_err(unencodable)?);
        }
        for (number, entry) in self.processes.encoded_labels() {
            changes.put_label(number, entry.map_err(unencodable)?);
        }
        for (commit, losses) in self.processes.encoded_losses() {
            changes.put_losses(commit, losses.map_err(unencodable)?);
        }
        let index_position = self.index_position(log);
        self.locations
            .as_mut()
            .ok_or_else(|| IndexFault("was not built".to_owned()))?
            .apply(changes, &index_position)
    }

    /// Opens the index in `folder`, and applies the records that it lacks.
    fn open_and_catch_up(
        folder: &Path,
        log: &Log,
        head: LogPosition,
    ) -> Result<(Self, LogPosition), IndexError> {
        let locations = LocationIndex::open(folder, log.keys().clone())?;
        let indexed = locations.indexed_position()?.ok_or_else(|| {
            IndexFault("is new, of another version, or of another store".to_owned())
        })?;
        if indexed.position != head && !log.contains_commit(&indexed.position)? {
            return Err(
                IndexFault("refers to records that the log does not have".to_owned()).into(),
            );
        }
        if indexed.position.commit > head.commit && !is_whole_between(log, head, indexed.position)?
        {
            return Err(IndexFault("refers to records that a power loss took".to_owned()).into());
        }
        if indexed.lengths_hash != log.hash_lengths_before(indexed.position.end.segment) {
            return Err(IndexFault("was built from a log with other segments".to_owned()).into());
        }
        let processes = locations.load_processes(&indexed)?;
        if processes.has_losses() {
            // The missing part of the log may have been restored since, which the index cannot see.
            return Err(IndexFault("was built from a log that was damaged".to_owned()).into());
        }
        let pending = IndexChanges::default();
        let backend = Backend::Folder(folder.to_owned());
        let position = indexed.position;
        let locations = Some(locations);
        let compacted = log.compacted().clone();
        let index = Self {
            processes,
            locations,
            pending,
            position,
            backend,
            is_authoritative: false,
            compacted,
        };
        index.apply_log(log, head)
    }

    /// Builds an index from the log; in memory if its folder cannot be written, so that a store
    /// stays usable without its index files.
    fn build_or_fall_back(
        backend: &Backend,
        log: &Log,
        head: LogPosition,
    ) -> Result<(Self, LogPosition), StoreError> {
        match Self::build(backend, log, head) {
            Err(IndexError::Fault(fault)) if *backend != Backend::Memory => {
                let mut backend = backend.clone();
                backend.fall_back_to_memory(&fault);
                Self::build(&backend, log, head).map_err(|error| cannot_build(&backend, error))
            }
            other => other.map_err(|error| cannot_build(backend, error)),
        }
    }

    /// Builds an index from the whole log.
    fn build(
        backend: &Backend,
        log: &Log,
        head: LogPosition,
    ) -> Result<(Self, LogPosition), IndexError> {
        let locations = Some(backend.create_empty(log.keys())?);
        let processes = ProcessTable::new(*log.key());
        let pending = IndexChanges::default();
        let backend = backend.clone();
        let position = LogPosition::EMPTY;
        let compacted = log.compacted().clone();
        Self {
            processes,
            locations,
            pending,
            position,
            backend,
            is_authoritative: true,
            compacted,
        }
        .apply_log(log, head)
    }

    /// Applies all records after the index's position. Returns the position of the last commit.
    fn apply_log(
        mut self,
        log: &Log,
        head: LogPosition,
    ) -> Result<(Self, LogPosition), IndexError> {
        let mut progress = Progress::new(log.bytes_after(self.position.end));
        let end = walk::<IndexError>(log, self.position, head, &mut |found| {
            match found {
                WalkItem::Record(at, header) => {
                    let payload = || log.payload(at, &header).map(Bytes::from);
                    self.apply_record(at, &header, &payload)?;
                    progress.add(HEADER_BYTES as u64 + header.length);
                }
                WalkItem::LostRange(lost) => {
                    tracing::warn!(from = %lost.start, to = %lost.end, "a range of the log is \
                     unreadable");
                    self.add_lost_range(lost);
                }
                WalkItem::Commit(position) => self.advance_to(position, log)?,
            }
            Ok(())
        })?;
        self.position = end;
        self.flush(log)?;
        Ok((self, end))
    }

    /// Sets the position up to which records are applied. Flushes if enough changes are pending.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn advance_to(
        &mut self,
        position: LogPosition,
        log: &Log,
    ) -> Result<(), IndexFault> {
        self.position = position;
        let is_flush_due = match self.backend {
            Backend::Folder(_) => {
                self.pending.records().max(self.processes.changed_entries()) >= MAX_PENDING_RECORDS
            }
            Backend::Memory => self.processes.changed_entries() >= MAX_DECODED_ENTRIES,
        };
        if is_flush_due {
            self.flush(log)
        } else {
            Ok(())
        }
    }

    /// Whether the index can be queried while changes are pending. A pending removal has to be
    /// flushed first, because a range query merges only additions.
    pub(crate) fn is_queryable(&self) -> bool {
        self.backend == Backend::Memory || self.pending.can_stay_pending()
    }

    /// Whether changes are pending.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.records() > 0 || self.processes.changed_entries() > 0
    }

    /// Writes all pending changes. If that fails, there is no index until it is rebuilt.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn flush(&mut self, log: &Log) -> Result<(), IndexFault> {
        let outcome = self.write_pending(log);
        if outcome.is_err() {
            self.locations = None;
        }
        outcome
    }

    fn write_pending(&mut self, log: &Log) -> Result<(), IndexFault> {
        let values = self.processes.encode_changed().map_err(unencodable)?;
        if self.backend == Backend::Memory {
            return Ok(());
        }
        let mut changes = std::mem::take(&mut self.pending);
        let index_position = self.index_position(log);
        for (index_key, value) in values {
            match value {
                Some(value) => changes.put_table_value(index_key, value),
                None => changes.remove(&index_key),
            }
        }
        self.locations
            .as_mut()
            .ok_or_else(|| IndexFault("is being built".to_owned()))?
            .apply(changes, &index_position)
    }

    /// Simulates a failure of sled.
    #[cfg(test)]
    pub(crate) fn drop_locations(&mut self) {
        self.locations = None;
    }

    /// Whether the index was built from the log since the store was opened.
    #[cfg(test)]
    pub(crate) fn is_authoritative(&self) -> bool {
        self.is_authoritative
    }

    /// The position of the index and the digest of the process table, to be stored with changes.
    fn index_position(&self, log: &Log) -> IndexPosition {
        let position = self.position;
        let digest = self.processes.digest();
        let lost = self.processes.lost_ranges().last().copied();
        IndexPosition {
            position,
            digest,
            lengths_hash: log.hash_lengths_before(position.end.segment),
            lost,
        }
    }

    fn locations(&self) -> Result<&LocationIndex, IndexFault> {
        self.locations
            .as_ref()
            .ok_or_else(|| IndexFault("is being built".to_owned()))
    }

    /// The process table.
    pub(crate) fn processes(&self) -> &ProcessTable {
        &self.processes
    }

    /// Removes these keys if they point into compacted segments. The removal is written by the next
    /// flush.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn remove_compacted(
        &mut self,
        index_keys: &[RecordKey],
        log: &Log,
    ) -> Result<(), IndexFault> {
        self.flush(log)?;
        for index_key in index_keys {
            if self
                .locations()?
                .get(index_key, &self.pending)?
                .is_some_and(|entry| self.compacted.contains(entry.at.segment))
            {
                self.pending.remove(&index_key.to_bytes());
            }
        }
        Ok(())
    }

    /// Fails if a record was not found in an index that was not built since the store was opened:
    /// an index from disk may have lost keys.
    fn check_absence(&self, is_found: bool) -> Result<(), IndexFault> {
        if is_found || self.is_authoritative {
            Ok(())
        } else {
            Err(IndexFault("may have lost something".to_owned()))
        }
    }
}

/// Whether the log is whole from `head` to `position`. After HEAD's position, a power loss may have
/// lost a commit and kept later ones.
fn is_whole_between(
    log: &Log,
    head: LogPosition,
    position: LogPosition,
) -> Result<bool, StoreError> {
    let mut reached = false;
    let mut lost = false;
    walk(log, head, head, &mut |found| {
        match found {
            WalkItem::Commit(at) => reached |= at == position,
            WalkItem::LostRange(_) => lost |= !reached,
            WalkItem::Record(..) => {}
        }
        Ok::<_, StoreError>(())
    })?;
    Ok(reached && !lost)
}

fn unencodable(error: CodecError) -> IndexFault {
    IndexFault(format!(
        "cannot take an entry of the process table: {error}"
    ))
}

#[cfg(test)]
mod tests;
