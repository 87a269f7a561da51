//! Numbers that a seed determines (SplitMix64).

use std::time::Duration;

/// A generator. Equal seeds give equal numbers.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The generator of one part of a run: each part has numbers of its own, so that a part that
    /// takes more of them does not change the others.
    pub(crate) fn of(seed: u64, part: &str) -> Self {
        let hash = blake3::hash(format!("{seed} {part}").as_bytes());
        let (first, _) = hash.as_bytes().split_at(8);
        Self(
            first
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        )
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Another generator, whose numbers this one does not have.
    pub(crate) fn split(&mut self) -> Self {
        Self(self.next())
    }

    /// A number below `bound`, which is at least 1.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// One of these, which are not none.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// `true` in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A time between two others.
    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let spread = most.saturating_sub(least).as_millis() as usize;
        least + Duration::from_millis(self.below(spread + 1) as u64)
    }

    /// A time between 0 and so many milliseconds.
    pub(crate) fn millis(&mut self, most: u64) -> Duration {
        self.between(Duration::ZERO, Duration::from_millis(most))
    }
}
