//! The events that a kernel publishes, and the view of the present state of a process.

use std::sync::Arc;

use dormouse_content::Content;
use dormouse_kernel::budget::Account;
use dormouse_kernel::process::{State, Tools};
use dormouse_kernel::program::Program;
use dormouse_kernel::table::Table;
use dormouse_proto::alarm::Alarm;
use dormouse_proto::budget::{Budget, Paused, RaiseSource};
use dormouse_proto::id::{FactNumber, FdId, Pid, ProcessCallId};
use dormouse_proto::label::Label;
use dormouse_proto::model::Usage;
use dormouse_proto::process::Exit;
use dormouse_proto::record::{self, ContentRef, Entry, OutputTotals, Phase, Speculation};
use dormouse_proto::tool::Progress;

use crate::held_call::HeldCall;
use crate::process_status::ProcessStatus;
use crate::server_questions::ServerQuestion;

/// A fact as published: contents are references, so that an event keeps no content in memory.
pub type Fact = record::Fact<ContentRef>;

/// Something that happened in a kernel. An event is for observers; the durable record is the fact.
#[derive(Clone, Debug)]
pub enum Event {
    /// A process began to run.
    Started {
        /// The process.
        pid: Pid,
        /// Its parent, if a process made it.
        parent: Option<Pid>,
        /// The name of its program.
        program: Arc<str>,
    },
    /// A part of the text of a reply. The whole reply follows as a fact.
    Text {
        /// The process.
        pid: Pid,
        /// The part.
        text: String,
    },
    /// A part of the thinking of a model.
    Thinking {
        /// The process.
        pid: Pid,
        /// The part.
        text: String,
    },
    /// A tool call begins.
    ToolCalled {
        /// The process.
        pid: Pid,
        /// The name that the program uses for the tool.
        tool: Arc<str>,
        /// The arguments: JSON text.
        args: Arc<str>,
    },
    /// The provider ran a tool of its own while its model wrote a reply. Published when the reply
    /// is complete.
    ServerToolCalled {
        /// The process.
        pid: Pid,
        /// The name of the tool at the provider.
        tool: Arc<str>,
        /// The number of calls that the arguments are of.
        calls: u32,
        /// The arguments, as JSON or as text; may be empty.
        args: Arc<str>,
    },
    /// A tool reported progress.
    ToolProgress {
        /// The process.
        pid: Pid,
        /// The name that the program uses for the tool.
        tool: Arc<str>,
        /// The progress.
        progress: Progress,
    },
    /// A fact is durable.
    Fact {
        /// The process.
        pid: Pid,
        /// Its number in the process's journal.
        number: FactNumber,
        /// The fact, with references in place of contents.
        fact: Arc<Fact>,
    },
    /// A model call failed and will be repeated.
    Retrying {
        /// The process.
        pid: Pid,
        /// The error of the failed attempt.
        reason: String,
        /// The delay before the next attempt, in milliseconds.
        delay_ms: u64,
    },
    /// A model failed, and the process uses another one from now on.
    ModelSwitched {
        /// The process.
        pid: Pid,
        /// The name of the model that failed.
        from: Arc<str>,
        /// The name of the model that replaces it.
        to: Arc<str>,
        /// The error of the first model.
        reason: Arc<str>,
    },
    /// A call of the model waits for a person ([`Kernel::approve`](crate::handle::Kernel::approve)).
    CallHeld {
        /// The call.
        call: HeldCall,
    },
    /// A held call was approved, refused or answered, or it has expired. If its turn was given up,
    /// no such event is published.
    HeldCallAnswered {
        /// The call.
        call: ProcessCallId,
    },
    /// A tool server asks the user something, and its call waits
    /// ([`Kernel::answer_server`](crate::handle::Kernel::answer_server)).
    ServerAsks {
        /// The question.
        question: ServerQuestion,
    },
    /// A question of a tool server waits no more: it was answered or declined, has expired, or its
    /// call has ended.
    ServerQuestionClosed {
        /// The number of the question.
        id: u64,
    },
    /// A process is paused at a limit of its budget, and all below it stop
    /// ([`Process::raise`](crate::handle::Process::raise)).
    LimitReached {
        /// The process.
        pid: Pid,
        /// The limit.
        paused: Paused,
    },
    /// A process begins nothing, since all trees with a label of its tree together have used up the
    /// budget of the label. It goes on when the next period begins, or the budget is raised
    /// ([`Kernel::set_label_budget`](crate::handle::Kernel::set_label_budget)).
    LabelReached {
        /// The process.
        pid: Pid,
        /// The label.
        label: Label,
        /// The amount that is used up, with the usage and the limit.
        reached: Paused,
        /// When the next period begins: milliseconds since the epoch, UTC.
        until_ms: u64,
    },
    /// Limits of a process were raised.
    LimitRaised {
        /// The process.
        pid: Pid,
        /// What each limit was raised by.
        by: Budget,
        /// Who raised them.
        source: RaiseSource,
    },
    /// A turn ended, and the process waits for input.
    TurnEnded {
        /// The process.
        pid: Pid,
        /// How the turn ended.
        outcome: Exit,
    },
    /// A process hibernates: it has left memory, and its journal stays in the store until an input
    /// wakes the process.
    Hibernated {
        /// The process.
        pid: Pid,
    },
    /// A hibernated process runs again.
    Woke {
        /// The process.
        pid: Pid,
    },
    /// A process ended.
    Exited {
        /// The process.
        pid: Pid,
        /// How the process ended.
        exit: Exit,
    },
    /// An ended process was opened again by a message, and runs.
    Reopened {
        /// The process.
        pid: Pid,
        /// How often it was opened again, this time included.
        reopenings: u32,
    },
    /// The subscriber was too slow and missed events. The journals have the facts that it missed.
    Lagged {
        /// The number of missed events.
        missed: u64,
    },
}

impl Event {
    /// The process that the event is about; `None` for [`Lagged`](Self::Lagged) and for questions of
    /// tool servers, whose connection several processes may share.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        match self {
            Self::Started { pid, .. }
            | Self::Text { pid, .. }
            | Self::Thinking { pid, .. }
            | Self::ToolCalled { pid, .. }
            | Self::ServerToolCalled { pid, .. }
            | Self::ToolProgress { pid, .. }
            | Self::Fact { pid, .. }
            | Self::Retrying { pid, .. }
            | Self::ModelSwitched { pid, .. }
            | Self::LimitReached { pid, .. }
            | Self::LabelReached { pid, .. }
            | Self::LimitRaised { pid, .. }
            | Self::TurnEnded { pid, .. }
            | Self::Hibernated { pid }
            | Self::Woke { pid }
            | Self::Reopened { pid, .. }
            | Self::Exited { pid, .. } => Some(*pid),
            Self::CallHeld { call } => Some(call.id.pid),
            Self::HeldCallAnswered { call } => Some(call.pid),
            Self::ServerAsks { .. } | Self::ServerQuestionClosed { .. } | Self::Lagged { .. } => {
                None
            }
        }
    }
}

/// The observable state of a process. The actor of the process publishes it after each commit, so
/// that reading it costs the process nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessView {
    /// The last durable fact.
    pub fact: FactNumber,
    /// The phase of its turn.
    pub phase: Phase,
    /// Whether the process was stopped. It begins nothing until it is continued.
    pub stopped: bool,
    /// The limit that the process is paused at. It begins nothing until the limit is raised.
    pub paused: Option<Paused>,
    /// Whether a process above it is paused at a limit, or a label of its tree has used up its budget,
    /// so that it begins nothing either.
    pub suspended: bool,
    /// Whether the process rests: nothing happens in it before it gets an input, an alarm is due, a
    /// person answers one of its calls, a child ends, its limits are raised, or it is continued.
    pub rests: bool,
    /// Whether the process hibernates. The view shows its state before it hibernated, which has not
    /// changed.
    pub hibernated: bool,
    /// Whether the process is speculative: one of several branches, which acts outside of itself
    /// only once it is chosen.
    pub speculation: Speculation,
    /// The number of messages in its conversation.
    pub messages: usize,
    /// The number of messages that wait for its next turn.
    pub waiting_messages: usize,
    /// The number of children that run in the background, without a call that waits for them.
    pub background_children: usize,
    /// The open alarms, by number.
    pub alarms: Vec<Alarm>,
    /// When the next alarm is due (milliseconds since the epoch, UTC), if the process waits for
    /// nothing but its alarms, its background children and input.
    pub next_alarm_ms: Option<u64>,
    /// The number of children whose end the process has not received.
    pub children: usize,
    /// The number of descriptors in its table.
    pub descriptors: usize,
    /// The tokens that the process itself has used.
    pub usage: Usage,
    /// The limits, use and reservations of the process and its descendants.
    pub budget: Arc<Account>,
    /// How much its tools produced, and how much of that entered the context.
    pub output_totals: OutputTotals,
    /// The calls of tools that the provider ran in the conversation, by tool.
    pub server_tool_calls: Vec<(Arc<str>, u32)>,
    /// The tools of the process, as its model sees them.
    pub tools: Tools,
    /// The program that the process was started with.
    pub program: Program,
    /// The system prompt, which is fixed when the process is created.
    pub system: Arc<str>,
    /// The descriptor table; `None` for a process that has ended or hibernates, so that its
    /// contents can leave memory.
    table: Option<Table>,
}

/// A descriptor, as a view shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorView {
    /// Its id.
    pub id: FdId,
    /// The name that the process gave it.
    pub name: Option<Arc<str>>,
    /// Where its content comes from.
    pub source: Arc<str>,
    /// Bytes of its content.
    pub bytes: u64,
    /// The number of characters as displayed; `None` if the content cannot be read.
    pub chars: Option<u64>,
    /// The number of lines; `None` if the content cannot be read.
    pub lines: Option<u64>,
    /// The time when it was opened: milliseconds since the epoch, UTC.
    pub opened_ms: u64,
}

impl DescriptorView {
    fn from_entry((id, entry): (&FdId, &Entry<Content>)) -> Self {
        let Entry {
            content,
            source,
            opened_ms,
            notes,
            ..
        } = entry;
        Self {
            id: id.clone(),
            name: notes.name.clone(),
            source: source.clone(),
            bytes: content.len_bytes(),
            chars: content.unlimited_reader().total_chars().ok(),
            lines: content.unlimited_reader().total_lines().ok(),
            opened_ms: *opened_ms,
        }
    }
}

impl ProcessView {
    /// The view of `state` after fact `fact`.
    #[must_use]
    pub fn of(state: &State, fact: FactNumber) -> Self {
        Self {
            fact,
            phase: state.phase().clone(),
            stopped: state.is_stopped_by_signal(),
            paused: state.paused().cloned(),
            suspended: state.is_suspended(),
            rests: state.busy_reason().is_none(),
            hibernated: false,
            speculation: state.speculation(),
            messages: state.last_message_number(),
            waiting_messages: state.waiting_messages(),
            background_children: state.background().len() + state.reopened_children().len(),
            alarms: state.alarms().cloned().collect(),
            next_alarm_ms: state.next_alarm_ms(),
            children: state.budget().shares().len(),
            descriptors: state.table().len(),
            usage: state.usage(),
            budget: state.budget().clone(),
            output_totals: state.output_totals(),
            server_tool_calls: state
                .server_tool_calls()
                .iter()
                .map(|(tool, calls)| (tool.clone(), *calls))
                .collect(),
            tools: state.tools(),
            program: state.program().clone(),
            system: state.system().clone(),
            table: state.exit().is_none().then(|| state.table().clone()),
        }
    }

    /// Like [`of`](Self::of), with the descriptors even if the process has ended.
    pub(crate) fn with_table(state: &State, fact: FactNumber) -> Self {
        Self {
            table: Some(state.table().clone()),
            ..Self::of(state, fact)
        }
    }

    /// The descriptors in the table, by id: numbers first, then references. Empty for a process
    /// that has ended or hibernates; use [`Kernel::inspect`](crate::handle::Kernel::inspect) for
    /// those. O(descriptors). The index of a content that is not in memory is read from the disk,
    /// and so is a whole content that is small or has no index.
    #[must_use]
    pub fn list_descriptors(&self) -> Vec<DescriptorView> {
        self.table
            .iter()
            .flat_map(Table::iter)
            .map(DescriptorView::from_entry)
            .collect()
    }

    /// The content of a descriptor; `None` if there is no such descriptor or
    /// [`list_descriptors`](Self::list_descriptors) is empty. O(log descriptors); reading the
    /// content may access the disk.
    #[must_use]
    pub fn content(&self, id: &FdId) -> Option<Content> {
        Some(self.table.as_ref()?.get(id)?.content.clone())
    }

    /// Marks the process as hibernated and drops its table, so that its contents can leave memory.
    pub(crate) fn mark_hibernated(&mut self) {
        self.hibernated = true;
        self.table = None;
    }

    /// Whether nothing will happen without an input or an alarm: the process is idle, and no message
    /// or background child is pending.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle && self.waiting_messages == 0 && self.background_children == 0
    }

    /// The status of the process.
    #[must_use]
    pub fn status(&self) -> ProcessStatus {
        match &self.phase {
            Phase::Ended { exit } => ProcessStatus::Ended(exit.status),
            _ if self.paused.is_some() => ProcessStatus::Paused,
            _ if self.stopped => ProcessStatus::Stopped,
            _ if self.suspended => ProcessStatus::Suspended,
            phase if self.hibernated && phase.asks() => ProcessStatus::Asking,
            _ if self.hibernated && self.next_alarm_ms.is_some() => ProcessStatus::Asleep,
            _ if self.hibernated => ProcessStatus::Hibernated,
            Phase::Idle if self.waiting_messages > 0 => ProcessStatus::Starting,
            Phase::Idle if self.background_children > 0 => ProcessStatus::Waiting,
            Phase::Idle if !self.alarms.is_empty() => ProcessStatus::Asleep,
            Phase::Idle => ProcessStatus::Idle,
            Phase::Ready { .. } | Phase::Thinking { .. } => ProcessStatus::Thinking,
            phase if phase.asks() => ProcessStatus::Asking,
            Phase::Acting { .. } => ProcessStatus::Acting,
        }
    }
}
