//! What the groups of a pattern hold in a match.
//!
//! The match is known, and only its own bytes are looked at again, in as many places as the pattern
//! has: so much is reckoned with for each match.

use std::borrow::Cow;
use std::ops::Range;

use regex_automata::meta;
use regex_automata::util::captures::Captures;
use regex_automata::{Anchored, Input};

use super::budget::Budget;
use super::pattern::TooSlow;
use super::shape::Shape;

/// The groups of a pattern. Their budget is shared by all texts of a search.
#[derive(Debug)]
pub(in super::super) struct Groups<'p> {
    regex: &'p meta::Regex,
    places: u64,
    cache: meta::Cache,
    captures: Captures,
    budget: Budget,
}

impl<'p> Groups<'p> {
    pub(super) fn of(regex: &'p meta::Regex, shape: &Shape) -> Self {
        let (cache, captures) = (regex.create_cache(), regex.create_captures());
        Self {
            regex,
            places: shape.places,
            cache,
            captures,
            budget: Budget::new(),
        }
    }

    /// Adds what may be done for a text of so many bytes.
    pub(in super::super) fn allow(&mut self, bytes: usize) {
        self.budget.allow(bytes);
    }

    /// What the groups hold in the match that was found here, with a tab between two of them. A
    /// group that took no part in the match is empty.
    pub(in super::super) fn text<'t>(
        &mut self,
        text: &'t str,
        found: Range<usize>,
    ) -> Result<Cow<'t, str>, TooSlow> {
        if !self
            .budget
            .spend(self.places.saturating_mul(found.len() as u64))
        {
            return Err(TooSlow::Branches);
        }
        // What comes before and after it still counts for the assertions of the pattern.
        let input = Input::new(text).range(found).anchored(Anchored::Yes);
        self.regex
            .search_captures_with(&mut self.cache, &input, &mut self.captures);
        let group = |index| {
            self.captures
                .get_group(index)
                .map_or("", |span| &text[span.range()])
        };
        Ok(match self.captures.group_len() {
            2 => Cow::Borrowed(group(1)),
            groups => Cow::Owned((1..groups).map(group).collect::<Vec<_>>().join("\t")),
        })
    }
}
