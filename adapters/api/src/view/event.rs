//! Events, as `dormouse run --json` prints them and as the stream of events sends them.

use dormouse_actors::Event;
use dormouse_actors::handle::LogLine;
use dormouse_proto::budget::RaiseSource;
use dormouse_proto::id::Pid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::call::{CallView, ServerQuestionView};
use super::process::PausedView;

/// Something that happened. The word in `event` says what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventView {
    /// The stream is open. Its id, if it has one, is the position from which facts are sent.
    Opened {
        /// Whether processes run: `false` for a store that is open for reading only.
        running: bool,
        /// The last commit before the stream was opened.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        commit: Option<u64>,
    },
    /// A process began to run.
    Started {
        /// The process.
        pid: u64,
        /// Its parent, if a process made it.
        parent: Option<u64>,
        /// The name of its program.
        program: String,
    },
    /// A part of the text of a reply. It is sent once; the whole reply follows as a fact.
    Text {
        /// The process.
        pid: u64,
        /// The part.
        text: String,
    },
    /// A part of the thinking of a model.
    Thinking {
        /// The process.
        pid: u64,
        /// The part.
        text: String,
    },
    /// A call of a tool begins.
    ToolCalled {
        /// The process.
        pid: u64,
        /// The tool.
        tool: String,
        /// The arguments: JSON text.
        args: String,
    },
    /// The provider ran a tool of its own.
    ServerToolCalled {
        /// The process.
        pid: u64,
        /// The tool.
        tool: String,
        /// The number of calls.
        calls: u32,
        /// The arguments, as JSON or as text.
        args: String,
    },
    /// A tool reported progress.
    ToolProgress {
        /// The process.
        pid: u64,
        /// The tool.
        tool: String,
        /// What is done.
        done: f64,
        /// What there is to do, if it is known.
        total: Option<f64>,
        /// What the tool says.
        message: String,
    },
    /// A fact is durable.
    Fact(FactEventView),
    /// A model call failed and will be repeated.
    Retrying {
        /// The process.
        pid: u64,
        /// The error.
        reason: String,
        /// The delay before the next attempt, in milliseconds.
        delay_ms: u64,
    },
    /// A model failed, and the process uses another one from now on.
    ModelSwitched {
        /// The process.
        pid: u64,
        /// The model that failed.
        from: String,
        /// The model that replaces it.
        to: String,
        /// The error.
        reason: String,
    },
    /// A call waits for a person.
    CallHeld(CallView),
    /// A held call was approved, refused or answered, or has expired.
    HeldCallAnswered {
        /// The process.
        pid: u64,
        /// The call.
        call: String,
    },
    /// A tool server asks something.
    ServerAsks(ServerQuestionView),
    /// A question of a tool server waits no more.
    ServerQuestionClosed {
        /// The number of the question.
        question: u64,
    },
    /// A process is paused at a limit.
    LimitReached {
        /// The process.
        pid: u64,
        /// The limit.
        paused: PausedView,
    },
    /// A process begins nothing, since a label has used up its budget.
    LabelReached {
        /// The process.
        pid: u64,
        /// The label.
        label: String,
        /// The limit.
        reached: PausedView,
        /// When the next period begins: milliseconds since the epoch, UTC.
        until_ms: u64,
    },
    /// Limits were raised.
    LimitRaised {
        /// The process.
        pid: u64,
        /// By how much.
        by: String,
        /// Whether a rule of the program raised them.
        by_rule: bool,
    },
    /// A turn ended.
    TurnEnded {
        /// The process.
        pid: u64,
        /// How.
        status: String,
    },
    /// A process left memory.
    Hibernated {
        /// The process.
        pid: u64,
    },
    /// A process is in memory again.
    Woke {
        /// The process.
        pid: u64,
    },
    /// An ended process was opened again.
    Reopened {
        /// The process.
        pid: u64,
        /// How often it was, this time included.
        reopenings: u32,
    },
    /// A process ended.
    Exited {
        /// The process.
        pid: u64,
        /// How.
        status: String,
    },
    /// The reader was too slow, and events were dropped. Facts among them are sent all the same.
    Lagged {
        /// How many events were dropped, facts included.
        missed: u64,
    },
    /// The position of the reader is too far back for a stream: the journals have the facts, and the
    /// stream goes on with what is new.
    TooFarBehind {
        /// How many commits of processes there are in between.
        commits: u64,
    },
    /// Facts of a process may be missing here: they were collected as garbage.
    Collected {
        /// The process.
        pid: u64,
        /// The first fact that is retained.
        first: u64,
    },
    /// Facts of a process are missing here: they cannot be read.
    Unreadable {
        /// The process.
        pid: u64,
        /// Why.
        reason: String,
    },
}

/// A durable fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FactEventView {
    /// The process.
    pub pid: u64,
    /// Its number in the journal of the process; 0 for the birth.
    pub number: u64,
    /// The name of the fact.
    pub fact: String,
    /// The commit that wrote it; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<u64>,
    /// The time of the commit: milliseconds since the epoch, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
    /// A summary, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

impl FactEventView {
    /// The fact of a line of a log.
    #[must_use]
    pub fn of_line(pid: Pid, line: LogLine) -> Self {
        Self {
            pid: pid.0,
            number: line.number.0,
            fact: line.name.to_owned(),
            commit: Some(line.commit.0),
            at_ms: Some(line.at_ms),
            summary: Some(line.summary),
        }
    }
}

impl EventView {
    /// The word for the event, as in its field `event`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Opened { .. } => "opened",
            Self::Started { .. } => "started",
            Self::Text { .. } => "text",
            Self::Thinking { .. } => "thinking",
            Self::ToolCalled { .. } => "tool_called",
            Self::ServerToolCalled { .. } => "server_tool_called",
            Self::ToolProgress { .. } => "tool_progress",
            Self::Fact(_) => "fact",
            Self::Retrying { .. } => "retrying",
            Self::ModelSwitched { .. } => "model_switched",
            Self::CallHeld(_) => "call_held",
            Self::HeldCallAnswered { .. } => "held_call_answered",
            Self::ServerAsks(_) => "server_asks",
            Self::ServerQuestionClosed { .. } => "server_question_closed",
            Self::LimitReached { .. } => "limit_reached",
            Self::LabelReached { .. } => "label_reached",
            Self::LimitRaised { .. } => "limit_raised",
            Self::TurnEnded { .. } => "turn_ended",
            Self::Hibernated { .. } => "hibernated",
            Self::Woke { .. } => "woke",
            Self::Reopened { .. } => "reopened",
            Self::Exited { .. } => "exited",
            Self::Lagged { .. } => "lagged",
            Self::TooFarBehind { .. } => "too_far_behind",
            Self::Collected { .. } => "collected",
            Self::Unreadable { .. } => "unreadable",
        }
    }
}

impl From<&Event> for EventView {
    fn from(event: &Event) -> Self {
        match event {
            Event::Started {
                pid,
                parent,
                program,
            } => Self::Started {
                pid: pid.0,
                parent: parent.map(|pid| pid.0),
                program: program.to_string(),
            },
            Event::Text { pid, text } => Self::Text {
                pid: pid.0,
                text: text.clone(),
            },
            Event::Thinking { pid, text } => Self::Thinking {
                pid: pid.0,
                text: text.clone(),
            },
            Event::ToolCalled { pid, tool, args } => Self::ToolCalled {
                pid: pid.0,
                tool: tool.to_string(),
                args: args.to_string(),
            },
            Event::ServerToolCalled {
                pid,
                tool,
                calls,
                args,
            } => Self::ServerToolCalled {
                pid: pid.0,
                tool: tool.to_string(),
                calls: *calls,
                args: args.to_string(),
            },
            Event::ToolProgress {
                pid,
                tool,
                progress,
            } => Self::ToolProgress {
                pid: pid.0,
                tool: tool.to_string(),
                done: progress.done,
                total: progress.total,
                message: progress.message.to_string(),
            },
            Event::Fact { pid, number, fact } => Self::Fact(FactEventView {
                pid: pid.0,
                number: number.0,
                fact: fact.name().to_owned(),
                commit: None,
                at_ms: None,
                summary: None,
            }),
            Event::Retrying {
                pid,
                reason,
                delay_ms,
            } => Self::Retrying {
                pid: pid.0,
                reason: reason.clone(),
                delay_ms: *delay_ms,
            },
            Event::ModelSwitched {
                pid,
                from,
                to,
                reason,
            } => Self::ModelSwitched {
                pid: pid.0,
                from: from.to_string(),
                to: to.to_string(),
                reason: reason.to_string(),
            },
            Event::CallHeld { call } => Self::CallHeld(call.into()),
            Event::HeldCallAnswered { call } => Self::HeldCallAnswered {
                pid: call.pid.0,
                call: call.to_string(),
            },
            Event::ServerAsks { question } => Self::ServerAsks(question.into()),
            Event::ServerQuestionClosed { id } => Self::ServerQuestionClosed { question: *id },
            Event::LimitReached { pid, paused } => Self::LimitReached {
                pid: pid.0,
                paused: paused.into(),
            },
            Event::LabelReached {
                pid,
                label,
                reached,
                until_ms,
            } => Self::LabelReached {
                pid: pid.0,
                label: label.to_string(),
                reached: reached.into(),
                until_ms: *until_ms,
            },
            Event::LimitRaised { pid, by, source } => Self::LimitRaised {
                pid: pid.0,
                by: by.to_string(),
                by_rule: *source == RaiseSource::Rule,
            },
            Event::TurnEnded { pid, outcome } => Self::TurnEnded {
                pid: pid.0,
                status: outcome.status.word().to_owned(),
            },
            Event::Hibernated { pid } => Self::Hibernated { pid: pid.0 },
            Event::Woke { pid } => Self::Woke { pid: pid.0 },
            Event::Reopened { pid, reopenings } => Self::Reopened {
                pid: pid.0,
                reopenings: *reopenings,
            },
            Event::Exited { pid, exit } => Self::Exited {
                pid: pid.0,
                status: exit.status.word().to_owned(),
            },
            Event::Lagged { missed } => Self::Lagged { missed: *missed },
        }
    }
}
