//! A cache of encoded messages: each message is encoded once, for all requests and all forks that
//! hold it.
//!
//! A message never changes, and forks and successive requests share it, so its address identifies
//! it while it lives. An entry holds a weak reference, which keeps the address from being reused
//! without keeping the message itself. Entries of dropped messages are swept when the cache has
//! doubled; there are never more of them than entries of living messages (or
//! [`MIN_SWEEP_ENTRIES`]). So the JSON of a conversation is in memory once for all processes that
//! share the conversation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use dormouse_proto::message::Message;

use super::codec::Mark;

/// A smaller cache is not worth a sweep.
const MIN_SWEEP_ENTRIES: usize = 256;

/// Encoded messages, by their address.
#[derive(Default)]
pub(super) struct MessageCache {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    by_key: HashMap<(usize, Mark), Entry>,
    sweep_at: usize,
}

struct Entry {
    /// A weak reference keeps the address from being reused.
    message: Weak<Message>,
    /// The previous message, on which the encoding depends; weak for the same reason.
    before: Weak<Message>,
    bytes: Bytes,
}

/// Identifies an encoding: the message, and what its encoding depends on.
#[derive(Clone, Copy)]
pub(super) struct MessageKey<'a> {
    pub(super) message: &'a Arc<Message>,
    pub(super) before: Option<&'a Arc<Message>>,
    pub(super) mark: Mark,
}

impl MessageKey<'_> {
    fn map_key(&self) -> (usize, Mark) {
        (Arc::as_ptr(self.message).addr(), self.mark)
    }

    fn before(&self) -> Weak<Message> {
        self.before.map(Arc::downgrade).unwrap_or_default()
    }
}

impl MessageCache {
    /// The cached encodings of `keys`, in their order. O(1) for each.
    pub(super) fn find(&self, keys: &[MessageKey<'_>]) -> Vec<Option<Bytes>> {
        let entries = self.lock();
        let find = |key: &MessageKey<'_>| {
            let entry = entries.by_key.get(&key.map_key())?;
            Weak::ptr_eq(&entry.before, &key.before()).then(|| entry.bytes.clone())
        };
        keys.iter().map(find).collect()
    }

    /// Adds encodings. O(1) for each, amortized.
    pub(super) fn keep(&self, encoded: Vec<(MessageKey<'_>, Bytes)>) {
        if encoded.is_empty() {
            return;
        }
        let mut entries = self.lock();
        for (key, bytes) in encoded {
            let entry = Entry {
                message: Arc::downgrade(key.message),
                before: key.before(),
                bytes,
            };
            entries.by_key.insert(key.map_key(), entry);
        }
        if entries.by_key.len() >= entries.sweep_at.max(MIN_SWEEP_ENTRIES) {
            entries
                .by_key
                .retain(|_, entry| entry.message.strong_count() > 0);
            entries.sweep_at = entries.by_key.len() * 2;
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
    use dormouse_proto::program::CacheTtl;

    fn key<'a>(
        message: &'a Arc<Message>,
        before: Option<&'a Arc<Message>>,
        mark: Mark,
    ) -> MessageKey<'a> {
        MessageKey {
            message,
            before,
            mark,
        }
    }

    #[test]
    fn a_message_is_found_by_its_address_and_the_message_before_it() {
        let encoded = MessageCache::default();
        let [a, b, twin] = ["a", "b", "b"].map(|text| Arc::new(Message::user(text)));
        encoded.keep(vec![(
            key(&b, Some(&a), Mark::None),
            Bytes::from_static(b"B"),
        )]);
        let found = encoded.find(&[
            key(&b, Some(&a), Mark::None),
            key(&twin, Some(&a), Mark::None),
            key(&b, None, Mark::None),
            key(&b, Some(&twin), Mark::None),
            key(&b, Some(&a), Mark::Breakpoint(CacheTtl::FiveMinutes)),
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
        let keep = |message: &Arc<Message>| {
            encoded.keep(vec![(key(message, None, Mark::None), Bytes::new())])
        };
        living.iter().for_each(keep);
        for n in 0..10_000 {
            keep(&Arc::new(Message::user(n.to_string())));
            assert!(encoded.len() <= MIN_SWEEP_ENTRIES, "{}", encoded.len());
        }
        let keys: Vec<_> = living
            .iter()
            .map(|message| key(message, None, Mark::None))
            .collect();
        assert!(encoded.find(&keys).iter().all(Option::is_some));
    }
}
