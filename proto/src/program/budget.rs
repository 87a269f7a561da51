//! The table `[budget]`: limits of a process and all processes below it.

use super::{Section, Span};
use crate::budget::Budget;

/// `[budget]` as written.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
pub struct BudgetSection {
    /// The limits.
    #[key(flatten)]
    pub limits: Budget,
    /// The span of `cost`, if it is given.
    #[key(span = "cost")]
    pub cost_at: Option<Span>,
}
