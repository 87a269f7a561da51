//! Finding occurrences: a literal by a vectorised scan, everything else by an automaton in linear time, so that no pattern
//! of a model can hang the kernel.

use std::ops::Range;

use memchr::memmem::Finder;
use regex::{Regex, RegexBuilder};

/// The most memory that a compiled pattern may take, and its cache after that.
const PATTERN_BYTES: usize = 4 << 20;

/// Whether upper and lower case differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Kept,
    Ignored,
}

#[derive(Debug)]
pub(super) enum Matcher<'a> {
    Literal(Box<Finder<'a>>),
    Pattern(Regex),
}

impl<'a> Matcher<'a> {
    /// Finds this text.
    pub(super) fn literal(query: &'a str, case: Case) -> Result<Self, regex::Error> {
        match case {
            Case::Kept => Ok(Self::Literal(Box::new(Finder::new(query)))),
            Case::Ignored => Self::pattern(&regex::escape(query), case),
        }
    }

    /// Finds what this regular expression matches.
    pub(super) fn pattern(query: &str, case: Case) -> Result<Self, regex::Error> {
        let mut builder = RegexBuilder::new(query);
        builder.case_insensitive(case == Case::Ignored).multi_line(true);
        builder.size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES);
        builder.build().map(Self::Pattern)
    }

    /// Where it occurs in `text`, in bytes, from left to right and without overlaps. Empty matches are no occurrences.
    pub(super) fn find_iter<'t>(&'t self, text: &'t str) -> Box<dyn Iterator<Item = Range<usize>> + 't> {
        match self {
            Self::Literal(finder) => {
                let len = finder.needle().len();
                Box::new(finder.find_iter(text.as_bytes()).map(move |at| at..at + len))
            }
            Self::Pattern(regex) => {
                Box::new(regex.find_iter(text).map(|found| found.range()).filter(|range| !range.is_empty()))
            }
        }
    }
}
