//! What the shell has to do for a process.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_proto::id::{CallId, FdId};
use dormouse_proto::model::Request;
use dormouse_proto::process::{Exit, Origin};
use dormouse_proto::tool::{Answer, OutsideTool};

use super::Image;
use crate::content::Content;
use crate::program::{ModelChoice, Program};
use crate::syscall::checkpoint::CheckpointOp;
use crate::syscall::spawn::PendingSpawn;
use crate::syscall::{PendingMessage, PendingSummary, PendingTempFile, PendingWrite};

/// Something to be done, after the facts before it are durable.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Ask the model; what comes is [`Input::ModelReplied`](super::Input::ModelReplied).
    CallModel {
        /// The call.
        call: CallId,
        /// What is sent.
        request: Request,
        /// Media that its messages name. They are read before it is sent, into the request.
        media: BTreeMap<FdId, Content>,
        /// To whom.
        model: ModelChoice,
    },
    /// Tell whoever watches that another model is asked from here on.
    ReportSwitch {
        /// The model that failed, by its name.
        from: Arc<str>,
        /// The model that is asked now.
        to: Arc<str>,
        /// How the first failed.
        reason: Arc<str>,
    },
    /// Run a tool; what comes is [`Input::ToolReturned`](super::Input::ToolReturned).
    CallTool {
        /// The call.
        call: CallId,
        /// The tool, as the process was given it.
        tool: OutsideTool,
        /// The arguments as the tool gets them, handles expanded: JSON text.
        args: Arc<str>,
        /// The arguments as they were written.
        written: Arc<str>,
    },
    /// Write a file; what comes is [`Input::FileWritten`](super::Input::FileWritten).
    WriteFile {
        /// The call.
        call: CallId,
        /// What is written. It comes back with the result.
        pending: PendingWrite,
    },
    /// Ask a model beside the conversation, for a summary; what comes is [`Input::Summarized`](super::Input::Summarized).
    Summarize {
        /// The call.
        call: CallId,
        /// What is asked. It comes back with the reply.
        pending: PendingSummary,
        /// What is sent.
        request: Request,
        /// To whom.
        model: ModelChoice,
    },
    /// Ask the files of the process's tree; what comes is [`Input::TempFileDone`](super::Input::TempFileDone). The call is
    /// the operation's origin: one that is asked for again is not done again.
    TempFile {
        /// The call.
        call: CallId,
        /// The operation. It comes back with the result.
        pending: PendingTempFile,
    },
    /// Read files for a child that is to be spawned; what comes is [`Input::Fetched`](super::Input::Fetched).
    Fetch {
        /// The call.
        call: CallId,
        /// What is to be read, and for whom. It comes back with the result.
        pending: PendingSpawn,
    },
    /// Look for a child that an earlier life of the process made, or that was given up. One that is there goes on, and what
    /// comes is what came when it was started; one that is not is [`Input::NoChild`](super::Input::NoChild).
    FindChild {
        /// The call.
        call: CallId,
        /// Which of the call's children, from 0.
        index: u32,
    },
    /// Wake the process at this time; what comes is [`Input::TimeUp`](super::Input::TimeUp). In place of what was asked for
    /// before.
    WakeAt {
        /// Milliseconds since the epoch, UTC.
        at_ms: u64,
    },
    /// See to it that these children exist; a spawned one that does is
    /// [`Input::ChildStarted`](super::Input::ChildStarted), each end is [`Input::ChildEnded`](super::Input::ChildEnded). A child that
    /// exists already, by parent and origin, is not made again, and its end is reported once more.
    StartChildren {
        /// The children, in order.
        children: Vec<Child>,
        /// Whether an earlier life of the process may have made them.
        may_exist: bool,
    },
    /// Stop what runs for these calls: I/O and children. Nothing of it is awaited.
    Abandon {
        /// The calls.
        calls: Vec<CallId>,
    },
    /// Stop the children of all calls but these: what an earlier life of the process had given up, and may not have stopped.
    KeepChildren {
        /// The calls that still wait for their children.
        calls: Vec<CallId>,
    },
    /// Take a message to another process; what comes is [`Input::MessageSent`](super::Input::MessageSent). The call is what
    /// the receiver knows the message by: one that is sent again is not heard twice.
    Send {
        /// The call.
        call: CallId,
        /// No call below this number is waited for.
        settled: u32,
        /// To whom, and what.
        pending: PendingMessage,
    },
    /// Look up the processes that this one can write to; what comes is [`Input::Listed`](super::Input::Listed).
    ListProcesses {
        /// The call.
        call: CallId,
    },
    /// Ask the checkpoints of the process; what comes is [`Input::CheckpointDone`](super::Input::CheckpointDone).
    Checkpoint {
        /// The call.
        call: CallId,
        /// What is asked.
        op: CheckpointOp,
    },
    /// Let a call wait for so long at most; what comes is [`Input::TimedOut`](super::Input::TimedOut).
    Await {
        /// The call.
        call: CallId,
        /// Milliseconds.
        timeout_ms: u64,
    },
    /// Tell who asked, the host or the sender of a message, what came of it.
    AnswerHost {
        /// The asker's name of its call.
        ticket: Arc<str>,
        /// The answer.
        answer: Answer,
    },
    /// Tell the host that the turn is over and the process waits.
    ReportTurn {
        /// How the turn ended.
        outcome: Exit,
    },
    /// Tell the supervisor that the process has ended.
    ReportExit {
        /// How.
        exit: Exit,
    },
}

impl Effect {
    /// Whether it begins something for one of these calls.
    #[must_use]
    pub fn begins(&self, calls: &[CallId]) -> bool {
        match self {
            Self::CallModel { call, .. }
            | Self::CallTool { call, .. }
            | Self::WriteFile { call, .. }
            | Self::Summarize { call, .. }
            | Self::TempFile { call, .. }
            | Self::Fetch { call, .. }
            | Self::FindChild { call, .. }
            | Self::Send { call, .. }
            | Self::ListProcesses { call }
            | Self::Checkpoint { call, .. }
            | Self::Await { call, .. } => calls.contains(call),
            Self::StartChildren { children, .. } => children.iter().any(|child| match child.origin {
                Origin::Forked { call, .. } | Origin::Spawned { call } => calls.contains(&call),
                Origin::Started | Origin::Copied { .. } => false,
            }),
            Self::WakeAt { .. }
            | Self::ReportSwitch { .. }
            | Self::Abandon { .. }
            | Self::KeepChildren { .. }
            | Self::AnswerHost { .. }
            | Self::ReportTurn { .. }
            | Self::ReportExit { .. } => false,
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
