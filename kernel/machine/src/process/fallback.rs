//! Fallback models: chooses the model that is called after the current model has failed.
//!
//! A program lists its models in order. A model is skipped if the history contains a block that
//! only another provider understands, such as signed thinking, since that block would be missing
//! from the request. The process never returns to an earlier model, which may not understand the
//! replies of a later one. If a provider refuses the content, no other model is called: a refusal
//! is an answer.

use std::sync::Arc;

use dormouse_proto::message::{Block, Message, Raw};
use dormouse_proto::model::{ModelError, ModelErrorKind};
use imbl::Vector;

use super::State;
use super::decide::Draft;
use super::evolve::without_server_data;
use dormouse_program::ModelChoice;

impl Draft {
    /// Index of the next model that understands the history; `None` if there is none, or if the
    /// provider refused the content. O(blocks).
    pub(super) fn next_fallback_model(&self, error: &ModelError) -> Option<u32> {
        if error.kind == ModelErrorKind::ContentRefused {
            return None;
        }
        let models = self.state.program.models();
        let next = (self.state.model as usize + 1..models.len())
            .find(|next| self.state.is_history_valid_for(&models[*next]))?;
        u32::try_from(next).ok()
    }
}

impl State {
    /// Messages that were sent to model `index` of the program, as the current model can be sent
    /// them: at another server without what only the first one understands. Words, calls and
    /// answers stay. O(blocks).
    pub(super) fn messages_for_current_model(
        &self,
        messages: Vector<Arc<Message>>,
        index: u32,
    ) -> Vector<Arc<Message>> {
        let model = self.program.models().get(index as usize);
        if model.is_some_and(|model| model.is_at_the_server_of(self.model())) {
            return messages;
        }
        messages
            .iter()
            .map(without_server_data)
            .map(without_opaque_blocks)
            .collect()
    }

    fn is_history_valid_for(&self, model: &ModelChoice) -> bool {
        let Some(format) = model.provider.wire_format() else {
            return true;
        };
        let mut blocks = self.messages.iter().flat_map(|message| &message.blocks);
        // A block that one server signed is meaningless to another server, even if both use the
        // same wire format.
        let is_same_server = self.model().is_at_the_server_of(model);
        blocks.all(|block| match block {
            // An adapter block is kept in a reply for the kernel by the adapter of a model. No
            // provider gets one, and a switch to another server drops one that requests name
            // (`without_server_data`).
            Block::Opaque(raw) if *raw.format == *Raw::ADAPTER_BLOCK => true,
            Block::Opaque(raw) => is_same_server && *raw.format == *format,
            Block::Text { .. }
            | Block::ToolUse { .. }
            | Block::ToolResult { .. }
            | Block::Media { .. } => true,
        })
    }
}

/// The message without blocks that only their provider understands; the same `Arc` if it has none.
/// Adapter blocks stay, since no provider gets them.
fn without_opaque_blocks(message: Arc<Message>) -> Arc<Message> {
    let stays = |block: &Block| match block {
        Block::Opaque(raw) => *raw.format == *Raw::ADAPTER_BLOCK,
        _ => true,
    };
    if message.blocks.iter().all(stays) {
        return message;
    }
    let blocks = message.blocks.iter().filter(|block| stays(block)).cloned();
    Arc::new(Message {
        role: message.role,
        blocks: blocks.collect(),
    })
}
