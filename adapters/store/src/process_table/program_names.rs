//! Shares the names of programs between rows: all rows of a program have one string.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The names that occurred so far.
#[derive(Debug, Default)]
pub(crate) struct ProgramNames {
    known: BTreeSet<Arc<str>>,
    /// The name of the last row. Rows of one program are often adjacent.
    last: Option<Arc<str>>,
}

impl ProgramNames {
    /// The shared string of a name. O(log n) in the number of names, and a comparison if the last
    /// one was the same.
    pub(super) fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(last) = self.last.as_ref().filter(|last| ***last == *name) {
            return last.clone();
        }
        let shared = self.known.get(name).cloned().unwrap_or_else(|| {
            let added: Arc<str> = name.into();
            self.known.insert(added.clone());
            added
        });
        self.last = Some(shared.clone());
        shared
    }
}
