//! What is journalled: facts and images, and their bytes.
//!
//! A journal is an [`Image`] and the [`Fact`]s after it. Both are generic over how they hold
//! content: live in memory they hold the content itself, in a journal its [`ContentRef`].

pub mod codec;
mod fact;
pub mod masked;
mod notes;

use std::sync::Arc;

use imbl::{OrdMap, Vector};
use serde::{Deserialize, Serialize};

use crate::budget::Ledger;
use crate::id::{CallId, ContentHash, FdId, Pid};
use crate::mail::{Heard, Mail};
use crate::message::Message;
use crate::model::{StopReason, Usage};
use crate::process::{Exit, Priority};
use crate::tool::{Access, Answer, OutsideTool, ToolSpec};

pub use self::fact::{CallFact, ChildFact, ControlFact, DescriptorFact, Fact, MailFact, TurnFact};
pub use self::notes::{Note, Notes, Section};

/// A content by name: what a record holds in place of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentRef {
    /// The BLAKE3 hash of the bytes.
    pub hash: ContentHash,
    /// Their number.
    pub len: u64,
}

/// A descriptor as it is journalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<C> {
    /// What it holds.
    pub content: C,
    /// Characters per page.
    pub page_chars: u32,
    /// Where the content comes from, for example `tool:grep` or `user_input`.
    pub source: Arc<str>,
    /// When it was opened: milliseconds since the epoch, UTC.
    pub opened_ms: u64,
    /// Bytes that came after the content and were cut off at the cap.
    pub cut_bytes: u64,
    /// What the process noted of it.
    pub notes: Notes,
}

/// How long a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifetime {
    /// It ends with its first finished turn.
    Task,
    /// After a turn it waits for further input.
    Session,
}

/// Where a process stands in its turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It waits for input.
    Idle,
    /// It waits for the model.
    Thinking {
        /// The call.
        call: CallId,
    },
    /// It waits for tools.
    Acting {
        /// Who asked for them.
        caller: Caller,
        /// The tool uses of the turn, in order.
        slots: Vec<Slot>,
    },
    /// Nothing is waited for: the model is to be asked, or the turn to be ended.
    Ready {
        /// How the model's last reply stopped, where that is what comes last; none after an input
        /// or answers.
        stopped: Option<StopReason>,
    },
    /// It has ended.
    Ended {
        /// How.
        exit: Exit,
    },
}

/// Whether a process goes on by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// It does.
    #[default]
    Running,
    /// It begins no call. What was in flight when it was stopped may still come back, and is
    /// recorded.
    Stopped,
    /// It begins no call, and nothing is in flight: it was stopped in an earlier life.
    Frozen,
}

/// Who asked for a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Caller {
    /// The model: the answers go into the conversation.
    Model,
    /// The host: the answer goes to the host.
    Host,
}

/// One tool use of the current turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// The call.
    pub call: CallId,
    /// The provider's name of the tool use, or the host's of its call.
    pub id: Arc<str>,
    /// The tool, by the name that the model was given.
    pub tool: Arc<str>,
    /// The arguments: JSON text.
    pub args: Arc<str>,
    /// Whether the call may have touched the world.
    pub called: bool,
    /// The children of a fork or spawn that have ended, by index.
    pub ended: OrdMap<u32, (Pid, Exit)>,
    /// The answer, when it has come.
    pub answer: Option<Answer>,
}

/// A process without its number: everything that a fork, a spawn or a restore starts from.
///
/// Conversation, table and tools are held as a running process holds them, so that to take an image
/// or to start from one copies nothing of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "C: Clone + Deserialize<'de>"))]
pub struct Image<C: Clone> {
    /// The files that the program was compiled from, as a content: see `kernel::program::Bundle`.
    pub bundle: C,
    /// Which program of the bundle.
    pub program: Arc<str>,
    /// The system prompt, frozen at birth.
    pub system: Arc<str>,
    /// The tools, frozen at birth.
    pub tools: Arc<[ToolSpec]>,
    /// Those of them that run outside of the machine: where each is, and how it is run.
    pub outside: Arc<[OutsideTool]>,
    /// What the process may do.
    pub access: Access,
    /// How many ancestors it has.
    pub depth: u32,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// How soon its model calls are made where others wait.
    pub priority: Priority,
    /// The conversation.
    pub messages: Vector<Arc<Message>>,
    /// How many messages it had at each fork that the process descends from, the oldest first.
    pub forked_at: Vec<u32>,
    /// Messages that wait to be heard.
    pub mailbox: Vec<Mail>,
    /// Which messages of other processes were received.
    pub heard: Vec<(Pid, Heard)>,
    /// The children that run while no call waits for them, by the call that made each.
    pub background: Vec<(CallId, Pid)>,
    /// The descriptor table.
    pub table: OrdMap<FdId, Entry<C>>,
    /// The number of the next descriptor.
    pub next_fd: u32,
    /// The epoch of current calls.
    pub epoch: u32,
    /// The sequence number of the next call.
    pub next_seq: u32,
    /// Which of its program's models is asked, from 0.
    pub model: u32,
    /// Model calls of the current turn.
    pub iterations: u32,
    /// Where it stands.
    pub phase: Phase,
    /// Whether it goes on from there by itself.
    pub control: Control,
    /// Tokens used so far by the process itself.
    pub usage: Usage,
    /// What it and all below it may use, and what is reserved and used below it.
    pub budget: Ledger,
    /// Characters that tools produced so far, and of these, how many entered the context.
    pub tally: Tally,
    /// How often it went back to a checkpoint.
    pub restores: u32,
}

/// What descriptors save: characters produced by tools against characters that entered a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Characters that tools produced.
    pub produced_chars: u64,
    /// Characters of tool answers that entered the context.
    pub entered_chars: u64,
}

impl<C> Entry<C> {
    /// A descriptor of a whole content, with nothing noted of it.
    pub fn new(content: C, page_chars: u32, source: impl Into<Arc<str>>, opened_ms: u64) -> Self {
        Self {
            content,
            page_chars,
            source: source.into(),
            opened_ms,
            cut_bytes: 0,
            notes: Notes::default(),
        }
    }

    /// The same entry with its content held in another way.
    ///
    /// # Errors
    /// What `convert` fails with.
    pub fn try_map<D, E>(self, convert: &mut impl FnMut(C) -> Result<D, E>) -> Result<Entry<D>, E> {
        let Self {
            content,
            page_chars,
            source,
            opened_ms,
            cut_bytes,
            notes,
        } = self;
        Ok(Entry {
            content: convert(content)?,
            page_chars,
            source,
            opened_ms,
            cut_bytes,
            notes,
        })
    }
}

impl<C: Clone> Image<C> {
    /// The contents that it names: of its program first. They are those that
    /// [`try_map`](Self::try_map) converts.
    pub fn contents(&self) -> impl Iterator<Item = &C> {
        std::iter::once(&self.bundle).chain(self.table.values().map(|entry| &entry.content))
    }

    /// The same image with its contents held in another way.
    ///
    /// # Errors
    /// What `convert` fails with.
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
        Ok(Image {
            bundle,
            table,
            program: self.program,
            system: self.system,
            tools: self.tools,
            outside: self.outside,
            access: self.access,
            depth: self.depth,
            lifetime: self.lifetime,
            priority: self.priority,
            messages: self.messages,
            forked_at: self.forked_at,
            mailbox: self.mailbox,
            heard: self.heard,
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
            tally: self.tally,
            restores: self.restores,
        })
    }
}
