//! `[budget]`: what a process and all below it may use.

use super::{Section, Span};
use crate::budget::Budget;

/// `[budget]` as written.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
pub struct BudgetSection {
    /// The limits.
    #[key(flatten)]
    pub limits: Budget,
    /// Where `cost` is written.
    #[key(place = "cost")]
    pub cost_at: Option<Span>,
}
