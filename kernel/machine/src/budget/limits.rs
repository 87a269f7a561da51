//! Which limits of an account are reached or nearly reached.

use dormouse_proto::budget::Amount;

use super::Account;

/// Percentage of a limit from which the model is warned.
const WARNING_PERCENT: u64 = 80;

/// The amounts that end a process when they are used up. The others only limit the children and
/// contents that it may create.
const ENDING_AMOUNTS: [Amount; 5] = [
    Amount::InputTokens,
    Amount::OutputTokens,
    Amount::Cost,
    Amount::WallTime,
    Amount::ResidentBytes,
];

/// An amount whose limit is reached or nearly reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReachedLimit {
    /// The amount.
    pub amount: Amount,
    /// Current usage.
    pub used: u64,
    /// Limit of the amount.
    pub limit: u64,
}

impl Account {
    /// The first limit that is reached. Once a limit is reached, no further work may start.
    #[must_use]
    pub fn reached_limit(&self, now_ms: u64) -> Option<ReachedLimit> {
        ENDING_AMOUNTS
            .into_iter()
            .filter_map(|amount| self.usage_and_limit(amount, now_ms))
            .find(|reached| reached.used >= reached.limit)
    }

    /// Whether an amount is used up or completely reserved for children, so that the process has to
    /// wait until children end and return their shares.
    #[must_use]
    pub fn waits_for_shares(&self) -> bool {
        ENDING_AMOUNTS
            .into_iter()
            .any(|amount| self.remaining(amount) == Some(0))
    }

    /// The limits that are nearly reached and of which the model has not been warned yet.
    /// Reservations do not count, since most of them are returned.
    #[must_use]
    pub fn nearly_reached_limits(&self, now_ms: u64) -> Vec<ReachedLimit> {
        let is_near = |reached: &ReachedLimit| {
            u128::from(reached.used) * 100
                >= u128::from(reached.limit) * u128::from(WARNING_PERCENT)
                && self
                    .warned
                    .get(&reached.amount)
                    .is_none_or(|warned| *warned < reached.limit)
        };
        ENDING_AMOUNTS
            .into_iter()
            .filter_map(|amount| self.usage_and_limit(amount, now_ms))
            .filter(is_near)
            .collect()
    }

    /// Usage and limit of an amount that ends a process, if it is limited.
    fn usage_and_limit(&self, amount: Amount, now_ms: u64) -> Option<ReachedLimit> {
        let used = match amount {
            Amount::WallTime => self.ran_ms(now_ms),
            _ => self.used(amount),
        };
        Some(ReachedLimit {
            amount,
            used,
            limit: self.limits.limit(amount)?,
        })
    }
}
