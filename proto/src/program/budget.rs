//! The table `[budget]`: limits of a process and all processes below it.

use super::{Section, Span};
use crate::budget::{AtLimit, Budget};

/// `[budget]` as written.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
pub struct BudgetSection {
    /// The limits.
    #[key(flatten)]
    pub limits: Budget,
    /// What happens to a process that has reached one of its limits of tokens, `cost`, `wall_time` or
    /// `resident_bytes`. The limits of a child are its share of its parent's budget.
    pub at_limit: AtLimit,
    /// How limits are raised without asking.
    pub raise: RaiseSection,
    /// The span of `cost`, if it is given.
    #[key(span = "cost")]
    pub cost_at: Option<Span>,
}

/// `[budget.raise]`: raises limits that a process without a parent has reached, a few times, before
/// `at_limit` applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Section)]
pub struct RaiseSection {
    /// What a limit is raised by, for each amount that may be raised.
    #[key(flatten)]
    pub by: Budget,
    /// How often, over all amounts.
    #[key(default = 1, range = 1..=1_000_000)]
    pub times: u32,
}
