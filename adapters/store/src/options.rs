//! The options that a store is opened with: size of segments, quota, compression, key, throttle.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use dormouse_actors::ports::StoreError;

use crate::disk::OsDisk;
use crate::log_store::LogStore;
use crate::log_walk::MAX_SEGMENT_BYTES;
use crate::quota::Quota;
use crate::read_only;
use crate::throttle::Throttle;
use dormouse_records::Compression;
use dormouse_records::secret::StoreSecret;

/// The options that a store is opened with.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) segment_bytes: u64,
    pub(crate) quota: Quota,
    pub(crate) compression: Compression,
    pub(crate) secret: Option<StoreSecret>,
    pub(crate) throttle: Throttle,
}

impl Default for Options {
    fn default() -> Self {
        let quota = Quota::default();
        let throttle = Throttle::default();
        Self {
            segment_bytes: 256 << 20,
            quota,
            compression: Compression::None,
            secret: None,
            throttle,
        }
    }
}

impl Options {
    /// The length in bytes at which a new segment is started (default 256 MiB, at most 8 GiB: a
    /// greater value counts as 8 GiB). A larger commit gets a segment of its own. May differ between
    /// openings.
    #[must_use]
    pub fn segment_bytes(self, bytes: u64) -> Self {
        Self {
            segment_bytes: bytes.min(MAX_SEGMENT_BYTES),
            ..self
        }
    }

    /// The most bytes that the log may have; unlimited by default. A commit that would exceed the
    /// quota fails as [`StoreError::Full`], and nothing is lost: it can be retried once there is
    /// space. A commit with the end of a process or a deletion may exceed the quota by 1/64. A
    /// compaction may exceed it temporarily by the live bytes of one segment. If more than three
    /// quarters of the quota are used, a compaction includes every segment of which at least a
    /// tenth is garbage, whatever its bounds say. The index does not count, because it can be
    /// deleted.
    #[must_use]
    pub fn quota_bytes(self, bytes: u64) -> Self {
        Self {
            quota: Quota::new(bytes),
            ..self
        }
    }

    /// Whether contents are compressed when they are written; not by default. May differ between
    /// openings: existing contents stay as they are, and both forms can be read.
    #[must_use]
    pub fn compression(self, compression: Compression) -> Self {
        Self {
            compression,
            ..self
        }
    }

    /// The key that a new store is encrypted with, and an encrypted store is opened with. A store
    /// stays encrypted or unencrypted as it was created. Payloads and names are encrypted, in the
    /// log and in the index. Without the key, only kinds, numbers, times and lengths of records are
    /// visible, and which process each belongs to. Costs a pass of XChaCha20-Poly1305 over
    /// everything written and read, and 40 bytes for each record and each 64 KiB of a content.
    #[must_use]
    pub fn key(self, secret: StoreSecret) -> Self {
        Self {
            secret: Some(secret),
            ..self
        }
    }

    /// Calls `wait` before each read of a read-only store, and of [`fsck`](crate::fsck()), with the
    /// number of bytes to read. `wait` may block, to throttle reading. If it returns
    /// [`ControlFlow::Break`], the read fails as [`StoreError::Io`] of kind `Interrupted`. One read
    /// is at most 1 MiB. A store that is open for writing does not call `wait`.
    #[must_use]
    pub fn throttle(self, wait: impl Fn(u64) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        Self {
            throttle: Throttle::new(wait),
            ..self
        }
    }

    /// Opens the store in `dir` for reading, as [`LogStore::read_only`].
    ///
    /// # Errors
    /// As [`LogStore::read_only`].
    pub fn read_only(self, dir: impl AsRef<Path>) -> Result<LogStore, StoreError> {
        let opened = read_only::open(dir.as_ref(), &self)?;
        Ok(LogStore::from_parts(
            dir.as_ref(),
            opened.log,
            opened.index,
            opened.writer,
            None,
        ))
    }

    /// Opens the store in `dir`, as [`LogStore::open`].
    ///
    /// # Errors
    /// As [`LogStore::open`].
    pub fn open(self, dir: impl AsRef<Path>) -> Result<LogStore, StoreError> {
        LogStore::open_on(Arc::new(OsDisk), dir.as_ref(), &self)
    }
}
