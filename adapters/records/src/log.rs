//! The port that a log of records implements: on a database, a folder, or memory.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_actors::ports::{BlobReader, OwnerToken, StoreError, SyncLevel};
use dormouse_proto::id::{CommitNumber, ContentHash};

/// A log of records, addressed by stream and number, and of contents, addressed by name.
///
/// An implementation stores and finds bytes. It decodes no record, and the only rule that it checks
/// is that the caller is the latest owner. [`RecordStore`](crate::RecordStore) does the rest,
/// compression and encryption included. The methods may block, and several threads call them at
/// once.
///
/// The name of a content is 32 bytes that an implementation neither computes nor compares with the
/// content: contents with equal names are equal. The name is the hash of the content. In an
/// encrypted log it is a keyed hash of that hash. The stored bytes of the content may be compressed
/// or encrypted.
///
/// | operation | what it needs |
/// |---|---|
/// | [`append`](Self::append) | one transaction |
/// | [`read`](Self::read), [`latest`](Self::latest), [`read_kind`](Self::read_kind) | an ordered index by (kind, id, number) |
/// | [`content`](Self::content), [`contents`](Self::contents), [`delete_contents`](Self::delete_contents) | an index by name |
///
/// No operation needs a pass over the log, nor does opening it.
pub trait RecordLog: Send + Sync + 'static {
    /// The absolute path of the folder that contains the log, if it is in the local file system.
    /// The kernel denies its processes access to this folder.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// Makes the caller the only writer, durably. Each token is greater than every earlier one,
    /// including those that other programs and machines got.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn claim(&self) -> Result<OwnerToken, StoreError>;

    /// Writes a batch, all or nothing, as one commit. When it returns, the batch and everything
    /// written before it are as durable as `batch.sync_level` asks for. An empty batch writes
    /// nothing, and is refused like any other if the owner is stale.
    ///
    /// Returns the number of the commit, which is at least 1 and greater than that of every earlier
    /// commit. For an empty batch, returns the number of the last commit, or 0 if there is none.
    ///
    /// The check of the owner and the write are one step: a writer that was superseded between
    /// them must not succeed.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if `owner` is not the latest token; nothing is written then.
    /// [`StoreError::Io`].
    fn append(
        &self,
        owner: OwnerToken,
        batch: &RecordBatch<'_>,
    ) -> Result<CommitNumber, StoreError>;

    /// The records of a stream with these numbers, ascending; absent ones are left out.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn read(&self, stream: Stream, numbers: RangeInclusive<u64>)
    -> Result<Vec<Record>, StoreError>;

    /// The record of a stream with the highest number up to and including `up_to`.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn latest(&self, stream: Stream, up_to: u64) -> Result<Option<Record>, StoreError>;

    /// All records of all streams of a kind, by ascending id and number. Called only for
    /// [`StreamKind::Process`], [`StreamKind::Checkpoint`] and [`StreamKind::Label`], whose streams
    /// contain one record each.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn read_kind(&self, kind: StreamKind) -> Result<Vec<(u64, Record)>, StoreError>;

    /// A content as it was written; `None` if the log does not contain it. The caller reads the
    /// content in parts that are not empty, and verifies them. Opening a content should cost no
    /// pass over its bytes.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn content(&self, name: ContentHash) -> Result<Option<Arc<dyn BlobReader>>, StoreError>;

    /// The names of all contents of the log, and the stored length of each in bytes.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn contents(&self) -> Result<Vec<(ContentHash, u64)>, StoreError>;

    /// Deletes contents. Absent ones are ignored.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    fn delete_contents(&self, owner: OwnerToken, names: &[ContentHash]) -> Result<(), StoreError>;
}

/// The name of a stream: the records of one kind that belong to one process or checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    /// The kind of the stream's records.
    pub kind: StreamKind,
    /// The pid of a process, or the number of a checkpoint or a label.
    pub id: u64,
}

/// The kind of the records of a stream. The numbers are stored, and must never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum StreamKind {
    /// The row of a process (what is known of it without its journal): one record, number 0,
    /// rewritten whenever the row changes.
    Process = 1,
    /// Images of a process, numbered by the last fact in them; the image that the process was
    /// created with has the number 0.
    Snapshot = 2,
    /// Facts of a process, numbered from 1 without a gap.
    Fact = 3,
    /// Changes of the temporary files of a process tree, numbered from 1 without a gap.
    TempFile = 4,
    /// A checkpoint: one record, number 0.
    Checkpoint = 5,
    /// The highest number that a checkpoint ever had: one stream, id 0, with one record, number 0.
    LastCheckpoint = 6,
    /// How the log is encoded: one stream, id 0, with one record, number 0, written by the first
    /// commit.
    LogHeader = 7,
    /// The budget of a label: one record, number 0, rewritten with each commit that changes it.
    Label = 8,
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The record's number in its stream.
    pub number: u64,
    /// The number of the commit that wrote it.
    pub commit: CommitNumber,
    /// The time of that commit: milliseconds since the epoch, UTC.
    pub at_ms: u64,
    /// The record's bytes.
    pub bytes: Bytes,
}

/// Operations that are written atomically.
#[derive(Clone, Copy, Debug)]
pub struct RecordBatch<'a> {
    /// Contents, written before the records that reference them. A content that the log contains
    /// already is skipped.
    pub contents: &'a [NewContent],
    /// Record operations, applied in this order.
    pub ops: &'a [RecordOp],
    /// The time: milliseconds since the epoch, UTC.
    pub at_ms: u64,
    /// How durable the batch must be.
    pub sync_level: SyncLevel,
}

impl RecordBatch<'_> {
    /// Whether the batch writes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contents.is_empty() && self.ops.is_empty()
    }
}

/// A content to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewContent {
    /// The name of the content, which is not always the hash of `bytes`.
    pub name: ContentHash,
    /// The bytes to be stored.
    pub bytes: Bytes,
    /// The bytes that [`BlobReader::index`] returns for the content.
    pub index: Bytes,
}

/// An operation on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordOp {
    /// Writes a record, over an existing one of the same stream and number.
    Put {
        /// The stream.
        stream: Stream,
        /// The record's number in the stream.
        number: u64,
        /// The record.
        bytes: Bytes,
    },
    /// Deletes the records of a stream up to and including a number.
    Delete {
        /// The stream.
        stream: Stream,
        /// The last number that is deleted.
        up_to: u64,
    },
}

impl<L: RecordLog + ?Sized> RecordLog for Arc<L> {
    fn folder(&self) -> Option<&Path> {
        (**self).folder()
    }

    fn claim(&self) -> Result<OwnerToken, StoreError> {
        (**self).claim()
    }

    fn append(
        &self,
        owner: OwnerToken,
        batch: &RecordBatch<'_>,
    ) -> Result<CommitNumber, StoreError> {
        (**self).append(owner, batch)
    }

    fn read(
        &self,
        stream: Stream,
        numbers: RangeInclusive<u64>,
    ) -> Result<Vec<Record>, StoreError> {
        (**self).read(stream, numbers)
    }

    fn latest(&self, stream: Stream, up_to: u64) -> Result<Option<Record>, StoreError> {
        (**self).latest(stream, up_to)
    }

    fn read_kind(&self, kind: StreamKind) -> Result<Vec<(u64, Record)>, StoreError> {
        (**self).read_kind(kind)
    }

    fn content(&self, name: ContentHash) -> Result<Option<Arc<dyn BlobReader>>, StoreError> {
        (**self).content(name)
    }

    fn contents(&self) -> Result<Vec<(ContentHash, u64)>, StoreError> {
        (**self).contents()
    }

    fn delete_contents(&self, owner: OwnerToken, names: &[ContentHash]) -> Result<(), StoreError> {
        (**self).delete_contents(owner, names)
    }
}
