//! Budgets: limits for a process and its subtree, and their journalled form.
//!
//! Types only: `kernel/machine/src/budget.rs` computes shares and checks limits, and
//! `kernel/machine/src/process/pausing.rs` pauses a process at a limit.

mod price;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::price::Price;
use crate::id::CallId;
use crate::model::Usage;
use crate::program::{Duration, Keyword, MAX_LONG_DURATION_MS, MAX_NANOS, Money, Section, Size};

/// One unit of the price table's currency, in billionths ("nanos"). Money is counted in integers.
pub const NANOS_PER_UNIT: u64 = 1_000_000_000;

/// A limited quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Amount {
    /// Input tokens, whether they came from a cache or not.
    InputTokens,
    /// Output tokens.
    OutputTokens,
    /// Money, in nanos of the price table's currency ([`NANOS_PER_UNIT`]).
    Cost,
    /// Milliseconds that the process ran.
    WallTime,
    /// Processes that live at the same time.
    Processes,
    /// Levels of processes below this one.
    Depth,
    /// Bytes of contents that processes opened themselves and hold.
    ResidentBytes,
}

impl Amount {
    /// Every amount, in the order of a program's keys.
    pub const ALL: [Self; 7] = [
        Self::InputTokens,
        Self::OutputTokens,
        Self::Cost,
        Self::WallTime,
        Self::Processes,
        Self::Depth,
        Self::ResidentBytes,
    ];

    /// Amounts that are divided into shares: a child's share is taken out of its parent's budget.
    pub const SHARED: [Self; 5] = [
        Self::InputTokens,
        Self::OutputTokens,
        Self::Cost,
        Self::Processes,
        Self::ResidentBytes,
    ];

    /// The key in a program file, and the word in messages.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::Cost => "cost",
            Self::WallTime => "wall_time",
            Self::Processes => "processes",
            Self::Depth => "depth",
            Self::ResidentBytes => "resident_bytes",
        }
    }

    /// Formats a value for people: `0.25`, `90s`, `81000`.
    #[must_use]
    pub fn show(self, value: u64) -> String {
        match self {
            Self::Cost => money(value),
            Self::WallTime if value.is_multiple_of(1_000) => format!("{}s", value / 1_000),
            Self::WallTime => format!("{value}ms"),
            _ => value.to_string(),
        }
    }
}

/// Formats money as a decimal without trailing zeros: `2.5`.
#[must_use]
pub fn money(nanos: u64) -> String {
    let whole = nanos / NANOS_PER_UNIT;
    let rest = nanos % NANOS_PER_UNIT;
    if rest == 0 {
        return whole.to_string();
    }
    format!("{whole}.{rest:09}")
        .trim_end_matches('0')
        .to_owned()
}

/// The most tokens that a program may allow.
const MAX_TOKENS: u64 = 1_000_000_000_000_000;

/// Limits of a process and all processes below it, from the table `[budget]`. An amount of `None`
/// is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Section)]
pub struct Budget {
    /// The most input tokens, cached ones included.
    #[key(range = 1..=MAX_TOKENS)]
    pub input_tokens: Option<u64>,
    /// The most output tokens.
    #[key(range = 1..=MAX_TOKENS)]
    pub output_tokens: Option<u64>,
    /// Money, in the currency of `[prices]`. Every model that may be asked then needs a price.
    #[key(name = "cost", with = Money, range = 1..=MAX_NANOS, last)]
    pub cost_nanos: Option<u64>,
    /// The time that the process may run. The time in which it rests does not count: while it waits
    /// for input or for a person, while it is stopped, and while the kernel is not running.
    #[key(name = "wall_time", with = Duration, range = 1..=MAX_LONG_DURATION_MS, last)]
    pub wall_time_ms: Option<u64>,
    /// The most processes that live at the same time, this one included.
    #[key(range = 1..=1_000_000)]
    pub processes: Option<u64>,
    /// The most levels of processes below this one.
    #[key(range = 1..=64)]
    pub depth: Option<u64>,
    /// The size of the contents that the processes opened themselves and hold.
    #[key(with = Size, range = 1..=1_000_000_000_000, last)]
    pub resident_bytes: Option<u64>,
}

impl Budget {
    /// The limit of an amount, in its unit.
    #[must_use]
    pub fn limit(&self, amount: Amount) -> Option<u64> {
        match amount {
            Amount::InputTokens => self.input_tokens,
            Amount::OutputTokens => self.output_tokens,
            Amount::Cost => self.cost_nanos,
            Amount::WallTime => self.wall_time_ms,
            Amount::Processes => self.processes,
            Amount::Depth => self.depth,
            Amount::ResidentBytes => self.resident_bytes,
        }
    }

    /// The budget with another limit for one amount.
    #[must_use]
    pub fn with(mut self, amount: Amount, limit: Option<u64>) -> Self {
        *match amount {
            Amount::InputTokens => &mut self.input_tokens,
            Amount::OutputTokens => &mut self.output_tokens,
            Amount::Cost => &mut self.cost_nanos,
            Amount::WallTime => &mut self.wall_time_ms,
            Amount::Processes => &mut self.processes,
            Amount::Depth => &mut self.depth,
            Amount::ResidentBytes => &mut self.resident_bytes,
        } = limit;
        self
    }

    /// These limits, completed by those of `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let fill = |budget: Self, amount| {
            budget.with(amount, budget.limit(amount).or(other.limit(amount)))
        };
        Amount::ALL.into_iter().fold(self, fill)
    }

    /// These limits, each raised by what `more` has of its amount. An amount that is not limited
    /// stays so.
    #[must_use]
    pub fn raised_by(self, more: &Self) -> Self {
        let raise = |budget: Self, amount| {
            let limit = budget.limit(amount);
            let more = more.limit(amount).unwrap_or(0);
            budget.with(amount, limit.map(|limit| limit.saturating_add(more)))
        };
        Amount::ALL.into_iter().fold(self, raise)
    }

    /// The amounts that have a limit, each with its limit.
    pub fn limited(&self) -> impl Iterator<Item = (Amount, u64)> {
        Amount::ALL
            .into_iter()
            .filter_map(|amount| Some((amount, self.limit(amount)?)))
    }
}

/// Formats the amounts of a budget for people: `cost 1.5, wall_time 90s`.
impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut separator = "";
        for (amount, limit) in self.limited() {
            write!(f, "{separator}{} {}", amount.word(), amount.show(limit))?;
            separator = ", ";
        }
        Ok(())
    }
}

/// What happens to a process that has reached a limit of its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Keyword)]
pub enum AtLimit {
    /// It ends as `budget_exhausted`.
    #[default]
    End,
    /// It is paused, and all processes below it stop. It goes on once the limit is raised.
    Pause,
}

/// A process is paused, since it has used up an amount. It begins nothing, and rests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// The amount that is used up.
    pub amount: Amount,
    /// How much was used when the process was paused.
    pub used: u64,
    /// The limit that was reached.
    pub limit: u64,
}

/// Formats a pause for people: `cost 1.02 of 1`.
impl std::fmt::Display for Paused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (used, limit) = (self.amount.show(self.used), self.amount.show(self.limit));
        write!(f, "{} {used} of {limit}", self.amount.word())
    }
}

/// Whether the limits of a process, or of one above it, keep it from beginning anything, as an
/// image stores it. A return to an earlier point changes none of this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pausing {
    /// The limit that the process is paused at.
    pub paused: Option<Paused>,
    /// Whether a process above it is paused, so that it begins nothing either.
    pub is_suspended: bool,
    /// Whether the calls that were in flight are lost, although no signal has stopped the process:
    /// it came back from its journal. They are made again when the process goes on.
    pub has_lost_calls: bool,
    /// How often the rule of the program has raised the limits.
    pub raises: u32,
}

/// The budget account of one process, as an image stores it. The usage of the process itself is the
/// image's `usage`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Limits of the process and its subtree.
    pub limits: Budget,
    /// Until when its running time is counted in `ran_ms`: milliseconds since the epoch, UTC.
    pub began_ms: u64,
    /// Bytes of the contents that the process opened itself.
    pub held_bytes: u64,
    /// Usage of ended children and their subtrees.
    pub descendant_usage: Usage,
    /// Shares of living children, by the call that made each and the index in it.
    pub shares: Vec<((CallId, u32), Budget)>,
    /// Limits that the model was warned of.
    pub warned: Vec<(Amount, u64)>,
    /// Calls that were abandoned last and may have called a model. Their usage may still arrive.
    pub abandoned_calls: Vec<CallId>,
    /// Milliseconds that the process had run at `began_ms`.
    #[serde(default)]
    pub ran_ms: u64,
    /// Whether the wall time has passed since `began_ms`.
    #[serde(default)]
    pub clock: Clock,
}

/// Whether the wall time of a process passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clock {
    /// The process runs: its wall time passes.
    #[default]
    Runs,
    /// The process rests.
    Rests,
}

/// A change of a budget account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Shares were reserved for children that are about to be made.
    Reserved {
        /// Call that makes the children.
        call: CallId,
        /// Index of each child, from 0, and its share.
        shares: Vec<(u32, Budget)>,
    },
    /// A child is gone, and the rest of its share is returned.
    Returned {
        /// Call that made the child.
        call: CallId,
        /// Index of the child within its call.
        index: u32,
        /// Usage of the child and its subtree; `None` if unknown, and then the whole share counts
        /// as used.
        spent: Option<Usage>,
    },
    /// The model is warned of a limit. The text is appended to the next message that is sent.
    Warned {
        /// The amount that is nearly used up.
        amount: Amount,
        /// The limit.
        limit: u64,
        /// The warning, as the model reads it.
        text: Arc<str>,
    },
    /// A model call had a cost and no other effect: a failed summary, or a reply that came too
    /// late.
    Used {
        /// Id of the call.
        call: CallId,
        /// Usage of the call.
        usage: Usage,
    },
    /// The wall time was counted. Recorded for processes whose wall time is limited.
    Clock {
        /// Milliseconds that the process has run.
        ran_ms: u64,
        /// When that was: milliseconds since the epoch, UTC.
        at_ms: u64,
        /// Whether the wall time passes from then on.
        clock: Clock,
    },
    /// A limit is reached: the process is paused, and begins nothing until it is raised.
    Paused {
        /// The limit.
        at: Paused,
    },
    /// Limits were raised.
    Raised {
        /// What each limit was raised by.
        by: Budget,
        /// Who raised them.
        source: RaiseSource,
    },
    /// No limit is reached any more: the process goes on.
    Unpaused,
}

/// Who raised limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RaiseSource {
    /// A person, or the host for a person.
    Person,
    /// The rule of the program (`[budget.raise]`).
    Rule,
}

impl Change {
    /// The name in event streams and listings.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reserved { .. } => "budget_reserved",
            Self::Returned { .. } => "budget_returned",
            Self::Warned { .. } => "budget_warned",
            Self::Used { .. } => "budget_used",
            Self::Clock { .. } => "budget_clock",
            Self::Paused { .. } => "budget_paused",
            Self::Raised { .. } => "budget_raised",
            Self::Unpaused => "budget_unpaused",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_formatted_as_a_decimal() {
        let cases = [
            (0, "0"),
            (1, "0.000000001"),
            (2_500_000_000, "2.5"),
            (NANOS_PER_UNIT, "1"),
            (u64::MAX, "18446744073.709551615"),
        ];
        for (nanos, text) in cases {
            assert_eq!(money(nanos), text);
        }
    }
}
