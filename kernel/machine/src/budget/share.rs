//! Shares: the part of a budget that a child gets from its parent.
//!
//! The remaining amount, without usage and reservations, is divided equally among the children of a
//! call, the children of the turn's other pending calls, and the parent. If a spawned program
//! requests less than what remains, it gets the requested amount; if it requests everything or
//! more, it gets the equal part, so that the parent can continue. The number of processes is
//! divided among all children that may run at the same time, since a background child keeps its
//! share while others are created. A child that cannot create processes gets one process.

use std::fmt;

use dormouse_proto::budget::{Amount, Budget, Ledger};
use dormouse_proto::id::CallId;

use super::Account;

/// A request for the shares of children that are about to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareRequest {
    /// Number of children.
    pub children: u64,
    /// Number of children of other pending calls, which need shares as well.
    pub other_children: u64,
    /// Number of children that may follow while these are alive; each needs a part of the
    /// processes.
    pub later_children: u64,
    /// Budget that the program of the children requests.
    pub requested_budget: Budget,
    /// Whether the children may create processes, which determines how many processes they get.
    pub child_creation: ChildCreation,
}

/// Whether a process may create processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildCreation {
    /// It may create processes.
    Allowed,
    /// It has no tool that creates processes, or is at the maximum depth.
    Denied,
}

/// The budget is too small for the smallest share. Models read its `Display` text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct InsufficientBudget {
    /// The amount that is insufficient.
    pub amount: Amount,
    /// Number of requested children.
    pub children: u64,
    /// The remaining amount.
    pub left: u64,
    /// Limit of the process and its subtree.
    pub limit: u64,
}

impl fmt::Display for InsufficientBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            amount,
            children,
            left,
            limit,
        } = *self;
        let left = amount.show(left);
        let limit = amount.show(limit);
        let remedy = match amount {
            Amount::Processes | Amount::ResidentBytes => {
                "Wait until children have ended, or do the work in this process."
            }
            Amount::InputTokens | Amount::OutputTokens | Amount::Cost => {
                "What children leave comes back when they have ended. Do the work in this process, \
                 and finish soon."
            }
            Amount::WallTime | Amount::Depth => "Do the work in this process.",
        };
        write!(
            f,
            "No further children: {children} more were asked for, and of this process's budget of \
             {} {left} is left of {limit} (budget.{}). {remedy}",
            amount.word(),
            amount.word()
        )
    }
}

impl Account {
    /// Computes the share of each requested child.
    ///
    /// # Errors
    /// [`InsufficientBudget`] if the smallest share is not available.
    pub fn share_for(
        &self,
        request: &ShareRequest,
        now_ms: u64,
    ) -> Result<Budget, InsufficientBudget> {
        let add_share =
            |share: Budget, amount| Ok(share.with(amount, self.share_of(amount, request, now_ms)?));
        Amount::ALL
            .into_iter()
            .try_fold(Budget::default(), add_share)
    }

    fn share_of(
        &self,
        amount: Amount,
        request: &ShareRequest,
        now_ms: u64,
    ) -> Result<Option<u64>, InsufficientBudget> {
        let requested = request.requested_budget.limit(amount);
        let Some(limit) = self.limits.limit(amount) else {
            return Ok(requested);
        };
        let insufficient = |left| InsufficientBudget {
            amount,
            children: request.children,
            left,
            limit,
        };
        let (left, share) = match amount {
            Amount::Depth => (
                limit,
                requested
                    .map_or(limit, |requested| requested.saturating_add(1).min(limit))
                    .checked_sub(1),
            ),
            Amount::WallTime => {
                let left = self.wall_time_left_ms(now_ms).unwrap_or(limit);
                (
                    left,
                    Some(requested.map_or(left, |requested| requested.min(left)))
                        .filter(|share| *share > 0),
                )
            }
            _ => {
                let left = self.remaining(amount).unwrap_or(u64::MAX);
                (left, equal_part(left, amount, request))
            }
        };
        share.map(Some).ok_or_else(|| insufficient(left))
    }

    /// The initial account of a child that is created at `now_ms`: its share, with at most the wall
    /// time that its parent has left.
    #[must_use]
    pub fn ledger_of_child(&self, call: CallId, index: u32, now_ms: u64) -> Ledger {
        self.ledger_with_share(self.share(call, index).copied().unwrap_or_default(), now_ms)
    }

    /// As [`ledger_of_child`](Self::ledger_of_child), for a share that is about to be reserved.
    #[must_use]
    pub fn ledger_with_share(&self, share: Budget, now_ms: u64) -> Ledger {
        let left_ms = self.wall_time_left_ms(now_ms);
        let wall_time_ms = share
            .wall_time_ms
            .map(|share| left_ms.map_or(share, |left| left.min(share)));
        Ledger {
            limits: Budget {
                wall_time_ms,
                ..share
            },
            began_ms: now_ms,
            ..Ledger::default()
        }
    }
}

/// The share of one child of the remaining amount `left`. `None` if it is less than the minimum.
fn equal_part(left: u64, amount: Amount, request: &ShareRequest) -> Option<u64> {
    let children = request.children.max(1);
    let later_children = if amount == Amount::Processes {
        request.later_children
    } else {
        0
    };
    let equal_share = left
        / children
            .saturating_add(request.other_children)
            .saturating_add(later_children)
            .saturating_add(1);
    // A request for all of the amount, or more, counts as no request.
    let requested = request
        .requested_budget
        .limit(amount)
        .filter(|requested| *requested < left / children);
    match (amount, request.child_creation) {
        (Amount::Processes, _) if left < children => None,
        (Amount::Processes, ChildCreation::Denied) => Some(1),
        (Amount::Processes, ChildCreation::Allowed) => {
            Some(requested.unwrap_or(equal_share).max(1))
        }
        _ => Some(requested.unwrap_or(equal_share)).filter(|share| *share > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        amount: Amount,
        limit: u64,
        (children, other_children): (u64, u64),
        requested_budget: Option<u64>,
        share: Option<u64>,
    ) {
        let account = Account {
            limits: Budget::default().with(amount, Some(limit)),
            ..Account::default()
        };
        let requested_budget = Budget::default().with(amount, requested_budget);
        let request = ShareRequest {
            children,
            other_children,
            later_children: 0,
            requested_budget,
            child_creation: ChildCreation::Allowed,
        };
        let computed = account
            .share_for(&request, 0)
            .map(|budget| budget.limit(amount));
        assert_eq!(
            computed.ok().flatten(),
            share,
            "{amount:?} {limit} for {children} and {other_children} others, {requested_budget:?} requested"
        );
    }

    #[test]
    fn children_and_their_parent_get_equal_parts_of_the_remaining_amount() {
        check(Amount::OutputTokens, 100, (3, 0), None, Some(25));
        check(Amount::OutputTokens, 100, (1, 3), None, Some(20));
        check(Amount::Processes, 10, (2, 0), None, Some(3));
        check(Amount::Processes, 3, (2, 0), None, Some(1));
        check(Amount::Processes, 4, (2, 5), None, Some(1));
        check(Amount::ResidentBytes, 9, (2, 0), None, Some(3));
    }

    #[test]
    fn a_program_that_requests_less_than_all_gets_the_requested_amount() {
        check(Amount::Cost, 100, (1, 0), Some(70), Some(70));
        check(Amount::Cost, 100, (1, 0), Some(100), Some(50));
        check(Amount::Cost, 100, (2, 0), Some(60), Some(33));
        check(Amount::Depth, 5, (1, 0), Some(2), Some(2));
        check(Amount::Depth, 2, (1, 0), Some(9), Some(1));
        check(Amount::WallTime, 50, (1, 0), Some(20), Some(20));
        check(Amount::WallTime, 50, (1, 0), None, Some(50));
    }

    #[test]
    fn no_share_is_given_if_less_than_the_minimum_remains() {
        check(Amount::Processes, 3, (3, 0), None, None);
        check(Amount::OutputTokens, 3, (3, 0), None, None);
        check(Amount::Depth, 0, (1, 0), None, None);
        check(Amount::WallTime, 0, (1, 0), None, None);
    }

    #[test]
    fn the_error_states_the_budget_the_request_and_the_remaining_amount() {
        let limits = Budget {
            cost_nanos: Some(2),
            ..Budget::default()
        };
        let account = Account {
            limits,
            ..Account::default()
        };
        let request = ShareRequest {
            children: 4,
            other_children: 0,
            later_children: 0,
            requested_budget: Budget::default(),
            child_creation: ChildCreation::Denied,
        };
        let text = account.share_for(&request, 0).unwrap_err().to_string();
        for part in [
            "4 more",
            "budget.cost",
            "0.000000002 is left of 0.000000002",
            "Do the work in this process",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
