//! Counts the bytes of durable contents in memory, and evicts contents over a limit.
//!
//! A content is counted once by its hash, however many owners hold it, and only while an owner
//! exists. Over the limit, the least recently read contents are evicted: their owners keep the same
//! values, and the bytes are read from the store again on demand. Contents that come from a journal
//! are not read before they are used, and all processes that refer to the same hash share one
//! value.
//!
//! The cache counts the bytes of contents and the data derived from them (reformatted JSON,
//! outlines). It does not count contents that are not durable yet, indexes of pages and lines
//! (about 0.6 % of all live bytes), and parts that an answer or a tool holds at the moment. A
//! kernel can exceed its limit by the bytes that are not counted.
//!
//! The cache holds no strong reference to a content and no open store. Only
//! [`ContentCache::content`], which reads nothing, may be called from a message handler.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_content::{AccessClock, BlobStore, Content, WeakContent};
use dormouse_kernel::memory::{Resident, select_evictions};
use dormouse_proto::id::ContentHash;
use dormouse_proto::record::ContentRef;

/// Entries without a live content are removed once the map has grown to twice the live entries plus
/// this number.
const SPARE_ENTRIES: usize = 1024;

/// The durable contents of one kernel.
pub(crate) struct ContentCache {
    blob_store: Arc<dyn BlobStore>,
    /// `None`: no limit.
    limit_bytes: Option<u64>,
    access_clock: Arc<AccessClock>,
    accounting: Mutex<Accounting>,
}

#[derive(Default)]
struct Accounting {
    /// The live contents by hash. Contents of one hash share their bytes.
    contents: HashMap<ContentHash, Vec<WeakContent>>,
    /// An upper bound of the bytes in memory: the last measurement plus everything added since.
    upper_bound_bytes: u64,
    /// The value of [`AccessClock::grown_bytes`] at the last measurement.
    grown_bytes: u64,
    /// The number of entries at the last measurement.
    live_entries: usize,
}

impl ContentCache {
    /// An empty cache of contents that `blob_store` can read once they are durable.
    pub(crate) fn new(blob_store: Arc<dyn BlobStore>, limit_bytes: Option<u64>) -> Self {
        Self {
            blob_store,
            limit_bytes,
            access_clock: Arc::default(),
            accounting: Mutex::default(),
        }
    }

    /// The durable content of this reference: the live one if there is one, otherwise a new value
    /// whose bytes are read on demand. No I/O.
    pub(crate) fn content(&self, reference: ContentRef) -> Content {
        let mut accounting = self.lock();
        let entries = accounting.contents.entry(reference.hash).or_default();
        let existing = entries
            .iter()
            .filter_map(WeakContent::upgrade)
            .find(|content| content.reference() == reference);
        existing.unwrap_or_else(|| {
            // A hash whose contents come and go has no entry for each of them.
            entries.retain(|content| content.upgrade().is_some());
            let content = Content::on_disk(reference, self.blob_store.clone());
            content.use_clock(&self.access_clock);
            entries.push(content.downgrade());
            content
        })
    }

    /// Adds contents that have become durable, then evicts contents over the limit. May copy and
    /// free bytes; costs O(live contents) if something is evicted.
    pub(crate) fn insert_durable(&self, contents: Vec<Content>) {
        for content in contents {
            if self.limit_bytes.is_some() {
                // A slice of a larger buffer would keep the whole buffer in memory.
                content.copy_if_slice();
            }
            self.lock().track(content, &self.access_clock);
        }
        self.evict_over_limit();
    }

    /// The counted bytes in memory. O(live contents).
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.lock()
            .measure(&self.access_clock)
            .iter()
            .map(|resident| resident.bytes)
            .sum()
    }

    /// Measures and evicts if the upper bound exceeds the limit, or if too many entries have no
    /// live content.
    fn evict_over_limit(&self) {
        let mut accounting = self.lock();
        let has_stale_entries =
            accounting.contents.len() > 2 * accounting.live_entries + SPARE_ENTRIES;
        let limit_bytes = self.limit_bytes.unwrap_or(u64::MAX);
        if !has_stale_entries && accounting.upper_bound(&self.access_clock) <= limit_bytes {
            return;
        }
        let residents = accounting.measure(&self.access_clock);
        let evicted = select_evictions(&residents, limit_bytes);
        let evicted: Vec<_> = evicted
            .into_iter()
            .flat_map(|hash| accounting.live_contents(hash))
            .collect();
        drop(accounting);
        evicted
            .iter()
            .for_each(|content| content.evict(&self.blob_store));
        if !evicted.is_empty() {
            self.lock().measure(&self.access_clock);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Accounting> {
        self.accounting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accounting {
    fn track(&mut self, content: Content, access_clock: &Arc<AccessClock>) {
        let entries = self.contents.entry(content.hash()).or_default();
        let live: Vec<_> = entries.iter().filter_map(WeakContent::upgrade).collect();
        if live.iter().any(|other| other.is_same_instance(&content)) {
            return;
        }
        match live.iter().find(|other| other.is_resident()) {
            Some(first) => content.share_bytes_with(first),
            None => self.upper_bound_bytes += content.resident_bytes(),
        }
        content.use_clock(access_clock);
        entries.retain(|content| content.upgrade().is_some());
        entries.push(content.downgrade());
    }

    /// An upper bound of the bytes in memory, without a measurement.
    fn upper_bound(&self, access_clock: &AccessClock) -> u64 {
        self.upper_bound_bytes
            .saturating_add(access_clock.grown_bytes().saturating_sub(self.grown_bytes))
    }

    fn live_contents(&self, hash: ContentHash) -> Vec<Content> {
        self.contents
            .get(&hash)
            .into_iter()
            .flatten()
            .filter_map(WeakContent::upgrade)
            .collect()
    }

    /// Measures every live content, and removes entries without one.
    fn measure(&mut self, access_clock: &AccessClock) -> Vec<Resident<ContentHash>> {
        self.grown_bytes = access_clock.grown_bytes();
        let mut residents = Vec::new();
        self.contents.retain(|hash, entries| {
            entries.retain(|content| content.upgrade().is_some());
            let live: Vec<_> = entries.iter().filter_map(WeakContent::upgrade).collect();
            residents.extend(measure_content(*hash, &live));
            !entries.is_empty()
        });
        self.upper_bound_bytes = residents.iter().map(|resident| resident.bytes).sum();
        self.live_entries = self.contents.len();
        residents
    }
}

/// The contents of one hash as one resident: their bytes once, plus the data derived from each.
fn measure_content(key: ContentHash, live: &[Content]) -> Option<Resident<ContentHash>> {
    let own_bytes = live
        .iter()
        .filter(|content| content.is_resident())
        .map(Content::len_bytes)
        .max()
        .unwrap_or(0);
    let derived_bytes: u64 = live.iter().map(Content::derived_bytes).sum();
    let last_read = live.iter().map(Content::last_read).max()?;
    Some(Resident {
        key,
        bytes: own_bytes + derived_bytes,
        last_read,
    })
}

#[cfg(test)]
mod tests;
