//! Conversations for the tests of this module.

use std::sync::Arc;

use dormouse_proto::id::Pid;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::model::Request;

/// A request of the program `auditor`.
pub(crate) fn request(messages: Vec<Message>) -> Request {
    Request {
        pid: Pid(1),
        program: "auditor".into(),
        model: "scripted".into(),
        system: "you audit".into(),
        tools: Arc::from([]),
        messages: messages.into_iter().map(Arc::new).collect(),
        parameters: Arc::default(),
        forked_at: Vec::new(),
        provider_tools: Default::default(),
        media: Default::default(),
    }
}

/// A message of the user.
pub(crate) fn said(text: &str) -> Message {
    Message::user(text)
}

/// A message in which the model calls a tool.
pub(crate) fn used(id: &str, name: &str, args: &str) -> Message {
    let block = Block::ToolUse {
        id: id.into(),
        name: name.into(),
        args: args.into(),
        raw: None,
    };
    Message {
        role: Role::Assistant,
        blocks: vec![block],
    }
}

/// A message with the result of a tool.
pub(crate) fn answer(id: &str, text: &str) -> Message {
    Message {
        role: Role::User,
        blocks: vec![Block::ToolResult {
            id: id.into(),
            text: text.into(),
            is_error: false,
        }],
    }
}
