//! How much work a search may do: in proportion to the text, so that an answer comes in a time that
//! can be waited for.
//!
//! The unit is a step: one byte that an automaton reads in one of its places. It never looks at a
//! clock, so that the same search of the same text always has the same answer.

/// What any search may do, however short its texts are. Texts that are searched together share it.
pub(super) const STEPS: u64 = 64 << 20;

/// What a search may do for each byte of its texts.
const STEPS_PER_BYTE: u64 = 64;

/// The steps that a search has left.
#[derive(Debug)]
pub(super) struct Budget {
    left: u64,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { left: STEPS }
    }

    /// Adds what is due for a text of so many bytes.
    pub(super) fn allow(&mut self, bytes: usize) {
        self.left = self
            .left
            .saturating_add(STEPS_PER_BYTE.saturating_mul(bytes as u64));
    }

    /// Takes these steps off. Whether there were as many left; if not, none are taken.
    #[must_use]
    pub(super) fn spend(&mut self, steps: u64) -> bool {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}
