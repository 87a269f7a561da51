//! What can happen to a process.

use std::sync::Arc;

use dormouse_proto::file::FileError;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::{Neighbour, Sender};
use dormouse_proto::model::{ModelError, Reply};
use dormouse_proto::process::Exit;
use dormouse_proto::temp_file::{TempFileError, TempFileReply};
use dormouse_proto::tool::{Answer, ToolOutput};
use dormouse_proto::user_input::UserInput;

use super::{Found, Placed};
use crate::syscall::checkpoint::{CheckpointError, CheckpointReply, Standing};
use crate::syscall::spawn::{FetchError, Fetched, PendingSpawn};
use crate::syscall::{Envelope, PendingSummary, PendingTempFile, PendingWrite};
use dormouse_content::{CappedBytes, Content};

/// Something that happened to a process.
#[derive(Clone, Debug)]
pub enum Input {
    /// Someone speaks to it.
    Spoke {
        /// Who.
        from: Sender,
        /// What.
        user_input: UserInput,
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
        letter: Envelope,
    },
    /// An arrival was read, and it is known where it goes.
    Placed(Placed),
    /// The host asks for something.
    Host {
        /// The host's name of its call; the answer carries it.
        ticket: Arc<str>,
        /// What it asks for.
        request: HostRequest,
    },
    /// What was begun for a call is done.
    Completed {
        /// The call.
        call: CallId,
        /// The outcome.
        result: Completion,
    },
    /// There is news of a child.
    Child {
        /// The call that made it, or was to.
        call: CallId,
        /// The news.
        event: ChildEvent,
    },
    /// It is begun, ended, or held up.
    Signal(Signal),
    /// A time has come that the process wanted to be woken at.
    TimeUp {
        /// The time: milliseconds since the epoch, UTC.
        at_ms: u64,
    },
}

/// What a host asks of a process.
#[derive(Clone, Debug)]
pub enum HostRequest {
    /// To take a content as a descriptor.
    Open {
        /// The content, and what was cut off of it.
        collected: CappedBytes,
        /// Where it comes from.
        source: String,
        /// Characters per page; none: as the program says.
        page_chars: Option<u32>,
    },
    /// To run one of its tools.
    Call {
        /// The tool, by the name that the model would use.
        tool: String,
        /// The arguments: JSON text.
        args: String,
    },
    /// To give up the call of this ticket. One that is answered is left as it is.
    GiveUp,
    /// To go back in its conversation.
    SendBack {
        /// The message to go back to, as `msg:3`.
        position: String,
        /// What follows it.
        message: String,
    },
    /// To go back to a checkpoint, at which it was in this state.
    TakeBack(Box<Standing>),
}

/// What came of a [`Work`](super::Work), or of a read.
#[derive(Clone, Debug)]
pub enum Completion {
    /// The model answered, or could not be reached.
    Model(Result<Reply, ModelError>),
    /// What a tool outside of the machine produced.
    Tool(ToolOutput),
    /// What a call had to know of contents.
    Read(Found),
    /// A file was written, or was not.
    FileWritten {
        /// What was asked for, as it was given.
        pending: PendingWrite,
        /// The outcome.
        result: Result<(), FileError>,
    },
    /// A model that was asked for a summary answered, or could not be reached.
    Summarized {
        /// What was asked for, as it was given.
        pending: PendingSummary,
        /// What came.
        result: Result<Reply, ModelError>,
    },
    /// The files of the tree answered.
    TempFile {
        /// What was asked for, as it was given.
        pending: PendingTempFile,
        /// The outcome; durable if it is a change.
        result: Result<TempFileReply<Content>, TempFileError>,
    },
    /// The checkpoints answered. If one was made, it is durable.
    Checkpoint(Result<CheckpointReply, CheckpointError>),
    /// Files for a child that is to be spawned were read, or were not.
    Fetched {
        /// What was asked for, as it was given.
        pending: PendingSpawn,
        /// What came.
        result: Result<Fetched, FetchError>,
    },
    /// A message was received, durably, or was refused: the receiver's word.
    MessageSent(Answer),
    /// The processes that it can write to were looked up.
    Listed {
        /// Those that are told of, itself among them.
        known: Vec<Neighbour>,
        /// How many more there are.
        hidden: usize,
    },
    /// The time that a call waits at most is over.
    TimedOut,
}

/// What became of a child, or of the attempt to make one.
#[derive(Clone, Debug)]
pub enum ChildEvent {
    /// A spawned child exists, durably.
    Started {
        /// The child.
        child: Pid,
    },
    /// There is no such child: none was made before the kernel stopped, or by another process only.
    Absent {
        /// Which of the call's children, from 0.
        index: u32,
    },
    /// A spawned child is not born: what it needs cannot be had.
    NotBorn {
        /// Why: a text for the model.
        why: String,
    },
    /// A child ended.
    Ended {
        /// Which of the call's children, from 0.
        index: u32,
        /// The child.
        child: Pid,
        /// How it ended.
        exit: Exit,
    },
}

/// A signal, which a process handles in any phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The kernel begins to run the process: just born, or back from its journal.
    Resume,
    /// End the current turn cleanly.
    Interrupt,
    /// Begin nothing from here on.
    Stop,
    /// Go on after a stop.
    Continue,
    /// End the process.
    Kill,
}
