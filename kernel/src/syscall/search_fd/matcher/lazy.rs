//! Searches with a lazy DFA (an automaton that builds its states while it reads), which reports how
//! many bytes it has read.

use regex_automata::hybrid::{dfa, regex};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::prefilter::Prefilter;
use regex_automata::{Input, Match, MatchError, MatchErrorKind, MatchKind};
use regex_syntax::hir::Hir;

use super::PATTERN_BYTES;
use super::budget::StepBudget;
use super::cost::{CostBounds, ReadAhead};
use super::pattern::TooSlow;

/// A DFA that reads fewer bytes than this per state stops the search, since building its states is
/// too slow.
const MIN_BYTES_PER_STATE: usize = 10;

/// Number of cache clears before the limit of [`MIN_BYTES_PER_STATE`] applies.
const MIN_CLEARS: usize = 3;

/// A lazy DFA for a pattern, with the states built so far.
#[derive(Debug)]
pub(super) struct LazyDfa {
    regex: regex::Regex,
    cache: regex::Cache,
}

impl LazyDfa {
    /// Creates the DFA without any states. `None` if it would exceed [`PATTERN_BYTES`].
    pub(super) fn new(hir: &Hir, bounds: &CostBounds) -> Option<Self> {
        let prefilter = Prefilter::from_hir_prefix(MatchKind::LeftmostFirst, hir);
        let forward = dfa::Config::new()
            .match_kind(MatchKind::LeftmostFirst)
            .unicode_word_boundary(true)
            .specialize_start_states(prefilter.is_some())
            .prefilter(prefilter)
            .cache_capacity(PATTERN_BYTES)
            .minimum_cache_clear_count(Some(MIN_CLEARS))
            // Building a state takes time in proportion to the positions of the pattern.
            .minimum_bytes_per_state(Some(
                MIN_BYTES_PER_STATE.max(bounds.positions.try_into().unwrap_or(usize::MAX)),
            ));
        let reverse = forward
            .clone()
            .match_kind(MatchKind::All)
            .prefilter(None)
            .specialize_start_states(false);
        let forward = dfa(nfa(hir, Direction::Forward)?, forward)?;
        let reverse = dfa(nfa(hir, Direction::Reverse)?, reverse)?;
        let regex = regex::Builder::new().build_from_dfas(forward, reverse);
        let cache = regex.create_cache();
        Some(Self { regex, cache })
    }

    /// Finds the leftmost match and charges its cost. `read_ahead` bounds how far the search reads
    /// after a match to look for a longer one with the same start.
    ///
    /// # Errors
    /// [`TooSlow`] if the DFA stops the search or the budget is used up.
    pub(super) fn find(
        &mut self,
        input: &Input<'_>,
        read_ahead: &mut ReadAhead<'_>,
        budget: &mut StepBudget,
    ) -> Result<Option<Match>, TooSlow> {
        let (clears, read) = self.progress();
        let found = self
            .regex
            .try_search(&mut self.cache, input)
            .map_err(|error| to_too_slow(&error))?;
        let steps = match self.progress() {
            (now, read_now) if now == clears => (read_now - read) as u64,
            // The counter was reset with the cache: charge an upper bound.
            _ => found.map_or(input.get_span().len() as u64, |found| {
                (found.end() - input.start()) as u64 + read_ahead.bytes_after(found)
            }),
        };
        if budget.try_spend(steps) {
            Ok(found)
        } else {
            Err(TooSlow::ReadsAhead)
        }
    }

    /// Number of cache clears, and bytes read since the last one. The reverse search for the start
    /// of a match is not counted, since it stays within the bytes of the forward search.
    fn progress(&mut self) -> (usize, usize) {
        let forward = self.cache.forward();
        (forward.clear_count(), forward.search_total_len())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Reverse,
}

fn nfa(hir: &Hir, direction: Direction) -> Option<NFA> {
    let config = thompson::Config::new()
        .reverse(direction == Direction::Reverse)
        .which_captures(WhichCaptures::None)
        .nfa_size_limit(Some(PATTERN_BYTES));
    thompson::Compiler::new()
        .configure(config)
        .build_from_hir(hir)
        .ok()
}

fn dfa(nfa: NFA, config: dfa::Config) -> Option<dfa::DFA> {
    dfa::Builder::new()
        .configure(config)
        .build_from_nfa(nfa)
        .ok()
}

/// Converts the error of a search. The DFA quits only at bytes at which it cannot decide whether
/// there is a Unicode word boundary.
fn to_too_slow(error: &MatchError) -> TooSlow {
    match error.kind() {
        MatchErrorKind::Quit { .. } => TooSlow::WordBoundary,
        _ => TooSlow::Branches,
    }
}
