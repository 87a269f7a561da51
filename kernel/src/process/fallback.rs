//! Who is asked when a model fails: the next of the program's models, if the history can be sent
//! there.
//!
//! A block that only another provider understands, such as thinking with its signature, would be
//! missing from what the next model is sent. So a model that cannot be sent all of it is passed
//! over. There is no way back: what the next one says may be what the first one cannot be sent. A
//! refusal is an answer: nobody else is asked for what a provider declines.

use dormouse_proto::message::Block;
use dormouse_proto::model::{ModelError, ModelErrorKind};

use super::State;
use super::decide::Draft;
use crate::program::ModelChoice;

impl Draft {
    /// The next model that can be sent the history, where the failure is one that another model may
    /// not have. O(blocks).
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
        // What is sealed by one server is nothing to another, be it of the same format.
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
