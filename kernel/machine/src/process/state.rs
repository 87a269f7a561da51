//! The state of a process in memory, and its conversion from and to an [`Image`], the form in which
//! it is stored.
//!
//! [`State`] has private fields and no serde: [`State::from_image`] validates a stored image.
//! `toolbox.rs` holds the tools of a process, and what its host provides.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_proto::alarm::{Alarm, AlarmId};
use dormouse_proto::budget::{Amount, Pausing};
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::id::{CallId, FdId, Pid};
use dormouse_proto::mail::{Mail, Receipts};
use dormouse_proto::message::{Block, Message};
use dormouse_proto::model::{Request, Usage};
use dormouse_proto::process::{Exit, Priority};
use dormouse_proto::record::{
    CallFact, CompactedMessages, Control, EffectLog, Entry, Lifetime, OutputTotals, PendingCall,
    Phase, ReopenedChild, ResultProgress, Speculation,
};
use dormouse_proto::tool::{Access, Answer, ExternalTool, ToolSpec};
use imbl::{OrdMap, Vector};
use serde_json::{Map, Value};

use super::pending_reads::PendingReads;
use super::program_cache::ProgramCache;
use super::toolbox::{HostContext, Toolbox, Tools};
use super::{Fact, Image};
use crate::budget::Account;
use crate::table::Table;
use crate::table::attachment::MediaBudget;
use crate::tool::PendingSummary;
use dormouse_content::Content;
use dormouse_program::{ModelChoice, Program};

/// The parameter names by which providers limit the tokens of a reply.
const REPLY_LIMIT_NAMES: [&str; 4] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxOutputTokens",
];

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

/// Why an image cannot be loaded as a process: it is damaged or was edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The descriptor table is inconsistent.
    #[error("the descriptor table of the image is invalid: {0}")]
    Table(String),
    /// The image waits for a call id that was never allocated.
    #[error("the image waits for call {call}, but the next call is {epoch}.{next_seq}")]
    Call {
        /// Call that the image waits for.
        call: CallId,
        /// Epoch of the image.
        epoch: u32,
        /// Sequence number of the image's next call.
        next_seq: u32,
    },
    /// A counter of the image is so high that it could overflow.
    #[error("a counter of the image is {count}, more than the maximum of {MAX_COUNT}")]
    Count {
        /// Value of the counter.
        count: u32,
    },
    /// The compacted messages of the image are out of order, or their summary is missing.
    #[error("the compacted messages of the image are out of order, or have no summary")]
    Compacted,
    /// The image names a model that its program does not have.
    #[error("the image uses model {requested} of its program, which has {models} models")]
    Model {
        /// Number of the model, counted from 1.
        requested: u32,
        /// Models of the program.
        models: usize,
    },
    /// The image belongs to another program.
    #[error("the image runs program {image}, not {program}")]
    Program {
        /// Program named in the image.
        image: Arc<str>,
        /// Program that the image was loaded with.
        program: String,
    },
}

impl State {
    /// Loads a process from an image. `pid` is the number that the process has within its tree (its
    /// local id).
    /// Inspects each descriptor and copies none.
    ///
    /// # Errors
    /// [`StateError`] if the image is inconsistent, or does not belong to `program`.
    pub fn from_image(
        pid: Pid,
        program: Program,
        host: Arc<HostContext>,
        image: Image,
    ) -> Result<Self, StateError> {
        if *image.program != *program.key() {
            return Err(StateError::Program {
                image: image.program,
                program: program.key().to_owned(),
            });
        }
        check_model(&program, image.model)?;
        check_counts(&image)?;
        check_calls(&image)?;
        check_compacted(&image)?;
        let table = build_table(image.table, image.next_fd, image.last_history)?;
        let mut state = Self {
            pid,
            toolbox: ProgramCache::for_program(&program, &host).stored_toolbox(
                &program,
                &image.tools,
                &image.external,
            ),
            host,
            program,
            bundle: image.bundle,
            system: image.system,
            access: image.access,
            depth: image.depth,
            lifetime: image.lifetime,
            priority: image.priority,
            messages: image.messages,
            forked_at: image.forked_at,
            mailbox: image.mailbox.into(),
            receipts: image.receipts.into_iter().collect(),
            background: image.background.into_iter().collect(),
            table,
            epoch: image.epoch,
            next_seq: image.next_seq,
            model: image.model,
            iterations: image.iterations,
            phase: image.phase,
            control: image.control,
            budget: Arc::new(Account::new(image.budget, image.usage)),
            output_totals: image.output_totals,
            restores: image.restores,
            compacted: image.compacted,
            request_tokens: image.request_tokens,
            result: image.result,
            alarms: alarms_by_id(&image.alarms),
            alarms_set: image.alarms_set,
            reopenings: image.reopenings,
            reopened_children: image
                .reopened_children
                .into_iter()
                .map(|child| ((child.call, child.index), child))
                .collect(),
            effects: image.effects,
            pausing: image.pausing,
            speculation: image.speculation,
            limited_calls: image.limited_calls.into_iter().collect(),
            server_tool_calls: OrdMap::new(),
            pending_reads: PendingReads::default(),
        };
        // An image of a version that recorded no effects: they are known from here on.
        let last_message = u32::try_from(state.last_message_number()).unwrap_or(u32::MAX);
        state.effects.begins_after.get_or_insert(last_message);
        state.recount_server_tool_calls();
        state.update_message_descriptors();
        Ok(state)
    }

    /// Checks a fact that was read from a journal before [`evolve`](super::evolve()) applies it:
    /// `evolve` itself validates nothing.
    ///
    /// # Errors
    /// [`StateError`] if the fact restores an invalid image, or switches to a model that does not
    /// exist.
    pub fn check(&self, fact: &Fact) -> Result<(), StateError> {
        match fact {
            Fact::Call(CallFact::ModelSwitched { to, .. }) => check_model(&self.program, *to),
            Fact::Restored { image, .. } => {
                check_model(&self.program, image.model)?;
                check_counts(image)?;
                check_compacted(image)?;
                build_table(image.table.clone(), image.next_fd, image.last_history).map(drop)
            }
            _ => Ok(()),
        }
    }

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

    /// The image of the process: all of its state except its pid. O(mailbox + senders + background
    /// children); conversation and table are shared.
    #[must_use]
    pub fn image(&self) -> Image {
        Image {
            bundle: self.bundle.clone(),
            program: self.program.key().into(),
            system: self.system.clone(),
            tools: self.toolbox.specs(),
            external: self.toolbox.external_tools(),
            access: self.access,
            depth: self.depth,
            lifetime: self.lifetime,
            priority: self.priority,
            messages: self.messages.clone(),
            forked_at: self.forked_at.clone(),
            mailbox: self.mailbox.iter().cloned().collect(),
            receipts: self
                .receipts
                .iter()
                .map(|(from, receipts)| (*from, receipts.clone()))
                .collect(),
            background: self
                .background
                .iter()
                .map(|(call, child)| (*call, *child))
                .collect(),
            table: self.table.entries(),
            next_fd: self.table.next_fd(),
            epoch: self.epoch,
            next_seq: self.next_seq,
            model: self.model,
            iterations: self.iterations,
            phase: self.phase.clone(),
            control: self.control,
            usage: self.budget.own_usage(),
            budget: self.budget.ledger(),
            output_totals: self.output_totals,
            restores: self.restores,
            compacted: self.compacted.clone(),
            last_history: self.table.last_history(),
            request_tokens: self.request_tokens,
            result: self.result.clone(),
            alarms: self.alarms.values().cloned().collect(),
            alarms_set: self.alarms_set,
            reopenings: self.reopenings,
            reopened_children: self.reopened_children.values().copied().collect(),
            effects: self.effects.clone(),
            pausing: self.pausing.clone(),
            speculation: self.speculation,
            limited_calls: self
                .limited_calls
                .iter()
                .map(|(tool, calls)| (tool.clone(), *calls))
                .collect(),
        }
    }

    /// The next request to the model. Costs one pointer per message.
    #[must_use]
    pub fn request(&self) -> Request {
        Request {
            pid: self.pid,
            program: self.program.name().into(),
            model: self.model().name.as_str().into(),
            system: self.system.clone(),
            tools: self.toolbox.specs(),
            provider_tools: self.provider_tools(),
            messages: self.messages.iter().cloned().collect(),
            forked_at: self.forked_at.iter().map(|at| *at as usize).collect(),
            parameters: self.with_reply_limit(self.program.parameters()),
            media: BTreeMap::new(),
        }
    }

    /// Adds up the media of the next request: the media of the conversation, of the answers that
    /// are not yet part of the conversation, and of `answer`.
    pub(super) fn measure_shown_media(&self, answer: &Answer) -> MediaBudget {
        let in_conversation = self
            .messages
            .iter()
            .flat_map(|message| &message.blocks)
            .filter_map(|block| match block {
                Block::Media { media, .. } => Some(media),
                _ => None,
            });
        let answers = self
            .pending_calls()
            .iter()
            .filter_map(|pending_call| pending_call.answer.as_ref())
            .chain([answer]);
        let in_answers = answers.flat_map(|answer| &answer.media);
        let mut total = MediaBudget::default();
        for media in in_conversation.chain(in_answers) {
            let entry = self.table.get(&media.fd);
            let bytes = entry.map_or(0, |entry| entry.content.len_bytes());
            total = total.with(media, bytes);
        }
        total
    }

    /// Contents of the media that the conversation names, by descriptor. O(blocks).
    ///
    /// If the descriptor of a media block no longer exists, the map has no entry for it, and the
    /// model call fails. Dropping the block instead would change bytes that were sent before
    /// (HIST-1).
    #[must_use]
    pub fn media(&self) -> BTreeMap<FdId, Content> {
        let blocks = self.messages.iter().flat_map(|message| &message.blocks);
        let fds = blocks.filter_map(|block| match block {
            Block::Media { media, .. } => Some(&media.fd),
            _ => None,
        });
        fds.filter_map(|fd| Some((fd.clone(), self.table.get(fd)?.content.clone())))
            .collect()
    }

    /// Lowers the reply limit in the parameters to the output tokens that the budget has left. The
    /// limit is found under each of the names that providers use.
    ///
    /// The limit stays above the thinking budget, since providers require that thinking fits into a
    /// reply. Such a call may overshoot the process's budget.
    fn with_reply_limit(&self, parameters: Arc<Map<String, Value>>) -> Arc<Map<String, Value>> {
        let Some(left) = self.budget.remaining(Amount::OutputTokens) else {
            return parameters;
        };
        let thinking = thinking_budget(&parameters);
        let left = left.max(thinking.map_or(0, |thinking| thinking.saturating_add(1)));
        // Gemini nests the reply limit.
        let nested = parameters
            .get("generationConfig")
            .and_then(Value::as_object);
        if !exceeds_limit(&parameters, left) && !nested.is_some_and(|map| exceeds_limit(map, left))
        {
            return parameters;
        }
        let mut lowered = Map::clone(&parameters);
        lower_limit(&mut lowered, left);
        let nested = lowered
            .get_mut("generationConfig")
            .and_then(Value::as_object_mut);
        if let Some(nested) = nested {
            lower_limit(nested, left);
        }
        Arc::new(lowered)
    }

    /// The request for a summary, which is independent of the conversation: one prompt to the
    /// summary model. Only the reply limit is kept of the parameters, since the others concern
    /// conversations and tools.
    pub(super) fn summary_request(
        &self,
        summarizer: &ModelChoice,
        summary: &PendingSummary,
    ) -> Request {
        let parameters = self.with_reply_limit(self.program.parameters());
        let limits = parameters
            .iter()
            .filter(|(key, _)| REPLY_LIMIT_NAMES.contains(&key.as_str()));
        Request {
            pid: self.pid,
            program: self.program.name().into(),
            model: summarizer.name.as_str().into(),
            system: summary.system.into(),
            tools: Arc::new([]),
            provider_tools: Arc::default(),
            messages: vec![Arc::new(Message::user(summary.prompt.clone()))],
            forked_at: Vec::new(),
            parameters: Arc::new(
                limits
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect(),
            ),
            media: BTreeMap::new(),
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

    /// The model for summaries. If the program names one that differs from its first model, it is
    /// called at the provider of that first model; otherwise the current model is used.
    pub(super) fn summarizer(&self) -> ModelChoice {
        let summary_model = self.program.summary_model();
        let first = self.program.model();
        if summary_model == first.name {
            self.model().clone()
        } else {
            ModelChoice {
                name: summary_model.into(),
                ..first.clone()
            }
        }
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

    /// A started call without an answer; `None` if the completion for it is stale (CALL-1).
    pub(super) fn call_in_flight(&self, call: CallId) -> Option<&PendingCall> {
        self.pending_calls().iter().find(|pending_call| {
            pending_call.call == call && pending_call.started && pending_call.answer.is_none()
        })
    }
}

/// The maximum number of tokens for thinking, under whichever name a provider uses; `None` if the
/// parameters set none.
fn thinking_budget(parameters: &Map<String, Value>) -> Option<u64> {
    let read_number = |key: &str, path: &str| parameters.get(key)?.pointer(path)?.as_u64();
    let budgets = [
        read_number("thinking", "/budget_tokens"),
        read_number("reasoning", "/max_tokens"),
        read_number("generationConfig", "/thinkingConfig/thinkingBudget"),
    ];
    budgets.into_iter().flatten().max()
}

/// Whether the parameters permit a reply of more than `left` tokens.
fn exceeds_limit(parameters: &Map<String, Value>, left: u64) -> bool {
    REPLY_LIMIT_NAMES
        .iter()
        .filter_map(|name| parameters.get(*name)?.as_u64())
        .any(|limit| limit > left)
}

/// Lowers each reply limit that exceeds `left` tokens.
fn lower_limit(parameters: &mut Map<String, Value>, left: u64) {
    for name in REPLY_LIMIT_NAMES {
        if let Some(limit) = parameters.get_mut(name)
            && limit.as_u64().is_some_and(|limit| limit > left)
        {
            *limit = left.into();
        }
    }
}

/// Upper limit for the counters of a loaded image, so that they do not overflow when they are
/// incremented.
const MAX_COUNT: u32 = 1 << 31;

fn check_counts(image: &Image) -> Result<(), StateError> {
    let counts = [
        image.epoch,
        image.next_seq,
        image.next_fd,
        image.depth,
        image.iterations,
        image.restores,
        image.last_history,
        image.compacted.last().map_or(0, |compacted| compacted.last),
        image.result.failed_attempts,
        image.alarms_set,
        image.reopenings,
        image.pausing.raises,
        image.effects.dropped,
        image.effects.own_from,
    ];
    match counts.into_iter().find(|count| *count > MAX_COUNT) {
        Some(count) => Err(StateError::Count { count }),
        None => Ok(()),
    }
}

/// Refuses compacted messages that are out of order or have no summary.
fn check_compacted(image: &Image) -> Result<(), StateError> {
    let mut last = 0;
    let is_ordered = image.compacted.iter().all(|compacted| {
        let is_after = compacted.last > 0 && compacted.last >= last;
        last = compacted.last;
        is_after
    });
    match is_ordered && (image.compacted.is_empty() || !image.messages.is_empty()) {
        true => Ok(()),
        false => Err(StateError::Compacted),
    }
}

fn check_model(program: &Program, index: u32) -> Result<(), StateError> {
    let models = program.models().len();
    if (index as usize) < models {
        Ok(())
    } else {
        Err(StateError::Model {
            requested: index.saturating_add(1),
            models,
        })
    }
}

fn build_table(
    entries: OrdMap<FdId, Entry<Content>>,
    next_fd: u32,
    last_history: u32,
) -> Result<Table, StateError> {
    Table::from_parts(entries, next_fd, last_history)
        .map_err(|error| StateError::Table(error.to_string()))
}

pub(super) fn alarms_by_id(alarms: &[Alarm]) -> OrdMap<AlarmId, Alarm> {
    let by_id = alarms.iter().map(|alarm| (alarm.id, alarm.clone()));
    by_id.collect()
}

fn check_calls(image: &Image) -> Result<(), StateError> {
    let was_allocated = |call: CallId| call.epoch <= image.epoch && call.seq < image.next_seq;
    let pending = match &image.phase {
        Phase::Thinking { call } => vec![*call],
        Phase::Acting { pending_calls, .. } => pending_calls
            .iter()
            .map(|pending_call| pending_call.call)
            .collect(),
        Phase::Idle | Phase::Ready { .. } | Phase::Ended { .. } => Vec::new(),
    };
    let background = image.background.iter().map(|(call, _)| *call);
    let reopened = image.reopened_children.iter().map(|child| child.call);
    let unallocated = pending
        .into_iter()
        .chain(background)
        .chain(reopened)
        .find(|call| !was_allocated(*call));
    match unallocated {
        Some(call) => Err(StateError::Call {
            call,
            epoch: image.epoch,
            next_seq: image.next_seq,
        }),
        None => Ok(()),
    }
}
