//! What happened in a run, counted by name, so that it is seen what was covered.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    counts: BTreeMap<String, u64>,
    /// Inputs and facts, which are so many that their names are not put together each time.
    of_kinds: BTreeMap<(&'static str, &'static str), u64>,
}

impl Tally {
    pub(crate) fn count(&mut self, what: &str) {
        match self.counts.get_mut(what) {
            Some(count) => *count += 1,
            None => drop(self.counts.insert(what.to_owned(), 1)),
        }
    }

    pub(crate) fn count_of(&mut self, kind: &'static str, what: &'static str) {
        *self.of_kinds.entry((kind, what)).or_default() += 1;
    }

    /// How often `what` happened; of an input or a fact as `input spoke`.
    pub(crate) fn of(&self, what: &str) -> u64 {
        let of_kind = what.split_once(' ').and_then(|(kind, name)| {
            self.of_kinds
                .iter()
                .find(|((of, named), _)| *of == kind && *named == name)
                .map(|(_, count)| *count)
        });
        of_kind
            .or_else(|| self.counts.get(what).copied())
            .unwrap_or(0)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (what, count) in &other.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
        for (what, count) in &other.of_kinds {
            *self.of_kinds.entry(*what).or_default() += count;
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of_kinds = self
            .of_kinds
            .iter()
            .map(|((kind, what), count)| format!("{kind} {what} {count}"));
        let counts = self
            .counts
            .iter()
            .map(|(what, count)| format!("{what} {count}"));
        f.write_str(&of_kinds.chain(counts).collect::<Vec<_>>().join(", "))
    }
}
