//! Budgets: limits for a process and its subtree, and their journalled form.
//!
//! Types only: `dormouse_kernel::budget` computes shares and checks limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::CallId;
use crate::model::{Reply, Usage};
use crate::program::{CacheTtl, CallPrices, Duration, MAX_NANOS, Money, Reader, Section, Size};
use crate::server_tool::count_calls;

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
    /// Milliseconds since the process was born.
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
    /// The time that may pass after the start of the process.
    #[key(name = "wall_time", with = Duration, last)]
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
}

/// The help of the error for a missing price.
const PER_MILLION: &str = "what a million tokens cost, for example `input = 3.0`, `output = 15.0`";

/// The price of a model, from the table `[prices]`: nanos of a currency ([`NANOS_PER_UNIT`]) for a
/// million tokens of each kind.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section(
    check = Price::fill_cache_prices,
    expected = "a table of `input`, `output`, `cache_read`, `cache_write`, `cache_write_1h` and \
                `server_tools`"
)]
pub struct Price {
    /// The price of a million input tokens that are neither read from a cache nor written to one.
    #[key(required = PER_MILLION, with = Money, range = 0..=MAX_NANOS)]
    pub input: u64,
    /// The price of a million output tokens.
    #[key(required = PER_MILLION, with = Money, range = 0..=MAX_NANOS)]
    pub output: u64,
    /// The price of a million input tokens that are read from the provider's cache; the same as
    /// `input` if it is not given.
    #[key(with = Money, range = 0..=MAX_NANOS)]
    pub cache_read: u64,
    /// The price of a million input tokens that are written to the provider's cache; the same as
    /// `input` if it is not given.
    #[key(with = Money, range = 0..=MAX_NANOS)]
    pub cache_write: u64,
    /// The price of a million input tokens that are written to the provider's cache of an hour
    /// (`model.cache_ttl`); the same as `cache_write` if it is not given.
    #[key(with = Money, range = 0..=MAX_NANOS)]
    pub cache_write_1h: u64,
    /// The price of one call of each tool that the provider runs, by the name of the tool as
    /// `dormouse ps` shows it, such as `{ web_search = 0.01 }`. A tool that is not listed costs
    /// nothing.
    #[key(with = CallPrices, range = 0..=MAX_NANOS)]
    pub server_tools: BTreeMap<String, u64>,
}

impl Price {
    /// Fills in the cache prices that the table does not give: `cache_read` and `cache_write` from
    /// `input`, and `cache_write_1h` from `cache_write`.
    fn fill_cache_prices(mut self, table: &mut Reader<'_>) -> Option<Self> {
        for (key, price) in [
            ("cache_read", &mut self.cache_read),
            ("cache_write", &mut self.cache_write),
        ] {
            if table.span_of(key).is_none() {
                *price = self.input;
            }
        }
        if table.span_of("cache_write_1h").is_none() {
            self.cache_write_1h = self.cache_write;
        }
        Some(self)
    }

    /// The price of a model that has no cache: input and output, in nanos for a million tokens.
    #[must_use]
    pub fn new(input: u64, output: u64) -> Self {
        Self {
            input,
            output,
            cache_read: input,
            cache_write: input,
            cache_write_1h: input,
            server_tools: BTreeMap::new(),
        }
    }

    /// The price with cache writes at the rate of this cache lifetime.
    #[must_use]
    pub fn with_cache_ttl(self, ttl: CacheTtl) -> Self {
        match ttl {
            CacheTtl::FiveMinutes => self,
            CacheTtl::OneHour => Self {
                cache_write: self.cache_write_1h,
                ..self
            },
        }
    }

    /// Cost of a reply: its tokens, rounded up to a nano, and the calls of the provider's tools that
    /// it shows. Saturates. O(n) in the blocks.
    #[must_use]
    pub fn reply_cost_nanos(&self, reply: &Reply) -> u64 {
        let mut nanos = self.cost_nanos(&reply.usage);
        if !self.server_tools.is_empty() {
            for (tool, calls) in count_calls(&reply.blocks) {
                let price = self.server_tools.get(&tool).copied().unwrap_or_default();
                nanos = nanos.saturating_add(price.saturating_mul(calls.into()));
            }
        }
        nanos
    }

    /// Cost of these tokens, rounded up to a nano. Saturates.
    #[must_use]
    pub fn cost_nanos(&self, usage: &Usage) -> u64 {
        let kinds = [
            (usage.input_tokens, self.input),
            (usage.output_tokens, self.output),
            (usage.cache_read_tokens, self.cache_read),
            (usage.cache_write_tokens, self.cache_write),
        ];
        let cost =
            |(tokens, price): (u64, u64)| u128::from(tokens).saturating_mul(u128::from(price));
        let total = kinds
            .into_iter()
            .map(cost)
            .fold(0_u128, u128::saturating_add);
        u64::try_from(total.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// The budget account of one process, as an image stores it. The usage of the process itself is the
/// image's `usage`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Limits of the process and its subtree.
    pub limits: Budget,
    /// Start of its wall time: milliseconds since the epoch, UTC.
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Block, Raw};
    use crate::model::StopReason;

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

    #[test]
    fn a_call_costs_what_its_tokens_do_rounded_up() {
        let price = Price {
            input: 3 * NANOS_PER_UNIT,
            output: 15 * NANOS_PER_UNIT,
            cache_read: NANOS_PER_UNIT / 3,
            cache_write: 0,
            cache_write_1h: 0,
            server_tools: BTreeMap::from([("web_search".to_owned(), NANOS_PER_UNIT / 100)]),
        };
        let usage = |input_tokens, output_tokens, cache_read_tokens| Usage {
            input_tokens,
            output_tokens,
            thinking_tokens: 0,
            cache_read_tokens,
            cache_write_tokens: 9,
            cost_nanos: 0,
        };
        let cases = [
            ((1_000_000, 0, 0), 3 * NANOS_PER_UNIT),
            ((1, 1, 0), 18_000),
            ((0, 0, 1), 334),
            ((0, 0, 0), 0),
        ];
        for ((input, output, read), nanos) in cases {
            assert_eq!(price.cost_nanos(&usage(input, output, read)), nanos);
        }
        let block = |name: &str| {
            let json = format!(r#"{{"type":"server_tool_use","name":"{name}","input":{{}}}}"#);
            let format = "anthropic".into();
            Block::Opaque(Raw {
                format,
                json: json.into(),
            })
        };
        let reply = |usage| Reply {
            blocks: ["web_search", "web_fetch", "web_search"].map(block).into(),
            stop: StopReason::EndTurn,
            usage,
        };
        let cost = price.reply_cost_nanos(&reply(usage(1, 1, 0)));
        assert_eq!(cost, 18_000 + 2 * NANOS_PER_UNIT / 100);
        let cost = price.reply_cost_nanos(&reply(usage(u64::MAX, u64::MAX, 0)));
        assert_eq!(cost, u64::MAX);
        assert_eq!(
            price.cost_nanos(&usage(u64::MAX, u64::MAX, u64::MAX)),
            u64::MAX
        );
    }
}
