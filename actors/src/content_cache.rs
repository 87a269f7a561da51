//! The ledger of contents: which of those that are durable are in memory, and what they take there.
//!
//! A content counts once by its hash, however many hold it, and no longer than somebody does. Over
//! the limit the least recently read are offloaded: they are the same values for whoever holds
//! them, and are read from the store. What comes from a journal is not read at all before somebody
//! asks for it, and is the same value for every process that has it.
//!
//! Counted are the bytes of contents and what was made of them (reformatted JSON, outlines of
//! units). Not counted, and so the margin by which a kernel can be over its limit: contents that
//! are not durable yet, some 0.6 % of all that is live for what finds pages and lines, and parts
//! that an answer or a tool holds at the moment.
//!
//! It holds no content alive and no store open. Nothing here is called from a handler but
//! [`ContentCache::content`], which reads nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_content::{Content, Reads, Source, WeakContent};
use dormouse_kernel::memory::{Resident, to_offload};
use dormouse_proto::id::ContentHash;
use dormouse_proto::record::ContentRef;

/// So many more entries than were live are looked through for those that nobody holds any more.
const SPARE_ENTRIES: usize = 1024;

/// The contents of one kernel. Shared by all that make contents durable or bring them back.
pub(crate) struct ContentCache {
    source: Arc<dyn Source>,
    /// None: whatever there is may stay.
    limit_bytes: Option<u64>,
    access_clock: Arc<Reads>,
    accounting: Mutex<Accounting>,
}

#[derive(Default)]
struct Accounting {
    /// Those of one hash take their bytes together.
    contents: HashMap<ContentHash, Vec<WeakContent>>,
    /// No less than what is in memory: what was, when it was last reckoned, and what came since.
    upper_bound_bytes: u64,
    /// What contents had made of themselves when that was reckoned.
    grown_bytes: u64,
    /// How many entries there were then.
    live_entries: usize,
}

impl ContentCache {
    /// A ledger of contents that `source` has once they are durable.
    pub(crate) fn new(source: Arc<dyn Source>, limit_bytes: Option<u64>) -> Self {
        Self {
            source,
            limit_bytes,
            access_clock: Arc::default(),
            accounting: Mutex::default(),
        }
    }

    /// The content of this name, which is durable: the one that there is, else one that is read
    /// when somebody asks for something of it. Costs no I/O.
    pub(crate) fn content(&self, reference: ContentRef) -> Content {
        let mut accounting = self.lock();
        let entries = accounting.contents.entry(reference.hash).or_default();
        let existing = entries
            .iter()
            .filter_map(WeakContent::upgrade)
            .find(|content| content.reference() == reference);
        existing.unwrap_or_else(|| {
            let content = Content::stored(reference, self.source.clone());
            content.tell(&self.access_clock);
            entries.push(content.downgrade());
            content
        })
    }

    /// Takes in contents that have become durable, and offloads what is too much. May copy and free
    /// bytes, and costs O(live contents) where something is offloaded.
    pub(crate) fn insert_durable(&self, contents: Vec<Content>) {
        for content in contents {
            if self.limit_bytes.is_some() {
                // What was cut from another would keep all of it in memory.
                content.detach();
            }
            self.lock().track(content, &self.access_clock);
        }
        self.evict_over_limit();
    }

    /// Bytes in memory, as they count. O(live contents).
    pub(crate) fn bytes(&self) -> u64 {
        self.lock()
            .measure(&self.access_clock)
            .iter()
            .map(|resident| resident.bytes)
            .sum()
    }

    fn evict_over_limit(&self) {
        let mut accounting = self.lock();
        let has_stale_entries =
            accounting.contents.len() > 2 * accounting.live_entries + SPARE_ENTRIES;
        let limit_bytes = self.limit_bytes.unwrap_or(u64::MAX);
        if !has_stale_entries && accounting.upper_bound(&self.access_clock) <= limit_bytes {
            return;
        }
        let residents = accounting.measure(&self.access_clock);
        let evicted = to_offload(&residents, limit_bytes);
        let evicted: Vec<_> = evicted
            .into_iter()
            .flat_map(|hash| accounting.live(hash))
            .collect();
        drop(accounting);
        evicted
            .iter()
            .for_each(|content| content.offload(&self.source));
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
    fn track(&mut self, content: Content, access_clock: &Arc<Reads>) {
        let entries = self.contents.entry(content.hash()).or_default();
        let live: Vec<_> = entries.iter().filter_map(WeakContent::upgrade).collect();
        if live.iter().any(|other| other.is_same(&content)) {
            return;
        }
        match live.iter().find(|other| other.is_resident()) {
            Some(first) => content.share(first),
            None => self.upper_bound_bytes += content.resident_bytes(),
        }
        content.tell(access_clock);
        entries.retain(|content| content.upgrade().is_some());
        entries.push(content.downgrade());
    }

    /// What may be in memory, without a look at each.
    fn upper_bound(&self, access_clock: &Reads) -> u64 {
        self.upper_bound_bytes
            .saturating_add(access_clock.grown_bytes().saturating_sub(self.grown_bytes))
    }

    fn live(&self, hash: ContentHash) -> Vec<Content> {
        self.contents
            .get(&hash)
            .into_iter()
            .flatten()
            .filter_map(WeakContent::upgrade)
            .collect()
    }

    /// Looks at each, and forgets those that nobody holds.
    fn measure(&mut self, access_clock: &Reads) -> Vec<Resident<ContentHash>> {
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

/// Contents of one hash together: their bytes once, and what was made of each.
fn measure_content(key: ContentHash, live: &[Content]) -> Option<Resident<ContentHash>> {
    let own = live
        .iter()
        .filter(|content| content.is_resident())
        .map(Content::len_bytes)
        .max()
        .unwrap_or(0);
    let derived: u64 = live.iter().map(Content::derived_bytes).sum();
    let last_read = live.iter().map(Content::last_read).max()?;
    Some(Resident {
        key,
        bytes: own + derived,
        last_read,
    })
}

#[cfg(test)]
mod tests;
