//! What was used last, in memory: the latest of a fixed number of values.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::object::Hash;

/// Values by their name, the one that was used most recently first.
#[derive(Debug)]
pub(crate) struct Recent<T> {
    kept: usize,
    values: Mutex<VecDeque<(Hash, T)>>,
}

impl<T: Clone> Recent<T> {
    /// Keeps so many values.
    pub(crate) fn new(kept: usize) -> Self {
        let values = Mutex::default();
        Self { kept, values }
    }

    pub(crate) fn get(&self, name: &Hash) -> Option<T> {
        let mut values = self.lock();
        let at = values.iter().position(|(kept, _)| kept == name)?;
        let value = values.remove(at)?;
        values.push_front(value.clone());
        Some(value.1)
    }

    pub(crate) fn insert(&self, name: Hash, value: T) {
        let mut values = self.lock();
        values.retain(|(kept, _)| *kept != name);
        values.push_front((name, value));
        values.truncate(self.kept);
    }

    pub(crate) fn remove(&self, name: &Hash) {
        self.lock().retain(|(kept, _)| kept != name);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Hash, T)>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_that_were_used_last_are_kept() {
        let recent = Recent::new(3);
        let name = |number: u8| [number; 32];
        for number in 0..3 {
            recent.insert(name(number), number);
        }
        assert_eq!(recent.get(&name(0)), Some(0));
        recent.insert(name(3), 3);
        assert_eq!(recent.get(&name(0)), Some(0));
        assert_eq!(recent.get(&name(1)), None);
        recent.insert(name(0), 7);
        assert_eq!(recent.get(&name(0)), Some(7));
        recent.remove(&name(0));
        assert_eq!(recent.get(&name(0)), None);
        assert_eq!(recent.lock().len(), 2);
    }
}
