//! Journal records: facts and images, and their encoding.
//!
//! A journal is an [`Image`] and the [`Fact`]s after it. Both are generic over the representation
//! of contents: the content itself in memory, its [`ContentRef`] in a journal.
//!
//! The order of enum variants and struct fields in this module is part of the format.

mod annotations;
pub mod codec;
mod effects;
mod fact;
pub mod masked;

use std::sync::Arc;

use imbl::{OrdMap, Vector};
use serde::{Deserialize, Serialize};

use crate::alarm::Alarm;
use crate::budget::{Ledger, Pausing};
use crate::id::{CallId, ContentHash, FdId, Pid};
use crate::mail::{Mail, Receipts};
use crate::message::Message;
use crate::model::{StopReason, Usage};
use crate::process::{Exit, Priority};
use crate::tool::{Access, Answer, ExternalTool, ToolSpec};

pub use self::annotations::{Annotation, Annotations, Section};
pub use self::effects::{EffectLog, EffectOutcome, EffectPlace, RecordedEffect};
pub use self::fact::{
    AlarmFact, CallFact, ChildFact, ControlFact, DescriptorFact, EditedArguments, Fact, MailFact,
    TurnFact,
};

/// A reference to a content, which a record stores in place of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentRef {
    /// BLAKE3 hash of the bytes.
    pub hash: ContentHash,
    /// Length in bytes.
    pub len: u64,
}

/// An entry of a descriptor table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<C> {
    /// The content.
    pub content: C,
    /// Characters per page.
    pub page_chars: u32,
    /// Source of the content, such as `tool:grep` or `user_input`.
    pub source: Arc<str>,
    /// Opening time: milliseconds since the epoch, UTC.
    pub opened_ms: u64,
    /// How many bytes were cut off the end, at `max_content_bytes`.
    pub cut_bytes: u64,
    /// Notes of the process.
    pub notes: Annotations,
}

/// Whether a process ends with its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifetime {
    /// Ends with its first finished turn.
    Task,
    /// Waits for more input after a turn.
    Session,
}

/// The phase of a process within its turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Waiting for input.
    Idle,
    /// Waiting for the model.
    Thinking {
        /// Id of the call.
        call: CallId,
    },
    /// Waiting for tools.
    Acting {
        /// Who called the tools.
        caller: Caller,
        /// The tool calls of the turn, in order.
        pending_calls: Vec<PendingCall>,
    },
    /// Waiting for nothing: next, the model is called or the turn ends.
    Ready {
        /// Stop reason of the last reply; `None` after input or tool results.
        stop_reason: Option<StopReason>,
    },
    /// The process has ended.
    Ended {
        /// How it ended.
        exit: Exit,
    },
}

/// Whether a process may start calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// Not stopped.
    #[default]
    Running,
    /// Stopped: starts no call. Results of calls in flight are recorded.
    Stopped,
    /// Stopped, and no call is in flight: the process came back from its journal, or is a copy of a
    /// stopped one.
    StoppedWithoutCalls,
}

/// The caller of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Caller {
    /// The model: the answers enter the conversation.
    Model,
    /// The host: the answer goes to the host.
    Host,
}

/// A tool call of the current turn. It stays in this list until all calls of the turn are answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCall {
    /// Id of the call.
    pub call: CallId,
    /// The tool use id of the provider, or the request id of the host.
    pub id: Arc<str>,
    /// Name of the tool, as given to the model.
    pub tool: Arc<str>,
    /// Arguments as JSON text.
    pub args: Arc<str>,
    /// Whether the call was started and may have had side effects.
    pub started: bool,
    /// Ended children of a fork or spawn, by index.
    pub ended_children: OrdMap<u32, (Pid, Exit)>,
    /// The answer, once there is one.
    pub answer: Option<Answer>,
    /// What a person has to decide about the call, or has decided: the *gate* that the call has to
    /// pass before it begins. `None` if nobody was asked.
    #[serde(default)]
    pub gate: Option<Gate>,
}

/// The state of a call that a person is asked about. The call begins only once it is
/// [`Approved`](Self::Approved).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gate {
    /// The call waits for the person.
    Held(Hold),
    /// The person approved the call.
    Approved {
        /// The hold that was approved.
        hold: Hold,
        /// The change that the person made to the arguments.
        edit: Option<ArgumentEdit>,
    },
}

/// Why and since when a call is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Why the call is held.
    pub reason: HoldReason,
    /// Since when: milliseconds since the epoch, UTC.
    pub since_ms: u64,
    /// When the call is refused if nobody has answered: milliseconds since the epoch, UTC. `None`
    /// if the call waits without limit.
    pub expires_ms: Option<u64>,
}

/// Why a call is held. Further reasons are added at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldReason {
    /// A rule of the program's `tools.ask` matches the call.
    Rule {
        /// The rule, as people read it: `write`, `bash when command matches /rm/`.
        rule: Arc<str>,
    },
    /// The call asks the person a question (`ask_user`). The person's value is the answer.
    Question,
    /// The call does again what was done beyond a point that the process went back to, or may do
    /// so.
    Repeats {
        /// The effect that it repeats; `None` if the effects beyond that point are not known.
        effect: Option<RepeatedEffect>,
    },
    /// The process is speculative ([`Speculation`]), and the call acts outside of it. No person
    /// approves such a call: it goes on if its branch is chosen.
    Speculation,
}

/// An effect that a held call repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatedEffect {
    /// Number of the effect in the [`EffectLog`].
    pub number: u32,
    /// The call that ran.
    pub call: CallId,
    /// The beginning of its answer, for people; `None` if no answer was recorded.
    pub answer: Option<Arc<str>>,
}

/// A change that a person made to the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentEdit {
    /// The arguments as the model wrote them: JSON text.
    pub original: Arc<str>,
    /// The notice that stands before the answer of the call, as the model reads it.
    pub notice: Arc<str>,
}

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
    /// ([`Exit::reopenings`]); one with a lower number was reported before.
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
    /// ([`codec::encode`]) of a list of [`Message`]s. It begins with the summary of the compaction
    /// before, if there is one.
    pub messages: C,
    /// Index of the model that was called with these messages. At another server their raw blocks
    /// mean nothing.
    pub model: u32,
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

impl PendingCall {
    /// The hold of a call that waits for a person.
    #[must_use]
    pub fn hold(&self) -> Option<&Hold> {
        match &self.gate {
            Some(Gate::Held(hold)) if self.answer.is_none() => Some(hold),
            _ => None,
        }
    }

    /// The change that a person made to the arguments.
    #[must_use]
    pub fn edit(&self) -> Option<&ArgumentEdit> {
        match &self.gate {
            Some(Gate::Approved { edit, .. }) => edit.as_ref(),
            _ => None,
        }
    }
}

impl Phase {
    /// The tool calls of the turn, in order; empty unless the process is acting.
    #[must_use]
    pub fn pending_calls(&self) -> &[PendingCall] {
        match self {
            Self::Acting { pending_calls, .. } => pending_calls,
            _ => &[],
        }
    }

    /// The calls that wait for a person, each with its hold.
    pub fn held_calls(&self) -> impl Iterator<Item = (&PendingCall, &Hold)> {
        let calls = self.pending_calls().iter();
        calls.filter_map(|pending_call| Some((pending_call, pending_call.hold()?)))
    }

    /// Whether calls wait for a person, and nothing else of the turn is under way. In a copy of a
    /// process, a held call may have been started: the original did that.
    #[must_use]
    pub fn asks(&self) -> bool {
        let mut open = self
            .pending_calls()
            .iter()
            .filter(|call| call.answer.is_none());
        self.held_calls().next().is_some()
            && open.all(|call| !call.started || call.hold().is_some())
    }

    /// When the next held call expires: milliseconds since the epoch, UTC.
    #[must_use]
    pub fn next_expiry_ms(&self) -> Option<u64> {
        let expiries = self.held_calls().filter_map(|(_, hold)| hold.expires_ms);
        expiries.min()
    }
}

impl<C> Entry<C> {
    /// An entry for a complete content, without notes.
    pub fn new(content: C, page_chars: u32, source: impl Into<Arc<str>>, opened_ms: u64) -> Self {
        Self {
            content,
            page_chars,
            source: source.into(),
            opened_ms,
            cut_bytes: 0,
            notes: Annotations::default(),
        }
    }

    /// Converts the representation of the content.
    ///
    /// # Errors
    /// Errors of `convert`.
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
