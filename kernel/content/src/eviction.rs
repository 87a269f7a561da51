//! Eviction from memory, and the access data that a cache of contents needs for it.
//!
//! This module does not choose what to evict: see the kernel's `memory`. An evicted content is the
//! same value for all of its holders; slices that were served before stay in memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use bytestring::ByteString;

use super::location::{Data, Location};
use super::{BlobStore, Content, Inner};

/// The access clock of one cache: orders the reads of its contents, and sums up the memory of data
/// that they derive.
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

/// What a cache knows of the accesses to a content: the last read, and whether the content shares
/// bytes with another one.
#[derive(Default)]
pub(super) struct AccessRecord {
    clock: OnceLock<Arc<AccessClock>>,
    /// The last read, as a position on the clock.
    last: AtomicU64,
    /// Whether the bytes may be a slice of other bytes, which then stay in memory as well.
    is_part: AtomicBool,
}

impl AccessRecord {
    pub(super) fn record(&self) {
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

    pub(super) fn mark_as_part(&self) {
        self.is_part.store(true, Ordering::Relaxed);
    }
}

impl Content {
    /// Drops the bytes for all holders, and all derived data. From now on the content is read from
    /// `source`, which must have it. The index stays. O(1), plus the hash if it was never computed.
    pub fn evict(&self, source: &Arc<dyn BlobStore>) {
        // A content on disk is identified by its hash.
        let _ = self.hash();
        let stored = Location::OnDisk(source.clone());
        let before = std::mem::replace(
            &mut *self
                .inner
                .location
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
        // Drop outside of the locks, since freeing may take a while.
        drop((before, derived));
    }

    /// Shares the bytes of an equal content, so that they are in memory once. Does nothing if one
    /// of them is on disk or they differ. Costs the same as [`hash`](Self::hash).
    pub fn share(&self, other: &Self) {
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

    /// Copies the bytes if they are a slice of other bytes, so that those can be freed. O(n) in
    /// that case, otherwise O(1).
    pub fn detach(&self) {
        if !self.inner.access.is_part.swap(false, Ordering::Relaxed) {
            return;
        }
        let copied = match self.resident_data() {
            Some(Data::Text(text)) => Data::Text(ByteString::from(text.to_string())),
            Some(Data::Binary(bytes)) => Data::Binary(Bytes::copy_from_slice(&bytes)),
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
    pub fn resident(&self) -> Option<Bytes> {
        self.resident_data().map(|data| data.bytes().clone())
    }

    /// Bytes that an eviction would free: its own if they are in memory, and derived data. O(1).
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let own = if self.is_resident() {
            self.len_bytes()
        } else {
            0
        };
        own + self.derived_bytes()
    }

    /// Bytes of derived data in memory: reformatted text and outlines. O(1).
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

    /// Whether both are the same instance, so that evicting one evicts the other.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Registers the content with an access clock. Only the first registration counts.
    pub fn use_clock(&self, clock: &Arc<AccessClock>) {
        let _ = self.inner.access.clock.set(clock.clone());
        self.inner.access.record();
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
