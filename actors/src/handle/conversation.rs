//! Reads the conversation of a process at any position of its journal, as its model saw it.

use std::sync::Arc;

use dormouse_proto::id::Pid;
use dormouse_proto::message::Message;
use dormouse_proto::tool::ToolSpec;

use super::branch::Position;
use super::history::image_at;
use super::kernel::Kernel;
use crate::error::KernelError;

/// What the model of a process reads: the parts of its next request. Cloning copies the list of
/// messages, not their texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// The system prompt.
    pub system: Arc<str>,
    /// The tools.
    pub tools: Arc<[ToolSpec]>,
    /// The messages, the oldest first. Large texts are in descriptors, which the messages name.
    pub messages: Vec<Arc<Message>>,
}

impl Kernel {
    /// The conversation of a process at a position: a fact, a checkpoint, or its last durable fact.
    /// The process may run, hibernate or have ended. Costs its journal from the latest snapshot
    /// before that position.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`StoreFailure::Store`](crate::StoreFailure::Store) for an unknown process or fact,
    /// [`NotFound::InCheckpoint`](crate::NotFound::InCheckpoint),
    /// [`StoreFailure::Load`](crate::StoreFailure::Load).
    pub async fn conversation(&self, pid: Pid, at: Position) -> Result<Conversation, KernelError> {
        self.context
            .query_store(move |store, context| {
                let image = image_at(store, context, (pid, at))?;
                Ok(Conversation {
                    system: image.system,
                    tools: image.tools,
                    messages: image.messages.into_iter().collect(),
                })
            })
            .await
    }
}
