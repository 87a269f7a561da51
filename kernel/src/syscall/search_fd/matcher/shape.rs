//! Properties of a pattern that bound its cost: which bytes a match can contain, how long it can
//! be, and in how many positions an automaton can be at once.
//!
//! All of them are upper bounds. The text is inspected only to find where a match must have ended.

use regex_automata::Match;
use regex_syntax::hir::{Class, Hir, HirKind};

#[derive(Debug)]
pub(super) struct Shape {
    takes: [bool; 256],
    takes_all: bool,
    max_len: usize,
    /// Maximum number of positions per byte of text.
    pub(super) places: u64,
}

impl Shape {
    pub(super) fn of(hir: &Hir) -> Self {
        let mut takes = [false; 256];
        let places = places(hir, &mut takes).max(1);
        let max_len = hir.properties().maximum_len().unwrap_or(usize::MAX);
        Self {
            takes_all: takes == [true; 256],
            takes,
            max_len,
            places,
        }
    }

    /// Whether a match can contain this byte.
    pub(super) fn takes(&self, byte: u8) -> bool {
        self.takes[usize::from(byte)]
    }
}

/// Marks every byte that `hir` can match, and counts its positions.
fn places(hir: &Hir, takes: &mut [bool; 256]) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => {
            literal
                .0
                .iter()
                .for_each(|&byte| takes[usize::from(byte)] = true);
            most_frequent(&literal.0)
        }
        HirKind::Class(class) => {
            take_class(class, takes);
            1
        }
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            places(&repetition.sub, takes).saturating_mul(times.into())
        }
        HirKind::Capture(capture) => places(&capture.sub, takes),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts
            .iter()
            .fold(0, |sum: u64, part| sum.saturating_add(places(part, takes))),
    }
}

/// Maximum number of simultaneous positions within a literal: all of them follow the same byte.
fn most_frequent(literal: &[u8]) -> u64 {
    let mut counts = [0; 256];
    literal
        .iter()
        .for_each(|&byte| counts[usize::from(byte)] += 1);
    counts.into_iter().max().unwrap_or(0)
}

/// Non-ASCII classes match all non-ASCII bytes, as an approximation.
fn take_class(class: &Class, takes: &mut [bool; 256]) {
    let mut take = |first: u32, last: u32| {
        (first..=last.min(0x7f)).for_each(|byte| takes[byte as usize] = true);
        if last > 0x7f {
            takes[0x80..].fill(true);
        }
    };
    match class {
        Class::Unicode(class) => class
            .iter()
            .for_each(|range| take(range.start().into(), range.end().into())),
        Class::Bytes(class) => class
            .iter()
            .for_each(|range| take(range.start().into(), range.end().into())),
    }
}

/// How far an automaton reads after a match to look for a longer one with the same start. O(n) in
/// the text over all matches together.
#[derive(Debug)]
pub(super) struct Reach<'a> {
    shape: &'a Shape,
    text: &'a [u8],
    /// All bytes from the last queried match up to here can be part of a match.
    known: usize,
}

impl<'a> Reach<'a> {
    pub(super) fn new(shape: &'a Shape, text: &'a str) -> Self {
        Self {
            shape,
            text: text.as_bytes(),
            known: 0,
        }
    }

    /// Upper bound of the bytes read after this match. Matches must be queried in ascending order
    /// of their ends.
    pub(super) fn after(&mut self, found: Match) -> u64 {
        let longest = found
            .start()
            .saturating_add(self.shape.max_len)
            .min(self.text.len());
        self.known = self.known.max(if self.shape.takes_all {
            longest
        } else {
            found.end()
        });
        if self.known < longest {
            let ahead = &self.text[self.known..longest];
            let taken = ahead
                .iter()
                .position(|&byte| !self.shape.takes[usize::from(byte)]);
            self.known += taken.unwrap_or(ahead.len());
        }
        self.known.min(longest).saturating_sub(found.end()) as u64
    }
}

#[cfg(test)]
mod tests {
    use regex_automata::PatternID;

    use super::*;

    fn shape(pattern: &str) -> Shape {
        Shape::of(&regex_syntax::parse(pattern).unwrap())
    }

    #[test]
    fn places_are_counted_and_repetitions_multiply_them() {
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
            assert_eq!(shape(pattern).places, expected, "{pattern}");
        }
    }

    /// Start and end of a match, and how many bytes after it may be read.
    type Reached = (usize, usize, u64);

    #[test]
    fn a_match_reaches_no_farther_than_its_bytes_and_its_length() {
        let text = "aab é aaaa\nb\naa";
        let cases: [(&str, &[Reached]); 6] = [
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
            let shape = shape(pattern);
            let mut reach = Reach::new(&shape, text);
            for &(start, end, expected) in matches {
                let found = Match::new(PatternID::ZERO, start..end);
                assert_eq!(reach.after(found), expected, "{pattern} at {start}..{end}");
            }
        }
    }
}
