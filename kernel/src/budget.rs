//! Budgets over a tree of processes: what one of them used, what it has given to its children, what
//! is left.
//!
//! An [`Account`] belongs to one process and speaks for all below it. What its children may use was
//! taken out of it before they were made ([`Account::cut`]), and what they left comes back when
//! they are no more, so that no account needs to look at another, and what a whole tree uses stays
//! within its root's limits (TREE-1). One model call may use more than is left, since that is known
//! only when it is over; nothing is begun once a limit is reached.
//!
//! What counts as used: of tokens and money, what the process used itself, and what its children
//! had used when they ended; of processes, itself; of resident bytes, the lengths of the contents
//! that it opened itself, also where two descriptors share their bytes. Nothing here looks at a
//! clock, and nothing is forgotten but by [`Account::as_root`].

mod share;

use dormouse_proto::budget::{Amount, Budget, Change, Ledger};
use dormouse_proto::id::CallId;
use dormouse_proto::model::Usage;
use imbl::OrdMap;

pub use self::share::{Asked, Multiply, Shortage};

/// How many processes a tree may hold at the same time whose root says nothing of it.
pub const DEFAULT_PROCESSES: u64 = 10_000;

/// Of so many hundredths of a limit a model is warned.
const WARNED_FROM: u64 = 80;

/// The amounts that end a process when they are used up. The others bound what it may begin.
const ENDING: [Amount; 5] = [
    Amount::InputTokens,
    Amount::OutputTokens,
    Amount::Cost,
    Amount::WallTime,
    Amount::ResidentBytes,
];

/// What a process may use together with all below it, and what became of that. Cloning costs a few
/// pointers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    limits: Budget,
    began_ms: u64,
    own: Usage,
    held_bytes: u64,
    below: Usage,
    shares: OrdMap<(CallId, u32), Budget>,
    warned: OrdMap<Amount, u64>,
    given_up: Vec<CallId>,
}

/// A limit that is reached, or near.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Of what.
    pub amount: Amount,
    /// So much is used.
    pub used: u64,
    /// The limit.
    pub limit: u64,
}

/// What contradicts TREE-1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// A child lives that nothing is reserved for.
    #[error("child {index} of call {call} has no share")]
    NoShare {
        /// The call that made it.
        call: CallId,
        /// Which of the call's children.
        index: u32,
    },
    /// A child may use more than was reserved for it.
    #[error("child {index} of call {call} may use {limit:?} of {}, and {share} is reserved", .amount.word())]
    MoreThanItsShare {
        /// The call that made it.
        call: CallId,
        /// Which of the call's children.
        index: u32,
        /// Of what.
        amount: Amount,
        /// What it may use; none: without end.
        limit: Option<u64>,
        /// What is reserved.
        share: u64,
    },
}

impl Account {
    /// The account that an image holds, of a process that used `own` itself.
    #[must_use]
    pub fn new(ledger: Ledger, own: Usage) -> Self {
        let Ledger {
            limits,
            began_ms,
            held_bytes,
            below,
            shares,
            warned,
            given_up,
        } = ledger;
        let (shares, warned) = (shares.into_iter().collect(), warned.into_iter().collect());
        Self {
            limits,
            began_ms,
            own,
            held_bytes,
            below,
            shares,
            warned,
            given_up,
        }
    }

    /// The account as an image holds it; what the process used itself stands beside it.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        Ledger {
            limits: self.limits,
            began_ms: self.began_ms,
            held_bytes: self.held_bytes,
            below: self.below,
            shares: self
                .shares
                .iter()
                .map(|(place, share)| (*place, *share))
                .collect(),
            warned: self
                .warned
                .iter()
                .map(|(amount, limit)| (*amount, *limit))
                .collect(),
            given_up: self.given_up.clone(),
        }
    }

    /// The limits of the process and all below it.
    #[must_use]
    pub fn limits(&self) -> &Budget {
        &self.limits
    }

    /// What the process used itself.
    #[must_use]
    pub fn own(&self) -> Usage {
        self.own
    }

    /// What its children that have ended used, and all below them.
    #[must_use]
    pub fn below(&self) -> Usage {
        self.below
    }

    /// What is reserved for children that have not ended: by the call that made each, and which of
    /// the call's it is.
    pub fn shares(&self) -> impl ExactSizeIterator<Item = ((CallId, u32), Budget)> {
        self.shares.iter().map(|(place, share)| (*place, *share))
    }

    /// Whether something is reserved for a child of this call. O(log n).
    #[must_use]
    pub fn has_shares(&self, call: CallId) -> bool {
        self.shares
            .range((call, 0)..=(call, u32::MAX))
            .next()
            .is_some()
    }

    /// What is reserved for one child.
    #[must_use]
    pub fn share(&self, call: CallId, index: u32) -> Option<&Budget> {
        self.shares.get(&(call, index))
    }

    /// How much of an amount is used, whatever its limit: what living children use stands under
    /// their shares. Of wall time and depth nothing is used here: see
    /// [`deadline_ms`](Self::deadline_ms).
    #[must_use]
    pub fn used(&self, amount: Amount) -> u64 {
        let of = |usage: &Usage| match amount {
            Amount::InputTokens => usage.all_input_tokens(),
            Amount::OutputTokens => usage.output_tokens,
            Amount::Cost => usage.cost_nanos,
            Amount::WallTime | Amount::Processes | Amount::Depth | Amount::ResidentBytes => 0,
        };
        match amount {
            Amount::Processes => 1,
            Amount::ResidentBytes => self.held_bytes,
            _ => of(&self.own).saturating_add(of(&self.below)),
        }
    }

    /// How much of an amount is reserved for living children.
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

    /// How much of an amount the process may still use or give away; none: it is not limited.
    #[must_use]
    pub fn left(&self, amount: Amount) -> Option<u64> {
        let limit = self.limits.limit(amount)?;
        Some(
            limit
                .saturating_sub(self.used(amount))
                .saturating_sub(self.reserved(amount)),
        )
    }

    /// By how much the limit of an amount is exceeded: the overshoot of single calls, its
    /// children's included.
    #[must_use]
    pub fn overdrawn(&self, amount: Amount) -> u64 {
        let taken = self.used(amount).saturating_add(self.reserved(amount));
        self.limits
            .limit(amount)
            .map_or(0, |limit| taken.saturating_sub(limit))
    }

    /// When its wall time is over: milliseconds since the epoch, UTC.
    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        self.limits
            .wall_time_ms
            .map(|limit| self.began_ms.saturating_add(limit))
    }

    /// What it and all below it used; where children live, or lived when it ended, as far as is
    /// known.
    #[must_use]
    pub fn spent(&self) -> Usage {
        let mut spent = self.own;
        spent += self.below;
        spent
    }

    /// The same, and the whole shares of living children. If it ends before them, its exit says so
    /// much.
    #[must_use]
    pub fn spent_at_most(&self) -> Usage {
        let mut spent = self.spent();
        self.shares.values().for_each(|share| spent += whole(share));
        spent
    }

    /// The limit that is reached, if one is: nothing more may begin.
    #[must_use]
    pub fn reached(&self, now_ms: u64) -> Option<Reached> {
        ENDING
            .into_iter()
            .filter_map(|amount| self.stand(amount, now_ms))
            .find(|stand| stand.used >= stand.limit)
    }

    /// Whether all that is left of an amount is reserved for children: what they leave comes back.
    #[must_use]
    pub fn waits_for_shares(&self) -> bool {
        ENDING
            .into_iter()
            .any(|amount| self.left(amount) == Some(0))
    }

    /// The limits that are near, and that the model was not warned of. What living children have
    /// reserved does not count, since most of it comes back.
    #[must_use]
    pub fn near(&self, now_ms: u64) -> Vec<Reached> {
        let is_near = |stand: &Reached| {
            u128::from(stand.used) * 100 >= u128::from(stand.limit) * u128::from(WARNED_FROM)
                && self
                    .warned
                    .get(&stand.amount)
                    .is_none_or(|warned| *warned < stand.limit)
        };
        ENDING
            .into_iter()
            .filter_map(|amount| self.stand(amount, now_ms))
            .filter(is_near)
            .collect()
    }

    /// How an amount that ends a process stands, where it is limited.
    fn stand(&self, amount: Amount, now_ms: u64) -> Option<Reached> {
        let used = match amount {
            Amount::WallTime => now_ms.saturating_sub(self.began_ms),
            _ => self.used(amount),
        };
        Some(Reached {
            amount,
            used,
            limit: self.limits.limit(amount)?,
        })
    }

    /// TREE-1, as far as one process and its living children can show it: each of them has a share
    /// and may use no more than that. Together with [`overdrawn`](Self::overdrawn), which is
    /// nothing but for single calls, what holds for every process of a tree holds for the tree.
    ///
    /// # Errors
    /// [`Breach`], the first there is.
    pub fn check<'a>(
        &self,
        children: impl IntoIterator<Item = ((CallId, u32), &'a Self)>,
    ) -> Result<(), Breach> {
        for ((call, index), child) in children {
            let share = self
                .share(call, index)
                .ok_or(Breach::NoShare { call, index })?;
            for amount in Amount::SHARED {
                let (limit, Some(share)) = (child.limits.limit(amount), share.limit(amount)) else {
                    continue;
                };
                if limit.is_none_or(|limit| limit > share) {
                    return Err(Breach::MoreThanItsShare {
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

    /// The account as the root of a tree of its own has it, from `now_ms` on: with the same limits
    /// and what it used so far, with nothing reserved, and with all of its wall time, of which it
    /// is warned anew.
    #[must_use]
    pub fn as_root(mut ledger: Ledger, now_ms: u64) -> Ledger {
        ledger
            .warned
            .retain(|(amount, _)| *amount != Amount::WallTime);
        Ledger {
            began_ms: now_ms,
            shares: Vec::new(),
            given_up: Vec::new(),
            ..ledger
        }
    }

    pub(crate) fn spend(&mut self, usage: Usage) {
        self.own += usage;
    }

    pub(crate) fn hold(&mut self, bytes: u64) {
        self.held_bytes = self.held_bytes.saturating_add(bytes);
    }

    /// These calls were given up: what a model used for them may still become known, once.
    pub(crate) fn give_up(&mut self, calls: Vec<CallId>) {
        self.given_up = calls;
    }

    /// Whether what a model used for this call is not counted yet, though the call is over.
    pub(crate) fn is_owed(&self, call: CallId) -> bool {
        self.given_up.contains(&call)
    }

    /// The process has ended: nothing is reserved any more. What its living children may still use
    /// is counted in its exit.
    pub(crate) fn close(&mut self) {
        self.shares.clear();
    }

    /// Applies a change. Total: a share that is not there is not given back.
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
                    self.below += spent.unwrap_or_else(|| whole(&share));
                }
            }
            Change::Warned { amount, limit, .. } => {
                self.warned.insert(*amount, *limit);
            }
            Change::Used { call, usage } => {
                self.given_up.retain(|known| known != call);
                self.spend(*usage);
            }
        }
    }
}

/// A whole share as if it had been used.
fn whole(share: &Budget) -> Usage {
    Usage {
        input_tokens: share.input_tokens.unwrap_or(0),
        output_tokens: share.output_tokens.unwrap_or(0),
        cost_nanos: share.cost_nanos.unwrap_or(0),
        ..Usage::default()
    }
}
