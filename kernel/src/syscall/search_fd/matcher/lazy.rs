//! A pattern as a lazy DFA, which says how many bytes it has read.

use regex_automata::hybrid::{dfa, regex};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::prefilter::Prefilter;
use regex_automata::{Input, Match, MatchError, MatchErrorKind, MatchKind};
use regex_syntax::hir::Hir;

use super::PATTERN_BYTES;
use super::budget::Budget;
use super::pattern::TooSlow;
use super::shape::{Reach, Shape};

/// For each of its states a DFA must read so many bytes, or give up: fewer are slower than they are
/// worth.
const MIN_BYTES_PER_STATE: usize = 10;

/// States may be thrown away so often before they must be worth it.
const MIN_CLEARS: usize = 3;

#[derive(Debug)]
pub(super) struct Lazy {
    regex: regex::Regex,
    cache: regex::Cache,
}

impl Lazy {
    /// Builds it, but no state yet. `None` where it would take more than [`PATTERN_BYTES`].
    pub(super) fn new(hir: &Hir, shape: &Shape) -> Option<Self> {
        let prefilter = Prefilter::from_hir_prefix(MatchKind::LeftmostFirst, hir);
        let forward = dfa::Config::new()
            .match_kind(MatchKind::LeftmostFirst)
            .unicode_word_boundary(true)
            .specialize_start_states(prefilter.is_some())
            .prefilter(prefilter)
            .cache_capacity(PATTERN_BYTES)
            .minimum_cache_clear_count(Some(MIN_CLEARS))
            // A state takes as long to build as the pattern has places.
            .minimum_bytes_per_state(Some(
                MIN_BYTES_PER_STATE.max(shape.places.try_into().unwrap_or(usize::MAX)),
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

    /// The leftmost match, for what it costs.
    ///
    /// # Errors
    /// Where the DFA cannot go on, or the budget is spent.
    pub(super) fn find(
        &mut self,
        input: &Input<'_>,
        reach: &mut Reach<'_>,
        budget: &mut Budget,
    ) -> Result<Option<Match>, TooSlow> {
        let (clears, read) = self.progress();
        let found = self
            .regex
            .try_search(&mut self.cache, input)
            .map_err(|error| why(&error))?;
        let steps = match self.progress() {
            (now, read_now) if now == clears => (read_now - read) as u64,
            // What was read was forgotten with the states: it cannot be more than this.
            _ => found.map_or(input.get_span().len() as u64, |found| {
                (found.end() - input.start()) as u64 + reach.after(found)
            }),
        };
        if budget.spend(steps) {
            Ok(found)
        } else {
            Err(TooSlow::ReadsAhead)
        }
    }

    /// How often the states were thrown away, and how many bytes were read since. The search back
    /// to the start of a match is not counted: it stays within what the search forward has read.
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

/// The only bytes that a DFA is told to quit at are those which a word boundary of Unicode cannot
/// be told from.
fn why(error: &MatchError) -> TooSlow {
    match error.kind() {
        MatchErrorKind::Quit { .. } => TooSlow::WordBoundary,
        _ => TooSlow::Branches,
    }
}
