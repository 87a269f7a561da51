//! Tokens as OpenAI's formats count them: what a cache gave or took is part of the input.

use dormouse_proto::model::Usage;
use serde::Deserialize;

/// A count of both formats, which name its fields each in its way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// All that was read, from wherever.
    pub(crate) input: Option<u64>,
    /// All that was written.
    pub(crate) output: Option<u64>,
    /// What is known of the parts of the input.
    pub(crate) of_input: Option<Details>,
    /// What is known of the parts of the output.
    pub(crate) of_output: Option<Details>,
}

/// The parts of a count.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Details {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
    reasoning_tokens: Option<u64>,
}

impl From<Counts> for Usage {
    fn from(counts: Counts) -> Self {
        let of_input = counts.of_input.unwrap_or_default();
        let cache_read_tokens = of_input.cached_tokens.unwrap_or_default();
        let cache_write_tokens = of_input.cache_write_tokens.unwrap_or_default();
        let input = counts.input.unwrap_or_default();
        Self {
            input_tokens: input.saturating_sub(cache_read_tokens).saturating_sub(cache_write_tokens),
            output_tokens: counts.output.unwrap_or_default(),
            thinking_tokens: counts.of_output.unwrap_or_default().reasoning_tokens.unwrap_or_default(),
            cache_read_tokens,
            cache_write_tokens,
            ..Self::default()
        }
    }
}
