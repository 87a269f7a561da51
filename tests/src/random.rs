//! Numbers that look random and follow from a seed: splitmix64. No clock and no entropy, so that a
//! seed is a run.

/// A source of numbers.
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The same numbers for the same parts, in the same order.
    #[must_use]
    pub fn of(parts: &[u64]) -> Self {
        let mut random = Self(0);
        for part in parts {
            random.0 ^= *part;
            random.0 = random.number();
        }
        random
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// A place in something of this length, which is at least 1.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these; none where there are none.
    pub fn pick<T: Copy>(&mut self, among: &[T]) -> Option<T> {
        if among.is_empty() {
            None
        } else {
            Some(among[self.index(among.len())])
        }
    }

    /// One of these, of which there is at least one.
    pub fn one_of<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.index(among.len())]
    }
}
