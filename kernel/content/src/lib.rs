//! Content: immutable bytes that are read by pages, lines and characters.
//!
//! Bytes that are UTF-8 are text; others are binary and shown as base64, and then pages, lines and
//! characters are those of the base64 text. The unit is the Unicode scalar value; only LF ends a
//! line, a final LF opens no further one, and empty content is one page and one line.
//!
//! Creating a text content checks and indexes it in one go, close to memory bandwidth. After that
//! nothing scans it from its start: any page, line or character range costs O(log n + what is
//! returned). A table of pages is made when a page size is first asked for, in one pass, and kept;
//! so are the reformatted text of JSON and an outline of its [`units`].
//!
//! A content is in memory or [stored](Content::stored): then it is read from its [`Source`], each
//! time the parts that are asked for. It is the same value either way, and may be
//! [offloaded](Content::offload) while others hold it. What is known of it without its bytes (name,
//! length) is always at hand; everything else can be [`Unreadable`].
//!
//! This module never copies text to serve or extract it, and never changes a content (FD-2).

mod builder;
mod chars;
mod derived;
mod index;
mod pages;
mod place;
mod pretty;
mod quota;
mod reading;
mod residence;
mod shape;
mod slice;
mod stored;
pub mod units;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use bytes::Bytes;
use bytestring::ByteString;
use dormouse_proto::id::ContentHash;
use dormouse_proto::record::ContentRef;

pub use builder::{Builder, CappedBytes};
use derived::Derived;
use place::{Data, Place};
pub use pretty::PrettyError;
pub use quota::ReadQuota;
pub use reading::Reader;
use residence::Stamp;
pub use residence::{Reads, WeakContent};
use shape::Shape;
pub use slice::Slice;
pub use stored::{Backing, Source, Unreadable};

/// Immutable bytes with an index. Cloning costs a pointer; equal if the bytes are.
#[derive(Clone)]
pub struct Content {
    inner: Arc<Inner>,
}

struct Inner {
    len: u64,
    /// Known of what is stored.
    hash: OnceLock<ContentHash>,
    place: RwLock<Place>,
    /// What finds pages, lines and characters: known of what is in memory, and of what was read
    /// before.
    shape: OnceLock<Arc<Shape>>,
    /// What was made of the bytes and can be made again.
    derived: Mutex<Option<Arc<Derived>>>,
    stamp: Stamp,
}

/// A text as the owner of bytes.
struct Shared(Arc<str>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Content {
    /// A content of these bytes. Never fails: what is not UTF-8 is binary. O(n), at memory
    /// bandwidth.
    #[must_use]
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self::of_data(Data::new(bytes.into()))
    }

    /// A content of a text that others hold as well: nothing is copied. O(n), at memory bandwidth.
    #[must_use]
    pub fn shared(text: Arc<str>) -> Self {
        Self::new(Self::bytes_of(text))
    }

    /// The bytes of a text that others hold as well: nothing is copied.
    #[must_use]
    pub fn bytes_of(text: Arc<str>) -> Bytes {
        Bytes::from_owner(Shared(text))
    }

    /// The content of this name, which `source` has: nothing is read before somebody asks for
    /// something of it. O(1).
    #[must_use]
    pub fn stored(reference: ContentRef, source: Arc<dyn Source>) -> Self {
        Self::made(
            reference.len,
            Some(reference.hash),
            Place::Stored(source),
            None,
        )
    }

    fn from_text(text: ByteString) -> Self {
        Self::of_data(Data::Text(text))
    }

    fn of_data(data: Data) -> Self {
        let shape = Arc::new(Shape::of(&data));
        Self::made(
            data.bytes().len() as u64,
            None,
            Place::Here(data),
            Some(shape),
        )
    }

    fn made(len: u64, hash: Option<ContentHash>, place: Place, shape: Option<Arc<Shape>>) -> Self {
        let inner = Inner {
            len,
            hash: hash.map_or_else(OnceLock::new, OnceLock::from),
            place: RwLock::new(place),
            shape: shape.map_or_else(OnceLock::new, OnceLock::from),
            derived: Mutex::new(None),
            stamp: Stamp::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// How many bytes it has. O(1), wherever they are.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.inner.len
    }

    /// The BLAKE3 hash of the bytes. O(n) when first asked for, kept afterwards; O(1) of what is
    /// stored.
    #[must_use]
    pub fn hash(&self) -> ContentHash {
        *self.inner.hash.get_or_init(|| {
            let data = self
                .here()
                .expect("what is stored has been named: a source is asked by the name");
            ContentHash(*blake3::hash(data.bytes()).as_bytes())
        })
    }

    /// The content by name. Costs what [`hash`](Self::hash) costs.
    #[must_use]
    pub fn reference(&self) -> ContentRef {
        ContentRef {
            hash: self.hash(),
            len: self.inner.len,
        }
    }
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
        match (hashes, self.here().zip(other.here())) {
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
mod stored_tests;
#[cfg(test)]
mod tests;
