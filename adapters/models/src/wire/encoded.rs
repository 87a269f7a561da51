//! Messages as they were encoded, by who they are: each is encoded once, for all requests and all
//! forks that hold it.
//!
//! A message never changes, and forks and successive requests share it; so its address says which
//! it is, for as long as it lives. What is kept here holds the address and not the message: it
//! lives no longer than the message does, but for what is not swept yet, which is never more than
//! what lives (or [`FEWEST`]). So a conversation costs its JSON a second time in memory, once for
//! all who share it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use dormouse_proto::message::Message;

use super::codec::Mark;

/// So few are not worth a sweep.
const FEWEST: usize = 256;

/// Encoded messages.
#[derive(Default)]
pub(super) struct Encoded {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_place: HashMap<(usize, Mark), Entry>,
    sweep_at: usize,
}

struct Entry {
    /// While this is held, nothing else can have its address.
    message: Weak<Message>,
    /// The message before it, for the same reason.
    before: Weak<Message>,
    bytes: Bytes,
}

/// Which encoding is meant.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) message: &'a Arc<Message>,
    pub(super) before: Option<&'a Arc<Message>>,
    pub(super) mark: Mark,
}

impl Place<'_> {
    fn key(&self) -> (usize, Mark) {
        (Arc::as_ptr(self.message).addr(), self.mark)
    }

    fn before(&self) -> Weak<Message> {
        self.before.map(Arc::downgrade).unwrap_or_default()
    }
}

impl Encoded {
    /// What is there of `places`, in their order. O(1) for each.
    pub(super) fn find(&self, places: &[Place<'_>]) -> Vec<Option<Bytes>> {
        let kept = self.lock();
        let find = |place: &Place<'_>| {
            let entry = kept.by_place.get(&place.key())?;
            Weak::ptr_eq(&entry.before, &place.before()).then(|| entry.bytes.clone())
        };
        places.iter().map(find).collect()
    }

    /// Keeps encodings. O(1) for each, amortized.
    pub(super) fn keep(&self, encoded: Vec<(Place<'_>, Bytes)>) {
        if encoded.is_empty() {
            return;
        }
        let mut kept = self.lock();
        for (place, bytes) in encoded {
            let entry = Entry {
                message: Arc::downgrade(place.message),
                before: place.before(),
                bytes,
            };
            kept.by_place.insert(place.key(), entry);
        }
        if kept.by_place.len() >= kept.sweep_at.max(FEWEST) {
            kept.by_place
                .retain(|_, entry| entry.message.strong_count() > 0);
            kept.sweep_at = kept.by_place.len() * 2;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().by_place.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place<'a>(
        message: &'a Arc<Message>,
        before: Option<&'a Arc<Message>>,
        mark: Mark,
    ) -> Place<'a> {
        Place {
            message,
            before,
            mark,
        }
    }

    #[test]
    fn a_message_is_found_by_who_it_is_and_by_what_stands_before_it() {
        let encoded = Encoded::default();
        let [a, b, twin] = ["a", "b", "b"].map(|text| Arc::new(Message::user(text)));
        encoded.keep(vec![(
            place(&b, Some(&a), Mark::None),
            Bytes::from_static(b"B"),
        )]);
        let found = encoded.find(&[
            place(&b, Some(&a), Mark::None),
            place(&twin, Some(&a), Mark::None),
            place(&b, None, Mark::None),
            place(&b, Some(&twin), Mark::None),
            place(&b, Some(&a), Mark::Breakpoint),
        ]);
        assert_eq!(
            found,
            [Some(Bytes::from_static(b"B")), None, None, None, None]
        );
    }

    #[test]
    fn what_is_kept_ends_with_the_messages() {
        let encoded = Encoded::default();
        let living: Vec<_> = (0..100)
            .map(|n| Arc::new(Message::user(n.to_string())))
            .collect();
        let keep = |message: &Arc<Message>| {
            encoded.keep(vec![(place(message, None, Mark::None), Bytes::new())])
        };
        living.iter().for_each(keep);
        for n in 0..10_000 {
            keep(&Arc::new(Message::user(n.to_string())));
            assert!(encoded.len() <= FEWEST, "{}", encoded.len());
        }
        let places: Vec<_> = living
            .iter()
            .map(|message| place(message, None, Mark::None))
            .collect();
        assert!(encoded.find(&places).iter().all(Option::is_some));
    }
}
