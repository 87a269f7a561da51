//! Conversations, as models see them and folded.

use dormouse_actors::handle::Conversation;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::server_tool::{ServerBlock, server_blocks};
use dormouse_proto::tool::ToolSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most characters of an argument or an answer of a call in a folded conversation.
const FOLDED_CHARS: usize = 200;

/// A part of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConversationView {
    /// The system prompt.
    pub system: String,
    /// The tools, as the model is told of them.
    pub tools: Vec<ToolView>,
    /// The number of the last message that was compacted; 0 if there is none.
    pub compacted: usize,
    /// How many messages the conversation has, on all pages.
    pub total: usize,
    /// The messages, the oldest first.
    pub messages: Vec<MessageView>,
    /// The parameter `after` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
}

impl ConversationView {
    /// A conversation without its messages.
    pub(crate) fn head(conversation: &Conversation) -> Self {
        Self {
            system: conversation.system.to_string(),
            tools: conversation.tools.iter().map(ToolView::from).collect(),
            compacted: conversation.compacted,
            total: 0,
            messages: Vec::new(),
            next: None,
        }
    }
}

/// A tool, as a model is told of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolView {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub schema: serde_json::Value,
}

impl From<&ToolSpec> for ToolView {
    fn from(spec: &ToolSpec) -> Self {
        Self {
            name: spec.name.to_string(),
            description: spec.description.to_string(),
            schema: serde_json::json!(&*spec.schema),
        }
    }
}

/// A message, as `dormouse messages --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MessageView {
    /// Its number, from 1; `null` for the summary of compacted messages.
    pub message: Option<usize>,
    /// `user`, `assistant` or `system`.
    pub role: String,
    /// Its parts, in order.
    pub blocks: Vec<BlockView>,
    /// The first and the last message that a summary stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_of: Option<[usize; 2]>,
}

impl MessageView {
    /// A message with its number; `compacted` is the last message that a summary stands for.
    #[must_use]
    pub fn new(number: Option<usize>, message: &Message, compacted: usize) -> Self {
        Self {
            message: number,
            role: Self::role_word(message.role).to_owned(),
            blocks: message.blocks.iter().map(BlockView::from).collect(),
            summary_of: number.is_none().then_some([1, compacted]),
        }
    }

    /// The message with the arguments and answers of its calls cut to their beginning.
    #[must_use]
    pub fn folded(mut self) -> Self {
        self.blocks.iter_mut().for_each(BlockView::fold);
        self
    }

    /// The word for a role.
    #[must_use]
    pub fn role_word(role: Role) -> &'static str {
        match role {
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BlockView {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// The model calls a tool.
    ToolUse {
        /// The id by which the answer names the call.
        id: String,
        /// The tool.
        name: String,
        /// The arguments: JSON text.
        args: String,
        /// The number of their characters, if only the beginning is here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folded_chars: Option<usize>,
    },
    /// The answer of a tool.
    ToolResult {
        /// The id of the call.
        id: String,
        /// The answer.
        text: String,
        /// Whether it is an error.
        is_error: bool,
        /// The number of its characters, if only the beginning is here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folded_chars: Option<usize>,
    },
    /// An image, or other content that is not text.
    Media {
        /// The descriptor that holds it.
        fd: String,
        /// What it is.
        media_type: String,
    },
    /// A part that only its provider understands.
    Opaque {
        /// The wire format of the provider.
        format: String,
        /// The part, as the provider sent it: JSON text.
        json: String,
        /// What tools of the provider did in it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        server_tools: Vec<ServerToolView>,
    },
}

impl From<&Block> for BlockView {
    fn from(block: &Block) -> Self {
        match block {
            Block::Text { text, .. } => Self::Text {
                text: text.to_string(),
            },
            Block::ToolUse { id, name, args, .. } => Self::ToolUse {
                id: id.to_string(),
                name: name.to_string(),
                args: args.to_string(),
                folded_chars: None,
            },
            Block::ToolResult { id, text, is_error } => Self::ToolResult {
                id: id.to_string(),
                text: text.to_string(),
                is_error: *is_error,
                folded_chars: None,
            },
            Block::Media { media, .. } => Self::Media {
                fd: media.fd.to_string(),
                media_type: media.media_type.to_string(),
            },
            Block::Opaque(raw) => Self::Opaque {
                format: raw.format.to_string(),
                json: raw.json.to_string(),
                server_tools: server_blocks(block)
                    .iter()
                    .map(ServerToolView::from)
                    .collect(),
            },
        }
    }
}

impl BlockView {
    fn fold(&mut self) {
        match self {
            Self::ToolUse {
                args: text,
                folded_chars,
                ..
            }
            | Self::ToolResult {
                text, folded_chars, ..
            } => {
                let Some((end, _)) = text.char_indices().nth(FOLDED_CHARS) else {
                    return;
                };
                *folded_chars = Some(text.chars().count());
                text.truncate(end);
            }
            Self::Text { .. } | Self::Media { .. } | Self::Opaque { .. } => {}
        }
    }
}

/// What a tool of the provider did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerToolView {
    /// The tool.
    pub tool: String,
    /// The number of calls.
    pub calls: u32,
    /// The arguments, as JSON or as text.
    pub args: String,
    /// What it returned.
    pub output: Option<ServerOutputView>,
}

/// What a tool of the provider returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerOutputView {
    /// The text.
    pub text: String,
    /// Whether it is an error.
    pub is_error: bool,
    /// The types of further content.
    pub media: Vec<String>,
    /// Files that could not be fetched.
    pub missing: Vec<String>,
}

impl From<&ServerBlock> for ServerToolView {
    fn from(block: &ServerBlock) -> Self {
        let output = block.output.as_ref().map(|output| ServerOutputView {
            text: output.text.to_string(),
            is_error: output.is_error,
            media: output
                .media
                .iter()
                .map(|media| media.media_type.to_string())
                .collect(),
            missing: output.missing.iter().map(ToString::to_string).collect(),
        });
        Self {
            tool: block.tool.to_string(),
            calls: block.calls,
            args: block.input.to_string(),
            output,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_cuts_calls_and_answers_at_characters_and_nothing_else() {
        let long = "ä".repeat(FOLDED_CHARS + 1);
        let text = |text: &str| BlockView::Text {
            text: text.to_owned(),
        };
        let answer = |text: &str, folded_chars| BlockView::ToolResult {
            id: "1".into(),
            text: text.to_owned(),
            is_error: false,
            folded_chars,
        };
        let message = MessageView {
            message: Some(1),
            role: "user".into(),
            blocks: vec![text(&long), answer(&long, None), answer("short", None)],
            summary_of: None,
        };
        let expected = [
            text(&long),
            answer(&"ä".repeat(FOLDED_CHARS), Some(FOLDED_CHARS + 1)),
            answer("short", None),
        ];
        assert_eq!(message.folded().blocks, expected);
    }
}
