//! How a store is opened.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use dormouse_actors::ports::StoreError;

use crate::disk::OsDisk;
use crate::log_store::LogStore;
use crate::pace::Pace;
use crate::packed::Compression;
use crate::quota::Quota;
use crate::read_only;
use crate::secret::StoreSecret;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) segment_bytes: u64,
    pub(crate) quota: Quota,
    pub(crate) compression: Compression,
    pub(crate) secret: Option<StoreSecret>,
    pub(crate) pace: Pace,
}

impl Default for Options {
    fn default() -> Self {
        let (quota, pace) = (Quota::default(), Pace::default());
        Self {
            segment_bytes: 256 << 20,
            quota,
            compression: Compression::None,
            secret: None,
            pace,
        }
    }
}

impl Options {
    /// The length in bytes at which a new segment is begun (default 256 MiB). A commit larger than
    /// that gets a segment of its own. May differ from one opening to the next.
    #[must_use]
    pub fn segment_bytes(self, bytes: u64) -> Self {
        Self {
            segment_bytes: bytes,
            ..self
        }
    }

    /// The most bytes that the log may have; without a bound until said otherwise. A commit that
    /// would exceed it is refused as [`StoreError::Full`], and nothing is lost: it can be made
    /// again when there is room. Ends of processes, and what gives something up, may exceed it by a
    /// 64th. A sweep may for a while exceed it by what is live in one segment; where more than
    /// three quarters are used, it empties segments of which a tenth is garbage, whatever it was
    /// told to leave. The index, which can be thrown away, is not counted.
    #[must_use]
    pub fn quota_bytes(self, bytes: u64) -> Self {
        Self {
            quota: Quota::of(bytes),
            ..self
        }
    }

    /// Whether contents are compressed when they are written; they are not, until said otherwise.
    /// May differ from one opening to the next: what is there stays as it is, and is read either
    /// way.
    #[must_use]
    pub fn compression(self, compression: Compression) -> Self {
        Self {
            compression,
            ..self
        }
    }

    /// What a new store is to be encrypted with, and what an encrypted one is opened with; a store
    /// stays as it was made. All that is said, done and called somehow is sealed, in the log and in
    /// the index. What can still be seen is how much there is, when it was written and of which
    /// process it is: kinds, numbers, times and lengths of records. Costs a pass of
    /// XChaCha20-Poly1305 over what is written and what is read, and 40 bytes for each record and
    /// each 64 KiB of a content.
    #[must_use]
    pub fn key(self, secret: StoreSecret) -> Self {
        Self {
            secret: Some(secret),
            ..self
        }
    }

    /// Asked before so many bytes are read from a store that is open for reading only, and by
    /// [`fsck`](crate::fsck()) while it looks: it may wait, so that reading leaves the disk to
    /// others, and may break off. What is read fails as [`StoreError::Io`] of kind `Interrupted`
    /// then. At most 1 MiB is read at once. A store that is open for writing is read without
    /// asking.
    #[must_use]
    pub fn pace(self, ask: impl Fn(u64) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        Self {
            pace: Pace::of(ask),
            ..self
        }
    }

    /// Opens the store in `dir` for reading, as [`LogStore::read_only`].
    ///
    /// # Errors
    /// As [`LogStore::read_only`].
    pub fn read_only(self, dir: impl AsRef<Path>) -> Result<LogStore, StoreError> {
        let opened = read_only::open(dir.as_ref(), &self)?;
        Ok(LogStore::of(
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
