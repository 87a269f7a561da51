//! What goes to a model and what comes back.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::Pid;
use crate::message::{Block, Message};
use crate::tool::ToolSpec;

/// A request to a model. Everything in it is shared: cloning costs a pointer per message, never text.
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
    /// `[parameters]` of the program, passed through.
    pub parameters: Arc<serde_json::Map<String, serde_json::Value>>,
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
    /// Output tokens.
    pub output_tokens: u64,
    /// Input tokens read from the provider's cache.
    pub cache_read_tokens: u64,
    /// Input tokens written to the provider's cache.
    pub cache_write_tokens: u64,
    /// What that cost, in nanos of the price table's currency: counted by the kernel when a reply comes in, never by a
    /// provider.
    pub cost_nanos: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let add = |mine: &mut u64, other: u64| *mine = mine.saturating_add(other);
        add(&mut self.input_tokens, other.input_tokens);
        add(&mut self.output_tokens, other.output_tokens);
        add(&mut self.cache_read_tokens, other.cache_read_tokens);
        add(&mut self.cache_write_tokens, other.cache_write_tokens);
        add(&mut self.cost_nanos, other.cost_nanos);
    }
}

impl Usage {
    /// All input tokens, whether a cache had to do with them or not. Saturates.
    #[must_use]
    pub fn all_input_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.cache_read_tokens).saturating_add(self.cache_write_tokens)
    }
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
        Self { kind, message: message.into(), retry_after: None }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, ModelErrorKind::Overloaded | ModelErrorKind::Transport | ModelErrorKind::CutStream)
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
