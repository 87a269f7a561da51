//! Implements the store port ([`Store`]): answers queries from records of the log, and passes writes
//! on.

use std::path::Path;
use std::sync::Arc;

use dormouse_actors::ports::{
    Batch, BlobReader, CommittedFacts, History, InventoryReport, InventoryUpdate, Journal,
    MarkToken, OwnerToken, ProcessListing, Store, StoreError, SweepReport, SweepRequest,
    TempFileChange,
};
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::id::{CheckpointId, CommitNumber, ContentHash, FactNumber, Pid};

use super::{LAST_CHECKPOINT, RecordStore, label_stream, read_checkpoint, stream};
use crate::commit::WriterCache;
use crate::content::StoredContent;
use crate::log::{Record, RecordLog, StreamKind};
use crate::row::StoredRow;
use crate::validator::check_not_deleted;

/// The number of facts that one read of a part of a history loads.
const FACTS_AT_ONCE: u64 = 64;

impl<L: RecordLog> Store for RecordStore<L> {
    fn folder(&self) -> Option<&Path> {
        self.log.folder()
    }

    fn claim(&self) -> Result<OwnerToken, StoreError> {
        let mut cache = self.cache();
        // Another owner may have written since the cache was filled.
        *cache = WriterCache::default();
        // The key is checked before the claim, because the claim takes the log from its owner.
        let header = self.stored_codec()?;
        let owner = self.log.claim()?;
        if header.is_none() {
            self.codec_to_write(owner)?;
        }
        Ok(owner)
    }

    fn commit(&self, owner: OwnerToken, batch: Batch<'_>) -> Result<CommitNumber, StoreError> {
        let mut cache = self.cache();
        let result = self.commit_with(&mut cache, owner, batch);
        if result.is_err() {
            // A failed write may still have reached the log.
            *cache = WriterCache::default();
        }
        result
    }

    fn processes(&self) -> Result<ProcessListing, StoreError> {
        let mut listing = ProcessListing::default();
        let records = self.log.read_kind(StreamKind::Process)?;
        let codec = self.codec()?;
        for (pid, record) in records {
            listing.last_pid = listing.last_pid.max(pid);
            match StoredRow::read(&codec, Pid(pid), &record) {
                Ok(StoredRow::Existing(row)) => listing.rows.push(row.process_row),
                Ok(StoredRow::Deleted) => {}
                Err(error) => listing.losses.push(error.to_string()),
            }
        }
        Ok(listing)
    }

    fn journal(&self, pid: Pid, up_to: Option<FactNumber>) -> Result<Journal, StoreError> {
        self.read_consistently(pid, |row| {
            let last = self.last_fact(pid, row)?;
            let requested = up_to.unwrap_or(last);
            check_range(pid, requested, row.oldest_snapshot, last)?;
            let (base, image) = self.read_image(pid, requested)?;
            let facts = stream(StreamKind::Fact, pid);
            Ok(Journal {
                row: row.process_row.clone(),
                base,
                image,
                facts: self.read_payloads(facts, base.0 + 1, requested.0)?,
            })
        })
    }

    fn facts(
        &self,
        pid: Pid,
        first: FactNumber,
        up_to: FactNumber,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.read_consistently(pid, |row| {
            check_range(pid, up_to, row.oldest_snapshot, self.last_fact(pid, row)?)?;
            let first = first.max(FactNumber(1));
            check_not_deleted(pid, first, row.oldest_snapshot)?;
            self.read_payloads(stream(StreamKind::Fact, pid), first.0, up_to.0)
        })
    }

    fn history(&self, pid: Pid) -> Result<History, StoreError> {
        self.read_consistently(pid, |row| {
            let mut commits = Vec::new();
            if row.oldest_snapshot == FactNumber(0) {
                let first_image = self.log.read(stream(StreamKind::Snapshot, pid), 0..=0)?;
                first_image
                    .iter()
                    .for_each(|creation| add_to_commits(&mut commits, creation));
            }
            let facts = stream(StreamKind::Fact, pid);
            for fact in self.log.read(facts, row.oldest_snapshot.0 + 1..=u64::MAX)? {
                add_to_commits(&mut commits, &fact);
            }
            Ok(History::complete(pid, commits))
        })
    }

    fn history_after(&self, pid: Pid, after: CommitNumber) -> Result<History, StoreError> {
        self.read_consistently(pid, |row| {
            let facts = stream(StreamKind::Fact, pid);
            let mut chunks = Vec::new();
            let mut end = self.last_fact(pid, row)?;
            // The latest facts are read first, until one was written by an earlier commit.
            let mut is_complete = false;
            while end > row.oldest_snapshot && !is_complete {
                let first = (end.0 + 1)
                    .saturating_sub(FACTS_AT_ONCE)
                    .max(row.oldest_snapshot.0 + 1);
                let mut chunk = self.log.read(facts, first..=end.0)?;
                let count = chunk.len();
                chunk.retain(|fact| fact.commit > after);
                is_complete = chunk.len() < count;
                chunks.push(chunk);
                end = FactNumber(first - 1);
            }
            let mut commits = Vec::new();
            if row.oldest_snapshot == FactNumber(0) && !is_complete {
                let birth = self.log.read(stream(StreamKind::Snapshot, pid), 0..=0)?;
                birth
                    .iter()
                    .filter(|birth| birth.commit > after)
                    .for_each(|birth| add_to_commits(&mut commits, birth));
            }
            for fact in chunks.iter().rev().flatten() {
                add_to_commits(&mut commits, fact);
            }
            Ok(History::complete(pid, commits))
        })
    }

    fn checkpoints(&self) -> Result<Vec<Checkpoint>, StoreError> {
        let records = self.log.read_kind(StreamKind::Checkpoint)?;
        let codec = self.codec()?;
        records
            .into_iter()
            .map(|(id, record)| read_checkpoint(&codec, CheckpointId(id), &record))
            .collect()
    }

    fn last_checkpoint(&self) -> Result<u64, StoreError> {
        let record = self.log.latest(LAST_CHECKPOINT, 0)?;
        let codec = self.codec()?;
        record.map_or(Ok(0), |record| codec.value(LAST_CHECKPOINT, &record))
    }

    fn labels(&self) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        let records = self.log.read_kind(StreamKind::Label)?;
        let codec = self.codec()?;
        let decode = |(number, record)| {
            let payload = codec.payload(label_stream(number), &record)?;
            Ok((number, payload.into()))
        };
        records.into_iter().map(decode).collect()
    }

    fn content(&self, hash: ContentHash) -> Result<Arc<dyn BlobReader>, StoreError> {
        // Only the codec can compute the log's name of the content, so the codec is loaded before
        // the content is read. That is safe: an empty log contains no content.
        let codec = self.codec()?;
        let stored = self.log.content(codec.content_name(hash))?;
        let stored = stored.ok_or(StoreError::UnknownContent(hash))?;
        Ok(Arc::new(StoredContent::open(codec, hash, stored)?))
    }

    fn temp_files(&self, root: Pid) -> Result<Vec<TempFileChange>, StoreError> {
        self.temp_file_changes(root, CommitNumber(u64::MAX))
    }

    fn temp_files_up_to(
        &self,
        root: Pid,
        commit: CommitNumber,
    ) -> Result<Vec<TempFileChange>, StoreError> {
        self.temp_file_changes(root, commit)
    }

    fn begin_mark(&self, owner: OwnerToken) -> Result<MarkToken, StoreError> {
        self.check_owner(owner)?;
        // A commit that runs has perhaps named its contents before this mark pins any, and its
        // records may be written after the inventory is taken. The lock waits for its end.
        let _no_commit = self.cache();
        Ok(self.pins.begin())
    }

    fn end_mark(&self, mark: MarkToken) {
        self.pins.end(mark);
    }

    fn update_inventory(&self, update: InventoryUpdate<'_>) -> Result<InventoryReport, StoreError> {
        self.rebuild_inventory(update)
    }

    fn sweep(&self, owner: OwnerToken, sweep: SweepRequest<'_>) -> Result<SweepReport, StoreError> {
        self.collect_contents(owner, sweep)
    }
}

/// Refuses a fact that the process does not have.
fn check_range(
    pid: Pid,
    requested: FactNumber,
    oldest_snapshot: FactNumber,
    last: FactNumber,
) -> Result<(), StoreError> {
    if requested < oldest_snapshot {
        return Err(StoreError::DeletedFact {
            pid,
            requested,
            first_kept: oldest_snapshot,
        });
    }
    if requested > last {
        return Err(StoreError::UnknownFact {
            pid,
            requested,
            last,
        });
    }
    Ok(())
}

/// Adds a fact to the facts of the same commit, or starts a new group with it.
fn add_to_commits(commits: &mut Vec<CommittedFacts>, fact: &Record) {
    match commits.last_mut() {
        // Record 0, the creation, is a group of its own.
        Some(last)
            if last.commit == fact.commit
                && last.last().0 + 1 == fact.number
                && fact.number > 1 =>
        {
            last.count += 1;
        }
        _ => commits.push(CommittedFacts {
            commit: fact.commit,
            at_ms: fact.at_ms,
            first: FactNumber(fact.number),
            count: 1,
        }),
    }
}
