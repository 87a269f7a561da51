//! Leaving memory, and what a ledger of contents in memory has to know of each.
//!
//! Nothing here decides what goes: see the kernel's `memory`. A content that was offloaded is
//! the same value for whoever holds it; a part of it that was served before stays where it was.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use bytestring::ByteString;

use super::place::{Data, Place};
use super::{Content, Inner, Source};

/// What the contents of one ledger tell it: that they are read, in what order, and what they make
/// of themselves in memory.
#[derive(Debug, Default)]
pub struct Reads {
    last: AtomicU64,
    grown_bytes: AtomicU64,
}

impl Reads {
    /// How many bytes contents took in addition to their own since they were made, such as for
    /// reformatted text. It only rises: what is let go of is not taken off.
    #[must_use]
    pub fn grown_bytes(&self) -> u64 {
        self.grown_bytes.load(Ordering::Relaxed)
    }
}

/// When a content was last read.
#[derive(Default)]
pub(super) struct Stamp {
    reads: OnceLock<Arc<Reads>>,
    read: AtomicU64,
    /// Whether the bytes may be a part of others, which stay in memory for as long.
    is_part: AtomicBool,
}

impl Stamp {
    pub(super) fn read(&self) {
        if let Some(reads) = self.reads.get() {
            self.read.store(
                reads.last.fetch_add(1, Ordering::Relaxed) + 1,
                Ordering::Relaxed,
            );
        }
    }

    pub(super) fn grown(&self, bytes: u64) {
        if let Some(reads) = self.reads.get() {
            reads.grown_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn set_part(&self) {
        self.is_part.store(true, Ordering::Relaxed);
    }
}

impl Content {
    /// Lets go of the bytes, for all holders at once, and of what was made of them: from now on
    /// they are read from `source`, which must have them. What finds pages and lines stays. O(1),
    /// but for the hash where nobody has asked for it.
    pub fn offload(&self, source: &Arc<dyn Source>) {
        // What is stored is asked for by its name.
        let _ = self.hash();
        let stored = Place::Stored(source.clone());
        let before = std::mem::replace(
            &mut *self
                .inner
                .place
                .write()
                .unwrap_or_else(PoisonError::into_inner),
            stored,
        );
        let derived = self
            .inner
            .derived
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // Outside of the locks: freeing them may take a while.
        drop((before, derived));
    }

    /// Shares the bytes of another content that has the same: then they are in memory once. Nothing
    /// happens where one of them is stored, or they are not equal. Costs what [`hash`](Self::hash)
    /// costs.
    pub fn share(&self, other: &Self) {
        if Arc::ptr_eq(&self.inner, &other.inner) || self.reference() != other.reference() {
            return;
        }
        let mine = self.here();
        if let Some((data, _)) = other.here().zip(mine) {
            *self
                .inner
                .place
                .write()
                .unwrap_or_else(PoisonError::into_inner) = Place::Here(data);
        }
    }

    /// Copies the bytes where they were extracted from others, so that those need not stay in
    /// memory. O(n) then, O(1) else.
    pub fn detach(&self) {
        if !self.inner.stamp.is_part.swap(false, Ordering::Relaxed) {
            return;
        }
        let copied = match self.here() {
            Some(Data::Text(text)) => Data::Text(ByteString::from(text.to_string())),
            Some(Data::Binary(bytes)) => Data::Binary(Bytes::copy_from_slice(&bytes)),
            None => return,
        };
        let mut place = self
            .inner
            .place
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Place::Here(data) = &mut *place {
            *data = copied;
        }
    }

    /// Whether the bytes are in memory.
    #[must_use]
    pub fn is_resident(&self) -> bool {
        matches!(
            &*self
                .inner
                .place
                .read()
                .unwrap_or_else(PoisonError::into_inner),
            Place::Here(_)
        )
    }

    /// The exact bytes, where they are in memory. Not a read of it.
    #[must_use]
    pub fn resident(&self) -> Option<Bytes> {
        self.here().map(|data| data.bytes().clone())
    }

    /// What offloading it would free, in bytes: its own where they are in memory, and what was made
    /// of them. O(1).
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let own = if self.is_resident() {
            self.len_bytes()
        } else {
            0
        };
        own + self.derived_bytes()
    }

    /// What was made of the bytes and is in memory, in bytes: reformatted text, outlines. O(1).
    #[must_use]
    pub fn derived_bytes(&self) -> u64 {
        let derived = self
            .inner
            .derived
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        derived.map_or(0, |derived| derived.bytes())
    }

    /// Whether this is the same value in the same place: what is offloaded of one is of the other.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Tells these reads from now on when it is read. A content tells one ledger, the first.
    pub fn tell(&self, reads: &Arc<Reads>) {
        let _ = self.inner.stamp.reads.set(reads.clone());
        self.inner.stamp.read();
    }

    /// When it was last read, as a place in the order of reads of its ledger; 0 where it has none.
    #[must_use]
    pub fn last_read(&self) -> u64 {
        self.inner.stamp.read.load(Ordering::Relaxed)
    }

    /// The content for as long as somebody else holds it.
    #[must_use]
    pub fn downgrade(&self) -> WeakContent {
        WeakContent(Arc::downgrade(&self.inner))
    }
}

/// A content that this does not keep alive.
#[derive(Clone)]
pub struct WeakContent(Weak<Inner>);

impl WeakContent {
    /// The content, if somebody holds it.
    #[must_use]
    pub fn upgrade(&self) -> Option<Content> {
        self.0.upgrade().map(|inner| Content { inner })
    }
}
