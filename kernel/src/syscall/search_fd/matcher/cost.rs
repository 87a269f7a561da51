//! Upper bounds for the cost of a pattern: which bytes a match can contain, how long it can be, and
//! in how many positions of the pattern an automaton can be at the same time.
//!
//! [`ReadAhead`] also inspects the text, to find the position at which a match must end.

use regex_automata::Match;
use regex_syntax::hir::{Class, Hir, HirKind};

/// Upper bounds for the cost of searching with a pattern.
#[derive(Debug)]
pub(super) struct CostBounds {
    /// For each byte, whether a match can contain it.
    matches_bytes: [bool; 256],
    /// Whether a match can contain every byte.
    matches_all: bool,
    /// Maximum length of a match in bytes.
    max_len: usize,
    /// Maximum number of positions per byte of text.
    pub(super) positions: u64,
}

impl CostBounds {
    pub(super) fn from_hir(hir: &Hir) -> Self {
        let mut matches_bytes = [false; 256];
        let positions = positions(hir, &mut matches_bytes).max(1);
        let max_len = hir.properties().maximum_len().unwrap_or(usize::MAX);
        Self {
            matches_all: matches_bytes == [true; 256],
            matches_bytes,
            max_len,
            positions,
        }
    }

    /// Whether a match can contain this byte.
    pub(super) fn matches_byte(&self, byte: u8) -> bool {
        self.matches_bytes[usize::from(byte)]
    }
}

/// Marks every byte that `hir` can match, and counts its positions.
fn positions(hir: &Hir, matches_bytes: &mut [bool; 256]) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => {
            literal
                .0
                .iter()
                .for_each(|&byte| matches_bytes[usize::from(byte)] = true);
            max_byte_count(&literal.0)
        }
        HirKind::Class(class) => {
            mark_class(class, matches_bytes);
            1
        }
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            positions(&repetition.sub, matches_bytes).saturating_mul(times.into())
        }
        HirKind::Capture(capture) => positions(&capture.sub, matches_bytes),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().fold(0, |sum: u64, part| {
                sum.saturating_add(positions(part, matches_bytes))
            })
        }
    }
}

/// Maximum number of simultaneous positions within a literal: the count of its most frequent byte,
/// since all these positions follow the same byte.
fn max_byte_count(literal: &[u8]) -> u64 {
    let mut counts = [0; 256];
    literal
        .iter()
        .for_each(|&byte| counts[usize::from(byte)] += 1);
    counts.into_iter().max().unwrap_or(0)
}

/// Marks the bytes of a class. If the class contains a non-ASCII character, all non-ASCII bytes are
/// marked, as an upper bound.
fn mark_class(class: &Class, matches_bytes: &mut [bool; 256]) {
    let mut mark = |first: u32, last: u32| {
        (first..=last.min(0x7f)).for_each(|byte| matches_bytes[byte as usize] = true);
        if last > 0x7f {
            matches_bytes[0x80..].fill(true);
        }
    };
    match class {
        Class::Unicode(class) => class
            .iter()
            .for_each(|range| mark(range.start().into(), range.end().into())),
        Class::Bytes(class) => class
            .iter()
            .for_each(|range| mark(range.start().into(), range.end().into())),
    }
}

/// How far an automaton reads after a match to look for a longer one with the same start. O(n) in
/// the text over all matches together.
#[derive(Debug)]
pub(super) struct ReadAhead<'a> {
    bounds: &'a CostBounds,
    text: &'a [u8],
    /// All bytes from the last queried match up to here can be part of a match.
    scanned: usize,
}

impl<'a> ReadAhead<'a> {
    pub(super) fn new(bounds: &'a CostBounds, text: &'a str) -> Self {
        Self {
            bounds,
            text: text.as_bytes(),
            scanned: 0,
        }
    }

    /// Upper bound of the bytes read after this match. Matches must be queried in ascending order
    /// of their ends.
    pub(super) fn bytes_after(&mut self, found: Match) -> u64 {
        let longest = found
            .start()
            .saturating_add(self.bounds.max_len)
            .min(self.text.len());
        self.scanned = self.scanned.max(if self.bounds.matches_all {
            longest
        } else {
            found.end()
        });
        if self.scanned < longest {
            let ahead = &self.text[self.scanned..longest];
            let matching_bytes = ahead
                .iter()
                .position(|&byte| !self.bounds.matches_bytes[usize::from(byte)]);
            self.scanned += matching_bytes.unwrap_or(ahead.len());
        }
        self.scanned.min(longest).saturating_sub(found.end()) as u64
    }
}

#[cfg(test)]
mod tests {
    use regex_automata::PatternID;

    use super::*;

    fn bounds(pattern: &str) -> CostBounds {
        CostBounds::from_hir(&regex_syntax::parse(pattern).unwrap())
    }

    #[test]
    fn positions_are_counted_and_multiplied_by_repetitions() {
        let cases = [
            ("", 1),
            ("abc", 1),
            ("banana", 3),
            (r"\w", 1),
            (r"\bfoo", 3),
            (".*b|A", 3),
            ("(a{5}){7}", 35),
            ("[ab]{3,}", 3),
            ("(?:[ab]{1000}){1000}c", 1_000_001),
        ];
        for (pattern, expected) in cases {
            assert_eq!(bounds(pattern).positions, expected, "{pattern}");
        }
    }

    /// Start and end of a match, and how many bytes after it may be read.
    type ReadAheadCase = (usize, usize, u64);

    #[test]
    fn read_ahead_is_bounded_by_the_bytes_and_the_length_of_a_match() {
        let text = "aab é aaaa\nb\naa";
        let cases: [(&str, &[ReadAheadCase]); 6] = [
            (
                "a+|b",
                &[
                    (0, 1, 2),
                    (1, 2, 1),
                    (2, 3, 0),
                    (7, 8, 3),
                    (12, 13, 0),
                    (14, 15, 1),
                ],
            ),
            ("a{1,2}", &[(0, 1, 1), (7, 8, 1), (8, 10, 0), (15, 16, 0)]),
            (".*b|A", &[(0, 1, 10), (2, 3, 8), (12, 13, 0)]),
            ("(?s).*b|A", &[(0, 1, 15), (7, 8, 8), (15, 16, 0)]),
            (r"\w+", &[(0, 1, 2), (3, 3, 0), (4, 6, 0), (7, 8, 3)]),
            ("x", &[(0, 0, 0), (0, 1, 0)]),
        ];
        for (pattern, matches) in cases {
            let bounds = bounds(pattern);
            let mut read_ahead = ReadAhead::new(&bounds, text);
            for &(start, end, expected) in matches {
                let found = Match::new(PatternID::ZERO, start..end);
                assert_eq!(
                    read_ahead.bytes_after(found),
                    expected,
                    "{pattern} at {start}..{end}"
                );
            }
        }
    }
}
