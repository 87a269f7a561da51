//! Effects: the actions that the shell performs for a process (`actors/src/process/effects.rs`).
//! What comes of them comes back as an input (`input.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_proto::budget::{Budget, Paused, RaiseSource};
use dormouse_proto::id::{CallId, FdId};
use dormouse_proto::model::Request;
use dormouse_proto::process::{Exit, Origin};
use dormouse_proto::tool::{Answer, ExternalTool};

use super::{CheckpointOp, Image, PendingMessage, PendingSpawn};
use crate::tool::{PendingSummary, PendingTempFile, PendingWrite};
use dormouse_content::Content;
use dormouse_program::{ModelChoice, Program};

/// An action that the shell performs once the facts of the same decision are durable.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Start work for a call. Its outcome is [`Input::Completed`](super::Input::Completed).
    StartWork {
        /// Id of the call.
        call: CallId,
        /// The work.
        work: Work,
    },
    /// Call a model outside of the conversation and of all calls, for the summary of a new
    /// descriptor. Its outcome is [`Input::Summarized`](super::Input::Summarized).
    Summarize {
        /// The pending summary. It is returned with the reply.
        pending: PendingSummary,
        /// The request.
        request: Request,
        /// The model to call.
        model: ModelChoice,
    },
    /// Cancel the I/O and kill the children of these calls, without waiting for them.
    Abandon {
        /// The abandoned calls.
        calls: Vec<CallId>,
    },
    /// Kill the children of a call that stays open, without waiting for them. I/O of the call goes
    /// on: the read of its children may begin before this effect is performed, since an effect waits
    /// until its facts are durable and a read does not.
    KillChildren {
        /// The call.
        call: CallId,
    },
    /// Make sure that these children exist. The start of a spawned child is reported by
    /// [`ChildEvent::Started`](super::ChildEvent::Started), the end of each child by
    /// [`ChildEvent::Ended`](super::ChildEvent::Ended). A child is identified by its parent and
    /// origin: a child that exists already is not created again, and its end is reported again.
    StartChildren {
        /// The children, in the order of their index.
        children: Vec<Child>,
        /// Whether the children may exist already, from before a restart.
        may_exist: bool,
    },
    /// Look for a child that may exist from before a restart, or whose call was abandoned. If it
    /// exists, it continues and is reported like a child that was just started. Otherwise the shell
    /// reports [`ChildEvent::Absent`](super::ChildEvent::Absent).
    FindChild {
        /// Id of the call.
        call: CallId,
        /// Index of the child within its call, from 0.
        index: u32,
        /// How often the child was opened again, as far as this process knows.
        reopenings: u32,
    },
    /// Kill the children of all calls except these. The others were abandoned before a restart and
    /// may still be running.
    KillChildrenExcept {
        /// Calls whose children are still needed.
        calls: Vec<CallId>,
    },
    /// Wake the process at this time, by [`Input::TimeUp`](super::Input::TimeUp). Replaces the
    /// previous request.
    WakeAt {
        /// Milliseconds since the epoch, UTC.
        at_ms: u64,
    },
    /// Answer a request of the host or the sender of a message.
    AnswerHost {
        /// Id of the request.
        request_id: Arc<str>,
        /// The answer to the request.
        answer: Answer,
    },
    /// Report a change of the process to the host.
    Report(Report),
}

/// Work for a call that runs outside of the process actor.
#[derive(Clone, Debug)]
pub enum Work {
    /// Call the model. Outcome: [`Completion::Model`](super::Completion::Model).
    Model {
        /// The request.
        request: Request,
        /// Contents of the media that the messages name. The shell adds their bytes to the request
        /// before it sends the request.
        media: BTreeMap<FdId, Content>,
        /// The model to call.
        model: ModelChoice,
    },
    /// Run a tool. Outcome: [`Completion::Tool`](super::Completion::Tool).
    Tool {
        /// The tool, as it was when the process was created.
        tool: ExternalTool,
        /// Arguments for the tool as JSON text. Each handle (a reference to a descriptor) is
        /// replaced by the text that it refers to.
        args: Arc<str>,
        /// Arguments as the model wrote them.
        written: Arc<str>,
    },
    /// Write a file. Outcome: [`Completion::FileWritten`](super::Completion::FileWritten).
    WriteFile(PendingWrite),
    /// Call a model outside of the conversation, for a summary. Outcome:
    /// [`Completion::Summarized`](super::Completion::Summarized).
    Summarize {
        /// The pending summary. It is returned with the reply.
        pending: PendingSummary,
        /// The request.
        request: Request,
        /// The model to call.
        model: ModelChoice,
    },
    /// Perform an operation on the temporary files of the tree. Outcome:
    /// [`Completion::TempFile`](super::Completion::TempFile). The call identifies the operation, so
    /// that a repeated operation has no second effect.
    TempFile(PendingTempFile),
    /// Read the files for a spawn. Outcome: [`Completion::Fetched`](super::Completion::Fetched).
    Fetch(PendingSpawn),
    /// Deliver a message to another process. Outcome:
    /// [`Completion::MessageSent`](super::Completion::MessageSent). The call identifies the
    /// message, so that a repeated message is delivered once.
    Send {
        /// The sender has received the acknowledgement of every message below this sequence number.
        acked_below: u32,
        /// Address and message.
        pending: PendingMessage,
    },
    /// List the processes that this process can write to. Outcome:
    /// [`Completion::Listed`](super::Completion::Listed).
    ListProcesses,
    /// Perform a checkpoint operation. Outcome:
    /// [`Completion::Checkpoint`](super::Completion::Checkpoint).
    Checkpoint(CheckpointOp),
    /// Let the call wait at most this long. Outcome:
    /// [`Completion::TimedOut`](super::Completion::TimedOut).
    Wait {
        /// Timeout in milliseconds.
        timeout_ms: u64,
    },
}

/// A change of a process that is reported to its host.
#[derive(Clone, Debug)]
pub enum Report {
    /// The process switched to another model.
    Switch {
        /// Name of the model that failed.
        from: Arc<str>,
        /// Name of the model that is called from now on.
        to: Arc<str>,
        /// The failure of the first model.
        reason: Arc<str>,
    },
    /// A call waits for a person.
    Held {
        /// Id of the call.
        call: CallId,
    },
    /// A held call was approved, refused or answered, or it has expired.
    HeldAnswered {
        /// Id of the call.
        call: CallId,
    },
    /// The process is paused at a limit. The shell suspends the processes below it.
    Paused {
        /// The limit.
        paused: Paused,
    },
    /// Limits of the process were raised.
    Raised {
        /// What each limit was raised by.
        by: Budget,
        /// Who raised them.
        source: RaiseSource,
    },
    /// The process is paused no more. The shell releases the processes below it.
    Unpaused,
    /// The turn has ended, and the process waits for input.
    Turn {
        /// Result of the turn.
        outcome: Exit,
    },
    /// The process has ended.
    Exit {
        /// The exit of the process.
        exit: Exit,
    },
}

impl Effect {
    /// Whether the effect starts something that may act outside of the process.
    #[must_use]
    pub fn begins_work(&self) -> bool {
        matches!(
            self,
            Self::StartWork { .. } | Self::Summarize { .. } | Self::StartChildren { .. }
        )
    }

    /// Whether the effect starts something for one of these calls.
    #[must_use]
    pub fn starts_work_for(&self, calls: &[CallId]) -> bool {
        match self {
            Self::StartWork { call, .. } | Self::FindChild { call, .. } => calls.contains(call),
            Self::StartChildren { children, .. } => {
                children.iter().any(|child| match child.origin {
                    Origin::Forked { call, .. }
                    | Origin::Spawned { call }
                    | Origin::Judge { call, .. } => calls.contains(&call),
                    Origin::Started | Origin::Copied { .. } => false,
                })
            }
            Self::Summarize { .. }
            | Self::Abandon { .. }
            | Self::KillChildren { .. }
            | Self::KillChildrenExcept { .. }
            | Self::WakeAt { .. }
            | Self::AnswerHost { .. }
            | Self::Report(_) => false,
        }
    }
}

/// A child to be created.
#[derive(Clone, Debug)]
pub struct Child {
    /// Origin of the child. Parent pid and origin together identify the child, so that it is
    /// created once.
    pub origin: Origin,
    /// Program of the child.
    pub program: Program,
    /// Initial image of the child.
    pub image: Image,
}
