//! What is to happen, and when. Time is a number that jumps to the next event; what goes from one
//! place to another keeps its order, and everything else may overtake.

use std::collections::BTreeMap;

/// A place that messages come from or go to: a process by its pid, or one of these.
pub(crate) type Place = u64;

pub(crate) const SUPERVISOR: Place = u64::MAX;
pub(crate) const STORE: Place = u64::MAX - 1;
pub(crate) const FILES: Place = u64::MAX - 2;
pub(crate) const HOST: Place = u64::MAX - 3;

pub(crate) struct Schedule<E> {
    pub(crate) now: u64,
    next: u64,
    events: BTreeMap<(u64, u64), E>,
    /// When the last message of each way arrives.
    ways: BTreeMap<(Place, Place), u64>,
}

impl<E> Schedule<E> {
    pub(crate) fn new() -> Self {
        Self {
            now: 0,
            next: 0,
            events: BTreeMap::new(),
            ways: BTreeMap::new(),
        }
    }

    /// Something that happens after a delay, whatever else does.
    pub(crate) fn after(&mut self, delay: u64, event: E) {
        self.at(self.now + delay, event);
    }

    /// A message that arrives after those before it on the same way.
    pub(crate) fn send(&mut self, from: Place, to: Place, delay: u64, event: E) {
        let last = self.ways.entry((from, to)).or_default();
        *last = (self.now + delay).max(*last);
        let time = *last;
        self.at(time, event);
    }

    fn at(&mut self, time: u64, event: E) {
        self.next += 1;
        self.events.insert((time, self.next), event);
    }

    pub(crate) fn pop(&mut self) -> Option<E> {
        let ((time, _), event) = self.events.pop_first()?;
        self.now = self.now.max(time);
        Some(event)
    }

    /// Nothing of what was to happen happens.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.ways.clear();
    }
}
