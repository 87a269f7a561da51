//! The work budget of a search, in proportion to the length of its text, so that every search ends
//! in acceptable time.
//!
//! The unit is a step: an automaton reads one byte in one of its positions. Counting steps instead
//! of reading a clock makes the outcome deterministic.

/// Steps that every search may take. Texts that are searched together share them.
pub(super) const STEPS: u64 = 64 << 20;

/// Additional steps for each byte of text.
const STEPS_PER_BYTE: u64 = 64;

/// The remaining steps of a search.
#[derive(Debug)]
pub(super) struct StepBudget {
    left: u64,
}

impl StepBudget {
    pub(super) fn new() -> Self {
        Self { left: STEPS }
    }

    /// Adds the steps for a text of this many bytes.
    pub(super) fn extend_for_text(&mut self, bytes: usize) {
        self.left = self
            .left
            .saturating_add(STEPS_PER_BYTE.saturating_mul(bytes as u64));
    }

    /// Spends steps. Returns false, and spends none, if there are not enough.
    #[must_use]
    pub(super) fn try_spend(&mut self, steps: u64) -> bool {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}
