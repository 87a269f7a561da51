//! Fallback models: the next model of the program that can be sent the history.
//!
//! A model that cannot be sent the whole history is skipped: a block that only another provider
//! understands, such as signed thinking, would be missing from its request. There is no way back to
//! an earlier model, since the replies of the next one may be unusable for it. A refusal is an
//! answer: no other model is called for content that a provider declines.

use dormouse_proto::message::Block;
use dormouse_proto::model::{ModelError, ModelErrorKind};

use super::State;
use super::decide::Draft;
use dormouse_program::ModelChoice;

impl Draft {
    /// Index of the next model that can be sent the history; `None` if the failure would occur with
    /// any model. O(blocks).
    pub(super) fn fallback(&self, error: &ModelError) -> Option<u32> {
        if error.kind == ModelErrorKind::ContentRefused {
            return None;
        }
        let models = self.state.program.models();
        let next = (self.state.model as usize + 1..models.len())
            .find(|next| self.state.can_be_sent_to(&models[*next]))?;
        u32::try_from(next).ok()
    }
}

impl State {
    fn can_be_sent_to(&self, model: &ModelChoice) -> bool {
        let Some(format) = model.provider.wire_format() else {
            return true;
        };
        let mut blocks = self.messages.iter().flat_map(|message| &message.blocks);
        // A block that one server signed is meaningless to another, even one of the same wire
        // format.
        let is_same = self.model().is_at_the_server_of(model);
        blocks.all(|block| match block {
            Block::Opaque(raw) => is_same && *raw.format == *format,
            Block::Text { .. }
            | Block::ToolUse { .. }
            | Block::ToolResult { .. }
            | Block::Media { .. } => true,
        })
    }
}
