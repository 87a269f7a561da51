//! Budget accounts for a tree of processes: usage, reservations for children, and the remaining
//! amounts.
//!
//! An [`Account`] belongs to one process and covers its whole subtree. Before a child is created, a
//! share of the account is reserved for it ([`Account::share_for`]). When the child has ended, the
//! unused rest of the share is returned. A decision about the budget of a process therefore needs
//! only the account of that process, and the usage of a tree stays within the limits of its root
//! (TREE-1). A single model call may exceed a limit, since its usage is known only afterwards;
//! nothing starts after a limit is reached.
//!
//! How usage is counted:
//! * Tokens and money: the usage of the process itself plus that of its ended children.
//! * Processes: one.
//! * Wall time: the time in which the process does not rest (`process/hibernation.rs` says when it
//!   rests). Its [`Clock`] says whether this time passes now. While the process waits for its
//!   children, it rests, and when a child ends, the time that the child ran is charged.
//! * Resident bytes: the lengths of the contents that the process itself opened, even if two
//!   descriptors share bytes.
//!
//! This module never reads a clock. Only [`Account::as_root`] resets values.

mod limits;
mod share;

use dormouse_proto::budget::{Amount, Budget, Change, Clock, Ledger};
use dormouse_proto::id::CallId;
use dormouse_proto::model::Usage;
use imbl::OrdMap;

pub use self::limits::ReachedLimit;
pub use self::share::{ChildCreation, InsufficientBudget, ShareRequest};

/// Default limit for the number of simultaneous processes of a tree.
pub const DEFAULT_PROCESSES: u64 = 10_000;

/// The most abandoned calls whose usage is awaited.
const MAX_ABANDONED_CALLS: usize = 128;

/// The budget account of a process and its subtree. Cloning costs a few pointers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    limits: Budget,
    /// The time up to which `ran_ms` counts: milliseconds since the epoch, UTC.
    began_ms: u64,
    /// Milliseconds that the process had run at `began_ms`.
    ran_ms: u64,
    clock: Clock,
    /// Usage of the process itself.
    own_usage: Usage,
    /// Resident bytes: the lengths of the contents that the process opened.
    held_bytes: u64,
    /// Usage of ended children and their subtrees.
    descendant_usage: Usage,
    /// Shares of living children, by the call that created each and the index in it.
    shares: OrdMap<(CallId, u32), Budget>,
    /// The limits at which the model was warned.
    warned: OrdMap<Amount, u64>,
    /// Abandoned calls whose usage may still arrive.
    abandoned_calls: Vec<CallId>,
}

/// A violation of TREE-1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareViolation {
    /// A living child has no share.
    #[error("child {index} of call {call} has no share")]
    NoShare {
        /// The call that created the child.
        call: CallId,
        /// Index of the child within its call.
        index: u32,
    },
    /// The limit of a child exceeds its share.
    #[error("child {index} of call {call} may use {limit:?} of {}, and {share} is reserved", .amount.word())]
    MoreThanItsShare {
        /// The call that created the child.
        call: CallId,
        /// Index of the child within its call.
        index: u32,
        /// The amount.
        amount: Amount,
        /// Limit of the child; `None` for unlimited.
        limit: Option<u64>,
        /// Share of the child.
        share: u64,
    },
}

impl Account {
    /// Loads an account from an image; `own_usage` is the usage of the process itself.
    #[must_use]
    pub fn new(ledger: Ledger, own_usage: Usage) -> Self {
        let Ledger {
            limits,
            began_ms,
            held_bytes,
            descendant_usage,
            shares,
            warned,
            abandoned_calls,
            ran_ms,
            clock,
        } = ledger;
        let shares = shares.into_iter().collect();
        let warned = warned.into_iter().collect();
        Self {
            limits,
            began_ms,
            ran_ms,
            clock,
            own_usage,
            held_bytes,
            descendant_usage,
            shares,
            warned,
            abandoned_calls,
        }
    }

    /// The account as an image stores it. The usage of the process itself is stored separately.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        Ledger {
            limits: self.limits,
            began_ms: self.began_ms,
            held_bytes: self.held_bytes,
            descendant_usage: self.descendant_usage,
            shares: self
                .shares
                .iter()
                .map(|(key, share)| (*key, *share))
                .collect(),
            warned: self
                .warned
                .iter()
                .map(|(amount, limit)| (*amount, *limit))
                .collect(),
            abandoned_calls: self.abandoned_calls.clone(),
            ran_ms: self.ran_ms,
            clock: self.clock,
        }
    }

    /// Limits of the process and its subtree.
    #[must_use]
    pub fn limits(&self) -> &Budget {
        &self.limits
    }

    /// Usage of the process itself.
    #[must_use]
    pub fn own_usage(&self) -> Usage {
        self.own_usage
    }

    /// Usage of ended children and their subtrees.
    #[must_use]
    pub fn descendant_usage(&self) -> Usage {
        self.descendant_usage
    }

    /// Shares of living children, by the call that created each and the index in it.
    pub fn shares(&self) -> impl ExactSizeIterator<Item = ((CallId, u32), Budget)> {
        self.shares.iter().map(|(key, share)| (*key, *share))
    }

    /// Whether a child of this call has a share. O(log n).
    #[must_use]
    pub fn has_shares(&self, call: CallId) -> bool {
        self.shares
            .range((call, 0)..=(call, u32::MAX))
            .next()
            .is_some()
    }

    /// The share of one child.
    #[must_use]
    pub fn share(&self, call: CallId, index: u32) -> Option<&Budget> {
        self.shares.get(&(call, index))
    }

    /// Usage of an amount, without living children, whose usage is part of their shares. Always 0
    /// for wall time and depth, which are not counted as usage; for wall time see
    /// [`deadline_ms`](Self::deadline_ms).
    #[must_use]
    pub fn used(&self, amount: Amount) -> u64 {
        let amount_of = |usage: &Usage| match amount {
            Amount::InputTokens => usage.all_input_tokens(),
            Amount::OutputTokens => usage.output_tokens,
            Amount::Cost => usage.cost_nanos,
            Amount::WallTime | Amount::Processes | Amount::Depth | Amount::ResidentBytes => 0,
        };
        match amount {
            Amount::Processes => 1,
            Amount::ResidentBytes => self.held_bytes,
            _ => amount_of(&self.own_usage).saturating_add(amount_of(&self.descendant_usage)),
        }
    }

    /// Sum of the shares of living children.
    #[must_use]
    pub fn reserved(&self, amount: Amount) -> u64 {
        if !Amount::SHARED.contains(&amount) {
            return 0;
        }
        self.shares
            .values()
            .filter_map(|share| share.limit(amount))
            .fold(0, u64::saturating_add)
    }

    /// The amount that the process may still use or reserve for children. `None` if the amount is
    /// not limited.
    #[must_use]
    pub fn remaining(&self, amount: Amount) -> Option<u64> {
        let limit = self.limits.limit(amount)?;
        Some(
            limit
                .saturating_sub(self.used(amount))
                .saturating_sub(self.reserved(amount)),
        )
    }

    /// The amount by which a limit is exceeded, by single calls of the process or its children.
    #[must_use]
    pub fn overdrawn(&self, amount: Amount) -> u64 {
        let total = self.used(amount).saturating_add(self.reserved(amount));
        self.limits
            .limit(amount)
            .map_or(0, |limit| total.saturating_sub(limit))
    }

    /// End of the wall time: milliseconds since the epoch, UTC. `None` if it is not limited, or does
    /// not pass because the process rests.
    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        let limit = self.limits.wall_time_ms?;
        let left = limit.saturating_sub(self.ran_ms);
        (self.clock == Clock::Runs).then(|| self.began_ms.saturating_add(left))
    }

    /// Milliseconds that the process has run at `now_ms`, as far as its clock was kept.
    #[must_use]
    pub fn ran_ms(&self, now_ms: u64) -> u64 {
        match self.clock {
            Clock::Runs => self
                .ran_ms
                .saturating_add(now_ms.saturating_sub(self.began_ms)),
            Clock::Rests => self.ran_ms,
        }
    }

    /// The wall time that is left at `now_ms`, in milliseconds; `None` if it is not limited.
    #[must_use]
    pub fn wall_time_left_ms(&self, now_ms: u64) -> Option<u64> {
        let limit = self.limits.wall_time_ms?;
        Some(limit.saturating_sub(self.ran_ms(now_ms)))
    }

    /// Whether the wall time passes.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Milliseconds that the process had run when its clock was last set.
    pub(crate) fn counted_ms(&self) -> u64 {
        self.ran_ms
    }

    /// Whether the clock was last set at `now_ms` or later.
    pub(crate) fn is_counted_at(&self, now_ms: u64) -> bool {
        self.began_ms >= now_ms
    }

    /// Milliseconds since a resting clock was last set.
    pub(crate) fn rested_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.began_ms)
    }

    /// Counted usage of the process and its subtree. Usage of living children is not included.
    #[must_use]
    pub fn spent(&self) -> Usage {
        let mut spent = self.own_usage;
        spent += self.descendant_usage;
        spent
    }

    /// Upper bound of the usage: counted usage plus the shares of living children. The exit of a
    /// process that ends before its children reports this bound.
    #[must_use]
    pub fn spent_at_most(&self) -> Usage {
        let mut spent = self.spent();
        self.shares
            .values()
            .for_each(|share| spent += as_usage(share));
        spent
    }

    /// Checks TREE-1 for one process and its living children: each child has a share and a limit
    /// within it. Together with [`overdrawn`](Self::overdrawn), which is nonzero only for single
    /// calls, the invariant follows for the whole tree.
    ///
    /// # Errors
    /// The first [`ShareViolation`].
    pub fn check<'a>(
        &self,
        children: impl IntoIterator<Item = ((CallId, u32), &'a Self)>,
    ) -> Result<(), ShareViolation> {
        for ((call, index), child) in children {
            let share = self
                .share(call, index)
                .ok_or(ShareViolation::NoShare { call, index })?;
            for amount in Amount::SHARED {
                let (limit, Some(share)) = (child.limits.limit(amount), share.limit(amount)) else {
                    continue;
                };
                if limit.is_none_or(|limit| limit > share) {
                    return Err(ShareViolation::MoreThanItsShare {
                        call,
                        index,
                        amount,
                        limit,
                        share,
                    });
                }
            }
        }
        Ok(())
    }

    /// Turns an account into that of a root from `now_ms` on: limits and usage are kept,
    /// reservations are dropped, and wall time starts anew, with a new warning.
    #[must_use]
    pub fn as_root(mut ledger: Ledger, now_ms: u64) -> Ledger {
        ledger
            .warned
            .retain(|(amount, _)| *amount != Amount::WallTime);
        Ledger {
            began_ms: now_ms,
            ran_ms: 0,
            clock: Clock::Runs,
            shares: Vec::new(),
            abandoned_calls: Vec::new(),
            ..ledger
        }
    }

    /// The account with lower limits: from now on, at most `budget` is used in addition to what has
    /// been used, and not more than the limits before allow.
    #[must_use]
    pub fn with_further(mut self, budget: &Budget) -> Self {
        for amount in Amount::ALL {
            let Some(further) = budget.limit(amount) else {
                continue;
            };
            let so_far = match amount {
                Amount::WallTime => self.ran_ms,
                // Limits of what lives at one time: nothing of them is used up.
                Amount::Processes | Amount::Depth => 0,
                _ => self.used(amount).saturating_add(self.reserved(amount)),
            };
            let limit = so_far.saturating_add(further);
            let before = self.limits.limit(amount);
            let lower = before.map_or(limit, |before| before.min(limit));
            self.limits = self.limits.with(amount, Some(lower));
        }
        self
    }

    pub(crate) fn add_usage(&mut self, usage: Usage) {
        self.own_usage += usage;
    }

    pub(crate) fn add_held_bytes(&mut self, bytes: u64) {
        self.held_bytes = self.held_bytes.saturating_add(bytes);
    }

    /// Records that calls were abandoned. The usage of each may still arrive, once. The oldest of
    /// too many are forgotten.
    pub(crate) fn abandon_calls(&mut self, calls: Vec<CallId>) {
        self.abandoned_calls.extend(calls);
        let excess = self
            .abandoned_calls
            .len()
            .saturating_sub(MAX_ABANDONED_CALLS);
        self.abandoned_calls.drain(..excess);
    }

    /// Whether the usage of this abandoned call has not been counted yet.
    pub(crate) fn awaits_usage(&self, call: CallId) -> bool {
        self.abandoned_calls.contains(&call)
    }

    /// Drops all reservations of an ended process. As in its exit, the shares of its living children
    /// count as used, also in the account of a root that is opened again.
    pub(crate) fn close(&mut self) {
        for share in self.shares.values() {
            self.descendant_usage += as_usage(share);
        }
        self.shares.clear();
    }

    /// Applies a change. Never fails: returning an unknown share has no effect.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Reserved { call, shares } => {
                self.shares.extend(
                    shares
                        .iter()
                        .map(|(index, share)| ((*call, *index), *share)),
                );
            }
            Change::Returned { call, index, spent } => {
                if let Some(share) = self.shares.remove(&(*call, *index)) {
                    self.descendant_usage += spent.unwrap_or_else(|| as_usage(&share));
                }
            }
            Change::Warned { amount, limit, .. } => {
                self.warned.insert(*amount, *limit);
            }
            Change::Used { call, usage } => {
                self.abandoned_calls.retain(|abandoned| abandoned != call);
                self.add_usage(*usage);
            }
            Change::Clock {
                ran_ms,
                at_ms,
                clock,
            } => {
                self.ran_ms = *ran_ms;
                self.began_ms = *at_ms;
                self.clock = *clock;
            }
            Change::Raised { by, .. } => self.limits = self.limits.raised_by(by),
            Change::Paused { .. } | Change::Unpaused => {}
        }
    }
}

/// Converts a share to the usage that it permits.
fn as_usage(share: &Budget) -> Usage {
    Usage {
        input_tokens: share.input_tokens.unwrap_or(0),
        output_tokens: share.output_tokens.unwrap_or(0),
        cost_nanos: share.cost_nanos.unwrap_or(0),
        ..Usage::default()
    }
}
