//! A regular expression, searched for with bounded work.
//!
//! An automaton finds one match in linear time, but all of them only if it stops soon after each: `.*b|A` reads a line of
//! `A` to its end for every match of `A`. So what is read after a match is reckoned with, in two ways that find the same
//! matches. The first engine is the quickest there is; it does not tell what it reads, but a bound of it can be told from
//! the [shape](super::shape) of the pattern and the text. Where the bound is more than the budget, a
//! [lazy DFA](super::lazy) goes on from there, which counts. Where its count is more than the budget too, the search is
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
use super::{Case, PATTERN_BYTES};

/// Why a query is no pattern.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum PatternError {
    #[error(transparent)]
    Syntax(#[from] Box<regex_syntax::Error>),
    #[error("Compiled regex exceeds size limit of {PATTERN_BYTES} bytes.")]
    TooBig(#[from] Box<meta::BuildError>),
}

/// Why a search was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum TooSlow {
    /// More was read than the budget allows.
    #[error(
        "The query takes too long on this text: after each match it reads far ahead for a longer one, in vain. \
        Make it more specific; avoid alternatives that begin with .* or can run over the rest of a long line"
    )]
    ReadsAhead,
    /// There are too many states to be built.
    #[error("The query takes too long on this text: it can match in too many ways at once. Shorten its repetitions")]
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
    pub(super) fn new(query: &str, case: Case) -> Result<Self, PatternError> {
        let syntax = syntax::Config::new().case_insensitive(case == Case::Ignored).multi_line(true);
        let hir = syntax::parse_with(query, &syntax).map_err(Box::new)?;
        let config = meta::Config::new()
            .nfa_size_limit(Some(PATTERN_BYTES))
            .hybrid_cache_capacity(PATTERN_BYTES)
            // It clears its memory for every match, which is no step that could be reckoned with.
            .backtrack(false);
        let regex = meta::Builder::new().configure(config).build_from_hir(&hir).map_err(Box::new)?;
        Ok(Self { shape: Shape::of(&hir), hir, regex })
    }

    /// What tells the groups of its matches, if it has some.
    pub(super) fn groups(&self) -> Option<Groups<'_>> {
        (self.regex.captures_len() > 1).then(|| Groups::of(&self.regex, &self.shape))
    }
}

/// A pattern at work: its budgets, and the states that it has built, are shared by all texts of a search.
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
        Self { pattern, cache, bounded: Budget::new(), counted: Budget::new(), lazy: None }
    }

    /// Tells of every match that is not empty, from left to right and without overlaps.
    pub(super) fn find_each(&mut self, text: &str, found: impl FnMut(Range<usize>)) -> Result<(), TooSlow> {
        self.bounded.allow(text.len());
        self.counted.allow(text.len());
        self.find_within(text, found)
    }

    fn find_within(&mut self, text: &str, mut found: impl FnMut(Range<usize>)) -> Result<(), TooSlow> {
        let mut matches = Searcher::new(Input::new(text));
        match self.find_bounded(text, &mut matches, &mut found) {
            Progress::Done => Ok(()),
            Progress::Stopped => self.find_counted(text, &mut matches, &mut found),
        }
    }

    /// Finds matches as long as a bound of their cost is within the budget.
    fn find_bounded(
        &mut self,
        text: &str,
        matches: &mut Searcher<'_>,
        found: &mut impl FnMut(Range<usize>),
    ) -> Progress {
        let Pattern { regex, shape, .. } = self.pattern;
        // What lies before the end of a match is read for that match alone.
        let mut within = self.bounded.spend(shape.places.saturating_mul(text.len() as u64));
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
