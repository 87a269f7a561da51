//! Tokens and money.

use dormouse_proto::budget::Amount;
use dormouse_proto::model::Usage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was used of models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageView {
    /// Input tokens, cached ones included.
    pub input_tokens: u64,
    /// Input tokens that were read from the provider's cache.
    pub cache_read_tokens: u64,
    /// Input tokens that were written to the provider's cache.
    pub cache_write_tokens: u64,
    /// Output tokens, thinking included.
    pub output_tokens: u64,
    /// Thinking tokens among the output tokens, if the provider reports them.
    pub thinking_tokens: u64,
    /// Money, in the currency of the price table; absent if nothing is priced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
}

impl From<Usage> for UsageView {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.all_input_tokens(),
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            output_tokens: usage.output_tokens,
            thinking_tokens: usage.thinking_tokens,
            cost: (usage.cost_nanos > 0).then(|| Amount::Cost.show(usage.cost_nanos)),
        }
    }
}

/// What several processes used together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageGroup {
    /// What they have in common: a program, a model, the root of a tree, or a process.
    pub key: String,
    /// How many processes there are.
    pub processes: usize,
    /// What they used.
    #[serde(flatten)]
    pub usage: UsageView,
}
