//! Shares: what children get of their parent's budget.
//!
//! Of what is left after use and reservations, the children of a call, those of the calls beside it
//! that are still to be made, and the parent get the same each. A spawned program that asks for
//! less gets what it asks for; one that asks for all that is left, or more, gets what any other
//! would, so that its parent can go on. A process that cannot have children needs no more than
//! itself. Of the processes there is enough for all children that may run at a time: one that
//! nobody waits for keeps its share while others follow.

use std::fmt;

use dormouse_proto::budget::{Amount, Budget, Ledger};
use dormouse_proto::id::CallId;

use super::Account;

/// What is asked of a budget: shares for children that are about to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// How many children.
    pub children: u64,
    /// How many other children are still to get theirs.
    pub beside: u64,
    /// How many more may be asked for while these still live: of the processes each of them has its
    /// part.
    pub later: u64,
    /// What their program asks for.
    pub wants: Budget,
    /// How many processes each needs at least, and at most where it cannot have children.
    pub multiply: Multiply,
}

/// Whether a process may have children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiply {
    /// It may.
    Yes,
    /// It has no way to.
    No,
}

/// Not even the least share is left. Its `Display` is what a model reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Shortage {
    /// Of what.
    pub amount: Amount,
    /// How many children were asked for.
    pub children: u64,
    /// What is left.
    pub left: u64,
    /// The limit of the process and all below it.
    pub limit: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            amount,
            children,
            left,
            limit,
        } = *self;
        let (left, limit) = (amount.show(left), amount.show(limit));
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
    /// The share of each of the children that are asked for.
    ///
    /// # Errors
    /// [`Shortage`] where not even the least is left.
    pub fn cut(&self, asked: &Asked, now_ms: u64) -> Result<Budget, Shortage> {
        let cut =
            |share: Budget, amount| Ok(share.with(amount, self.cut_one(amount, asked, now_ms)?));
        Amount::ALL.into_iter().try_fold(Budget::default(), cut)
    }

    fn cut_one(&self, amount: Amount, asked: &Asked, now_ms: u64) -> Result<Option<u64>, Shortage> {
        let wanted = asked.wants.limit(amount);
        let Some(limit) = self.limits.limit(amount) else {
            return Ok(wanted);
        };
        let shortage = |left| Shortage {
            amount,
            children: asked.children,
            left,
            limit,
        };
        let (left, share) = match amount {
            Amount::Depth => (
                limit,
                wanted
                    .map_or(limit, |wanted| wanted.saturating_add(1).min(limit))
                    .checked_sub(1),
            ),
            Amount::WallTime => {
                let left = self.began_ms.saturating_add(limit).saturating_sub(now_ms);
                (
                    left,
                    Some(wanted.map_or(left, |wanted| wanted.min(left))).filter(|share| *share > 0),
                )
            }
            _ => {
                let left = self.left(amount).unwrap_or(u64::MAX);
                (left, divided(left, amount, asked))
            }
        };
        share.map(Some).ok_or_else(|| shortage(left))
    }

    /// What a child starts with that is born at `now_ms`: its share, and no more wall time than its
    /// parent has then.
    #[must_use]
    pub fn ledger_of_child(&self, call: CallId, index: u32, now_ms: u64) -> Ledger {
        let share = self.share(call, index).copied().unwrap_or_default();
        let left_ms = self
            .deadline_ms()
            .map(|deadline| deadline.saturating_sub(now_ms));
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

/// One of the parts that `left` is cut into; none where there is not enough for the least.
fn divided(left: u64, amount: Amount, asked: &Asked) -> Option<u64> {
    let children = asked.children.max(1);
    let later = if amount == Amount::Processes {
        asked.later
    } else {
        0
    };
    let even = left
        / children
            .saturating_add(asked.beside)
            .saturating_add(later)
            .saturating_add(1);
    let wanted = asked
        .wants
        .limit(amount)
        .filter(|wanted| *wanted < left / children);
    match (amount, asked.multiply) {
        (Amount::Processes, _) if left < children => None,
        (Amount::Processes, Multiply::No) => Some(1),
        (Amount::Processes, Multiply::Yes) => Some(wanted.unwrap_or(even).max(1)),
        _ => Some(wanted.unwrap_or(even)).filter(|share| *share > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        amount: Amount,
        limit: u64,
        (children, beside): (u64, u64),
        wants: Option<u64>,
        share: Option<u64>,
    ) {
        let account = Account {
            limits: Budget::default().with(amount, Some(limit)),
            ..Account::default()
        };
        let wants = Budget::default().with(amount, wants);
        let asked = Asked {
            children,
            beside,
            later: 0,
            wants,
            multiply: Multiply::Yes,
        };
        let cut = account.cut(&asked, 0).map(|budget| budget.limit(amount));
        assert_eq!(
            cut.ok().flatten(),
            share,
            "{amount:?} {limit} for {children} beside {beside}, {wants:?} wanted"
        );
    }

    #[test]
    fn children_and_their_parent_share_what_is_left_evenly() {
        check(Amount::OutputTokens, 100, (3, 0), None, Some(25));
        check(Amount::OutputTokens, 100, (1, 3), None, Some(20));
        check(Amount::Processes, 10, (2, 0), None, Some(3));
        check(Amount::Processes, 3, (2, 0), None, Some(1));
        check(Amount::Processes, 4, (2, 5), None, Some(1));
        check(Amount::ResidentBytes, 9, (2, 0), None, Some(3));
    }

    #[test]
    fn a_program_that_asks_for_less_than_all_gets_that() {
        check(Amount::Cost, 100, (1, 0), Some(70), Some(70));
        check(Amount::Cost, 100, (1, 0), Some(100), Some(50));
        check(Amount::Cost, 100, (2, 0), Some(60), Some(33));
        check(Amount::Depth, 5, (1, 0), Some(2), Some(2));
        check(Amount::Depth, 2, (1, 0), Some(9), Some(1));
        check(Amount::WallTime, 50, (1, 0), Some(20), Some(20));
        check(Amount::WallTime, 50, (1, 0), None, Some(50));
    }

    #[test]
    fn where_not_even_the_least_is_left_nobody_gets_anything() {
        check(Amount::Processes, 3, (3, 0), None, None);
        check(Amount::OutputTokens, 3, (3, 0), None, None);
        check(Amount::Depth, 0, (1, 0), None, None);
        check(Amount::WallTime, 0, (1, 0), None, None);
    }

    #[test]
    fn a_shortage_names_the_budget_what_is_asked_and_what_is_left() {
        let limits = Budget {
            cost_nanos: Some(2),
            ..Budget::default()
        };
        let account = Account {
            limits,
            ..Account::default()
        };
        let asked = Asked {
            children: 4,
            beside: 0,
            later: 0,
            wants: Budget::default(),
            multiply: Multiply::No,
        };
        let text = account.cut(&asked, 0).unwrap_err().to_string();
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
