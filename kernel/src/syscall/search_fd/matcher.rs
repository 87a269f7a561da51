//! Finds the matches of a query in a text. Literals use a vectorised search. Regular expressions
//! use automata with a limited number of steps, so that no pattern of a model can block the kernel.
//!
//! `pattern.rs` compiles and searches a regular expression. It takes upper bounds for the cost from
//! `cost.rs` and counts steps by `budget.rs`; `lazy.rs` is the engine that counts exactly.
//! `groups.rs` extracts capture groups, and `line_ends.rs` adapts a pattern to texts with CR LF.

mod budget;
mod cost;
mod groups;
mod lazy;
mod line_ends;
mod pattern;

use std::ops::Range;
use std::sync::OnceLock;

use memchr::memmem::Finder;

use dormouse_content::ReadQuota;

pub(super) use self::groups::Groups;
pub(super) use self::line_ends::LineEnds;
use self::pattern::{Pattern, PatternScan};
pub(super) use self::pattern::{PatternError, TooSlow};

/// Memory limit for a compiled pattern, and again for its cache.
const PATTERN_BYTES: usize = 4 << 20;

/// Bytes between two checks for cancellation: at most a millisecond of work.
const CHUNK_BYTES: usize = 1 << 20;

/// Case sensitivity of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    /// Upper and lower case differ.
    Sensitive,
    /// Upper and lower case match each other.
    Insensitive,
}

/// A compiled query.
#[derive(Debug)]
pub(super) enum Matcher<'a> {
    Literal(Box<Finder<'a>>),
    Pattern(Box<PatternByLineEnds>),
}

/// A pattern, and its form for texts with CR LF, which is compiled when such a text is searched.
#[derive(Debug)]
pub(super) struct PatternByLineEnds {
    query: String,
    case: Case,
    lf: Pattern,
    /// `None` if that form is too large.
    crlf: OnceLock<Option<Pattern>>,
}

impl PatternByLineEnds {
    fn new(query: &str, case: Case, quota: &ReadQuota) -> Result<Self, PatternError> {
        Ok(Self {
            lf: Pattern::new(query, case, LineEnds::Lf, quota)?,
            query: query.to_owned(),
            case,
            crlf: OnceLock::new(),
        })
    }

    fn get(&self, line_ends: LineEnds) -> Result<&Pattern, TooSlow> {
        let crlf = || {
            let unlimited = ReadQuota::unlimited();
            Pattern::new(&self.query, self.case, LineEnds::CrLf, unlimited).ok()
        };
        match line_ends {
            LineEnds::Lf => Ok(&self.lf),
            LineEnds::CrLf => self
                .crlf
                .get_or_init(crlf)
                .as_ref()
                .ok_or(TooSlow::Branches),
        }
    }
}

impl<'a> Matcher<'a> {
    /// A matcher for a literal text. An LF in it also finds CR LF, which is shown as LF.
    pub(super) fn literal(
        query: &'a str,
        case: Case,
        quota: &ReadQuota,
    ) -> Result<Self, PatternError> {
        match case {
            Case::Sensitive if !query.contains('\n') => {
                Ok(Self::Literal(Box::new(Finder::new(query))))
            }
            _ => Self::pattern(&regex::escape(query), case, quota),
        }
    }

    /// A matcher for a regular expression.
    pub(super) fn pattern(
        query: &str,
        case: Case,
        quota: &ReadQuota,
    ) -> Result<Self, PatternError> {
        PatternByLineEnds::new(query, case, quota)
            .map(Box::new)
            .map(Self::Pattern)
    }

    /// Creates an extractor for the groups of the pattern in texts with these line ends. `None` if
    /// it has no groups.
    ///
    /// # Errors
    /// [`TooSlow`] if the pattern for these line ends is too large.
    pub(super) fn groups(&self, line_ends: LineEnds) -> Result<Option<Groups<'_>>, TooSlow> {
        match self {
            Self::Literal(_) => Ok(None),
            Self::Pattern(pattern) => Ok(pattern.get(line_ends)?.groups()),
        }
    }

    /// Starts a search of one text, or of several that share one work budget. It stops early if the
    /// quota is used up.
    pub(super) fn scan<'m>(&'m self, quota: &'m ReadQuota) -> Scan<'m> {
        let engine = match self {
            Self::Literal(finder) => Engine::Literal(finder),
            Self::Pattern(pattern) => Engine::Pattern {
                pattern,
                lf: None,
                crlf: None,
            },
        };
        Scan { engine, quota }
    }
}

/// A running search.
#[derive(Debug)]
pub(super) struct Scan<'m> {
    engine: Engine<'m>,
    quota: &'m ReadQuota,
}

#[derive(Debug)]
enum Engine<'m> {
    Literal(&'m Finder<'m>),
    /// The scans of texts by their line ends, each begun with its first text.
    Pattern {
        pattern: &'m PatternByLineEnds,
        lf: Option<Box<PatternScan<'m>>>,
        crlf: Option<Box<PatternScan<'m>>>,
    },
}

impl Scan<'_> {
    /// Calls `found` with the byte range of each occurrence in `text`, from left to right and
    /// without overlaps. An empty match counts only if the pattern has no other empty matches than
    /// those at an anchor, such as `^$`. O(n).
    ///
    /// # Errors
    /// [`TooSlow`] if the search exceeds its budget or is cancelled. Some occurrences may have been
    /// reported by then.
    pub(super) fn find_each(
        &mut self,
        text: &str,
        found: impl FnMut(Range<usize>),
    ) -> Result<(), TooSlow> {
        match &mut self.engine {
            Engine::Literal(finder) => find_literal(finder, text.as_bytes(), self.quota, found),
            Engine::Pattern { pattern, lf, crlf } => {
                let line_ends = LineEnds::of(text);
                let scan = if line_ends == LineEnds::CrLf {
                    crlf
                } else {
                    lf
                };
                let pattern = pattern.get(line_ends)?;
                scan.get_or_insert_with(|| Box::new(PatternScan::new(pattern)))
                    .find_each(text, self.quota, found)
            }
        }
    }
}

fn find_literal(
    finder: &Finder<'_>,
    text: &[u8],
    quota: &ReadQuota,
    mut found: impl FnMut(Range<usize>),
) -> Result<(), TooSlow> {
    let len = finder.needle().len();
    let mut at = 0;
    while at < text.len() {
        check_cancelled(quota)?;
        // An occurrence that starts in this chunk may end in the next.
        let end = at.saturating_add(CHUNK_BYTES).min(text.len());
        let mut next = end;
        for start in finder.find_iter(&text[at..end.saturating_add(len - 1).min(text.len())]) {
            found(at + start..at + start + len);
            next = next.max(at + start + len);
        }
        at = next;
    }
    Ok(())
}

/// Fails if the search was cancelled.
fn check_cancelled(quota: &ReadQuota) -> Result<(), TooSlow> {
    if quota.is_used_up() {
        Err(TooSlow::Cancelled)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    type MakeMatcher = for<'a> fn(&'a str, &ReadQuota) -> Matcher<'a>;

    fn literal<'a>(query: &'a str, quota: &ReadQuota) -> Matcher<'a> {
        Matcher::literal(query, Case::Sensitive, quota).unwrap()
    }

    fn pattern(query: &str, quota: &ReadQuota) -> Matcher<'static> {
        Matcher::pattern(query, Case::Sensitive, quota).unwrap()
    }

    fn found(make: MakeMatcher, query: &str, text: &str) -> Vec<Range<usize>> {
        let quota = ReadQuota::unlimited();
        let matcher = make(query, quota);
        let mut found = Vec::new();
        matcher
            .scan(quota)
            .find_each(text, |range| found.push(range))
            .unwrap();
        found
    }

    #[test]
    fn an_occurrence_across_two_chunks_is_found_once() {
        for shift in 0..5 {
            let before = "x".repeat(CHUNK_BYTES - shift);
            let text = format!("{before}abab\n{before}ababab\nab\n{before}\nabab");
            let expected: Vec<_> = text
                .match_indices("abab")
                .map(|(at, word)| at..at + word.len())
                .collect();
            assert_eq!(found(literal, "abab", &text), expected, "{shift}");
            for query in [
                "abab",
                "(ab)+$",
                "^ab",
                r"\bab.*",
                "ab\nx",
                "(?s)abab.",
                r"b\s+x",
            ] {
                let regex = regex::RegexBuilder::new(query)
                    .multi_line(true)
                    .build()
                    .unwrap();
                let expected: Vec<_> = regex.find_iter(&text).map(|found| found.range()).collect();
                assert_eq!(found(pattern, query, &text), expected, "{query} {shift}");
            }
        }
        let run = "a".repeat(2 * CHUNK_BYTES + 1);
        assert_eq!(
            found(literal, "aa", &run).len(),
            CHUNK_BYTES,
            "occurrences do not overlap"
        );
    }

    #[test]
    fn a_search_that_is_cancelled_ends_within_a_chunk() {
        let text = "a line without\n".repeat(CHUNK_BYTES / 4);
        let cases: [(MakeMatcher, &str); 5] = [
            (literal, "line"),
            (pattern, "l.ne"),
            (pattern, "l[^x]ne"),
            (literal, "nothing like it"),
            (pattern, "n[oO]thing like it"),
        ];
        for (make, query) in cases {
            let cancelled = Arc::new(AtomicBool::new(false));
            let quota = ReadQuota::until(cancelled.clone());
            let matcher = make(query, &quota);
            let mut last = 0;
            let mut scan = matcher.scan(&quota);
            let end = scan.find_each(&text, |range| {
                cancelled.store(true, Ordering::Relaxed);
                last = range.end;
            });
            if last > 0 {
                assert!(
                    matches!(end, Err(TooSlow::Cancelled)) && last <= 2 * CHUNK_BYTES,
                    "{query}: {last}"
                );
            } else {
                cancelled.store(true, Ordering::Relaxed);
                assert!(
                    matches!(scan.find_each(&text, |_| ()), Err(TooSlow::Cancelled)),
                    "{query}"
                );
            }
        }
    }
}
