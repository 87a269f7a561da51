//! What can happen to a process.

use std::sync::Arc;

use dormouse_proto::file::FileError;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::{Neighbour, Speaker};
use dormouse_proto::model::{ModelError, Reply};
use dormouse_proto::process::Exit;
use dormouse_proto::spoken::Spoken;
use dormouse_proto::temp_file::{TempFileError, TempFileReply};
use dormouse_proto::tool::{Answer, ToolOutput};

use super::{Found, Placed};
use crate::content::{Collected, Content};
use crate::syscall::checkpoint::{CheckpointError, CheckpointReply, Standing};
use crate::syscall::spawn::{FetchError, Fetched, PendingSpawn};
use crate::syscall::{Letter, PendingSummary, PendingTempFile, PendingWrite};

/// Something that happened to a process.
#[derive(Clone, Debug)]
pub enum Input {
    /// Someone speaks to it.
    Spoke {
        /// Who.
        from: Speaker,
        /// What.
        spoken: Spoken,
    },
    /// The host hands it a content as a descriptor.
    Opened {
        /// The host's name of its call; the answer carries it.
        ticket: Arc<str>,
        /// The content, and what was cut off of it.
        collected: Collected,
        /// Where it comes from.
        source: String,
        /// Characters per page; none: as the program says.
        page_chars: Option<u32>,
    },
    /// The host runs one of its tools.
    HostCalled {
        /// The host's name of its call; the answer carries it.
        ticket: Arc<str>,
        /// The tool, by the name that the model would use.
        tool: String,
        /// The arguments: JSON text.
        args: String,
    },
    /// The host no longer wants what it called for. One that is answered is left as it is.
    HostGaveUp {
        /// The host's name of that call.
        ticket: Arc<str>,
    },
    /// The model answered, or could not be reached.
    ModelReplied {
        /// The call.
        call: CallId,
        /// What came.
        result: Result<Reply, ModelError>,
    },
    /// A tool outside of the machine finished.
    ToolReturned {
        /// The call.
        call: CallId,
        /// What it produced.
        output: ToolOutput,
    },
    /// What a call had to know of contents was read.
    Read {
        /// The call.
        call: CallId,
        /// What was found.
        found: Found,
    },
    /// What arrived from outside was read, and it is known where it goes.
    Placed(Placed),
    /// A file was written, or was not.
    FileWritten {
        /// The call.
        call: CallId,
        /// What was asked for, as it was given.
        pending: PendingWrite,
        /// What came of it.
        result: Result<(), FileError>,
    },
    /// A model that was asked for a summary answered, or could not be reached.
    Summarized {
        /// The call.
        call: CallId,
        /// What was asked for, as it was given.
        pending: PendingSummary,
        /// What came.
        result: Result<Reply, ModelError>,
    },
    /// The files of the tree answered.
    TempFileDone {
        /// The call.
        call: CallId,
        /// What was asked for, as it was given.
        pending: PendingTempFile,
        /// What came of it; durable where it is a change.
        result: Result<TempFileReply<Content>, TempFileError>,
    },
    /// The host sends it back in its conversation.
    SentBack {
        /// The host's name of its call; the answer carries it.
        ticket: Arc<str>,
        /// The message to go back to, as `msg:3`.
        position: String,
        /// What follows it.
        message: String,
    },
    /// The host takes it back to a checkpoint.
    TakenBack {
        /// The host's name of its call; the answer carries it.
        ticket: Arc<str>,
        /// The process as it stood there.
        standing: Box<Standing>,
    },
    /// The checkpoints answered.
    CheckpointDone {
        /// The call.
        call: CallId,
        /// What came of it; durable where one was made.
        result: Result<CheckpointReply, CheckpointError>,
    },
    /// Files for a child that is to be spawned were read, or were not.
    Fetched {
        /// The call.
        call: CallId,
        /// What was asked for, as it was given.
        pending: PendingSpawn,
        /// What came.
        result: Result<Fetched, FetchError>,
    },
    /// A child that was to be spawned is not born: what it needs cannot be had.
    NotBorn {
        /// The call that was to make it.
        call: CallId,
        /// Why: a text for the model.
        why: String,
    },
    /// A spawned child exists, durably.
    ChildStarted {
        /// The call that made it.
        call: CallId,
        /// The child.
        child: Pid,
    },
    /// A call has no such child: none was made before the kernel stopped, or by another process only.
    NoChild {
        /// The call.
        call: CallId,
        /// Which of the call's children, from 0.
        index: u32,
    },
    /// A child ended.
    ChildEnded {
        /// The call that made it.
        call: CallId,
        /// Which of the call's children, from 0.
        index: u32,
        /// The child.
        child: Pid,
        /// How it ended.
        exit: Exit,
    },
    /// Another process says something, for the first time or again.
    Messaged {
        /// The name of the delivery; the receipt carries it.
        ticket: Arc<str>,
        /// The sender.
        from: Pid,
        /// Its call.
        call: CallId,
        /// The sender waits for no call below this number.
        settled: u32,
        /// What it says.
        letter: Letter,
    },
    /// A message was received, durably, or was refused.
    MessageSent {
        /// The call.
        call: CallId,
        /// The receiver's word.
        receipt: Answer,
    },
    /// The processes that it can write to were looked up.
    Listed {
        /// The call.
        call: CallId,
        /// Those that are told of, itself among them.
        known: Vec<Neighbour>,
        /// How many there are beside them.
        hidden: usize,
    },
    /// The time that a call waits at most is over.
    TimedOut {
        /// The call.
        call: CallId,
    },
    /// A time has come that the process wanted to be woken at.
    TimeUp {
        /// The time: milliseconds since the epoch, UTC.
        at_ms: u64,
    },
    /// The kernel begins to run the process: just born, or back from its journal.
    Resumed,
    /// End the current turn cleanly.
    Interrupted,
    /// Begin nothing from here on.
    Stopped,
    /// Go on after a stop.
    Continued,
    /// End the process.
    Killed,
}
