//! Reads the conversation of a process at any position of its journal, as its model saw it, and the
//! messages that compactions moved out of it.

use std::sync::Arc;

use dormouse_kernel::process::Image;
use dormouse_proto::id::Pid;
use dormouse_proto::message::Message;
use dormouse_proto::record::codec;
use dormouse_proto::tool::ToolSpec;

use super::branch::Position;
use super::history::image_at;
use super::kernel::Kernel;
use crate::error::KernelError;
use crate::recovery::LoadError;

/// What the model of a process reads: the parts of its next request. Cloning copies the list of
/// messages, not their texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// The system prompt.
    pub system: Arc<str>,
    /// The tools.
    pub tools: Arc<[ToolSpec]>,
    /// The messages, the oldest first. Large texts are in descriptors, which the messages name. If
    /// messages were compacted, the first is the summary in their place.
    pub messages: Vec<Arc<Message>>,
    /// Number of the last message that was compacted, counted from 1; 0 if there is none.
    pub compacted: usize,
}

impl Conversation {
    /// The messages with their numbers, counted from 1. The summary of compacted messages has none.
    pub fn numbered(&self) -> impl Iterator<Item = (Option<usize>, &Arc<Message>)> {
        let summaries = usize::from(self.compacted > 0);
        let number = move |index: usize| {
            let number = self.compacted + index + 1 - summaries;
            (index >= summaries).then_some(number)
        };
        self.messages
            .iter()
            .enumerate()
            .map(move |(index, message)| (number(index), message))
    }
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
                    compacted: last_compacted(&image),
                    system: image.system,
                    tools: image.tools,
                    messages: image.messages.into_iter().collect(),
                })
            })
            .await
    }

    /// All messages of a process at a position, the oldest first, those that were compacted
    /// included and without the summaries in their place: message N is at index N - 1. Costs what
    /// [`Kernel::conversation`] costs, and a read of every compacted message.
    ///
    /// # Errors
    /// As [`Kernel::conversation`]; [`StoreFailure::Load`](crate::StoreFailure::Load) also if
    /// compacted messages are damaged or lost.
    pub async fn all_messages(
        &self,
        pid: Pid,
        at: Position,
    ) -> Result<Vec<Arc<Message>>, KernelError> {
        self.context
            .query_store(move |store, context| {
                let image = image_at(store, context, (pid, at))?;
                Ok(all_messages(pid, image)?)
            })
            .await
    }
}

fn last_compacted(image: &Image) -> usize {
    image
        .compacted
        .last()
        .map_or(0, |compacted| compacted.last as usize)
}

fn all_messages(pid: Pid, image: Image) -> Result<Vec<Arc<Message>>, LoadError> {
    let mut all = Vec::new();
    // After a compaction, the first message is a summary.
    let add = |all: &mut Vec<_>, messages: Vec<Arc<Message>>, is_first: bool| {
        all.extend(messages.into_iter().skip(usize::from(!is_first)));
    };
    for (index, compacted) in image.compacted.iter().enumerate() {
        let bytes = compacted.messages.unlimited_reader().bytes()?;
        let messages = codec::decode(&bytes).map_err(|source| LoadError::Record { pid, source })?;
        add(&mut all, messages, index == 0);
    }
    let is_first = image.compacted.is_empty();
    add(&mut all, image.messages.into_iter().collect(), is_first);
    Ok(all)
}
