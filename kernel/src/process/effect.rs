//! What the shell has to do for a process.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_proto::id::{CallId, FdId};
use dormouse_proto::model::Request;
use dormouse_proto::process::{Exit, Origin};
use dormouse_proto::tool::{Answer, OutsideTool};

use super::Image;
use crate::program::{ModelChoice, Program};
use crate::syscall::checkpoint::CheckpointOp;
use crate::syscall::spawn::PendingSpawn;
use crate::syscall::{PendingMessage, PendingSummary, PendingTempFile, PendingWrite};
use dormouse_content::Content;

/// Something to be done, after the facts before it are durable.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "most decisions have one effect, and it begins work"
)]
pub enum Effect {
    /// Begin work for a call; what comes is [`Input::Completed`](super::Input::Completed).
    Begin {
        /// The call.
        call: CallId,
        /// What is to be done.
        work: Work,
    },
    /// Stop the I/O and the children of these calls, without waiting for their end.
    Abandon {
        /// The calls.
        calls: Vec<CallId>,
    },
    /// See to it that these children exist; a spawned one that does is
    /// [`ChildEvent::Started`](super::ChildEvent::Started), each end is
    /// [`ChildEvent::Ended`](super::ChildEvent::Ended). A child that exists already, by parent and
    /// origin, is not made again, and its end is reported once more.
    StartChildren {
        /// The children, in order.
        children: Vec<Child>,
        /// Whether an earlier life of the process may have made them.
        may_exist: bool,
    },
    /// Look for a child that an earlier life of the process made, or that was given up. One that is
    /// there goes on, and what comes is what came when it was started; one that is not is
    /// [`ChildEvent::Absent`](super::ChildEvent::Absent).
    FindChild {
        /// The call.
        call: CallId,
        /// Which of the call's children, from 0.
        index: u32,
    },
    /// Stop the children of all calls but these: what an earlier life of the process had given up,
    /// and may not have stopped.
    KeepChildren {
        /// The calls that still wait for their children.
        calls: Vec<CallId>,
    },
    /// Wake the process at this time; what comes is [`Input::TimeUp`](super::Input::TimeUp). In
    /// place of what was asked for before.
    WakeAt {
        /// Milliseconds since the epoch, UTC.
        at_ms: u64,
    },
    /// Answer a request of the host, or the sender of a message.
    AnswerHost {
        /// The asker's name of its call.
        ticket: Arc<str>,
        /// The answer.
        answer: Answer,
    },
    /// Tell what has become of the process.
    Report(Report),
}

/// What is done for a call next to the process.
#[derive(Clone, Debug)]
pub enum Work {
    /// Ask the model; what comes is [`Completion::Model`](super::Completion::Model).
    Model {
        /// What is sent.
        request: Request,
        /// Media that its messages name. They are read before it is sent, into the request.
        media: BTreeMap<FdId, Content>,
        /// To whom.
        model: ModelChoice,
    },
    /// Run a tool; what comes is [`Completion::Tool`](super::Completion::Tool).
    Tool {
        /// The tool, as the process was given it.
        tool: OutsideTool,
        /// The arguments as the tool gets them, handles expanded: JSON text.
        args: Arc<str>,
        /// The arguments as they were written.
        written: Arc<str>,
    },
    /// Write a file; what comes is [`Completion::FileWritten`](super::Completion::FileWritten).
    WriteFile(PendingWrite),
    /// Ask a model outside of the conversation, for a summary; what comes is
    /// [`Completion::Summarized`](super::Completion::Summarized).
    Summarize {
        /// What is asked. It comes back with the reply.
        pending: PendingSummary,
        /// What is sent.
        request: Request,
        /// To whom.
        model: ModelChoice,
    },
    /// Ask the files of the process's tree; what comes is
    /// [`Completion::TempFile`](super::Completion::TempFile). The call is the operation's origin:
    /// one that is asked for again is not done again.
    TempFile(PendingTempFile),
    /// Read files for a child that is to be spawned; what comes is
    /// [`Completion::Fetched`](super::Completion::Fetched).
    Fetch(PendingSpawn),
    /// Take a message to another process; what comes is
    /// [`Completion::MessageSent`](super::Completion::MessageSent). The call is what the receiver
    /// knows the message by: one that is sent again is not heard twice.
    Send {
        /// No call below this number is waited for.
        settled: u32,
        /// To whom, and what.
        pending: PendingMessage,
    },
    /// Look up the processes that this one can write to; what comes is
    /// [`Completion::Listed`](super::Completion::Listed).
    ListProcesses,
    /// Ask the checkpoints of the process; what comes is
    /// [`Completion::Checkpoint`](super::Completion::Checkpoint).
    Checkpoint(CheckpointOp),
    /// Let the call wait for so long at most; what comes is
    /// [`Completion::TimedOut`](super::Completion::TimedOut).
    Wait {
        /// Milliseconds.
        timeout_ms: u64,
    },
}

/// What has become of a process.
#[derive(Clone, Debug)]
pub enum Report {
    /// Another model is asked from here on.
    Switch {
        /// The model that failed, by its name.
        from: Arc<str>,
        /// The model that is asked now.
        to: Arc<str>,
        /// How the first failed.
        reason: Arc<str>,
    },
    /// The turn is over and the process waits.
    Turn {
        /// How the turn ended.
        outcome: Exit,
    },
    /// The process has ended.
    Exit {
        /// How.
        exit: Exit,
    },
}

impl Effect {
    /// Whether it begins something for one of these calls.
    #[must_use]
    pub fn begins(&self, calls: &[CallId]) -> bool {
        match self {
            Self::Begin { call, .. } | Self::FindChild { call, .. } => calls.contains(call),
            Self::StartChildren { children, .. } => {
                children.iter().any(|child| match child.origin {
                    Origin::Forked { call, .. } | Origin::Spawned { call } => calls.contains(&call),
                    Origin::Started | Origin::Copied { .. } => false,
                })
            }
            Self::Abandon { .. }
            | Self::KeepChildren { .. }
            | Self::WakeAt { .. }
            | Self::AnswerHost { .. }
            | Self::Report(_) => false,
        }
    }
}

/// A child to be.
#[derive(Clone, Debug)]
pub struct Child {
    /// Where it comes from: with the parent's pid the key that it is made once by.
    pub origin: Origin,
    /// The program that it runs.
    pub program: Program,
    /// What it starts from.
    pub image: Image,
}
