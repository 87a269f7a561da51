//! The state of a process in memory.
//!
//! [`State`] has private fields and no serde: [`State::from_image`] validates a stored image
//! (`stored_state.rs`). `model_request.rs` makes the requests to the model. `toolbox.rs` holds the
//! tools of a process, and what its host provides.

use std::sync::Arc;

use dormouse_proto::alarm::{Alarm, AlarmId};
use dormouse_proto::budget::Pausing;
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::{Mail, Receipts};
use dormouse_proto::message::Message;
use dormouse_proto::model::Usage;
use dormouse_proto::process::{Exit, Priority};
use dormouse_proto::record::{
    CompactedMessages, Control, EffectLog, Lifetime, OutputTotals, PendingCall, Phase,
    ReopenedChild, ResultProgress, Speculation,
};
use dormouse_proto::tool::{Access, ExternalTool, ToolSpec};
use imbl::{OrdMap, Vector};

use super::pending_reads::PendingReads;
use super::program_cache::ProgramCache;
use super::toolbox::{HostContext, Toolbox, Tools};
use crate::budget::Account;
use crate::table::Table;
use dormouse_content::Content;
use dormouse_program::{ModelChoice, Program};

/// The complete state of a process: conversation, descriptor table, budget, and its phase in the
/// turn.
///
/// Cloning costs a few pointers: conversation and table are persistent structures with shared
/// nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub(super) pid: Pid,
    pub(super) program: Program,
    /// The files of the program, as one content.
    pub(super) bundle: Content,
    pub(super) host: Arc<HostContext>,
    pub(super) toolbox: Arc<Toolbox>,
    /// The system prompt.
    pub(super) system: Arc<str>,
    pub(super) access: Access,
    /// Number of ancestors; 0 for a root.
    pub(super) depth: u32,
    pub(super) lifetime: Lifetime,
    pub(super) priority: Priority,
    pub(super) messages: Vector<Arc<Message>>,
    /// For each fork that the process descends from, oldest first: how many messages the
    /// conversation had then.
    pub(super) forked_at: Vec<u32>,
    pub(super) mailbox: Vector<Mail>,
    /// Receipts for the messages of each sender, so that a repeated message is delivered once.
    pub(super) receipts: OrdMap<Pid, Receipts>,
    /// Children that run in the background, keyed by the call that created each.
    pub(super) background: OrdMap<CallId, Pid>,
    pub(super) table: Table,
    /// Rises when calls in flight are abandoned, so that their late completions are stale.
    pub(super) epoch: u32,
    /// Sequence number of the next call.
    pub(super) next_seq: u32,
    /// Index of the current model among the models of the program.
    pub(super) model: u32,
    /// Model calls of the current turn.
    pub(super) iterations: u32,
    pub(super) phase: Phase,
    /// Whether the process is running or stopped.
    pub(super) control: Control,
    /// Shared with the views of the process.
    pub(super) budget: Arc<Account>,
    /// Characters that tools produced, and how many of them entered the context.
    pub(super) output_totals: OutputTotals,
    /// Restores so far. Never rolled back, so that `limits.max_restores` holds.
    pub(super) restores: u32,
    /// Messages that compactions moved out of the conversation, oldest first. `messages` then
    /// begins with a summary.
    pub(super) compacted: Vector<CompactedMessages<Content>>,
    /// Tokens of the last request and its reply; 0 if they are unknown.
    pub(super) request_tokens: u64,
    /// Progress of the turn towards the result that the process has to submit.
    pub(super) result: ResultProgress,
    pub(super) alarms: OrdMap<AlarmId, Alarm>,
    /// How many alarms were ever set. Never rolled back, so that no number is used twice.
    pub(super) alarms_set: u32,
    /// How often the process was opened again after it had ended. Never rolled back, so that
    /// `limits.max_reopenings` holds.
    pub(super) reopenings: u32,
    /// Children that were opened again, keyed by the call that created each and the index in it.
    pub(super) reopened_children: OrdMap<(CallId, u32), ReopenedChild>,
    /// What the process did outside of itself.
    pub(super) effects: EffectLog<Content>,
    /// Whether the process is paused at a limit, or below a process that is. Never rolled back.
    pub(super) pausing: Pausing,
    /// Whether the process is a branch that has to win before it may write.
    pub(super) speculation: Speculation,
    /// How many calls of each limited tool the model has made. Never rolled back.
    pub(super) limited_calls: OrdMap<Arc<str>, u32>,
    /// Calls of the provider's tools in the conversation, by tool. Follows from `messages`, and is
    /// not stored.
    pub(super) server_tool_calls: OrdMap<Arc<str>, u32>,
    /// What is being read for the process (`pending_reads.rs`). Not stored.
    pub(super) pending_reads: PendingReads,
}

impl State {
    /// Replaces the tools of the process.
    pub(super) fn set_tools(&mut self, specs: Arc<[ToolSpec]>, external: Arc<[ExternalTool]>) {
        self.toolbox = ProgramCache::for_program(&self.program, &self.host).stored_toolbox(
            &self.program,
            &specs,
            &external,
        );
    }

    /// Publishes the messages as descriptors (`msg:N`) if the program enables that. O(1).
    pub(super) fn update_message_descriptors(&mut self) {
        if let Some(settings) = self
            .program
            .descriptors()
            .filter(|_| self.program.message_references())
        {
            self.table.set_conversation(
                self.messages.clone(),
                self.compacted.clone(),
                settings.page_chars,
            );
        }
    }

    /// The pid that the process has within its tree.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The program that the process runs.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The system prompt. It is composed when the process is created and never changes.
    #[must_use]
    pub fn system(&self) -> &Arc<str> {
        &self.system
    }

    /// The tools of the process. They are chosen when the process is created. Only the host can
    /// replace them, as long as the conversation has not begun.
    #[must_use]
    pub fn tools(&self) -> Tools {
        Tools {
            toolbox: self.toolbox.clone(),
        }
    }

    /// Priority of the process's model calls. Children inherit it.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// The current model: the program's first, or a later one after a failure.
    #[must_use]
    pub fn model(&self) -> &ModelChoice {
        &self.program.models()[self.model as usize]
    }

    /// The descriptor table.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Messages that compactions moved out of the conversation, oldest first.
    #[must_use]
    pub fn compacted(&self) -> &Vector<CompactedMessages<Content>> {
        &self.compacted
    }

    /// Number of the last message that was compacted, counted from 1; 0 if there is none.
    #[must_use]
    pub fn last_compacted(&self) -> u32 {
        self.compacted.last().map_or(0, |compacted| compacted.last)
    }

    /// Number of the last message, counted from 1; 0 if there is none. Compacted messages keep
    /// their numbers, and the summary in their place has none.
    #[must_use]
    pub fn last_message_number(&self) -> usize {
        self.messages_before_first() + self.messages.len()
    }

    /// How many messages are before the first of the conversation. If messages were compacted, the
    /// first is a summary, in the place of the last of them.
    pub(super) fn messages_before_first(&self) -> usize {
        self.last_compacted().saturating_sub(1) as usize
    }

    /// The conversation as the model has it. If messages were compacted, the first is a summary.
    #[must_use]
    pub fn messages(&self) -> &Vector<Arc<Message>> {
        &self.messages
    }

    /// Number of messages in the mailbox.
    #[must_use]
    pub fn waiting_messages(&self) -> usize {
        self.mailbox.len()
    }

    /// The background children, keyed by the call that created each.
    #[must_use]
    pub fn background(&self) -> &OrdMap<CallId, Pid> {
        &self.background
    }

    /// The phase of the turn.
    #[must_use]
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Whether the process starts nothing: a signal has stopped it, or it is paused at a limit, or
    /// a process above it is.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped_by_signal() || self.is_held_by_limit()
    }

    /// Whether a signal has stopped the process. It starts nothing until it is continued.
    #[must_use]
    pub fn is_stopped_by_signal(&self) -> bool {
        self.control != Control::Running
    }

    /// The exit of an ended process.
    #[must_use]
    pub fn exit(&self) -> Option<&Exit> {
        match &self.phase {
            Phase::Ended { exit } => Some(exit),
            _ => None,
        }
    }

    /// The result that the process submitted in its last turn, as JSON text.
    #[must_use]
    pub fn submitted_result(&self) -> Option<&Arc<str>> {
        self.result.value.as_ref()
    }

    /// Tokens used by the process itself, without its children.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.budget.own_usage()
    }

    /// The account of the process: limits, usage and reservations of its subtree.
    #[must_use]
    pub fn budget(&self) -> &Arc<Account> {
        &self.budget
    }

    /// The account, to be changed. A view that shares it keeps the earlier one.
    pub(super) fn budget_mut(&mut self) -> &mut Account {
        Arc::make_mut(&mut self.budget)
    }

    /// Characters that tools produced, and how many of them entered the context.
    #[must_use]
    pub fn output_totals(&self) -> OutputTotals {
        self.output_totals
    }

    pub(super) fn settings(&self) -> Option<&DescriptorSettings> {
        self.program.descriptors()
    }

    pub(super) fn next_call(&self) -> CallId {
        CallId {
            epoch: self.epoch,
            seq: self.next_seq,
        }
    }

    pub(super) fn pending_calls(&self) -> &[PendingCall] {
        self.phase.pending_calls()
    }

    /// Whether a call of the turn has no answer yet. Once the last one is answered, the turn has no
    /// calls.
    pub(super) fn is_open(&self, call: CallId) -> bool {
        let mut pending_calls = self.pending_calls().iter();
        pending_calls.any(|pending_call| pending_call.call == call && pending_call.answer.is_none())
    }

    /// A started call without an answer; `None` if the completion for it is stale (CALL-1).
    pub(super) fn call_in_flight(&self, call: CallId) -> Option<&PendingCall> {
        self.pending_calls().iter().find(|pending_call| {
            pending_call.call == call && pending_call.started && pending_call.answer.is_none()
        })
    }
}
