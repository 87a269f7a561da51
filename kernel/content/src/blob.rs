//! Contents on disk: the interface to the store that keeps their bytes.
//!
//! Nothing here reads a file: a content requests its bytes from a [`BlobStore`], which another
//! crate implements. A store returns only bytes that it has verified and that never change
//! afterwards.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_proto::record::ContentRef;

/// Provides the bytes of contents that are not in memory.
pub trait BlobStore: Send + Sync + fmt::Debug {
    /// Opens a content. A content that is not in memory is opened for each read and closed after
    /// it, so that no file stays open.
    ///
    /// # Errors
    /// [`Unreadable`] if the content is missing or damaged, or the store is closed.
    fn open(&self, reference: ContentRef) -> Result<Arc<dyn BlobReader>, Unreadable>;
}

/// One content on disk, open for reading.
pub trait BlobReader: Send + Sync {
    /// Length in bytes.
    fn length(&self) -> u64;

    /// The [serialized index](super::Content::serialized_index), exactly as it was written; `None`
    /// if the index is missing or damaged. The index is only an optimisation: without it, the whole
    /// content is read and indexed again.
    fn index(&self) -> Option<Bytes>;

    /// Reads a byte range, verified against what was written. Costs what it reads, and copies
    /// nothing if a part of a mapped file can be returned.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes are damaged or missing. Other ranges may still be readable.
    fn slice(&self, bytes: Range<u64>) -> Result<Bytes, Unreadable>;
}

/// Bytes of a content cannot be read. Only the operation that needs them fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unreadable {
    /// States which bytes cannot be read, and what can still be read.
    pub message: Arc<str>,
}

impl Unreadable {
    /// An error with this message.
    #[must_use]
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self {
            message: message.into(),
        }
    }

    /// The error for bytes that contradict the reference (hash and length) of their content.
    pub(super) fn inconsistent() -> Self {
        Self::new(
            "What was read of the content is not what was kept of it. Other descriptors can be \
             read.",
        )
    }
}
