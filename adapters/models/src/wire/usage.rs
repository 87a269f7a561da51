//! Converts the token counts of OpenAI's two formats, in which the input includes the tokens that
//! were read from a cache or written to it.

use dormouse_proto::model::Usage;
use serde::Deserialize;

/// The token counts of both formats, which name the fields differently.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// All input tokens, including those from a cache.
    pub(crate) input: Option<u64>,
    /// The output tokens. At some providers they do not include the thinking tokens.
    pub(crate) output: Option<u64>,
    /// Input and output tokens together.
    pub(crate) total: Option<u64>,
    /// The parts of the input, if they are reported.
    pub(crate) input_details: Option<Details>,
    /// The parts of the output, if they are reported.
    pub(crate) output_details: Option<Details>,
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
        let input_details = counts.input_details.unwrap_or_default();
        let cache_read_tokens = input_details.cached_tokens.unwrap_or_default();
        let cache_write_tokens = input_details.cache_write_tokens.unwrap_or_default();
        let input = counts.input.unwrap_or_default();
        let thinking_tokens = counts
            .output_details
            .unwrap_or_default()
            .reasoning_tokens
            .unwrap_or_default();
        let output = counts.output.unwrap_or_default();
        let output_with_thinking = output.saturating_add(thinking_tokens);
        let excludes_thinking =
            thinking_tokens > 0 && counts.total == Some(input.saturating_add(output_with_thinking));
        Self {
            input_tokens: input
                .saturating_sub(cache_read_tokens)
                .saturating_sub(cache_write_tokens),
            output_tokens: if excludes_thinking {
                output_with_thinking
            } else {
                output
            },
            thinking_tokens,
            cache_read_tokens,
            cache_write_tokens,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn thinking_tokens_are_part_of_the_output_at_every_provider() {
        let cases = [
            (Some(10_120), Some(1_499), 2_809, Some(14_428), 4_308),
            (Some(100), Some(9), 5, Some(109), 9),
            (Some(100), Some(9), 0, Some(109), 9),
            (Some(100), Some(9), 5, None, 9),
            (None, Some(u64::MAX), 5, Some(u64::MAX), u64::MAX),
        ];
        for (input, output, reasoning, total, expected) in cases {
            let output_details =
                serde_json::from_value(json!({"reasoning_tokens": reasoning})).ok();
            let usage = Usage::from(Counts {
                input,
                output,
                total,
                input_details: None,
                output_details,
            });
            assert_eq!(
                (usage.output_tokens, usage.thinking_tokens),
                (expected, reasoning),
                "{total:?}"
            );
        }
    }
}
