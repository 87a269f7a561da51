//! Content: immutable bytes that are read by pages, lines and characters.
//!
//! UTF-8 bytes are text. Bytes in another encoding, or with a few invalid ones, are decoded; other
//! bytes are binary and shown as base64. Pages, lines and characters refer to the text that is
//! shown; hash, length and exports refer to the bytes. The unit is the Unicode scalar value. Only
//! LF ends a line, a final LF starts no further line, and empty content has one page and one line.
//!
//! Creating a text content validates and indexes it in one pass, close to memory bandwidth. After
//! that, any page, line or character range costs O(log n + size of the result). A page table is
//! built in one pass when its page size is first used, and is then cached; so are reformatted JSON
//! and the outlines of [`units`].
//!
//! A content is either resident (in memory) or [on disk](Content::on_disk). A content on disk is
//! read from its [`BlobStore`], and only in the requested ranges. The value is the same in both
//! cases, and a content can be [evicted](Content::evict) while it is in use. Hash and length are
//! always available; everything else can fail with [`Unreadable`].
//!
//! This crate never copies text to serve or extract it, never changes a content (FD-2), and opens
//! no file: reading is the job of the [`BlobStore`].

mod blob;
mod capped_buffer;
mod chars;
mod decoding;
mod derived;
mod detection;
mod eviction;
mod index;
mod json_shape;
mod location;
mod pages;
mod pretty;
mod quota;
mod reader;
mod slice;
mod text_index;
pub mod units;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use bytes::Bytes;
use bytestring::ByteString;
use dormouse_proto::id::ContentHash;
use dormouse_proto::record::ContentRef;

pub use blob::{BlobReader, BlobStore, Unreadable};
pub use capped_buffer::{CappedBuffer, CappedBytes};
use derived::DerivedData;
use eviction::AccessRecord;
pub use eviction::{AccessClock, WeakContent};
use location::{Data, Location};
pub use pretty::PrettyError;
pub use quota::ReadQuota;
pub use reader::Reader;
pub use slice::Slice;
use text_index::TextIndex;

/// Immutable bytes with an index. Cloning costs a pointer; equality compares bytes.
#[derive(Clone)]
pub struct Content {
    inner: Arc<Inner>,
}

struct Inner {
    len: u64,
    /// Always known for contents on disk.
    hash: OnceLock<ContentHash>,
    location: RwLock<Location>,
    /// The index of pages, lines and characters; known for resident contents and for those that
    /// were read before.
    text_index: OnceLock<Arc<TextIndex>>,
    /// Data derived from the bytes; it can be built again.
    derived_data: Mutex<Option<Arc<DerivedData>>>,
    access: AccessRecord,
}

/// A shared text as the owner of `Bytes`.
struct SharedText(Arc<str>);

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Content {
    /// A resident content. Never fails: bytes that are not text are binary. O(n), at memory
    /// bandwidth for UTF-8.
    #[must_use]
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self::from_data(Data::new(bytes.into()))
    }

    /// A resident content that shares a text without a copy. O(n), at memory bandwidth.
    #[must_use]
    pub fn from_shared_text(text: Arc<str>) -> Self {
        Self::new(Self::bytes_from_text(text))
    }

    /// The bytes of a shared text, without a copy.
    #[must_use]
    pub fn bytes_from_text(text: Arc<str>) -> Bytes {
        Bytes::from_owner(SharedText(text))
    }

    /// A content on disk, identified by its hash. Nothing is read until the content is used. O(1).
    #[must_use]
    pub fn on_disk(reference: ContentRef, store: Arc<dyn BlobStore>) -> Self {
        Self::build(
            reference.len,
            Some(reference.hash),
            Location::OnDisk(store),
            None,
        )
    }

    fn from_text(text: ByteString) -> Self {
        Self::from_data(Data::from_text(text))
    }

    fn from_data(data: Data) -> Self {
        let text_index = Arc::new(TextIndex::new(&data));
        Self::build(
            data.bytes().len() as u64,
            None,
            Location::Resident(data),
            Some(text_index),
        )
    }

    fn build(
        len: u64,
        hash: Option<ContentHash>,
        location: Location,
        text_index: Option<Arc<TextIndex>>,
    ) -> Self {
        let inner = Inner {
            len,
            hash: hash.map_or_else(OnceLock::new, OnceLock::from),
            location: RwLock::new(location),
            text_index: text_index.map_or_else(OnceLock::new, OnceLock::from),
            derived_data: Mutex::new(None),
            access: AccessRecord::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Length in bytes. O(1).
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.inner.len
    }

    /// The BLAKE3 hash of the bytes. O(n) on first use, then cached; O(1) for a content on disk.
    #[must_use]
    pub fn hash(&self) -> ContentHash {
        *self.inner.hash.get_or_init(|| {
            let data = self
                .resident_data()
                .expect("a stored content is created with its hash");
            ContentHash(*blake3::hash(data.bytes()).as_bytes())
        })
    }

    /// Hash and length. Costs the same as [`hash`](Self::hash).
    #[must_use]
    pub fn reference(&self) -> ContentRef {
        ContentRef {
            hash: self.hash(),
            len: self.inner.len,
        }
    }
}

/// The BLAKE3 hash of bytes that are no content.
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> ContentHash {
    ContentHash(*blake3::hash(bytes).as_bytes())
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.inner, &other.inner) {
            return true;
        }
        if self.inner.len != other.inner.len {
            return false;
        }
        let hashes = self.inner.hash.get().zip(other.inner.hash.get());
        match (hashes, self.resident_data().zip(other.resident_data())) {
            (None, Some((a, b))) => a.bytes() == b.bytes(),
            _ => self.hash() == other.hash(),
        }
    }
}

impl Eq for Content {}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Content");
        debug.field("len", &self.inner.len);
        if let Some(hash) = self.inner.hash.get() {
            debug.field("hash", hash);
        }
        debug.finish()
    }
}

#[cfg(test)]
mod blob_tests;
#[cfg(test)]
mod tests;
