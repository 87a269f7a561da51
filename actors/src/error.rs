//! The error types of the embedding API.

use std::sync::Arc;

use dormouse_kernel::export::ExportError;
use dormouse_kernel::program::MissingPrice;
use dormouse_proto::alarm::{AlarmId, MAX_NOTE_CHARS};
use dormouse_proto::file::FileError;
use dormouse_proto::id::{CheckpointId, Pid, ProcessCallId};
use dormouse_proto::label::LabelError;
use dormouse_proto::model::ModelError;
use dormouse_proto::process::ResultError;
use tokio::task::JoinError;

use crate::checkpoint::CommitError;
use crate::handle::{JudgeError, Loser};
use crate::ownership::CloseReason;
use crate::ports::StoreError;
use crate::process::tool_call::panic_text;
use crate::recovery::LoadError;
use crate::server_questions::ServerQuestionError;

/// Why a request of the host failed, grouped by cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// Something that the request names does not exist, or a record that the store has lost may have
    /// held it.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// A name cannot be assigned.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A text is not a label, or a budget of a label is not valid.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// The process exists but cannot serve the request now.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A process was not started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The store failed, or data in it cannot be used.
    #[error(transparent)]
    Store(#[from] StoreFailure),
    /// An export cannot be read or written.
    #[error(transparent)]
    Export(#[from] ExportFailure),
    /// The model of a process cannot be reached, or it refused the request.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A race between branches has no winner.
    #[error(transparent)]
    Race(#[from] RaceError),
    /// A question of a tool server was not answered.
    #[error(transparent)]
    ServerQuestion(#[from] ServerQuestionError),
    /// The host cannot provide a file.
    #[error("{0}")]
    File(#[from] FileError),
    /// The kernel is shutting down.
    #[error("the kernel is shutting down")]
    Closed,
    /// The kernel has lost its lease on the store.
    #[error("{}", CloseReason::LeaseLost)]
    LeaseLost,
    /// A task of the kernel panicked, which is a defect of the kernel or of a port. Nothing that was
    /// acknowledged before is undone.
    #[error("the kernel failed internally: {0}")]
    Panicked(String),
}

/// A request names something that does not exist.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotFound {
    /// No such process.
    #[error("there is no process {0}: list the processes of the kernel to see which exist")]
    Process(Pid),
    /// No living process has this name.
    #[error(
        "there is no living process with the name '{0}': list the processes of the kernel to see \
         which exist"
    )]
    Name(String),
    /// The process is not in the checkpoint.
    #[error(
        "process {pid} is not in checkpoint {checkpoint}. `checkpoints()` lists the members of each"
    )]
    InCheckpoint {
        /// The process.
        pid: Pid,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The process has no such open alarm.
    #[error(
        "process {pid} has no open {id}: it was never set, has fired or was cancelled. `alarms()` \
         lists the open ones"
    )]
    Alarm {
        /// The process.
        pid: Pid,
        /// The alarm.
        id: AlarmId,
    },
    /// The cut or the export to create processes from has no process.
    #[error("nothing was created: there is no process to create")]
    Member,
    /// The process is not known, and the store has lost records that may include it.
    #[error(
        "{unknown}; it may be among the lost records: {lost}. `dormouse fsck` shows what can be done"
    )]
    MayBeLost {
        /// The message of the error for an unknown process.
        unknown: String,
        /// Which records are lost.
        lost: String,
    },
}

/// Why a name cannot be assigned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Another living process has this name.
    #[error(
        "the name '{name}' belongs to process {pid}, which has not ended. Choose another name, or \
         wait for the end of that process"
    )]
    Taken {
        /// The name.
        name: String,
        /// The process that has the name.
        pid: Pid,
    },
    /// The text is not a valid process name.
    #[error(
        "'{0}' cannot be the name of a process: valid are 1 to 64 of A-Z, a-z, 0-9, '_', '-' and \
         '.', not a number, and not 'parent'"
    )]
    Invalid(String),
    /// The kernel itself provides a tool of this name.
    #[error(
        "a tool named '{0}' cannot be registered: the kernel has a tool of this name. Choose \
         another name"
    )]
    ReservedTool(String),
}

/// Why a process cannot serve a request in its present state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The process stopped because its journal could not be read or written. It has not ended and
    /// can be resumed.
    #[error("process {pid} is held: {reason}. Fix the cause, then resume the process")]
    Held {
        /// The process.
        pid: Pid,
        /// Why the process stopped.
        reason: Arc<str>,
    },
    /// The process has ended.
    #[error(
        "process {0} has ended. To continue from an earlier state, branch from a fact or a checkpoint"
    )]
    Ended(Pid),
    /// The process has ended, and the input does not open it again.
    #[error("process {pid} was not opened again: {reason}")]
    NotReopened {
        /// The process.
        pid: Pid,
        /// Why, and what is valid.
        reason: String,
    },
    /// The inbox of the process is full.
    #[error(
        "the inbox of process {pid} is full: {limit} inputs wait. Wait until the process has \
         handled some of them, then try again"
    )]
    Busy {
        /// The process.
        pid: Pid,
        /// The capacity of the inbox.
        limit: usize,
    },
    /// The process cannot hibernate because work is pending.
    #[error(
        "process {pid} cannot hibernate now: {what}. Wait until it has nothing to do, or stop it, \
         then try again"
    )]
    Pending {
        /// The process.
        pid: Pid,
        /// The pending work.
        what: String,
    },
    /// The verdict of a person does not apply: no such call is held, or it is not valid for the call.
    #[error("call {call} was not answered: {reason}")]
    NotAnswered {
        /// The call.
        call: ProcessCallId,
        /// Why, and what is valid.
        reason: String,
    },
    /// The limits of a process were not raised.
    #[error("the limits of process {pid} were not raised: {reason}")]
    NotRaised {
        /// The process.
        pid: Pid,
        /// Why, and what to try.
        reason: String,
    },
    /// The process keeps the tools of tool servers that it has.
    #[error("the tools of process {pid} were not replaced: {reason}")]
    ToolsNotReplaced {
        /// The process.
        pid: Pid,
        /// Why.
        reason: String,
    },
    /// An input in which nothing is said begins no turn: it has no parts, or only white space.
    #[error(
        "the input is empty, so process {0} begins no turn with it. Give it a text or a part that \
         says something"
    )]
    EmptyInput(Pid),
    /// The process ended without a result of the type that was asked for.
    #[error("process {pid} gave no such result: {source}")]
    Result {
        /// The process.
        pid: Pid,
        /// Why there is none.
        source: ResultError,
    },
    /// The process stopped before it made the input durable or answered the call.
    #[error(
        "process {0} stopped before it could answer. Inspect the process to see whether the \
         request was executed, then try again"
    )]
    Unanswered(Pid),
}

/// Why a process was not started. The store does not contain the process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A tool server or another requirement of the program is not available.
    #[error("the process cannot start: {0}")]
    UnmetRequirement(String),
    /// The program has a cost limit, and the price of a model is not known.
    #[error("{0}")]
    Unpriced(#[from] MissingPrice),
    /// The time of its first input cannot be read, or never comes.
    #[error("the process cannot start: {0}")]
    Schedule(String),
    /// The input of a process that starts later is too long.
    #[error(
        "the process cannot start: its input has {chars} characters, and one that comes at a later \
         time has at most {MAX_NOTE_CHARS}. Give the rest as a preload of the program"
    )]
    NoteTooLong {
        /// The length of the input.
        chars: usize,
    },
    /// The kernel has used up the numbers that it may give to processes.
    #[error(
        "the process cannot start: no pid is left, since this kernel numbers processes up to {last}. \
         Open the store with a wider range of pids"
    )]
    NoPidLeft {
        /// The last pid of the range.
        last: Pid,
    },
    /// A part of the input of a process that starts later is not text.
    #[error(
        "the process cannot start: part {part} of its input is not UTF-8 text, and an input that \
         comes at a later time is a text. Give the part as a preload of the program"
    )]
    NoteNotText {
        /// The part, counted from 1.
        part: usize,
    },
}

/// Why a race between branches has no winner.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RaceError {
    /// There are no branches, or too many. No branch was made.
    #[error("a race has 1 to {limit} branches")]
    Branches {
        /// The most branches that one level of the search has: a race with a beam has several.
        limit: u32,
    },
    /// The judge cannot be asked. No branch was made.
    #[error("no branch was made: {0}")]
    Judge(JudgeError),
    /// No branch passed. All have ended.
    #[error("none of {} branches passed: {}", losers.len(), list_losers(losers))]
    NonePassed {
        /// The branches, each with the reason.
        losers: Vec<Loser>,
    },
}

fn list_losers(losers: &[Loser]) -> String {
    let reasons = losers
        .iter()
        .map(|loser| format!("process {}: {}", loser.pid, loser.reason));
    reasons.collect::<Vec<_>>().join("; ")
}

/// Why the store, or data in it, cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreFailure {
    /// The store failed to write. Nothing was acknowledged.
    #[error("not made durable: {0}")]
    NotDurable(String),
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A process cannot be rebuilt from its journal.
    #[error("{0}")]
    Load(Arc<LoadError>),
    /// The range of pids is empty, or holds what no pid can be.
    #[error(
        "a kernel cannot number its processes from {first} to {last}: valid are 1 to {}, the first \
         pid not above the last",
        Pid::MAX
    )]
    PidRange {
        /// The first pid.
        first: Pid,
        /// The last pid.
        last: Pid,
    },
    /// The store has assigned a pid outside of the range of the kernel. Nothing was changed.
    #[error(
        "the store holds process {pid}, or held it, and this kernel numbers its processes from \
         {first} to {last}: open the store with the range that it was made with"
    )]
    PidOutOfRange {
        /// The process.
        pid: Pid,
        /// The first pid of the range.
        first: Pid,
        /// The last pid of the range.
        last: Pid,
    },
    /// The kernel was built without a store.
    #[error("this kernel has no store: build it with `.store(…)`")]
    NoStore,
}

/// Why an export was not written or imported. A failed import creates no process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportFailure {
    /// The file is not a valid export.
    #[error("{0}")]
    Unusable(#[from] ExportError),
    /// The operating system cannot read or write the file.
    #[error("the export cannot be {doing}: {source}")]
    File {
        /// The failed operation: `read` or `written`.
        doing: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

impl From<JoinError> for KernelError {
    /// A task that did not panic was cancelled, because the runtime shuts down.
    fn from(error: JoinError) -> Self {
        match error.try_into_panic() {
            Ok(panic) => Self::Panicked(panic_text(&*panic)),
            Err(_) => Self::Closed,
        }
    }
}

impl From<LoadError> for KernelError {
    fn from(error: LoadError) -> Self {
        StoreFailure::Load(Arc::new(error)).into()
    }
}

impl From<CommitError> for KernelError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::LeaseLost => Self::LeaseLost,
            error => StoreFailure::NotDurable(error.to_string()).into(),
        }
    }
}

impl From<CloseReason> for KernelError {
    fn from(reason: CloseReason) -> Self {
        match reason {
            CloseReason::ShutDown => Self::Closed,
            CloseReason::LeaseLost => Self::LeaseLost,
            CloseReason::Store(error) => StoreFailure::NotDurable(error.to_string()).into(),
        }
    }
}

impl From<StoreError> for KernelError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.into())
    }
}

impl From<ExportError> for KernelError {
    fn from(error: ExportError) -> Self {
        Self::Export(error.into())
    }
}

impl From<MissingPrice> for KernelError {
    fn from(error: MissingPrice) -> Self {
        Self::Start(error.into())
    }
}
