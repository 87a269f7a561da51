//! Contents that are not in memory: where their bytes lie, and what is asked of whoever keeps them.
//!
//! Nothing here reads a file: a content asks its [`Source`] when it is read, and the source is of
//! another floor. What a source hands out was checked by it, and is never changed afterwards.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_proto::record::ContentRef;

/// Where the bytes of contents lie that are not in memory.
pub trait Source: Send + Sync + fmt::Debug {
    /// The content of this name, to be read from. Called when a content is read that is not in
    /// memory; the result is dropped after that read, so that it holds nothing open.
    ///
    /// # Errors
    /// It is lost, or its record is damaged, or nothing can be read any more.
    fn open(&self, reference: ContentRef) -> Result<Arc<dyn Backing>, Unreadable>;
}

/// One content on disk.
pub trait Backing: Send + Sync {
    /// The number of its bytes.
    fn length(&self) -> u64;

    /// What was [sealed](super::Content::sealed_index) of it, exactly as it was written; none where
    /// nothing was, or where it is damaged. It is only ever an aid: without it the content is read
    /// whole and indexed anew.
    fn index(&self) -> Option<Bytes>;

    /// These of its bytes, checked against what was written. Costs what it touches, and copies
    /// nothing where a part of a mapped file can be lent.
    ///
    /// # Errors
    /// They are damaged, or not there. Others may still be read.
    fn slice(&self, bytes: Range<u64>) -> Result<Bytes, Unreadable>;
}

/// Bytes of a content cannot be read. An answer to whoever asked for them; nothing else is touched
/// by it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unreadable {
    /// What is lost, and what can still be read.
    pub message: Arc<str>,
}

impl Unreadable {
    /// An error that says this.
    #[must_use]
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self {
            message: message.into(),
        }
    }

    /// What was read is not what the content is said to be.
    pub(super) fn contradiction() -> Self {
        Self::new(
            "What was read of the content is not what was kept of it. Other descriptors can be \
             read.",
        )
    }
}
