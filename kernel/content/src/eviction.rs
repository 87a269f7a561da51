//! Eviction from memory, and the access data that a cache of contents needs for it.
//!
//! The cache is `actors/src/content_cache.rs`; module `memory` of `dormouse-machine` chooses what
//! it evicts. An evicted content is the same value for all of its holders. Slices that were read
//! before stay in memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use bytestring::ByteString;

use super::location::{Data, Location};
use super::{BlobStore, Content, Inner};

/// The access clock of one cache: orders the reads of the cached contents, and adds up the memory
/// of their derived data.
#[derive(Debug, Default)]
pub struct AccessClock {
    last: AtomicU64,
    grown_bytes: AtomicU64,
}

impl AccessClock {
    /// Bytes of derived data, such as reformatted text, that contents have added since the start.
    /// Monotonic: dropped data is not subtracted.
    #[must_use]
    pub fn grown_bytes(&self) -> u64 {
        self.grown_bytes.load(Ordering::Relaxed)
    }
}

/// The data of one content that a cache needs for eviction: the last read, and whether the content
/// may be a slice of other bytes.
#[derive(Default)]
pub(super) struct AccessRecord {
    clock: OnceLock<Arc<AccessClock>>,
    /// The last read, as a position on the clock.
    last: AtomicU64,
    /// Whether the bytes may be a slice of a longer buffer, which then stays in memory as a whole.
    may_be_slice: AtomicBool,
}

impl AccessRecord {
    pub(super) fn record_read(&self) {
        if let Some(clock) = self.clock.get() {
            self.last.store(
                clock.last.fetch_add(1, Ordering::Relaxed) + 1,
                Ordering::Relaxed,
            );
        }
    }

    pub(super) fn add_derived_bytes(&self, bytes: u64) {
        if let Some(clock) = self.clock.get() {
            clock.grown_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn mark_as_slice(&self) {
        self.may_be_slice.store(true, Ordering::Relaxed);
    }
}

impl Content {
    /// Drops the bytes for all holders, and all derived data. From now on the content is read from
    /// `store`, which must hold it. The index stays in memory. O(1), plus the hash if it was never
    /// computed.
    pub fn evict(&self, store: &Arc<dyn BlobStore>) {
        // A content on disk is identified by its hash.
        let _ = self.hash();
        let on_disk = Location::OnDisk(store.clone());
        let old_location = std::mem::replace(
            &mut *self
                .inner
                .location
                .write()
                .unwrap_or_else(PoisonError::into_inner),
            on_disk,
        );
        let derived_data = self
            .inner
            .derived_data
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // Drop outside of the locks, since freeing may take a while.
        drop((old_location, derived_data));
    }

    /// Shares the bytes of an equal content, so that they are in memory once. Does nothing if one
    /// of them is on disk or they differ. Costs the same as [`hash`](Self::hash).
    pub fn share_bytes_with(&self, other: &Self) {
        if Arc::ptr_eq(&self.inner, &other.inner) || self.reference() != other.reference() {
            return;
        }
        let mine = self.resident_data();
        if let Some((data, _)) = other.resident_data().zip(mine) {
            *self
                .inner
                .location
                .write()
                .unwrap_or_else(PoisonError::into_inner) = Location::Resident(data);
        }
    }

    /// Copies the bytes if they may be a slice of a longer buffer, so that the buffer can be freed.
    /// O(n) in that case, otherwise O(1).
    pub fn copy_if_slice(&self) {
        if !self
            .inner
            .access
            .may_be_slice
            .swap(false, Ordering::Relaxed)
        {
            return;
        }
        let copied = match self.resident_data() {
            Some(Data::Text(text)) => Data::Text(ByteString::from(text.to_string())),
            Some(Data::Other(bytes)) => Data::Other(Bytes::copy_from_slice(&bytes)),
            None => return,
        };
        let mut location_guard = self
            .inner
            .location
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Location::Resident(data) = &mut *location_guard {
            *data = copied;
        }
    }

    /// Whether the bytes are in memory.
    #[must_use]
    pub fn is_resident(&self) -> bool {
        matches!(
            &*self
                .inner
                .location
                .read()
                .unwrap_or_else(PoisonError::into_inner),
            Location::Resident(_)
        )
    }

    /// The bytes, if they are in memory. Does not count as a read.
    #[must_use]
    pub fn bytes_if_resident(&self) -> Option<Bytes> {
        self.resident_data().map(|data| data.bytes().clone())
    }

    /// Bytes that an eviction would free: its own if they are in memory, and derived data. O(1).
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let own_bytes = if self.is_resident() {
            self.len_bytes()
        } else {
            0
        };
        own_bytes + self.derived_bytes()
    }

    /// Bytes of derived data in memory: reformatted text and outlines. O(1).
    #[must_use]
    pub fn derived_bytes(&self) -> u64 {
        let derived_data = self
            .inner
            .derived_data
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        derived_data.map_or(0, |derived_data| derived_data.bytes())
    }

    /// Whether both are the same instance, so that evicting one evicts the other.
    #[must_use]
    pub fn is_same_instance(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Registers the content with an access clock. Only the first registration counts.
    pub fn use_clock(&self, clock: &Arc<AccessClock>) {
        let _ = self.inner.access.clock.set(clock.clone());
        self.inner.access.record_read();
    }

    /// The last read as a position on the access clock; 0 without a clock.
    #[must_use]
    pub fn last_read(&self) -> u64 {
        self.inner.access.last.load(Ordering::Relaxed)
    }

    /// A weak reference to the content.
    #[must_use]
    pub fn downgrade(&self) -> WeakContent {
        WeakContent(Arc::downgrade(&self.inner))
    }
}

/// A weak reference to a content.
#[derive(Clone)]
pub struct WeakContent(Weak<Inner>);

impl WeakContent {
    /// The content, if it is still held.
    #[must_use]
    pub fn upgrade(&self) -> Option<Content> {
        self.0.upgrade().map(|inner| Content { inner })
    }
}
