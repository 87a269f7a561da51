//! What goes to a model and what comes back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::id::{FdId, Pid};
use crate::message::{Block, Message};
use crate::tool::ToolSpec;

/// A request to a model. Everything in it is shared: cloning costs a pointer per message, never
/// text.
#[derive(Clone, Debug)]
pub struct Request {
    /// The process that asks.
    pub pid: Pid,
    /// The name of the program that the process runs.
    pub program: Arc<str>,
    /// The model's name at its provider.
    pub model: Arc<str>,
    /// The system prompt, frozen at the process's birth.
    pub system: Arc<str>,
    /// The tools, frozen at the process's birth.
    pub tools: Arc<[ToolSpec]>,
    /// The conversation so far.
    pub messages: Vec<Arc<Message>>,
    /// How many messages there were at each fork that this process descends from, the oldest first;
    /// none where it was started or spawned. So many it shares with whoever else descends from that
    /// fork.
    pub forked_at: Vec<usize>,
    /// `[parameters]` of the program, passed through.
    pub parameters: Arc<serde_json::Map<String, serde_json::Value>>,
    /// The bytes of what the messages name and do not hold, by descriptor; shared.
    pub media: BTreeMap<FdId, Bytes>,
}

impl Request {
    /// About how many tokens it has, where nobody counts them: what it shows of media is not in it.
    /// O(n) in the conversation.
    #[must_use]
    pub fn estimated_tokens(&self) -> u64 {
        let tools = self
            .tools
            .iter()
            .map(|tool| tool.name.len() + tool.description.len() + tool.schema.len());
        let messages = self
            .messages
            .iter()
            .map(|message| chars_of(&message.blocks));
        tokens(self.system.chars().count() + tools.sum::<usize>() + messages.sum::<usize>())
    }
}

/// About how many tokens these blocks have. O(n).
#[must_use]
pub fn estimated_tokens(blocks: &[Block]) -> u64 {
    tokens(chars_of(blocks))
}

/// Four characters make a token: near enough for budgets and for watching them.
fn tokens(chars: usize) -> u64 {
    chars.div_ceil(4) as u64
}

fn chars_of(blocks: &[Block]) -> usize {
    let chars = |block: &Block| match block {
        Block::Text { text, .. } | Block::ToolResult { text, .. } => text.chars().count(),
        Block::ToolUse { name, args, .. } => name.chars().count() + args.chars().count(),
        Block::Opaque(raw) => raw.json.chars().count(),
        Block::Media { .. } => 0,
    };
    blocks.iter().map(chars).sum()
}

/// A model's complete reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The blocks, in the provider's order.
    pub blocks: Vec<Block>,
    /// Why the model stopped.
    pub stop: StopReason,
    /// What the call cost.
    pub usage: Usage,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// It had said everything.
    EndTurn,
    /// It waits for tools.
    ToolUse,
    /// The reply was cut at the limit of output tokens. Tool uses in it are never run.
    MaxTokens,
    /// A stop sequence appeared.
    StopSequence,
    /// The provider paused a long turn: ask again with what came.
    Pause,
    /// The model or its provider declined.
    Refusal,
    /// The conversation no longer fits the model.
    ContextWindow,
}

/// Tokens of one call, or of many together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens that were neither read from nor written to a cache.
    pub input_tokens: u64,
    /// Output tokens, those of thinking among them.
    pub output_tokens: u64,
    /// The output tokens that the model thought with, where its provider tells.
    pub thinking_tokens: u64,
    /// Input tokens read from the provider's cache.
    pub cache_read_tokens: u64,
    /// Input tokens written to the provider's cache.
    pub cache_write_tokens: u64,
    /// What that cost, in nanos of the price table's currency: counted by the kernel when a reply
    /// comes in, never by a provider.
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
    /// All input tokens, whether a cache had to do with them or not. Saturates.
    #[must_use]
    pub fn all_input_tokens(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens)
    }
}

/// How many input tokens a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenCount {
    /// The provider counted them.
    Counted(u64),
    /// Nobody counted: about four characters make one.
    Estimated(u64),
}

/// A piece of a reply, as it streams in. Deltas are for watching; only the [`Reply`] counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// A piece of text.
    Text(String),
    /// A piece of the model's thinking.
    Thinking(String),
    /// The model began to ask for the tool of this name.
    ToolUse(String),
}

/// A model call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct ModelError {
    /// What kind of failure it is; it decides whether another attempt makes sense.
    pub kind: ModelErrorKind,
    /// What the provider or the transport said.
    pub message: String,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
}

impl ModelError {
    /// An error without a hint of when to try again.
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

/// Kinds of model failure, told apart because their remedies differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelErrorKind {
    /// Rate limit or overload: wait and try again.
    #[error("the provider is overloaded")]
    Overloaded,
    /// The provider could not be reached, or failed.
    #[error("the provider could not be reached")]
    Transport,
    /// The stream ended before the reply did.
    #[error("the reply was cut in mid-stream")]
    CutStream,
    /// The credentials are missing or refused.
    #[error("authentication failed")]
    Authentication,
    /// The provider does not accept the request.
    #[error("the provider refused the request")]
    InvalidRequest,
    /// The provider does not answer this for what it says: a filter, a policy.
    #[error("the provider declined the content")]
    ContentRefused,
    /// The conversation no longer fits the model.
    #[error("the conversation is too long for the model")]
    ContextOverflow,
    /// The reply cannot be understood.
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

    /// The word for it, in spans and recordings.
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
