//! [`RecordStore`]: implements the store port on a log of records.
//!
//! `log.rs` is the port to the log, `commit.rs` turns commits into operations on it, `gc.rs`
//! collects garbage. `frame.rs` decides how records are encoded (`Codec`), and `log_header.rs`
//! keeps in the log whether it is encrypted. `row.rs` has the row of a process.

mod port;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dormouse_actors::ports::{OwnerToken, Store, StoreError, SyncLevel, TempFileChange};
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::id::{CheckpointId, CommitNumber, FactNumber, Pid};

use crate::commit::WriterCache;
use crate::compression::Compression;
use crate::error::damaged;
use crate::frame::{self, Codec, LOST_HEADER};
use crate::gc_pins::GcPins;
use crate::log::{Record, RecordBatch, RecordLog, Stream, StreamKind};
use crate::log_header::{LOG_HEADER, LogHeader};
use crate::row::{self, ExistingRow, StoredRow};
use crate::secret::StoreSecret;

/// The stream of the highest checkpoint number.
pub(crate) const LAST_CHECKPOINT: Stream = Stream {
    kind: StreamKind::LastCheckpoint,
    id: 0,
};

/// The stream of a checkpoint.
pub(crate) fn checkpoint_stream(id: CheckpointId) -> Stream {
    Stream {
        kind: StreamKind::Checkpoint,
        id: id.0,
    }
}

/// The stream of a label.
pub(crate) fn label_stream(number: u64) -> Stream {
    Stream {
        kind: StreamKind::Label,
        id: number,
    }
}

/// A stream of a process.
pub(crate) fn stream(kind: StreamKind, pid: Pid) -> Stream {
    Stream { kind, id: pid.0 }
}

/// A store on top of a log of records. Opening it reads nothing.
///
/// The first operation reads the header of the log, which says whether the log is encrypted. If the
/// secret is missing or wrong, every operation fails with [`StoreError::Key`] before it reads or
/// writes anything else.
///
/// A commit costs one [`RecordLog::append`], and the reads that its validation needs: two for each
/// process that this store did not write before. A query reads the records that it returns; a
/// [history](Store::history) reads all facts of its process. An inventory update reads all journals
/// each time.
#[derive(Debug, Default)]
pub struct RecordStore<L> {
    log: L,
    secret: Option<StoreSecret>,
    compression: Compression,
    /// Empty until an operation has read or written the header of the log.
    codec: OnceLock<Codec>,
    /// Locked during a commit, so that the state that a commit was validated against cannot change
    /// before it is written.
    cache: Mutex<WriterCache>,
    pins: GcPins,
}

impl<L: RecordLog> RecordStore<L> {
    /// A store on top of this log, neither encrypted nor compressed. Costs nothing.
    #[must_use]
    pub fn new_on(log: L) -> Self {
        Self {
            log,
            secret: None,
            compression: Compression::None,
            codec: OnceLock::new(),
            cache: Mutex::default(),
            pins: GcPins::default(),
        }
    }

    /// Sets the secret: it encrypts a log that is empty, and decrypts one that is encrypted. A log
    /// stays encrypted or unencrypted as its first commit wrote it. Records, contents and their
    /// text indexes are encrypted, and each is bound to its stream and number, or to its name. The
    /// name of a content is a keyed hash. Without the key, only the kinds, numbers, times and
    /// lengths of records are visible, which process each belongs to, and the lengths of contents.
    /// Costs a pass of XChaCha20-Poly1305 over everything written and read, and 40 bytes for each
    /// record and each 64 KiB of a content.
    #[must_use]
    pub fn key(self, secret: StoreSecret) -> Self {
        Self {
            secret: Some(secret),
            codec: OnceLock::new(),
            ..self
        }
    }

    /// Whether records, contents and text indexes are compressed when they are written. May differ
    /// each time the log is opened: existing records stay as they are, and both forms can be read.
    /// A record is compressed as a whole, a content for each 64 KiB on its own, and either only if
    /// that saves an eighth. In an encrypted log, the lengths of compressed records reveal how
    /// repetitive they are.
    #[must_use]
    pub fn compression(self, compression: Compression) -> Self {
        Self {
            compression,
            codec: OnceLock::new(),
            ..self
        }
    }

    /// The underlying log.
    pub fn log(&self) -> &L {
        &self.log
    }

    pub(crate) fn pins(&self) -> &GcPins {
        &self.pins
    }

    pub(crate) fn cache(&self) -> MutexGuard<'_, WriterCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the log is encoded. Costs a read of the log's header, until the log has one.
    ///
    /// The caller must read its records before it calls this function. Another program may write
    /// the first commit, with the header, between two reads of an empty log. Records that were read
    /// after that commit need the codec of its header.
    ///
    /// # Errors
    /// [`StoreError::Key`] for a missing or wrong key, [`StoreError::Damaged`],
    /// [`StoreError::Newer`].
    pub(crate) fn codec(&self) -> Result<Codec, StoreError> {
        match self.stored_codec()? {
            Some(codec) => Ok(codec),
            // The log was empty, so nothing was read that this codec could fail to decode.
            None => Ok(self.new_codec()?.0),
        }
    }

    /// How a commit is encoded, and the header that it must write if it is the first commit.
    ///
    /// # Errors
    /// Those of [`RecordStore::codec`], [`StoreError::Stale`], and [`StoreError::Damaged`] if the
    /// log has commits and no header: unencrypted records must not be added to an encrypted log.
    pub(crate) fn codec_to_write(
        &self,
        owner: OwnerToken,
    ) -> Result<(Codec, Option<LogHeader>), StoreError> {
        if let Some(codec) = self.stored_codec()? {
            return Ok((codec, None));
        }
        if self.check_owner(owner)? > CommitNumber(0) {
            return Err(damaged(format!(
                "the header of the log is lost. {LOST_HEADER}"
            )));
        }
        let (codec, header) = self.new_codec()?;
        Ok((codec, Some(header)))
    }

    /// Keeps the codec for later operations, after the header of the log was read or written.
    pub(crate) fn remember_codec(&self, codec: Codec) {
        self.codec.get_or_init(|| codec);
    }

    /// The codec according to the header of the log; `None` if the log has no header.
    fn stored_codec(&self) -> Result<Option<Codec>, StoreError> {
        if let Some(codec) = self.codec.get() {
            return Ok(Some(codec.clone()));
        }
        let Some(record) = self.log.latest(LOG_HEADER, 0)? else {
            return Ok(None);
        };
        let codec = self.codec_for_header(LogHeader::read(&record)?)?;
        self.remember_codec(codec.clone());
        Ok(Some(codec))
    }

    /// The codec and the header for an empty log.
    fn new_codec(&self) -> Result<(Codec, LogHeader), StoreError> {
        let header = LogHeader::new(self.secret.as_ref()).map_err(frame::cannot_encode)?;
        Ok((self.codec_for_header(header)?, header))
    }

    fn codec_for_header(&self, header: LogHeader) -> Result<Codec, StoreError> {
        let keys = header.keys(self.secret.as_ref());
        let keys = keys.map_err(|fault| StoreError::Key {
            path: self.folder().map_or_else(
                || "on this log of records".to_owned(),
                |folder| folder.display().to_string(),
            ),
            fault,
        })?;
        let compression = self.compression;
        Ok(Codec { keys, compression })
    }

    /// Refuses any owner but the newest. Returns the last commit.
    pub(crate) fn check_owner(&self, owner: OwnerToken) -> Result<CommitNumber, StoreError> {
        let empty = RecordBatch {
            contents: &[],
            ops: &[],
            at_ms: 0,
            sync_level: SyncLevel::Written,
        };
        self.log.append(owner, &empty)
    }

    /// The row of a process; `None` for an unknown one.
    pub(crate) fn row(&self, pid: Pid) -> Result<Option<StoredRow>, StoreError> {
        let record = self.log.latest(row::stream(pid), 0)?;
        let codec = self.codec()?;
        record
            .map(|record| StoredRow::read(&codec, pid, &record))
            .transpose()
    }

    /// The row of a process that is not deleted.
    pub(crate) fn existing_row(&self, pid: Pid) -> Result<ExistingRow, StoreError> {
        match self.row(pid)? {
            Some(StoredRow::Existing(row)) => Ok(row),
            Some(StoredRow::Deleted) | None => Err(StoreError::UnknownProcess(pid)),
        }
    }

    /// Calls `read`, which reads records of a process from the log. If a commit deleted records of
    /// the process meanwhile, calls `read` again.
    pub(crate) fn read_consistently<T>(
        &self,
        pid: Pid,
        read: impl Fn(&ExistingRow) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut row = self.existing_row(pid)?;
        loop {
            let answer = read(&row);
            let row_now = self.existing_row(pid)?;
            if row_now.oldest_snapshot == row.oldest_snapshot {
                return answer;
            }
            row = row_now;
        }
    }

    /// The highest number in a stream; 0 if it is empty.
    pub(crate) fn last_number(&self, stream: Stream) -> Result<u64, StoreError> {
        let last = self.log.latest(stream, u64::MAX)?;
        Ok(last.map_or(0, |record| record.number))
    }

    /// The last fact of a process.
    pub(crate) fn last_fact(&self, pid: Pid, row: &ExistingRow) -> Result<FactNumber, StoreError> {
        let last = self.last_number(stream(StreamKind::Fact, pid))?;
        Ok(FactNumber(last).max(row.oldest_snapshot))
    }

    /// The records of a stream with these numbers.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if one of them is missing.
    fn read_records(
        &self,
        stream: Stream,
        first: u64,
        up_to: u64,
    ) -> Result<Vec<Record>, StoreError> {
        let records = self.log.read(stream, first..=up_to)?;
        match first_missing(&records, first, up_to) {
            None => Ok(records),
            Some(number) => Err(lost_record(stream, number)),
        }
    }

    /// Reads and decodes the payloads of a stream with these numbers.
    fn read_payloads(
        &self,
        stream: Stream,
        first: u64,
        up_to: u64,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let records = self.read_records(stream, first, up_to)?;
        let codec = self.codec()?;
        let payloads = records.iter().map(|record| codec.payload(stream, record));
        payloads.map(|payload| payload.map(Vec::from)).collect()
    }

    /// The latest usable image up to a fact, and the last fact in it.
    fn read_image(&self, pid: Pid, up_to: FactNumber) -> Result<(FactNumber, Vec<u8>), StoreError> {
        let snapshots = stream(StreamKind::Snapshot, pid);
        let mut up_to = up_to.0;
        let mut damage = None;
        loop {
            let Some(record) = self.log.latest(snapshots, up_to)? else {
                return Err(damage.unwrap_or_else(|| lost_record(snapshots, up_to)));
            };
            match self.codec()?.payload(snapshots, &record) {
                Ok(image) => return Ok((FactNumber(record.number), image.into())),
                // An earlier image and more facts give the same state.
                Err(error) => match record.number.checked_sub(1) {
                    Some(before) => (up_to, damage) = (before, damage.or(Some(error))),
                    None => return Err(damage.unwrap_or(error)),
                },
            }
        }
    }

    /// The changes of temporary files up to a commit, each with its commit.
    fn temp_file_changes(
        &self,
        root: Pid,
        upto_commit: CommitNumber,
    ) -> Result<Vec<TempFileChange>, StoreError> {
        let files = stream(StreamKind::TempFile, root);
        self.read_consistently(root, |_| {
            let records = self.log.read(files, 1..=u64::MAX)?;
            let codec = self.codec()?;
            let mut changes = Vec::new();
            for (number, record) in (1..).zip(&records) {
                if record.number != number {
                    return Err(lost_record(files, number));
                }
                if record.commit > upto_commit {
                    break;
                }
                changes.push(TempFileChange {
                    commit: record.commit,
                    record: codec.payload(files, record)?.into(),
                });
            }
            Ok(changes)
        })
    }
}

/// Decodes a checkpoint, with the commit of its record.
pub(crate) fn read_checkpoint(
    codec: &Codec,
    id: CheckpointId,
    record: &Record,
) -> Result<Checkpoint, StoreError> {
    let checkpoint: Checkpoint = codec.value(checkpoint_stream(id), record)?;
    Ok(Checkpoint {
        commit: record.commit,
        at_ms: record.at_ms,
        ..checkpoint
    })
}

/// The first number between `first` and `up_to` that is missing.
pub(crate) fn first_missing(records: &[Record], first: u64, up_to: u64) -> Option<u64> {
    let mut numbers = first..=up_to;
    let mut records = records.iter();
    numbers.find(|number| records.next().is_none_or(|record| record.number != *number))
}

/// The error of a record that the log no longer contains.
pub(crate) fn lost_record(stream: Stream, number: u64) -> StoreError {
    damaged(format!(
        "{} is lost. Everything else can still be read",
        frame::describe_record(stream, number)
    ))
}
