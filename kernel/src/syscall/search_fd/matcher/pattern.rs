//! A regular expression, searched for with bounded work.
//!
//! An automaton finds one match in linear time, but all of them only if it stops soon after each:
//! `.*b|A` reads a line of `A` to its end for every match of `A`. So what is read after a match is
//! reckoned with, in two ways that find the same matches. The first engine is the quickest there
//! is; it does not tell what it reads, but a bound of it can be told from the [shape](super::shape)
//! of the pattern and the text. Where the bound is more than the budget, a [lazy DFA](super::lazy)
//! goes on from there, which counts. Where its count is more than the budget too, the search is
//! refused.

use std::ops::Range;

use regex_automata::util::iter::Searcher;
use regex_automata::util::syntax;
use regex_automata::{Input, meta};
use regex_syntax::hir::Hir;

use super::budget::Budget;
use super::groups::Groups;
use super::lazy::Lazy;
use super::shape::{Reach, Shape};
use super::{CHUNK_BYTES, Case, PATTERN_BYTES, check};
use dormouse_content::ReadQuota;

/// Why a query is no pattern.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum PatternError {
    #[error(transparent)]
    Syntax(#[from] Box<regex_syntax::Error>),
    #[error("Compiled regex exceeds size limit of {PATTERN_BYTES} bytes.")]
    TooBig(#[from] Box<meta::BuildError>),
    #[error("the search was given up")]
    GivenUp,
}

/// Why a search was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum TooSlow {
    /// Nobody waits for it any more.
    #[error("The search was given up")]
    GivenUp,
    /// More was read than the budget allows.
    #[error(
        "The query takes too long on this text: after each match it reads far ahead for a longer \
         one, in vain. Make it more specific; avoid alternatives that begin with .* or can run \
         over the rest of a long line"
    )]
    ReadsAhead,
    /// There are too many states to be built.
    #[error(
        "The query takes too long on this text: it can match in too many ways at once. Shorten its \
         repetitions"
    )]
    Branches,
    /// A word boundary of Unicode met a byte that is not ASCII.
    #[error(
        r"The query takes too long on this text: \b is slow where text is not ASCII. Write (?-u:\b), which is quick, or make the query shorter or more specific"
    )]
    WordBoundary,
}

#[derive(Debug)]
pub(in super::super) struct Pattern {
    hir: Hir,
    shape: Shape,
    regex: meta::Regex,
}

impl Pattern {
    /// Takes a regular expression in which `^` and `$` match at lines.
    pub(super) fn new(query: &str, case: Case, quota: &ReadQuota) -> Result<Self, PatternError> {
        let syntax = syntax::Config::new()
            .case_insensitive(case == Case::Ignored)
            .multi_line(true);
        let hir = syntax::parse_with(query, &syntax).map_err(Box::new)?;
        let shape = Shape::of(&hir);
        quota.require_pool().map_err(|_| PatternError::GivenUp)?;
        let config = meta::Config::new()
            .nfa_size_limit(Some(PATTERN_BYTES))
            .hybrid_cache_capacity(PATTERN_BYTES)
            // It clears its memory for every match, which is no step that could be reckoned with.
            .backtrack(false);
        let regex = meta::Builder::new()
            .configure(config)
            .build_from_hir(&hir)
            .map_err(Box::new)?;
        Ok(Self { shape, hir, regex })
    }

    /// Where a part of the text that begins at `at` ends that is searched at once. A match that
    /// cannot hold a line feed lies in one line, so that a text is cut behind line feeds; where it
    /// can, nothing is cut.
    fn end_of_chunk(&self, text: &str, at: usize) -> usize {
        let least = at.saturating_add(CHUNK_BYTES);
        if self.shape.takes(b'\n') || least >= text.len() {
            return text.len();
        }
        memchr::memchr(b'\n', &text.as_bytes()[least..]).map_or(text.len(), |feed| least + feed + 1)
    }

    /// What tells the groups of its matches, if it has some.
    pub(super) fn groups(&self) -> Option<Groups<'_>> {
        (self.regex.captures_len() > 1).then(|| Groups::of(&self.regex, &self.shape))
    }
}

/// A pattern at work: its budgets, and the states that it has built, are shared by all texts of a
/// search.
#[derive(Debug)]
pub(in super::super) struct PatternScan<'p> {
    pattern: &'p Pattern,
    cache: meta::Cache,
    bounded: Budget,
    counted: Budget,
    lazy: Option<Lazy>,
}

impl<'p> PatternScan<'p> {
    pub(super) fn new(pattern: &'p Pattern) -> Self {
        let cache = pattern.regex.create_cache();
        Self {
            pattern,
            cache,
            bounded: Budget::new(),
            counted: Budget::new(),
            lazy: None,
        }
    }

    /// Tells of every match that is not empty, from left to right and without overlaps.
    pub(super) fn find_each(
        &mut self,
        text: &str,
        quota: &ReadQuota,
        mut found: impl FnMut(Range<usize>),
    ) -> Result<(), TooSlow> {
        self.bounded.allow(text.len());
        self.counted.allow(text.len());
        let mut at = 0;
        while at < text.len() {
            check(quota)?;
            let end = self.pattern.end_of_chunk(text, at);
            self.find_within(text, at..end, &mut found)?;
            at = end;
        }
        Ok(())
    }

    /// What is around the chunk still counts for the assertions of the pattern.
    fn find_within(
        &mut self,
        text: &str,
        chunk: Range<usize>,
        found: &mut impl FnMut(Range<usize>),
    ) -> Result<(), TooSlow> {
        let mut matches = Searcher::new(Input::new(text).range(chunk.clone()));
        match self.find_bounded(text, chunk.len(), &mut matches, found) {
            Progress::Done => Ok(()),
            Progress::Stopped => self.find_counted(text, &mut matches, found),
        }
    }

    /// Finds matches as long as a bound of their cost is within the budget.
    fn find_bounded(
        &mut self,
        text: &str,
        len: usize,
        matches: &mut Searcher<'_>,
        found: &mut impl FnMut(Range<usize>),
    ) -> Progress {
        let Pattern { regex, shape, .. } = self.pattern;
        // What lies before the end of a match is read for that match alone.
        let mut within = self.bounded.spend(shape.places.saturating_mul(len as u64));
        let mut reach = Reach::new(shape, text);
        while within {
            let next = matches.advance(|input| {
                let next = regex.search_with(&mut self.cache, input);
                let ahead = next.map_or(0, |next| reach.after(next));
                within &= self.bounded.spend(shape.places.saturating_mul(ahead));
                Ok(next)
            });
            match next {
                Some(next) if next.is_empty() => {}
                Some(next) => found(next.range()),
                None => return Progress::Done,
            }
        }
        Progress::Stopped
    }

    /// Finds the matches that are left, as long as their cost is within the budget.
    fn find_counted(
        &mut self,
        text: &str,
        matches: &mut Searcher<'_>,
        found: &mut impl FnMut(Range<usize>),
    ) -> Result<(), TooSlow> {
        let Pattern { hir, shape, .. } = self.pattern;
        if self.lazy.is_none() {
            self.lazy = Lazy::new(hir, shape);
        }
        let lazy = self.lazy.as_mut().ok_or(TooSlow::Branches)?;
        let (mut reach, mut end) = (Reach::new(shape, text), Ok(()));
        while let Some(next) = matches.advance(|input| {
            let next = lazy.find(input, &mut reach, &mut self.counted);
            Ok(next.unwrap_or_else(|why| {
                end = Err(why);
                None
            }))
        }) {
            if !next.is_empty() {
                found(next.range());
            }
        }
        end
    }
}

/// Whether a text was searched to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Done,
    Stopped,
}

#[cfg(test)]
mod tests;
