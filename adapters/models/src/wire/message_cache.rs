//! A cache of encoded messages. Each message is encoded once, for all requests and all forks that
//! contain it.
//!
//! A message never changes, and forks and successive requests share it, so its address identifies
//! the message while it is in memory. An entry holds a weak reference, which keeps the address from
//! being reused without keeping the message itself. Entries of dropped messages are removed when
//! the cache has doubled, so they are never more than the entries of living messages (or
//! [`MIN_SWEEP_ENTRIES`]). The JSON of a conversation is therefore in memory once for all processes
//! that share the conversation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use dormouse_proto::message::{Block, Message};
use dormouse_proto::program::CacheTtl;
use foldhash::HashMap;

/// A cache with fewer entries is not searched for entries of dropped messages.
const MIN_SWEEP_ENTRIES: usize = 256;

/// The most bytes of encoded messages with images or documents. Their base64 is kept next to the
/// bytes of their descriptors, so it is bounded; beyond this, those that were used least recently
/// are dropped and encoded again when they are sent.
const MAX_MEDIA_BYTES: usize = 64 << 20;

/// Encoded messages, by their address.
#[derive(Default)]
pub(super) struct MessageCache {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    by_key: HashMap<(usize, Option<CacheTtl>), Entry>,
    sweep_at_len: usize,
    /// The bytes of the entries with media.
    media_bytes: usize,
    /// Counts the uses of entries with media.
    uses: u64,
}

struct Entry {
    /// A weak reference keeps the address from being reused.
    message: Weak<Message>,
    /// The previous message, on which the encoding depends. The reference is weak for the same
    /// reason.
    previous: Weak<Message>,
    bytes: Bytes,
    /// The number of the last use; none for a message without media, which is not bounded.
    media_use: Option<u64>,
}

/// Identifies an encoding: the message, and what its encoding depends on.
#[derive(Clone, Copy)]
pub(super) struct MessageKey<'a> {
    pub(super) message: &'a Arc<Message>,
    pub(super) previous: Option<&'a Arc<Message>>,
    pub(super) breakpoint: Option<CacheTtl>,
}

impl MessageKey<'_> {
    fn map_key(&self) -> (usize, Option<CacheTtl>) {
        (Arc::as_ptr(self.message).addr(), self.breakpoint)
    }

    fn previous(&self) -> Weak<Message> {
        self.previous.map(Arc::downgrade).unwrap_or_default()
    }

    /// Whether `previous` is the previous message. Takes no reference, which would cost more than
    /// the lookup.
    fn follows(&self, previous: &Weak<Message>) -> bool {
        match self.previous {
            Some(message) => std::ptr::eq(Arc::as_ptr(message), previous.as_ptr()),
            None => previous.ptr_eq(&Weak::new()),
        }
    }
}

impl MessageCache {
    /// The cached encodings of `keys`, in their order. O(1) for each.
    pub(super) fn get_all(&self, keys: &[MessageKey<'_>]) -> Vec<Option<Bytes>> {
        let mut entries = self.lock();
        entries.uses += 1;
        let uses = entries.uses;
        let get = |key: &MessageKey<'_>| {
            let entry = entries.by_key.get_mut(&key.map_key())?;
            entry.media_use = entry.media_use.map(|_| uses);
            key.follows(&entry.previous).then(|| entry.bytes.clone())
        };
        keys.iter().map(get).collect()
    }

    /// Adds encodings. O(1) for each, amortized.
    pub(super) fn insert(&self, encoded: Vec<(MessageKey<'_>, Bytes)>) {
        if encoded.is_empty() {
            return;
        }
        let mut entries = self.lock();
        for (key, bytes) in encoded {
            let media_use = has_media(key.message).then_some(entries.uses);
            if media_use.is_some() && bytes.len() > MAX_MEDIA_BYTES {
                continue;
            }
            let entry = Entry {
                message: Arc::downgrade(key.message),
                previous: key.previous(),
                bytes,
                media_use,
            };
            entries.media_bytes += entry.media_bytes();
            if let Some(replaced) = entries.by_key.insert(key.map_key(), entry) {
                entries.media_bytes -= replaced.media_bytes();
            }
        }
        if entries.by_key.len() >= entries.sweep_at_len.max(MIN_SWEEP_ENTRIES) {
            entries.sweep();
            entries.sweep_at_len = entries.by_key.len() * 2;
        }
        if entries.media_bytes > MAX_MEDIA_BYTES {
            entries.sweep();
            entries.drop_oldest_media();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().by_key.len()
    }
}

impl Entry {
    /// The bytes of an entry with media; 0 for another one.
    fn media_bytes(&self) -> usize {
        self.media_use.map_or(0, |_| self.bytes.len())
    }
}

impl Entries {
    /// Removes the entries of dropped messages. O(n).
    fn sweep(&mut self) {
        self.by_key
            .retain(|_, entry| entry.message.strong_count() > 0);
        self.media_bytes = self.by_key.values().map(Entry::media_bytes).sum();
    }

    /// Removes the entries with media that were used least recently, down to the bound. O(n log n).
    fn drop_oldest_media(&mut self) {
        let media = self.by_key.iter();
        let mut by_use: Vec<_> = media
            .filter_map(|(key, entry)| Some((entry.media_use?, *key)))
            .collect();
        by_use.sort_unstable();
        for (_, key) in by_use {
            if self.media_bytes <= MAX_MEDIA_BYTES {
                return;
            }
            if let Some(dropped) = self.by_key.remove(&key) {
                self.media_bytes -= dropped.media_bytes();
            }
        }
    }
}

fn has_media(message: &Message) -> bool {
    let mut blocks = message.blocks.iter();
    blocks.any(|block| matches!(block, Block::Media { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key<'a>(
        message: &'a Arc<Message>,
        previous: Option<&'a Arc<Message>>,
        breakpoint: Option<CacheTtl>,
    ) -> MessageKey<'a> {
        MessageKey {
            message,
            previous,
            breakpoint,
        }
    }

    #[test]
    fn a_message_is_found_by_its_address_and_the_message_before_it() {
        let encoded = MessageCache::default();
        let [a, b, twin] = ["a", "b", "b"].map(|text| Arc::new(Message::user(text)));
        encoded.insert(vec![(key(&b, Some(&a), None), Bytes::from_static(b"B"))]);
        let found = encoded.get_all(&[
            key(&b, Some(&a), None),
            key(&twin, Some(&a), None),
            key(&b, None, None),
            key(&b, Some(&twin), None),
            key(&b, Some(&a), Some(CacheTtl::FiveMinutes)),
        ]);
        assert_eq!(
            found,
            [Some(Bytes::from_static(b"B")), None, None, None, None]
        );
    }

    #[test]
    fn messages_with_media_are_kept_up_to_a_bound_and_the_newest_uses_stay() {
        let media = || {
            let media = dormouse_proto::message::Media {
                fd: dormouse_proto::id::FdId::Fd(1),
                media_type: "image/png".into(),
                side_px: 1,
            };
            Arc::new(Message {
                role: dormouse_proto::message::Role::User,
                blocks: vec![Block::Media {
                    answers: None,
                    media,
                }],
            })
        };
        let third = Bytes::from(vec![b'x'; MAX_MEDIA_BYTES / 3]);
        let cache = MessageCache::default();
        let images: Vec<_> = (0..4).map(|_| media()).collect();
        let cached = |image: &Arc<Message>| cache.get_all(&[key(image, None, None)])[0].is_some();
        for image in &images[..3] {
            cache.insert(vec![(key(image, None, None), third.clone())]);
            assert!(cached(image));
        }
        assert!(cached(&images[0]), "used again");
        cache.insert(vec![(key(&images[3], None, None), third.clone())]);
        let kept: Vec<_> = images.iter().map(cached).collect();
        assert_eq!(kept, [true, false, true, true]);
        let whole = Bytes::from(vec![b'x'; MAX_MEDIA_BYTES + 1]);
        cache.insert(vec![(key(&images[1], None, None), whole)]);
        assert!(
            !cached(&images[1]),
            "one that is larger than the bound is not kept"
        );
        drop(images);
        let next = media();
        cache.insert(vec![
            (key(&next, None, None), third.clone()),
            (key(&media(), None, None), third),
        ]);
        assert!(cached(&next));
    }

    #[test]
    fn entries_are_dropped_with_their_messages() {
        let encoded = MessageCache::default();
        let living: Vec<_> = (0..100)
            .map(|n| Arc::new(Message::user(n.to_string())))
            .collect();
        let insert =
            |message: &Arc<Message>| encoded.insert(vec![(key(message, None, None), Bytes::new())]);
        living.iter().for_each(insert);
        for n in 0..10_000 {
            insert(&Arc::new(Message::user(n.to_string())));
            assert!(encoded.len() <= MIN_SWEEP_ENTRIES, "{}", encoded.len());
        }
        let keys: Vec<_> = living
            .iter()
            .map(|message| key(message, None, None))
            .collect();
        assert!(encoded.get_all(&keys).iter().all(Option::is_some));
    }
}
