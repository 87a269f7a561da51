//! The conversation in a provider-neutral form.
//!
//! A block of a provider is kept as its raw JSON in addition to its parsed form, and is sent back
//! verbatim, since providers bind signatures to the exact blocks of a conversation (HIST-1).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::FdId;
use crate::server_tool::SummaryCell;

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The user, another process, or results of tool calls.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The author of the message.
    pub role: Role,
    /// The blocks, in order.
    pub blocks: Vec<Block>,
}

impl Message {
    /// A user message with one text block.
    #[must_use]
    pub fn user(text: impl Into<Arc<str>>) -> Self {
        Self {
            role: Role::User,
            blocks: vec![Block::text(text)],
        }
    }

    /// The concatenated text blocks.
    #[must_use]
    pub fn text(&self) -> String {
        text_of(&self.blocks)
    }
}

/// The concatenated text blocks among `blocks`.
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
        /// The raw block, if it came from a provider.
        raw: Option<Raw>,
    },
    /// The model calls a tool.
    ToolUse {
        /// Id that the provider assigned; the result carries it.
        id: Arc<str>,
        /// Name of the tool, as given to the model.
        name: Arc<str>,
        /// Arguments as JSON text, as the model wrote them. Only the nulls that a strict tool needs
        /// in place of absent parameters are left out.
        args: Arc<str>,
        /// The raw block, if it came from a provider.
        raw: Option<Raw>,
    },
    /// The result of a tool call.
    ToolResult {
        /// The `id` of the tool use.
        id: Arc<str>,
        /// Text for the model.
        text: Arc<str>,
        /// Whether the answer is an error.
        is_error: bool,
    },
    /// A media item, for wire formats that support it: part of a tool result or of user input.
    /// Other formats rely on the text next to it, which describes the item.
    Media {
        /// `id` of the tool use that the item answers; `None` for user input.
        answers: Option<Arc<str>>,
        /// Reference to the media item.
        media: Media,
    },
    /// A block that only its provider understands (thinking, signatures, server-side tools). Sent
    /// back verbatim.
    Opaque(Raw),
}

impl Block {
    /// A text block of the kernel.
    #[must_use]
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text {
            text: text.into(),
            raw: None,
        }
    }
}

/// A media item (image, document, sound) that a descriptor of the process holds. A message
/// references it, so that its bytes are stored once; a request contains them
/// ([`Request::media`](crate::model::Request::media)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// Descriptor of the item. Ids are never reused, and contents never change (FD-1, FD-2).
    pub fd: FdId,
    /// Media type in lower case and without parameters, such as `image/png`.
    pub media_type: Arc<str>,
    /// Longer side of an image in pixels; 0 for other media.
    pub side_px: u32,
}

/// A block exactly as a provider sent it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raw {
    /// Wire format of the block, such as `anthropic`. Other formats must not send it.
    pub format: Arc<str>,
    /// JSON text of the block.
    pub json: Arc<str>,
    /// What `json` says about tools of the provider, once somebody asked. Not stored.
    #[serde(skip)]
    pub(crate) server_summaries: SummaryCell,
}

impl Raw {
    /// A block of this wire format.
    #[must_use]
    pub fn new(format: impl Into<Arc<str>>, json: impl Into<Arc<str>>) -> Self {
        Self {
            format: format.into(),
            json: json.into(),
            server_summaries: SummaryCell::default(),
        }
    }

    /// The format of an adapter block, which a model's adapter adds to a reply, next to the
    /// provider's blocks: what the provider says of the reply as a whole, or a file that the reply
    /// names. It is stored with the conversation, and no provider gets it.
    pub const ADAPTER_BLOCK: &str = "note";

    /// An adapter block with this JSON text, an object whose `type` says what it is.
    #[must_use]
    pub fn adapter_block(json: impl Into<Arc<str>>) -> Self {
        Self::new(Self::ADAPTER_BLOCK, json)
    }

    /// The JSON text of an adapter block; none if the block is another one.
    #[must_use]
    pub fn adapter_block_in(block: &Block) -> Option<&str> {
        match block {
            Block::Opaque(raw) if *raw.format == *Self::ADAPTER_BLOCK => Some(&raw.json),
            _ => None,
        }
    }
}
