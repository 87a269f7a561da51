//! What can be watched: typed events of all processes, and a view of each.

use std::sync::Arc;

use dormouse_content::Content;
use dormouse_kernel::budget::Account;
use dormouse_kernel::process::{State, Tools};
use dormouse_kernel::program::Program;
use dormouse_kernel::table::Table;
use dormouse_proto::id::{FactNumber, FdId, Pid};
use dormouse_proto::model::Usage;
use dormouse_proto::process::Exit;
use dormouse_proto::record::{self, ContentRef, Entry, Phase, Tally};
use dormouse_proto::tool::Progress;

/// A fact as it is watched: contents by name, so that an event holds no content in memory.
pub type Fact = record::Fact<ContentRef>;

/// Something that happened in a kernel.
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
    /// A piece of a model's reply came in. What counts is the reply as a whole, which follows as a
    /// fact.
    Text {
        /// The process.
        pid: Pid,
        /// The piece.
        text: String,
    },
    /// A piece of a model's thinking came in.
    Thinking {
        /// The process.
        pid: Pid,
        /// The piece.
        text: String,
    },
    /// A tool call begins.
    ToolCalled {
        /// The process.
        pid: Pid,
        /// The tool, by the name that its program knows it by.
        tool: Arc<str>,
        /// The arguments: JSON text.
        args: Arc<str>,
    },
    /// A tool said how far it has come.
    ToolProgress {
        /// The process.
        pid: Pid,
        /// The tool, by the name that its program knows it by.
        tool: Arc<str>,
        /// How far.
        progress: Progress,
    },
    /// A fact is durable.
    Fact {
        /// The process.
        pid: Pid,
        /// Its number in the process's journal.
        number: FactNumber,
        /// The fact, contents by name.
        fact: Arc<Fact>,
    },
    /// A model call failed and is tried again.
    Retrying {
        /// The process.
        pid: Pid,
        /// Why.
        reason: String,
        /// After so many milliseconds.
        delay_ms: u64,
    },
    /// A model failed, and the process asks another from here on.
    ModelSwitched {
        /// The process.
        pid: Pid,
        /// The model that failed, by its name.
        from: Arc<str>,
        /// The model that is asked now.
        to: Arc<str>,
        /// How the first failed.
        reason: Arc<str>,
    },
    /// A turn ended and the process waits.
    TurnEnded {
        /// The process.
        pid: Pid,
        /// How.
        outcome: Exit,
    },
    /// A process is only its journal from here on, until something wakes it.
    Hibernated {
        /// The process.
        pid: Pid,
    },
    /// A process that had hibernated runs again.
    Woke {
        /// The process.
        pid: Pid,
    },
    /// A process ended.
    Exited {
        /// The process.
        pid: Pid,
        /// How.
        exit: Exit,
    },
    /// The watcher was too slow and missed events. What it missed is in the journals.
    Lagged {
        /// How many.
        missed: u64,
    },
}

impl Event {
    /// The process that it is about; none where events were missed.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        match self {
            Self::Started { pid, .. }
            | Self::Text { pid, .. }
            | Self::Thinking { pid, .. }
            | Self::ToolCalled { pid, .. }
            | Self::ToolProgress { pid, .. }
            | Self::Fact { pid, .. }
            | Self::Retrying { pid, .. }
            | Self::ModelSwitched { pid, .. }
            | Self::TurnEnded { pid, .. }
            | Self::Hibernated { pid }
            | Self::Woke { pid }
            | Self::Exited { pid, .. } => Some(*pid),
            Self::Lagged { .. } => None,
        }
    }
}

/// How a process stands: a snapshot that costs the process nothing to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The last durable fact.
    pub fact: FactNumber,
    /// Where it stands in its turn.
    pub phase: Phase,
    /// Whether it was stopped, and begins nothing before it is continued.
    pub stopped: bool,
    /// Whether it is only its journal. This is how it stood when it fell asleep, and it stands so
    /// still.
    pub hibernated: bool,
    /// Messages of its conversation.
    pub messages: usize,
    /// Messages that wait for its next turn.
    pub waiting: usize,
    /// Children that run while no call waits for them.
    pub background: usize,
    /// Children that have not ended, as far as the process has heard.
    pub children: usize,
    /// Descriptors in its table.
    pub descriptors: usize,
    /// Tokens used so far by the process itself.
    pub usage: Usage,
    /// What it and all below it may use, did use, and have reserved.
    pub budget: Account,
    /// What its tools produced, and what of it entered the context.
    pub tally: Tally,
    /// The tools that it was given, as its model is told of them.
    pub tools: Tools,
    /// Its program: that which it was started with.
    pub program: Program,
    /// Its system prompt, frozen at its birth: the words of its program, and how its descriptors
    /// are used.
    pub system: Arc<str>,
    /// The table as it stood; none of a process that has ended or hibernates, whose contents are no
    /// longer held for anybody.
    table: Option<Table>,
}

/// A descriptor as a view shows it.
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
    /// Characters, as they are shown; none where the content cannot be read.
    pub chars: Option<u64>,
    /// Lines; none where the content cannot be read.
    pub lines: Option<u64>,
    /// When it was opened: milliseconds since the epoch, UTC.
    pub opened_ms: u64,
}

impl DescriptorView {
    fn of((id, entry): (&FdId, &Entry<Content>)) -> Self {
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
            chars: content.unbounded().total_chars().ok(),
            lines: content.unbounded().total_lines().ok(),
            opened_ms: *opened_ms,
        }
    }
}

impl View {
    /// The view of `state` after fact `fact`.
    #[must_use]
    pub fn of(state: &State, fact: FactNumber) -> Self {
        Self {
            fact,
            phase: state.phase().clone(),
            stopped: state.is_stopped(),
            hibernated: false,
            messages: state.messages().len(),
            waiting: state.waiting_messages(),
            background: state.background().len(),
            children: state.budget().shares().len(),
            descriptors: state.table().len(),
            usage: state.usage(),
            budget: state.budget().clone(),
            tally: state.tally(),
            tools: state.tools(),
            program: state.program().clone(),
            system: state.system().clone(),
            table: state.exit().is_none().then(|| state.table().clone()),
        }
    }

    /// The same, with the descriptors of one that has ended.
    pub(crate) fn with_table(state: &State, fact: FactNumber) -> Self {
        Self {
            table: Some(state.table().clone()),
            ..Self::of(state, fact)
        }
    }

    /// The descriptors in its table, by id: numbers first, then references. None of a process that
    /// has ended or hibernates: [`Kernel::inspect`](crate::handle::Kernel::inspect) reads those.
    /// Made when it is asked for: O(descriptors), and no content is looked at.
    #[must_use]
    pub fn list_descriptors(&self) -> Vec<DescriptorView> {
        self.table
            .iter()
            .flat_map(Table::iter)
            .map(DescriptorView::of)
            .collect()
    }

    /// What a descriptor in its table holds; none where there is no such descriptor, or
    /// [`list_descriptors`](Self::list_descriptors) shows none. O(log descriptors); reading it may
    /// touch the disk.
    #[must_use]
    pub fn content(&self, id: &FdId) -> Option<Content> {
        Some(self.table.as_ref()?.get(id)?.content.clone())
    }

    /// The process hibernates: what is held for nobody goes.
    pub(crate) fn mark_hibernated(&mut self) {
        (self.hibernated, self.table) = (true, None);
    }

    /// Whether nothing will happen by itself: it waits for input, and no child of its is to be
    /// heard of.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle && self.waiting == 0 && self.background == 0
    }

    /// The word for where it stands.
    #[must_use]
    pub fn status(&self) -> &'static str {
        match &self.phase {
            Phase::Ended { exit } => exit.status.word(),
            _ if self.hibernated => "hibernated",
            _ if self.stopped => "stopped",
            Phase::Idle if self.waiting > 0 => "starting",
            Phase::Idle if self.background > 0 => "waiting",
            Phase::Idle => "idle",
            Phase::Ready { .. } | Phase::Thinking { .. } => "thinking",
            Phase::Acting { .. } => "acting",
        }
    }
}
