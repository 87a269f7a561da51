//! The only writer of the log: assigns locations to records and makes them durable.
//!
//! It keeps the invariants LOG-1 and LOG-2 of the crate documentation, and writes HEAD and HEAD2
//! (`head.rs`). It knows nothing of journals: the caller has validated the records, and
//! `record_builder.rs` encodes them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_actors::ports::{OwnerToken, StoreError, SyncLevel};
use dormouse_proto::id::CommitNumber;

use crate::append_file::{AppendError, AppendFile as _, append, sync, truncate};
use crate::disk::{Disk, ReadOnlyDisk};
use crate::error::io as io_error;
use crate::head::{Head, SecondHead};
use crate::log::{Log, record_end};
use crate::log_position::{Location, LogPosition};
use crate::options::Options;
use crate::record_builder::{CommitHeader, EncodedRecord, Encoder, RecordBuilder};
use crate::record_header::{PlaceInCommit, RecordHeader};
use crate::segment::Segment;

/// HEAD is written again after this many commits.
const COMMITS_PER_HEAD: u64 = 1024;

/// A record that was written.
#[derive(Debug)]
pub(crate) struct WrittenRecord {
    pub(crate) at: Location,
    pub(crate) header: RecordHeader,
    /// The payload, in parts that follow each other.
    pub(crate) payload: Vec<Bytes>,
}

/// The encoded records of the next commit.
#[derive(Debug)]
pub(crate) struct EncodedBatch {
    records: Vec<EncodedRecord>,
    commit_header: CommitHeader,
}

impl EncodedBatch {
    /// The bytes that the records take in the log.
    pub(crate) fn length(&self) -> u64 {
        self.records.iter().map(EncodedRecord::length).sum()
    }
}

/// Appends commits at the end of the log.
#[derive(Debug)]
pub(crate) struct Writer {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    log: Arc<Log>,
    segment: Arc<Segment>,
    segment_bytes: u64,
    encoder: Encoder,
    /// HEAD as it is on disk; its position is at or before the log's end.
    head: Head,
    /// `None` if HEAD2 cannot be written: HEAD alone is enough.
    second_head: Option<SecondHead>,
    position: LogPosition,
    /// The latest commit known to be on the disk.
    synced: u64,
    /// Why writes are refused. Set while a write is in progress, so that a panic in it poisons the
    /// writer.
    poisoned: Option<PoisonReason>,
}

/// Why a writer refuses to write.
#[derive(Clone, Debug)]
enum PoisonReason {
    /// The content of the disk is unknown.
    Failed(String),
    /// The store was opened for reading.
    ReadOnly,
}

impl Writer {
    /// Continues after `head`'s position, in `segment`.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        log: Arc<Log>,
        segment: Arc<Segment>,
        head: Head,
        options: &Options,
    ) -> Self {
        let position = head.position;
        let synced = head.position.commit;
        let poisoned = None;
        let segment_bytes = options.segment_bytes;
        let encoder = Encoder {
            keys: log.keys().clone(),
            compression: options.compression,
        };
        Self {
            disk,
            dir,
            log,
            segment,
            segment_bytes,
            encoder,
            head,
            second_head: None,
            position,
            synced,
            poisoned,
        }
    }

    /// Updates HEAD2 after each commit from here on.
    pub(crate) fn with_second_head(mut self) -> Self {
        let second_head = SecondHead::open(&*self.disk, &self.dir, &self.head);
        self.second_head = second_head
            .inspect_err(|error| tracing::warn!(%error, "HEAD2 is not written"))
            .ok();
        self
    }

    /// A writer that refuses every write, and knows where the log ends.
    pub(crate) fn read_only(
        dir: PathBuf,
        log: Arc<Log>,
        segment: Arc<Segment>,
        head: Head,
        options: &Options,
    ) -> Self {
        Self {
            poisoned: Some(PoisonReason::ReadOnly),
            ..Self::new(
                Arc::new(ReadOnlyDisk::default()),
                dir,
                log,
                segment,
                head,
                options,
            )
        }
    }

    /// The newest owner.
    pub(crate) fn owner(&self) -> OwnerToken {
        OwnerToken(self.head.owner)
    }

    /// The end of the log.
    pub(crate) fn position(&self) -> LogPosition {
        self.position
    }

    /// Registers a new owner, durably.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Failed`]; the previous owner stays valid then.
    pub(crate) fn claim(&mut self) -> Result<OwnerToken, StoreError> {
        self.check_writable()?;
        self.sync()?;
        let head = Head {
            owner: self.head.owner + 1,
            position: self.position,
            ..self.head
        };
        self.write_head(head)
            .map_err(io_error("write HEAD for a new owner"))?;
        Ok(self.owner())
    }

    /// Refuses to write after a failed sync, and in a read-only store.
    ///
    /// # Errors
    /// [`StoreError::Failed`], [`StoreError::ReadOnly`].
    pub(crate) fn check_writable(&self) -> Result<(), StoreError> {
        match &self.poisoned {
            None => Ok(()),
            Some(PoisonReason::Failed(why)) => Err(StoreError::Failed(why.clone())),
            Some(PoisonReason::ReadOnly) => Err(StoreError::ReadOnly {
                path: self.dir.display().to_string(),
            }),
        }
    }

    /// The number of the last commit; 0 if there is none.
    pub(crate) fn last_commit(&self) -> CommitNumber {
        CommitNumber(self.position.commit)
    }

    /// Encodes the records of the next commit. Costs the compression of contents and the
    /// encryption.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the operating system provides no randomness.
    pub(crate) fn encode(
        &self,
        builders: Vec<RecordBuilder>,
        at_ms: u64,
    ) -> Result<EncodedBatch, StoreError> {
        let commit_header = CommitHeader {
            commit: self.position.commit + 1,
            at_ms,
        };
        let encode = |builder: RecordBuilder| builder.encode(&self.encoder, commit_header);
        Ok(EncodedBatch {
            records: builders
                .into_iter()
                .map(encode)
                .collect::<Result<Vec<_>, _>>()?,
            commit_header,
        })
    }

    /// Writes an encoded batch as one commit. Costs one write, one fdatasync if `sync_level` is
    /// [`SyncLevel::Synced`], and some more syncs at the end of a segment.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Failed`]. The commit is not part of the log then.
    pub(crate) fn append(
        &mut self,
        encoded: EncodedBatch,
        sync_level: SyncLevel,
    ) -> Result<Vec<WrittenRecord>, StoreError> {
        self.check_writable()?;
        self.start_segment_if_full(encoded.length())?;
        let EncodedBatch {
            mut records,
            commit_header,
        } = encoded;
        if self.segment.end() == 0 {
            records.insert(
                0,
                RecordBuilder::segment_opened(self.segment.number(), &self.head.key)
                    .encode(&self.encoder, commit_header)?,
            );
        }
        let (parts, written, position) = self.link_records(records);
        let end = self.segment.end();
        self.segment
            .reserve(position.end.offset - end, self.segment_bytes);
        self.run_step(
            "append a commit to the log; nothing of it was written",
            |segment| append(segment, end, &parts),
        )?;
        if sync_level == SyncLevel::Synced {
            self.run_step("sync a commit; nothing of it counts", |segment| {
                sync(segment, end)
            })?;
            self.synced = position.commit;
        }
        self.acknowledge_commit(position);
        self.update_second_head();
        Ok(written)
    }

    /// Starts a new segment with an empty commit, so that the previous segment can be compacted.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub(crate) fn start_segment(&mut self, at_ms: u64) -> Result<Vec<WrittenRecord>, StoreError> {
        self.check_writable()?;
        if self.segment.end() > 0 {
            self.start_next_segment()?;
        }
        let empty_commit = self.encode(Vec::new(), at_ms)?;
        self.append(empty_commit, SyncLevel::Written)
    }

    /// Syncs the commits that were written and not synced yet. Costs one fdatasync, or nothing.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Failed`].
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        self.check_writable()?;
        if self.synced < self.position.commit {
            // If this sync fails, acknowledged commits are not cut off: the next opening finds out
            // whether they reached the disk.
            let end = self.segment.end();
            self.run_step("sync what was written", |segment| sync(segment, end))?;
            self.synced = self.position.commit;
            self.update_second_head();
        }
        Ok(())
    }

    /// Updates HEAD2, if the whole log is on the disk.
    fn update_second_head(&mut self) {
        let head = Head {
            position: self.position,
            ..self.head
        };
        if self.synced == self.position.commit
            && let Some(second_head) = &mut self.second_head
            && let Err(error) = second_head.write(&head)
        {
            // HEAD2 is a lower bound, so it may stay behind.
            tracing::warn!(%error, "HEAD2 is no longer written");
            self.second_head = None;
        }
    }

    /// Refuses all later writes, because the content of the disk is unknown.
    pub(crate) fn poison(&mut self, why: String) {
        self.poisoned = Some(PoisonReason::Failed(why));
    }

    /// HEAD's position.
    pub(crate) fn head_position(&self) -> LogPosition {
        self.head.position
    }

    /// Performs a step that poisons the writer if it fails without being undone, or panics.
    fn run_step(
        &mut self,
        doing: &str,
        step: impl FnOnce(&Segment) -> Result<(), AppendError>,
    ) -> Result<(), StoreError> {
        self.poisoned = Some(PoisonReason::Failed("a commit was interrupted".to_owned()));
        let outcome = step(&self.segment);
        self.poisoned = match &outcome {
            Err(AppendError::Unknown(error)) => Some(PoisonReason::Failed(error.to_string())),
            _ => None,
        };
        outcome.map_err(|failure| match failure {
            AppendError::RolledBack(error) | AppendError::Unknown(error) => io_error(doing)(error),
        })
    }

    /// Truncates reserved space, and writes HEAD at the end of the log.
    ///
    /// # Errors
    /// As the operating system's.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        if self.poisoned.is_none() && self.segment.has_reserved_space() {
            self.segment.roll_back(self.segment.end())?;
        }
        self.sync_head()
    }

    /// Writes HEAD at the end of the log, unless it is there already.
    ///
    /// # Errors
    /// As the operating system's.
    pub(crate) fn sync_head(&mut self) -> io::Result<()> {
        if self.poisoned.is_some() || self.head.position == self.position {
            return Ok(());
        }
        // HEAD must not cover a commit that a power loss could still remove, so the log is synced
        // first.
        self.sync().map_err(io::Error::other)?;
        self.write_head(Head {
            position: self.position,
            ..self.head
        })
    }

    /// Makes a commit that was written readable, and writes HEAD if enough commits have passed.
    fn acknowledge_commit(&mut self, position: LogPosition) {
        self.segment.acknowledge(position.end.offset);
        self.position = position;
        if position.commit - self.head.position.commit >= COMMITS_PER_HEAD
            && let Err(error) = self.sync_head()
        {
            // HEAD is a lower bound: an older one is correct as well, and the commit itself is
            // durable.
            tracing::warn!(%error, "HEAD was not written");
        }
    }

    /// Starts a new segment if `bytes` more would make this one too long. HEAD is written first, so
    /// that only the last segment can have a torn tail.
    fn start_segment_if_full(&mut self, bytes: u64) -> Result<(), StoreError> {
        let end = self.segment.end();
        if end == 0 || end + bytes <= self.segment_bytes {
            return Ok(());
        }
        self.start_next_segment()
    }

    fn start_next_segment(&mut self) -> Result<(), StoreError> {
        self.sync_head()
            .map_err(io_error("write HEAD at the end of a segment"))?;
        // The walk over the log expects the next segment right after the last record, so reserved
        // space is cut off.
        let end = self.segment.end();
        if self.segment.has_reserved_space() {
            self.run_step("end a segment of the log", |segment| truncate(segment, end))?;
        }
        let number = self.segment.number() + 1;
        self.segment = self
            .log
            .add_segment(number)
            .map_err(io_error(format!("begin segment {number} of the log")))?;
        Ok(())
    }

    /// Assigns locations to the records of a commit, and links each to the hash of the one before.
    /// Returns the bytes to write, the records, and the position of the log's end after them.
    fn link_records(
        &self,
        records: Vec<EncodedRecord>,
    ) -> (Vec<Bytes>, Vec<WrittenRecord>, LogPosition) {
        let count = records.len();
        let commit = self.position.commit + 1;
        let mut at = Location {
            segment: self.segment.number(),
            offset: self.segment.end(),
        };
        let mut position = LogPosition {
            commit,
            ..self.position
        };
        let mut parts = Vec::new();
        let mut written = Vec::new();
        for (index, record) in records.into_iter().enumerate() {
            let place = if index + 1 == count {
                PlaceInCommit::Last
            } else {
                PlaceInCommit::More
            };
            let (header, payload) = record.link(place, position.chain, self.synced);
            let (bytes, chain) = header.sign(self.log.key(), at);
            parts.push(Bytes::copy_from_slice(&bytes));
            parts.extend(payload.iter().cloned());
            position = LogPosition {
                end: record_end(at, &header),
                last: at.offset,
                chain,
                commit,
            };
            written.push(WrittenRecord {
                at,
                header,
                payload,
            });
            at = position.end;
        }
        (parts, written, position)
    }

    fn write_head(&mut self, head: Head) -> io::Result<()> {
        head.write(&*self.disk, &self.dir)?;
        self.head = head;
        self.update_second_head();
        Ok(())
    }
}
