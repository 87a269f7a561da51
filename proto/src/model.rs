//! Model requests, replies, usage and errors.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::id::{FdId, Pid};
use crate::message::{Block, Message};
use crate::provider_tools::ProviderTools;
use crate::server_tool::server_summaries;
use crate::tool::ToolSpec;

/// A request to a model. All of its parts are shared: cloning costs a pointer per message and never
/// copies text.
#[derive(Clone, Debug)]
pub struct Request {
    /// Process that makes the request.
    pub pid: Pid,
    /// Name of the process's program.
    pub program: Arc<str>,
    /// Name of the model at its provider.
    pub model: Arc<str>,
    /// The system prompt, frozen at the process's birth.
    pub system: Arc<str>,
    /// The tools, frozen at the process's birth.
    pub tools: Arc<[ToolSpec]>,
    /// Tools that the provider runs, and how `tools` are presented; from the program.
    pub provider_tools: Arc<ProviderTools>,
    /// The conversation so far.
    pub messages: Vec<Arc<Message>>,
    /// Message counts at each fork that the process descends from, oldest first; empty for a
    /// started or spawned process. These prefixes are shared with other descendants of the fork.
    pub forked_at: Vec<usize>,
    /// `[parameters]` of the program, passed through unchanged.
    pub parameters: Arc<serde_json::Map<String, serde_json::Value>>,
    /// Bytes of the media that the messages reference, by descriptor; shared.
    pub media: BTreeMap<FdId, Bytes>,
}

impl Request {
    /// Estimated tokens of the request without its media. O(n) in the conversation.
    #[must_use]
    pub fn estimated_tokens(&self) -> u64 {
        let tools = self
            .tools
            .iter()
            .map(|tool| tool.name.len() + tool.description.len() + tool.schema.len());
        let messages = self
            .messages
            .iter()
            .map(|message| count_chars(&message.blocks));
        estimate_tokens(
            self.system.chars().count() + tools.sum::<usize>() + messages.sum::<usize>(),
        )
    }
}

/// Estimated tokens of these blocks. O(n).
#[must_use]
pub fn estimated_tokens(blocks: &[Block]) -> u64 {
    estimate_tokens(count_chars(blocks))
}

/// Assumes four characters per token, which is accurate enough for budgets and monitoring.
fn estimate_tokens(chars: usize) -> u64 {
    chars.div_ceil(4) as u64
}

fn count_chars(blocks: &[Block]) -> usize {
    let chars = |block: &Block| match block {
        Block::Text { text, .. } | Block::ToolResult { text, .. } => text.chars().count(),
        Block::ToolUse { name, args, .. } => name.chars().count() + args.chars().count(),
        Block::Opaque(raw) => raw.json.chars().count().saturating_sub(media_chars(block)),
        Block::Media { .. } => 0,
    };
    blocks.iter().map(chars).sum()
}

/// The characters of images and files in a block, which are not read as text: they count as the
/// media of a message do.
fn media_chars(block: &Block) -> usize {
    let media = server_summaries(block)
        .iter()
        .flat_map(|found| &found.media);
    media.map(|media| media.base64_chars).sum()
}

/// A model's complete reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Blocks in the provider's order.
    pub blocks: Vec<Block>,
    /// Why the model stopped.
    pub stop: StopReason,
    /// Tokens and cost of the call.
    pub usage: Usage,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// The reply is complete.
    EndTurn,
    /// The reply calls tools.
    ToolUse,
    /// The reply was truncated at the limit of output tokens. Its tool uses are never run.
    MaxTokens,
    /// A stop sequence appeared.
    StopSequence,
    /// The provider paused a long turn: send the reply back to continue.
    Pause,
    /// The model or its provider refused.
    Refusal,
    /// The conversation exceeds the context window.
    ContextWindow,
}

/// Tokens of one call, or the sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Uncached input tokens.
    pub input_tokens: u64,
    /// Output tokens, including thinking.
    pub output_tokens: u64,
    /// Thinking tokens among the output tokens, if the provider reports them.
    pub thinking_tokens: u64,
    /// Input tokens read from the provider's cache.
    pub cache_read_tokens: u64,
    /// Input tokens written to the provider's cache.
    pub cache_write_tokens: u64,
    /// Cost in nanos of the price table's currency: computed by the kernel when a reply arrives,
    /// never by a provider.
    pub cost_nanos: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let add = |mine: &mut u64, other: u64| *mine = mine.saturating_add(other);
        add(&mut self.input_tokens, other.input_tokens);
        add(&mut self.output_tokens, other.output_tokens);
        add(&mut self.thinking_tokens, other.thinking_tokens);
        add(&mut self.cache_read_tokens, other.cache_read_tokens);
        add(&mut self.cache_write_tokens, other.cache_write_tokens);
        add(&mut self.cost_nanos, other.cost_nanos);
    }
}

impl Usage {
    /// What this usage has more of than `other`. Saturates.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_sub(other.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(other.output_tokens),
            thinking_tokens: self.thinking_tokens.saturating_sub(other.thinking_tokens),
            cache_read_tokens: self
                .cache_read_tokens
                .saturating_sub(other.cache_read_tokens),
            cache_write_tokens: self
                .cache_write_tokens
                .saturating_sub(other.cache_write_tokens),
            cost_nanos: self.cost_nanos.saturating_sub(other.cost_nanos),
        }
    }

    /// All input tokens, cached or not. Saturates.
    #[must_use]
    pub fn all_input_tokens(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens)
    }
}

/// The number of input tokens of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenCount {
    /// Counted by the provider.
    Counted(u64),
    /// Estimated at four characters per token.
    Estimated(u64),
}

/// A fragment of a reply that is being streamed, for display. The [`Reply`] is authoritative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// A fragment of text.
    Text(String),
    /// A fragment of the model's thinking.
    Thinking(String),
    /// The model started to call the tool of this name: the whole name.
    ToolUse(String),
}

/// A model call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct ModelError {
    /// Kind of the failure, which decides whether a retry makes sense.
    pub kind: ModelErrorKind,
    /// Message of the provider or the transport.
    pub message: String,
    /// Delay that the provider requests before a retry.
    pub retry_after: Option<Duration>,
}

impl ModelError {
    /// An error without a retry delay.
    #[must_use]
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after: None,
        }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            ModelErrorKind::Overloaded | ModelErrorKind::Transport | ModelErrorKind::CutStream
        )
    }
}

/// Kinds of model failure, distinguished by their remedies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelErrorKind {
    /// Rate limit or overload: wait and retry.
    #[error("the provider is overloaded")]
    Overloaded,
    /// The provider could not be reached, or had an internal error.
    #[error("the provider could not be reached")]
    Transport,
    /// The stream ended within the reply.
    #[error("the reply was cut in mid-stream")]
    CutStream,
    /// The credentials are missing or refused.
    #[error("authentication failed")]
    Authentication,
    /// The provider rejects the request.
    #[error("the provider refused the request")]
    InvalidRequest,
    /// The provider declines the content by a filter or policy.
    #[error("the provider declined the content")]
    ContentRefused,
    /// The conversation exceeds the context window.
    #[error("the conversation is too long for the model")]
    ContextOverflow,
    /// The reply cannot be parsed.
    #[error("the reply is malformed")]
    Malformed,
    /// The deadline of the call passed.
    #[error("the model did not answer in time")]
    Deadline,
    /// No model of this name is registered, or its script has no answer.
    #[error("no answer is available")]
    Unavailable,
}

impl ModelErrorKind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Overloaded,
        Self::Transport,
        Self::CutStream,
        Self::Authentication,
        Self::InvalidRequest,
        Self::ContentRefused,
        Self::ContextOverflow,
        Self::Malformed,
        Self::Deadline,
        Self::Unavailable,
    ];

    /// The name in spans and recordings.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Overloaded => "overloaded",
            Self::Transport => "transport",
            Self::CutStream => "cut_stream",
            Self::Authentication => "authentication",
            Self::InvalidRequest => "invalid_request",
            Self::ContentRefused => "content_refused",
            Self::ContextOverflow => "context_overflow",
            Self::Malformed => "malformed",
            Self::Deadline => "deadline",
            Self::Unavailable => "unavailable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Raw;

    #[test]
    fn an_image_in_a_block_of_the_provider_is_not_counted_as_text() {
        let image = |data: &str| {
            let json = format!(r#"{{"inlineData":{{"mimeType":"image/png","data":"{data}"}}}}"#);
            let raw = Raw::new("gemini", json);
            estimated_tokens(&[Block::Opaque(raw)])
        };
        assert_eq!(image(&"A".repeat(1_000_000)), image(""));
        assert_eq!(image(&"é".repeat(1_000)), image(""), "this is no base64");
    }
}
