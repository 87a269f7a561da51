//! What the embedding API fails with.

use std::sync::Arc;

use dormouse_kernel::export::ExportError;
use dormouse_kernel::program::Unpriced;
use dormouse_proto::file::FileError;
use dormouse_proto::id::{CheckpointId, Pid};
use dormouse_proto::model::ModelError;

use crate::checkpoint::CommitError;
use crate::ports::StoreError;
use crate::recovery::LoadError;

/// Why the kernel did not do what the host asked, grouped by what is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A process, a name or a member of a checkpoint does not exist.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// A name cannot be assigned.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The process exists and cannot do it now.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A process was not started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The store failed, or what it holds cannot be used.
    #[error(transparent)]
    Store(#[from] StoreFailure),
    /// An export cannot be read or written.
    #[error(transparent)]
    Export(#[from] ExportFailure),
    /// The model of a process cannot be reached, or refused the request.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The host cannot provide a file.
    #[error("{0}")]
    File(#[from] FileError),
    /// The kernel is shutting down.
    #[error("the kernel is shutting down")]
    Closed,
}

/// What does not exist.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotFound {
    /// No such process.
    #[error("there is no process {0}: the kernel's list of processes shows those there are")]
    Process(Pid),
    /// No living process has this name.
    #[error(
        "there is no living process of the name '{0}': the kernel's list of processes shows those \
         there are"
    )]
    Name(String),
    /// The process is not in the checkpoint.
    #[error(
        "process {pid} is not in checkpoint {checkpoint}. `checkpoints()` says which are in each"
    )]
    InCheckpoint {
        /// The process.
        pid: Pid,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// No such process is known, and the store has lost records among which it may be.
    #[error(
        "{unknown}; it may be among what is lost: {lost}. `dormouse fsck` says what can be done"
    )]
    MayBeLost {
        /// What is not known.
        unknown: String,
        /// What is lost.
        lost: String,
    },
}

/// Why a name cannot be assigned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Another living process has this name.
    #[error(
        "the name '{name}' is that of process {pid}, which lives. Choose another, or wait for its \
         end"
    )]
    Taken {
        /// The name.
        name: String,
        /// Who has it.
        pid: Pid,
    },
    /// No process can go by this name.
    #[error(
        "'{0}' cannot be the name of a process: valid are 1 to 64 of A-Z, a-z, 0-9, '_', '-' and \
         '.', not a number, and not 'parent'"
    )]
    Invalid(String),
    /// The kernel has a tool of this name itself, and a program that enables it means that one.
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
    /// The process had to stop and has not ended: it is its journal, and can be resumed.
    #[error("process {pid} is held, as its journal says: {reason}. Resume it when this is mended")]
    Held {
        /// The process.
        pid: Pid,
        /// Why it had to stop.
        reason: Arc<str>,
    },
    /// The process has ended.
    #[error(
        "process {0} has ended. A branch of an earlier point of its journal goes on from there"
    )]
    Ended(Pid),
    /// The process's inbox is full.
    #[error(
        "the inbox of process {pid} is full: {limit} inputs wait. Wait for it to go on, then try \
         again"
    )]
    Busy {
        /// The process.
        pid: Pid,
        /// How many inputs it holds.
        limit: usize,
    },
    /// The process cannot hibernate now.
    #[error(
        "process {pid} cannot hibernate now: {what}. Wait until it has nothing to do, or stop it, \
         then try again"
    )]
    Pending {
        /// The process.
        pid: Pid,
        /// What it has to do.
        what: String,
    },
    /// The process stopped before the input was durable or the call was answered.
    #[error(
        "process {0} stopped before it could answer. Its journal says how far it came: look, then \
         try again"
    )]
    Unanswered(Pid),
}

/// Why a process was not started. The store does not contain it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A tool server or another requirement of its program is not available.
    #[error("the process cannot start: {0}")]
    Unmet(String),
    /// What is to be bounded cannot be counted.
    #[error("{0}")]
    Unpriced(#[from] Unpriced),
}

/// What is wrong with the store or with its contents.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreFailure {
    /// The store failed to write: nothing was acknowledged.
    #[error("not made durable: {0}")]
    NotDurable(String),
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No process can be rebuilt from a journal.
    #[error("{0}")]
    Load(Arc<LoadError>),
    /// The kernel was built without a store.
    #[error("this kernel has no store: build it with `.store(…)`")]
    NoStore,
}

/// Why an export was not written or imported. An import that fails leaves nothing in the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportFailure {
    /// The file is no export that can be used.
    #[error("{0}")]
    Unusable(#[from] ExportError),
    /// The operating system cannot read or write it.
    #[error("the export cannot be {doing}: {source}")]
    File {
        /// What was being done with it.
        doing: &'static str,
        /// What the operating system said.
        source: std::io::Error,
    },
}

impl From<LoadError> for KernelError {
    fn from(error: LoadError) -> Self {
        StoreFailure::Load(Arc::new(error)).into()
    }
}

impl From<CommitError> for KernelError {
    fn from(error: CommitError) -> Self {
        StoreFailure::NotDurable(error.to_string()).into()
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

impl From<Unpriced> for KernelError {
    fn from(error: Unpriced) -> Self {
        Self::Start(error.into())
    }
}
