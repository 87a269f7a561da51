//! Searching for a regular expression with bounded work.
//!
//! An automaton finds one match in linear time. Finding all matches takes linear time only if the
//! automaton stops soon after each match. This is not always so: for every match of `A`, the
//! pattern `.*b|A` reads a line of `A` to its end. Therefore the bytes that are read after a match
//! are charged to a budget. Two engines find the same matches:
//!
//! 1. The regex engine is the fastest, but does not report how many bytes it reads. An upper bound
//!    is computed from the [cost bounds](super::cost) of the pattern and from the text.
//! 2. If that bound exceeds its budget, a [lazy DFA](super::lazy) continues, which counts its steps
//!    exactly. If that count exceeds its budget as well, the search is refused.

use std::ops::Range;

use regex_automata::util::iter::Searcher;
use regex_automata::util::syntax;
use regex_automata::{Input, meta};
use regex_syntax::hir::{Hir, HirKind, LookSet};

use super::budget::StepBudget;
use super::cost::{CostBounds, ReadAhead};
use super::groups::Groups;
use super::lazy::LazyDfa;
use super::line_ends::{LineEnds, with_optional_cr};
use super::{CHUNK_BYTES, Case, PATTERN_BYTES, check_cancelled};
use dormouse_content::{ReadQuota, Unreadable};

/// Why a query cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum PatternError {
    #[error(transparent)]
    Syntax(#[from] Box<regex_syntax::Error>),
    #[error("Compiled regex exceeds size limit of {PATTERN_BYTES} bytes.")]
    TooBig(#[from] Box<meta::BuildError>),
    /// The quota does not permit work of this size here, or the work was cancelled. No model sees
    /// this: the call is performed again on the read pool, or nobody waits for it.
    #[error(transparent)]
    Quota(#[from] Unreadable),
}

/// Why a search was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum TooSlow {
    /// The search was cancelled.
    #[error("The search was given up")]
    Cancelled,
    /// The budget of read bytes is used up.
    #[error(
        "The query takes too long on this text: after each match it reads far ahead for a longer \
         one, in vain. Make it more specific; avoid alternatives that begin with .* or can run \
         over the rest of a long line"
    )]
    ReadsAhead,
    /// The pattern needs too many states.
    #[error(
        "The query takes too long on this text: it can match in too many ways at once. Shorten its \
         repetitions"
    )]
    Branches,
    /// A Unicode word boundary met a non-ASCII byte.
    #[error(
        r"The query takes too long on this text: \b is slow where text is not ASCII. Write (?-u:\b), which is quick, or make the query shorter or more specific"
    )]
    WordBoundary,
}

#[derive(Debug)]
pub(in super::super) struct Pattern {
    hir: Hir,
    bounds: CostBounds,
    regex: meta::Regex,
    counts_empty: bool,
}

impl Pattern {
    /// Compiles a regular expression in multi-line mode: `^` and `$` match at line ends.
    pub(super) fn new(
        query: &str,
        case: Case,
        line_ends: LineEnds,
        quota: &ReadQuota,
    ) -> Result<Self, PatternError> {
        let syntax = syntax::Config::new()
            .case_insensitive(case == Case::Insensitive)
            .crlf(line_ends == LineEnds::CrLf)
            .multi_line(true);
        let hir = syntax::parse_with(query, &syntax).map_err(Box::new)?;
        let hir = match line_ends {
            LineEnds::Lf => hir,
            LineEnds::CrLf => with_optional_cr(hir),
        };
        let bounds = CostBounds::from_hir(&hir);
        // An empty match of `^$` is an empty line, which is a result. `x*` matches emptily at every
        // position; such matches are not reported.
        let counts_empty =
            hir.properties().maximum_len() == Some(0) || is_empty_only_at_anchor(&hir);
        // A pattern never runs in the handler of an actor: the small read quota of a handler counts
        // bytes, not what it costs to compile and run a pattern.
        quota.require_pool()?;
        let config = meta::Config::new()
            .nfa_size_limit(Some(PATTERN_BYTES))
            .hybrid_cache_capacity(PATTERN_BYTES)
            // The backtracker clears its memory for every match, which is not counted as steps.
            .backtrack(false);
        let regex = meta::Builder::new()
            .configure(config)
            .build_from_hir(&hir)
            .map_err(Box::new)?;
        Ok(Self {
            hir,
            bounds,
            regex,
            counts_empty,
        })
    }

    /// The end of the chunk that starts at `at`. If no match can contain a line feed, the text is
    /// cut after line feeds; otherwise it is not cut.
    fn end_of_chunk(&self, text: &str, at: usize) -> usize {
        let least = at.saturating_add(CHUNK_BYTES);
        if self.bounds.matches_byte(b'\n') || least >= text.len() {
            return text.len();
        }
        memchr::memchr(b'\n', &text.as_bytes()[least..]).map_or(text.len(), |feed| least + feed + 1)
    }

    /// Whether a match is reported. One that is not empty always is. An empty one is reported
    /// except
    ///
    /// * for a pattern such as `x*`, which matches emptily at every position;
    /// * at the end of a chunk, since the next chunk begins there and reports it;
    /// * after the last LF of a text, since no line begins there.
    fn counts(&self, found: &Range<usize>, chunk_end: usize, text: &str) -> bool {
        let is_at_end = found.end == chunk_end && (chunk_end < text.len() || text.ends_with('\n'));
        !found.is_empty() || self.counts_empty && !is_at_end
    }

    /// Creates an extractor for the groups of the pattern. `None` if it has no groups.
    pub(super) fn groups(&self) -> Option<Groups<'_>> {
        (self.regex.captures_len() > 1).then(|| Groups::new(&self.regex, &self.bounds))
    }
}

/// Whether each empty match of an expression is at an anchor, such as `^` or `$`. The recursion is
/// as deep as the expression nests, which its parser limits.
fn is_empty_only_at_anchor(hir: &Hir) -> bool {
    if hir.properties().minimum_len().is_some_and(|len| len > 0) {
        return true;
    }
    match hir.kind() {
        HirKind::Empty => false,
        HirKind::Literal(_) | HirKind::Class(_) => true,
        HirKind::Look(look) => LookSet::singleton(*look).contains_anchor(),
        HirKind::Repetition(repeated) => repeated.min > 0 && is_empty_only_at_anchor(&repeated.sub),
        HirKind::Capture(group) => is_empty_only_at_anchor(&group.sub),
        HirKind::Concat(parts) => parts.iter().any(is_empty_only_at_anchor),
        HirKind::Alternation(choices) => choices.iter().all(is_empty_only_at_anchor),
    }
}

/// A running search for a pattern. Budgets and built states are shared by all texts of the search.
#[derive(Debug)]
pub(in super::super) struct PatternScan<'p> {
    pattern: &'p Pattern,
    cache: meta::Cache,
    /// Budget for the estimated steps (upper bounds) of the regex engine.
    estimated_budget: StepBudget,
    /// Budget for the counted steps of the lazy DFA.
    counted_budget: StepBudget,
    lazy: Option<LazyDfa>,
}

impl<'p> PatternScan<'p> {
    pub(super) fn new(pattern: &'p Pattern) -> Self {
        let cache = pattern.regex.create_cache();
        Self {
            pattern,
            cache,
            estimated_budget: StepBudget::new(),
            counted_budget: StepBudget::new(),
            lazy: None,
        }
    }

    /// Calls `found` for every match that counts, from left to right and without overlaps.
    pub(super) fn find_each(
        &mut self,
        text: &str,
        quota: &ReadQuota,
        mut found: impl FnMut(Range<usize>),
    ) -> Result<(), TooSlow> {
        self.estimated_budget.extend_for_text(text.len());
        self.counted_budget.extend_for_text(text.len());
        let mut at = 0;
        while at < text.len() {
            check_cancelled(quota)?;
            let end = self.pattern.end_of_chunk(text, at);
            self.find_within(text, at..end, quota, &mut found)?;
            at = end;
        }
        Ok(())
    }

    /// Searches one chunk. Assertions such as `^` and `\b` still see the surrounding text. A chunk can
    /// be the whole text, so cancellation is also checked at each match.
    fn find_within(
        &mut self,
        text: &str,
        chunk: Range<usize>,
        quota: &ReadQuota,
        found: &mut impl FnMut(Range<usize>),
    ) -> Result<(), TooSlow> {
        let pattern = self.pattern;
        let mut matches = Searcher::new(Input::new(text).range(chunk.clone()));
        let mut found = |range: Range<usize>| {
            if pattern.counts(&range, chunk.end, text) {
                found(range);
            }
            check_cancelled(quota)
        };
        match self.find_bounded(text, chunk.len(), &mut matches, &mut found)? {
            Progress::Done => Ok(()),
            Progress::Stopped => self.find_counted(text, &mut matches, &mut found),
        }
    }

    /// Finds matches while the upper bound of their cost fits the budget.
    fn find_bounded(
        &mut self,
        text: &str,
        len: usize,
        matches: &mut Searcher<'_>,
        found: &mut impl FnMut(Range<usize>) -> Result<(), TooSlow>,
    ) -> Result<Progress, TooSlow> {
        let Pattern { regex, bounds, .. } = self.pattern;
        // The bytes up to the end of a match are read only for that match, so the chunk is charged
        // once.
        let mut is_within_budget = self
            .estimated_budget
            .try_spend(bounds.positions.saturating_mul(len as u64));
        let mut read_ahead = ReadAhead::new(bounds, text);
        while is_within_budget {
            let next = matches.advance(|input| {
                let next = regex.search_with(&mut self.cache, input);
                let ahead = next.map_or(0, |next| read_ahead.bytes_after(next));
                is_within_budget &= self
                    .estimated_budget
                    .try_spend(bounds.positions.saturating_mul(ahead));
                Ok(next)
            });
            match next {
                Some(next) => found(next.range())?,
                None => return Ok(Progress::Done),
            }
        }
        Ok(Progress::Stopped)
    }

    /// Finds the remaining matches while their counted cost fits the budget.
    fn find_counted(
        &mut self,
        text: &str,
        matches: &mut Searcher<'_>,
        found: &mut impl FnMut(Range<usize>) -> Result<(), TooSlow>,
    ) -> Result<(), TooSlow> {
        let Pattern { hir, bounds, .. } = self.pattern;
        if self.lazy.is_none() {
            self.lazy = LazyDfa::new(hir, bounds);
        }
        let lazy = self.lazy.as_mut().ok_or(TooSlow::Branches)?;
        let mut read_ahead = ReadAhead::new(bounds, text);
        let mut end = Ok(());
        while let Some(next) = matches.advance(|input| {
            let next = lazy.find(input, &mut read_ahead, &mut self.counted_budget);
            Ok(next.unwrap_or_else(|error| {
                end = Err(error);
                None
            }))
        }) {
            found(next.range())?;
        }
        end
    }
}

/// Whether the search of a text is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Done,
    Stopped,
}

#[cfg(test)]
mod tests;
