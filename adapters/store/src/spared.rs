//! Contents that commits referred to while a mark runs.
//!
//! Whoever marks reads journals that go on being written. What is committed meanwhile may refer to
//! a content that the mark has not come by: so every content that a commit names is noted here, and
//! counts as live.
//!
//! There is one mark at a time. A later one begins anew, and who shows an earlier one frees nothing
//! any more: what was named since that one began is not known.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use dormouse_actors::ports::{MarkToken, StoreError};

use crate::mark::Hash;

/// The contents that were named since the mark began, by the names that the log has for them; none
/// where no mark was begun.
#[derive(Debug, Default)]
pub(crate) struct Spared(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// The number of the last mark that was begun.
    last: u64,
    named: Option<HashSet<Hash>>,
}

impl Spared {
    /// A mark begins.
    pub(crate) fn begin(&self) -> MarkToken {
        self.with(|noted| {
            *noted = Noted {
                last: noted.last + 1,
                named: Some(HashSet::new()),
            };
            MarkToken(noted.last)
        })
    }

    /// A mark is over, unless another was begun since.
    pub(crate) fn end(&self, mark: MarkToken) {
        self.with(|noted| {
            if noted.last == mark.0 {
                noted.named = None;
            }
        });
    }

    /// Refuses a mark that does not know all that was named since it was begun.
    ///
    /// # Errors
    /// [`StoreError::MarkSuperseded`].
    pub(crate) fn check(&self, mark: MarkToken) -> Result<(), StoreError> {
        self.with(|noted| match noted.named {
            Some(_) if noted.last == mark.0 => Ok(()),
            Some(_) => Err(StoreError::MarkSuperseded {
                why: "another mark was begun since",
            }),
            None => Err(StoreError::MarkSuperseded {
                why: "no mark was begun",
            }),
        })
    }

    /// A commit names a content.
    pub(crate) fn note(&self, name: Hash) {
        self.with(|noted| noted.named.as_mut().is_some_and(|named| named.insert(name)));
    }

    /// Whether a commit named it.
    pub(crate) fn contain(&self, name: Hash) -> bool {
        self.with(|noted| {
            noted
                .named
                .as_ref()
                .is_some_and(|named| named.contains(&name))
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Noted) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
