//! A cache of encoded messages. Each message is encoded once, for all requests and all forks that
//! contain it.
//!
//! A message never changes, and forks and successive requests share it, so its address identifies
//! the message while it is in memory. An entry holds a weak reference, which keeps the address from
//! being reused without keeping the message itself. Entries of dropped messages are removed when
//! the cache has doubled, so they are never more than the entries of living messages (or
//! [`MIN_SWEEP_ENTRIES`]). The JSON of a conversation is therefore in memory once for all processes
//! that share the conversation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use dormouse_proto::message::Message;

use dormouse_proto::program::CacheTtl;

/// A cache with fewer entries is not searched for entries of dropped messages.
const MIN_SWEEP_ENTRIES: usize = 256;

/// Encoded messages, by their address.
#[derive(Default)]
pub(super) struct MessageCache {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    by_key: HashMap<(usize, Option<CacheTtl>), Entry>,
    sweep_at_len: usize,
}

struct Entry {
    /// A weak reference keeps the address from being reused.
    message: Weak<Message>,
    /// The previous message, on which the encoding depends. The reference is weak for the same
    /// reason.
    previous: Weak<Message>,
    bytes: Bytes,
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
}

impl MessageCache {
    /// The cached encodings of `keys`, in their order. O(1) for each.
    pub(super) fn get_all(&self, keys: &[MessageKey<'_>]) -> Vec<Option<Bytes>> {
        let entries = self.lock();
        let get = |key: &MessageKey<'_>| {
            let entry = entries.by_key.get(&key.map_key())?;
            Weak::ptr_eq(&entry.previous, &key.previous()).then(|| entry.bytes.clone())
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
            let entry = Entry {
                message: Arc::downgrade(key.message),
                previous: key.previous(),
                bytes,
            };
            entries.by_key.insert(key.map_key(), entry);
        }
        if entries.by_key.len() >= entries.sweep_at_len.max(MIN_SWEEP_ENTRIES) {
            entries
                .by_key
                .retain(|_, entry| entry.message.strong_count() > 0);
            entries.sweep_at_len = entries.by_key.len() * 2;
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
