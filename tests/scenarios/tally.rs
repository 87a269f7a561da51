//! How often each kind of thing has occurred: a scenario that never happens shows nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts by name. Clones count together.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<Mutex<BTreeMap<String, u64>>>);

impl Tally {
    pub(crate) fn count(&self, what: impl Into<String>) -> u64 {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(what.into()).or_default();
        *count += 1;
        *count
    }

    pub(crate) fn all(&self) -> BTreeMap<String, u64> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
