//! Contents that commits referred to while a mark runs.
//!
//! Whoever marks reads journals that go on being written. What is committed meanwhile may refer to a content that the mark has
//! not come by: so every content that a commit names is noted here, and counts as live.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::mark::Hash;

/// The contents that were named since the mark began, by the names that the log has for them; none where no mark was begun.
#[derive(Debug, Default)]
pub(crate) struct Spared(Mutex<Option<HashSet<Hash>>>);

impl Spared {
    /// A mark begins.
    pub(crate) fn begin(&self) {
        self.with(|spared| *spared = Some(HashSet::new()));
    }

    /// The sweep is over.
    pub(crate) fn end(&self) {
        self.with(|spared| *spared = None);
    }

    /// Whether a mark was begun.
    pub(crate) fn is_begun(&self) -> bool {
        self.with(|spared| spared.is_some())
    }

    /// A commit names a content.
    pub(crate) fn note(&self, name: Hash) {
        self.with(|spared| spared.as_mut().is_some_and(|spared| spared.insert(name)));
    }

    /// Whether a commit named it.
    pub(crate) fn contain(&self, name: Hash) -> bool {
        self.with(|spared| spared.as_ref().is_some_and(|spared| spared.contains(&name)))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Option<HashSet<Hash>>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
