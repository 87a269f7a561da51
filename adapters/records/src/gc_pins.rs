//! Pins contents that are committed while garbage collection marks: while it reads the journals for
//! the contents that they reference, before the sweep frees all others.
//!
//! The marker reads journals while writers append to them. A writer may reference a content after
//! the marker has passed that journal, so every content referenced by a commit during a mark is
//! pinned, and survives the sweep. Only one mark runs at a time: a new mark discards the pins of
//! the one before it, which becomes invalid.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use dormouse_actors::ports::{MarkToken, StoreError};

/// A store's name of a content: its hash, or a keyed hash of that.
type Name = [u8; 32];

/// The contents that commits referenced since the mark began.
#[derive(Debug, Default)]
pub struct GcPins(Mutex<Mark>);

#[derive(Debug, Default)]
struct Mark {
    /// The number of the latest mark.
    last: u64,
    /// `None` while no mark runs.
    pinned: Option<HashSet<Name>>,
}

impl GcPins {
    /// Begins a mark, which supersedes any other.
    pub fn begin(&self) -> MarkToken {
        self.with_mark(|mark| {
            *mark = Mark {
                last: mark.last + 1,
                pinned: Some(HashSet::new()),
            };
            MarkToken(mark.last)
        })
    }

    /// Ends a mark, unless it was superseded.
    pub fn end(&self, token: MarkToken) {
        self.with_mark(|mark| {
            if mark.last == token.0 {
                mark.pinned = None;
            }
        });
    }

    /// Refuses a mark that ended or was superseded, because its pins were discarded.
    ///
    /// # Errors
    /// [`StoreError::MarkSuperseded`].
    pub fn check(&self, token: MarkToken) -> Result<(), StoreError> {
        self.with_mark(|mark| match mark.pinned {
            Some(_) if mark.last == token.0 => Ok(()),
            Some(_) => Err(StoreError::MarkSuperseded {
                why: "another mark was begun since",
            }),
            None => Err(StoreError::MarkSuperseded {
                why: "no mark was begun",
            }),
        })
    }

    /// Pins a content that a commit references, if a mark runs.
    pub fn pin(&self, name: Name) {
        self.with_mark(|mark| mark.pinned.as_mut().is_some_and(|names| names.insert(name)));
    }

    /// Whether a content is pinned.
    pub fn is_pinned(&self, name: Name) -> bool {
        self.with_mark(|mark| {
            mark.pinned
                .as_ref()
                .is_some_and(|names| names.contains(&name))
        })
    }

    fn with_mark<T>(&self, change: impl FnOnce(&mut Mark) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
