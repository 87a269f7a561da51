//! The image: the stored state of a process.
//!
//! The order of enum variants and struct fields in this module is part of the format.

use std::sync::Arc;

use imbl::{OrdMap, Vector};
use serde::{Deserialize, Serialize};

use super::{Control, EffectLog, Entry, Lifetime, Phase};
use crate::alarm::Alarm;
use crate::budget::{Ledger, Pausing};
use crate::id::{CallId, FdId, Pid};
use crate::mail::{Mail, Receipts};
use crate::message::Message;
use crate::model::Usage;
use crate::process::Priority;
use crate::tool::{Access, ExternalTool, ToolSpec};

/// The stored state of a process, without its pid. A fork, a spawn or a restore starts from an
/// image.
///
/// Conversation, table and tools have the same persistent representation as in a running process,
/// so that an image of a running process shares them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "C: Clone + Deserialize<'de>"))]
pub struct Image<C: Clone> {
    /// Files of the program, as a content: the encoding of a `dormouse_program::Bundle`.
    pub bundle: C,
    /// Key of the program within the bundle.
    pub program: Arc<str>,
    /// The system prompt, frozen at birth.
    pub system: Arc<str>,
    /// The tools, frozen at birth.
    pub tools: Arc<[ToolSpec]>,
    /// The tools that run outside of the machine, and how each is called.
    pub external: Arc<[ExternalTool]>,
    /// Access level of the process.
    pub access: Access,
    /// Number of ancestors.
    pub depth: u32,
    /// Whether the process ends with its turn.
    pub lifetime: Lifetime,
    /// Priority of its model calls.
    pub priority: Priority,
    /// The conversation.
    pub messages: Vector<Arc<Message>>,
    /// For each fork among its ancestors, oldest first: how many messages the conversation had
    /// then.
    pub forked_at: Vec<u32>,
    /// Messages that wait for the next turn.
    pub mailbox: Vec<Mail>,
    /// Receipts for messages of other processes, by sender.
    pub receipts: Vec<(Pid, Receipts)>,
    /// Background children, by the call that made each.
    pub background: Vec<(CallId, Pid)>,
    /// The descriptor table.
    pub table: OrdMap<FdId, Entry<C>>,
    /// Next free descriptor number.
    pub next_fd: u32,
    /// Epoch of current calls.
    pub epoch: u32,
    /// Sequence number of the next call.
    pub next_seq: u32,
    /// Index of the current model among those of the program.
    pub model: u32,
    /// Model calls in the current turn.
    pub iterations: u32,
    /// Phase within the turn.
    pub phase: Phase,
    /// Whether the process is stopped.
    pub control: Control,
    /// Usage of the process itself.
    pub usage: Usage,
    /// Limits of the subtree, and reservations and usage below the process.
    pub budget: Ledger,
    /// Characters that tools produced, and how many of them entered the context.
    pub output_totals: OutputTotals,
    /// Number of restores.
    pub restores: u32,
    /// Messages that compactions moved out of the conversation, oldest first. `messages` then
    /// begins with a summary.
    #[serde(default)]
    pub compacted: Vector<CompactedMessages<C>>,
    /// Number of the last descriptor `history:N`; 0 if there is none.
    #[serde(default)]
    pub last_history: u32,
    /// Tokens of the last request and its reply; 0 if they are unknown.
    #[serde(default)]
    pub request_tokens: u64,
    /// Progress of the turn towards a result.
    #[serde(default)]
    pub result: ResultProgress,
    /// Open alarms.
    #[serde(default)]
    pub alarms: Vec<Alarm>,
    /// How many alarms were ever set.
    #[serde(default)]
    pub alarms_set: u32,
    /// How often the process was opened again after it had ended.
    #[serde(default)]
    pub reopenings: u32,
    /// Children that had ended, were opened again, and run in the background.
    #[serde(default)]
    pub reopened_children: Vec<ReopenedChild>,
    /// What the process did outside of itself.
    #[serde(default)]
    pub effects: EffectLog<C>,
    /// Whether limits keep the process from beginning anything.
    #[serde(default)]
    pub pausing: Pausing,
    /// Whether the process is a branch that has to win before it may write.
    #[serde(default)]
    pub speculation: Speculation,
    /// How many calls of each limited tool its model has made, by the name that the program uses.
    #[serde(default)]
    pub limited_calls: Vec<(Arc<str>, u32)>,
}

impl<C: Clone> Image<C> {
    /// The contents of the image, its program first: the same that [`try_map`](Self::try_map)
    /// converts.
    pub fn contents(&self) -> impl Iterator<Item = &C> {
        let compacted = self.compacted.iter().map(|compacted| &compacted.messages);
        std::iter::once(&self.bundle)
            .chain(self.table.values().map(|entry| &entry.content))
            .chain(compacted)
            .chain(self.effects.contents())
    }

    /// Number of the last message of the conversation, counted from 1; 0 if there is none.
    /// Compacted messages keep their numbers.
    #[must_use]
    pub fn last_message_number(&self) -> usize {
        let compacted = self.compacted.last().map_or(0, |compacted| compacted.last);
        compacted.saturating_sub(1) as usize + self.messages.len()
    }

    /// The numbers that a running process counts up. Who loads an image checks that they are far
    /// below `u32::MAX`.
    #[must_use]
    pub fn counters(&self) -> [u32; 14] {
        [
            self.epoch,
            self.next_seq,
            self.next_fd,
            self.depth,
            self.iterations,
            self.restores,
            self.last_history,
            self.compacted.last().map_or(0, |compacted| compacted.last),
            self.result.failed_attempts,
            self.alarms_set,
            self.reopenings,
            self.pausing.raises,
            self.effects.dropped,
            self.effects.own_from,
        ]
    }

    /// Converts the representation of the contents.
    ///
    /// # Errors
    /// Errors of `convert`.
    pub fn try_map<D: Clone, E>(
        self,
        convert: &mut impl FnMut(C) -> Result<D, E>,
    ) -> Result<Image<D>, E> {
        let bundle = convert(self.bundle)?;
        let table = self
            .table
            .into_iter()
            .map(|(id, entry)| Ok((id, entry.try_map(convert)?)))
            .collect::<Result<_, E>>()?;
        let compacted = self
            .compacted
            .into_iter()
            .map(|compacted| compacted.try_map(convert))
            .collect::<Result<_, E>>()?;
        let effects = self.effects.try_map(convert)?;
        Ok(Image {
            bundle,
            table,
            program: self.program,
            system: self.system,
            tools: self.tools,
            external: self.external,
            access: self.access,
            depth: self.depth,
            lifetime: self.lifetime,
            priority: self.priority,
            messages: self.messages,
            forked_at: self.forked_at,
            mailbox: self.mailbox,
            receipts: self.receipts,
            background: self.background,
            next_fd: self.next_fd,
            epoch: self.epoch,
            next_seq: self.next_seq,
            model: self.model,
            iterations: self.iterations,
            phase: self.phase,
            control: self.control,
            usage: self.usage,
            budget: self.budget,
            output_totals: self.output_totals,
            restores: self.restores,
            compacted,
            last_history: self.last_history,
            request_tokens: self.request_tokens,
            result: self.result,
            alarms: self.alarms,
            alarms_set: self.alarms_set,
            reopenings: self.reopenings,
            reopened_children: self.reopened_children,
            effects,
            pausing: self.pausing,
            speculation: self.speculation,
            limited_calls: self.limited_calls,
        })
    }
}

/// Whether a process may act outside of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Speculation {
    /// The process is no speculative one.
    #[default]
    None,
    /// The process is one of several branches of a point. Each call of its model that acts outside
    /// of it is held until the host chooses this branch.
    Branch,
    /// The process is a child of the tool `explore`. It ends at the first call of its model that
    /// acts outside of it or writes a temporary file, and proposes it to its parent.
    Child,
}

/// A child that had ended, was opened again, and runs in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReopenedChild {
    /// Call that made the child.
    pub call: CallId,
    /// Index of the child within its call, from 0.
    pub index: u32,
    /// Pid of the child.
    pub child: Pid,
    /// How often the child was opened again. The parent waits for the end with this number
    /// ([`Exit::reopenings`](crate::process::Exit::reopenings)); one with a lower number was
    /// reported before.
    pub reopenings: u32,
}

/// Messages that one compaction moved out of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactedMessages<C> {
    /// Number of the descriptor `history:N` that shows their text.
    pub history: u32,
    /// Number of the last one, counted from 1.
    pub last: u32,
    /// As [`Image::forked_at`], before the compaction.
    pub forked_at: Vec<u32>,
    /// The conversation before the compaction, up to the last of these messages: the encoding
    /// ([`codec::encode`](super::codec::encode)) of a list of [`Message`]s. It begins with the
    /// summary of the compaction before, if there is one.
    pub messages: C,
    /// Index of the model that was called with these messages. At another server their raw blocks
    /// mean nothing.
    pub model: u32,
}

impl<C> CompactedMessages<C> {
    /// Converts the representation of the content.
    ///
    /// # Errors
    /// Errors of `convert`.
    pub fn try_map<D, E>(
        self,
        convert: &mut impl FnMut(C) -> Result<D, E>,
    ) -> Result<CompactedMessages<D>, E> {
        let Self {
            history,
            last,
            forked_at,
            messages,
            model,
        } = self;
        Ok(CompactedMessages {
            history,
            last,
            forked_at,
            messages: convert(messages)?,
            model,
        })
    }
}

/// How far the current turn, or the last one, is with the result that the process has to submit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultProgress {
    /// Attempts that failed in the turn.
    pub failed_attempts: u32,
    /// The submitted value, as JSON text.
    pub value: Option<Arc<str>>,
}

/// Counts of the characters that tools produced and of those that entered the context. Their
/// difference is what descriptors kept out of the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputTotals {
    /// Characters that tools produced.
    pub produced_chars: u64,
    /// Characters of tool answers that entered the context.
    pub entered_chars: u64,
}
