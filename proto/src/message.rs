//! The conversation, in a form that no provider owns.
//!
//! A block that a provider sent is kept as the raw JSON that came, beside what we understood of it,
//! and goes back verbatim: providers bind signatures to the exact blocks of a conversation
//! (HIST-1).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::FdId;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The user, another process, or the answers to tool calls.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub blocks: Vec<Block>,
}

impl Message {
    /// A message of the user that is one text.
    #[must_use]
    pub fn user(text: impl Into<Arc<str>>) -> Self {
        Self {
            role: Role::User,
            blocks: vec![Block::text(text)],
        }
    }

    /// The text blocks, joined.
    #[must_use]
    pub fn text(&self) -> String {
        text_of(&self.blocks)
    }
}

/// The text blocks among `blocks`, joined.
#[must_use]
pub fn text_of(blocks: &[Block]) -> String {
    blocks
        .iter()
        .filter_map(|block| match block {
            Block::Text { text, .. } => Some(&**text),
            _ => None,
        })
        .collect()
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Block {
    /// Plain text.
    Text {
        /// The text.
        text: Arc<str>,
        /// The block as the provider sent it, if it came from one.
        raw: Option<Raw>,
    },
    /// The model asks for a tool.
    ToolUse {
        /// The provider's name of this use; the answer carries it.
        id: Arc<str>,
        /// The tool, by the name that the model was given.
        name: Arc<str>,
        /// The arguments: JSON text, as it came.
        args: Arc<str>,
        /// The block as the provider sent it, if it came from one.
        raw: Option<Raw>,
    },
    /// The answer to a tool use.
    ToolResult {
        /// The `id` of the tool use.
        id: Arc<str>,
        /// What the model reads.
        text: Arc<str>,
        /// Whether the answer is an error.
        is_error: bool,
    },
    /// Something that is no text, for formats that take it: a part of the answer to a tool use, or
    /// of what the user said. Where a format does not take it, what stands beside it says in words
    /// what it is.
    Media {
        /// The `id` of the tool use whose answer it belongs to; none where the user sent it.
        answers: Option<Arc<str>>,
        /// Where it is.
        media: Media,
    },
    /// A block that only its provider understands (thinking, its signature, server-side tools):
    /// carried along verbatim.
    Opaque(Raw),
}

impl Block {
    /// A text of ours.
    #[must_use]
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text {
            text: text.into(),
            raw: None,
        }
    }
}

/// Something that is no text, and that a process holds in a descriptor: an image, a document, a
/// sound. A message names it and does not hold it, so that its bytes are kept once; a request
/// brings them ([`Request::media`](crate::model::Request::media)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// The descriptor. A process never uses an id again, and what it names never changes (FD-1,
    /// FD-2).
    pub fd: FdId,
    /// The media type, in small letters and without parameters: `image/png`.
    pub media_type: Arc<str>,
    /// The longer side of an image, in pixels; 0 where it is none.
    pub side_px: u32,
}

/// A block exactly as a provider sent it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raw {
    /// The wire format it belongs to, for example `anthropic`. Another format must not send it.
    pub format: Arc<str>,
    /// The JSON text of the block.
    pub json: Arc<str>,
}
