//! Inputs: everything that can happen to a process.

use std::sync::Arc;

use dormouse_proto::alarm::AlarmId;
use dormouse_proto::budget::Budget;
use dormouse_proto::effect::EffectPolicy;
use dormouse_proto::file::FileError;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::{ReachableProcess, Sender};
use dormouse_proto::model::{ModelError, Reply};
use dormouse_proto::process::Exit;
use dormouse_proto::temp_file::{TempFileError, TempFileReply};
use dormouse_proto::tool::{Answer, ExternalTool, ToolOutput, ToolSpec};
use dormouse_proto::user_input::UserInput;

use super::{
    CheckpointError, CheckpointImage, CheckpointReply, EndedChild, Envelope, FetchError, Fetched,
    PendingSpawn, PlacedArrival, PlacedReply, ReadResult, Verdict,
};
use crate::tool::{PendingSummary, PendingTempFile, PendingWrite};
use dormouse_content::{CappedBytes, Content};

/// Something that happened to a process. [`decide`](super::decide()) handles one input at a time.
#[derive(Clone, Debug)]
pub enum Input {
    /// The host sends input, in its own name or in the name of a process.
    UserInput {
        /// Who sends the input.
        from: Sender,
        /// The parts of the input.
        user_input: UserInput,
    },
    /// A message of another process. It may be delivered again after a restart.
    Message {
        /// Id of the delivery; the receipt carries it.
        request_id: Arc<str>,
        /// Pid of the sender.
        from: Pid,
        /// Call of the sender; identifies the message.
        call: CallId,
        /// The sender has received the acknowledgement of every message below this sequence number,
        /// and repeats none of them.
        acked_below: u32,
        /// The message.
        envelope: Envelope,
    },
    /// The bytes of an arrival have been read, so that it is known whether it enters the context as
    /// text or becomes a descriptor.
    Placed(PlacedArrival),
    /// The host makes a request.
    Host {
        /// Id of the request; the answer carries it.
        request_id: Arc<str>,
        /// The request.
        request: HostRequest,
    },
    /// Work or a read for a call has finished.
    Completed {
        /// The call.
        call: CallId,
        /// The outcome.
        result: Completion,
    },
    /// Outcome of [`Effect::Summarize`](super::Effect::Summarize).
    Summarized {
        /// The pending summary, returned unchanged.
        pending: PendingSummary,
        /// The outcome of the request.
        result: Result<Reply, ModelError>,
    },
    /// Something happened to a child.
    Child {
        /// The call that created the child, or tried to.
        call: CallId,
        /// The event.
        event: ChildEvent,
    },
    /// A message is to open an ended child again.
    ReopenChild {
        /// Id of the request; the answer carries it.
        request_id: Arc<str>,
        /// The child, and the message.
        child: Box<EndedChild>,
    },
    /// The process is started, stopped, continued or ended.
    Signal(Signal),
    /// A signal that waited for a process which is being loaded. It comes before
    /// [`Signal::Resume`], which says that the calls in flight are lost: so nothing begins, and what
    /// is to begin does so with that signal.
    SignalBeforeResume(Signal),
    /// The time of [`Effect::WakeAt`](super::Effect::WakeAt) has come.
    TimeUp {
        /// The requested time: milliseconds since the epoch, UTC.
        at_ms: u64,
    },
    /// An alarm may be due, or a held call may have expired. Without effect if neither is so.
    WakeDue,
}

/// A request of the host.
#[derive(Clone, Debug)]
pub enum HostRequest {
    /// Open a content as a descriptor.
    Open {
        /// The content, and how many bytes were cut off.
        capped: CappedBytes,
        /// Source of the content, as the descriptor shows it.
        source: String,
        /// Characters per page; `None`: the setting of the program.
        page_chars: Option<u32>,
    },
    /// Run one of the tools of the process.
    Call {
        /// Name of the tool, as the model would use it.
        tool: String,
        /// Arguments as JSON text.
        args: String,
    },
    /// Replace the tools of a process whose conversation has not begun.
    ReplaceTools {
        /// All tools, in the order in which a model gets them.
        tools: Arc<[ToolSpec]>,
        /// Those of them that run outside of the machine.
        external: Arc<[ExternalTool]>,
    },
    /// Apply the verdict of a person to a held call.
    AnswerHeld {
        /// The call.
        call: CallId,
        /// The verdict.
        verdict: Verdict,
    },
    /// Cancel the request of this id. Has no effect if the request is already answered.
    Cancel,
    /// Go back in the conversation.
    Goto {
        /// Message to go back to, such as `msg:3`.
        position: String,
        /// Text of the message that follows.
        message: String,
    },
    /// Cancel an alarm.
    CancelAlarm(AlarmId),
    /// Restore the process to a checkpoint.
    Restore(Box<CheckpointImage>),
    /// Name the policy for calls that repeat effects; `None`: that of the program.
    SetEffectPolicy(Option<EffectPolicy>),
    /// Raise limits of the process.
    Raise {
        /// What each limit is raised by.
        by: Budget,
        /// For a child: the limits that its larger share was reserved for. The request is refused if
        /// the limits have changed since.
        expected: Option<Budget>,
    },
    /// Reserve a larger share for a child, so that its limits can be raised.
    RaiseShare {
        /// The call that created the child.
        call: CallId,
        /// Index of the child within its call.
        index: u32,
        /// The limits that the child is to have.
        limits: Budget,
    },
    /// End the speculation of a process that was chosen among its branches.
    EndSpeculation,
}

/// The outcome of a [`Work`](super::Work) or of a read.
#[derive(Clone, Debug)]
pub enum Completion {
    /// The model replied, or the call failed.
    Model(Result<Reply, ModelError>),
    /// The model's reply has been read. Follows [`Completion::Model`] if something in the reply may
    /// become a descriptor.
    Reply(Box<PlacedReply>),
    /// Output of a tool that runs outside of the machine.
    Tool(ToolOutput),
    /// Result of a read for the call.
    Read(ReadResult),
    /// Outcome of writing a file.
    FileWritten {
        /// The pending operation, returned unchanged.
        pending: PendingWrite,
        /// The outcome.
        result: Result<(), FileError>,
    },
    /// Outcome of a request to the summary model.
    Summarized {
        /// The pending operation, returned unchanged.
        pending: PendingSummary,
        /// The outcome of the request.
        result: Result<Reply, ModelError>,
    },
    /// Outcome of an operation on the temporary files of the tree.
    TempFile {
        /// The pending operation, returned unchanged.
        pending: PendingTempFile,
        /// The outcome. If it is a change, the change is durable.
        result: Result<TempFileReply<Content>, TempFileError>,
    },
    /// Outcome of a checkpoint operation. A new checkpoint is durable.
    Checkpoint(Result<CheckpointReply, CheckpointError>),
    /// Outcome of reading the files for a spawn.
    Fetched {
        /// The pending operation, returned unchanged.
        pending: PendingSpawn,
        /// The outcome of the request.
        result: Result<Fetched, FetchError>,
    },
    /// The receiver's answer to a message: a durable receipt, or a refusal.
    MessageSent(Answer),
    /// The processes that this process can write to.
    Listed {
        /// Reachable processes, including this one.
        known: Vec<ReachableProcess>,
        /// Number of reachable processes that are not in the list.
        hidden: usize,
    },
    /// The timeout of a waiting call has passed.
    TimedOut,
}

/// An event of a child, or of the attempt to create one.
#[derive(Clone, Debug)]
pub enum ChildEvent {
    /// A spawned child exists and is durable.
    Started {
        /// Pid of the child.
        child: Pid,
    },
    /// The child does not exist: the kernel stopped before creating it, or the child belongs to the
    /// process that this one was copied from.
    Absent {
        /// Index of the child within its call, from 0.
        index: u32,
    },
    /// A spawned child could not be created.
    CreationFailed {
        /// The reason, as text for the model.
        why: String,
    },
    /// A child has ended.
    Ended {
        /// Index of the child within its call, from 0.
        index: u32,
        /// Pid of the child.
        child: Pid,
        /// Its exit.
        exit: Exit,
    },
}

/// A signal. A process handles it in every phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Start to run the process: it was created, or loaded from its journal.
    Resume,
    /// End the current turn with a valid history.
    Interrupt,
    /// Start nothing until `Continue`.
    Stop,
    /// Continue after a stop.
    Continue,
    /// End the process.
    Kill,
    /// Start nothing until `Release`: a process above this one is paused at a limit.
    Suspend,
    /// No process above this one is paused any more.
    Release,
}
