//! Extracts the text of the capture groups of a match.
//!
//! The range of the match is known, so only its bytes are searched again. A match costs its length
//! times the number of automaton states that can be active at once (`cost.rs`), and more if the
//! pattern has many groups.

use std::borrow::Cow;
use std::ops::Range;

use regex_automata::meta;
use regex_automata::util::captures::Captures;
use regex_automata::{Anchored, Input};

use super::budget::StepBudget;
use super::cost::CostBounds;
use super::pattern::TooSlow;

/// How many groups cost as much as a step: each step copies where the groups begin and end.
const GROUPS_PER_STEP: u64 = 8;

/// The groups of a pattern. One budget is shared by all texts of a search.
#[derive(Debug)]
pub(in super::super) struct Groups<'p> {
    regex: &'p meta::Regex,
    steps_per_byte: u64,
    cache: meta::Cache,
    captures: Captures,
    budget: StepBudget,
}

impl<'p> Groups<'p> {
    pub(super) fn new(regex: &'p meta::Regex, bounds: &CostBounds) -> Self {
        let cache = regex.create_cache();
        let captures = regex.create_captures();
        let steps_per_position = 1 + regex.captures_len() as u64 / GROUPS_PER_STEP;
        Self {
            regex,
            steps_per_byte: bounds.positions.saturating_mul(steps_per_position),
            cache,
            captures,
            budget: StepBudget::new(),
        }
    }

    /// Adds the budget for a text of this many bytes.
    pub(in super::super) fn extend_for_text(&mut self, bytes: usize) {
        self.budget.extend_for_text(bytes);
    }

    /// The text of the groups in this match, separated by tabs. A group that did not participate is
    /// empty.
    pub(in super::super) fn captured_text<'t>(
        &mut self,
        text: &'t str,
        found: Range<usize>,
    ) -> Result<Cow<'t, str>, TooSlow> {
        if !self
            .budget
            .try_spend(self.steps_per_byte.saturating_mul(found.len() as u64))
        {
            return Err(TooSlow::Branches);
        }
        // Assertions such as `\b` still see the surrounding text.
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
