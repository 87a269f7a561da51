//! What a model costs.

use std::collections::BTreeMap;

use crate::model::{Reply, Usage};
use crate::program::{CacheTtl, CallPrices, MAX_NANOS, Money, Reader, Section};
use crate::server_tool::count_calls;

/// The help of the error for a missing price.
const PER_MILLION: &str = "what a million tokens cost, for example `input = 3.0`, `output = 15.0`";

/// The price of a model, from the table `[prices]`: nanos of a currency
/// ([`NANOS_PER_UNIT`](super::NANOS_PER_UNIT)) for a million tokens of each kind.
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

    /// Cost of a reply: its tokens, rounded up to a nano, and the calls of the provider's tools
    /// that it shows. Saturates. O(n) in the blocks.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::NANOS_PER_UNIT;
    use crate::message::{Block, Raw};
    use crate::model::StopReason;

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
            Block::Opaque(Raw::new("anthropic", json))
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
