//! Finding occurrences: a literal by a vectorised scan, everything else by an automaton whose work is bounded, so that no
//! pattern of a model can hang the kernel.

mod budget;
mod groups;
mod lazy;
mod pattern;
mod shape;

use std::ops::Range;

use memchr::memmem::Finder;

pub(super) use self::groups::Groups;
use self::pattern::{Pattern, PatternScan};
pub(super) use self::pattern::{PatternError, TooSlow};

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
    Pattern(Box<Pattern>),
}

impl<'a> Matcher<'a> {
    /// Finds this text.
    pub(super) fn literal(query: &'a str, case: Case) -> Result<Self, PatternError> {
        match case {
            Case::Kept => Ok(Self::Literal(Box::new(Finder::new(query)))),
            Case::Ignored => Self::pattern(&regex::escape(query), case),
        }
    }

    /// Finds what this regular expression matches.
    pub(super) fn pattern(query: &str, case: Case) -> Result<Self, PatternError> {
        Pattern::new(query, case).map(Box::new).map(Self::Pattern)
    }

    /// What tells the groups of its matches, if it has some.
    pub(super) fn groups(&self) -> Option<Groups<'_>> {
        match self {
            Self::Literal(_) => None,
            Self::Pattern(pattern) => pattern.groups(),
        }
    }

    /// Begins a search, of one text or of several that share what it may cost.
    pub(super) fn scan(&self) -> Scan<'_> {
        match self {
            Self::Literal(finder) => Scan::Literal(finder),
            Self::Pattern(pattern) => Scan::Pattern(Box::new(PatternScan::new(pattern))),
        }
    }
}

/// A search that goes on.
#[derive(Debug)]
pub(super) enum Scan<'m> {
    Literal(&'m Finder<'m>),
    Pattern(Box<PatternScan<'m>>),
}

impl Scan<'_> {
    /// Tells where the query occurs in `text`, in bytes, from left to right and without overlaps. Empty matches are no
    /// occurrences. O(n).
    ///
    /// # Errors
    /// Where it would take longer: a part of the occurrences was told then.
    pub(super) fn find_each(&mut self, text: &str, mut found: impl FnMut(Range<usize>)) -> Result<(), TooSlow> {
        match self {
            Self::Literal(finder) => {
                let len = finder.needle().len();
                finder.find_iter(text.as_bytes()).for_each(|at| found(at..at + len));
                Ok(())
            }
            Self::Pattern(scan) => scan.find_each(text, found),
        }
    }
}
