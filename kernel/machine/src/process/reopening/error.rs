//! Why an ended process is not opened again.

use dormouse_proto::id::Pid;

use crate::budget::InsufficientBudget;

/// Why a message does not open an ended process again, and what to try. The sender reads it. Pids
/// are those that the sender knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReopeningError {
    /// There is no such process.
    #[error("There is no process {0}.")]
    Unknown(Pid),
    /// The process runs.
    #[error("Process {0} cannot be opened again: it has not ended.")]
    NotEnded(Pid),
    /// The process was killed, or it faulted.
    #[error(
        "Process {pid} has ended as {status}: it receives no more messages. Only a process that \
         ended by itself is opened again by a message."
    )]
    StaysEnded {
        /// The process.
        pid: Pid,
        /// The word for its status.
        status: &'static str,
    },
    /// The process was opened again as often as its program allows.
    #[error(
        "Process {pid} has ended and was opened again {reopenings} times, and its program allows \
         {limit} (limits.max_reopenings). Start another process, and tell it what it needs."
    )]
    TooOften {
        /// The process.
        pid: Pid,
        /// How often it was opened again.
        reopenings: u32,
        /// How often its program allows it.
        limit: u32,
    },
    /// Nothing is left of the budget of the process.
    #[error(
        "Process {pid} has ended and cannot be opened again: {reached}. Once the limit is raised, it \
         can."
    )]
    BudgetExhausted {
        /// The process.
        pid: Pid,
        /// The limit that it has reached.
        reached: String,
    },
    /// A raise opens a process again only if it has reached a limit.
    #[error("it has ended as {status}, and not at a limit. Send it a message: that opens it again")]
    NotAtLimit {
        /// The process.
        pid: Pid,
        /// The word for its status.
        status: &'static str,
    },
    /// The process does not accept the message. The text says why.
    #[error("{0}")]
    Mail(String),
    /// The input is no message.
    #[error("Process {0} has ended: only a message opens it again.")]
    NoMessage(Pid),
    /// The kernel has no store, so no journal of the process.
    #[error(
        "Process {0} has ended and cannot be opened again: this kernel has no store, and so no \
         journal of it."
    )]
    NoStore(Pid),
    /// Another process has the name of the process.
    #[error(
        "Process {pid} has ended and cannot be opened again: its name '{name}' belongs to process \
         {owner} now."
    )]
    NameTaken {
        /// The process.
        pid: Pid,
        /// Its name.
        name: String,
        /// The process that has the name.
        owner: Pid,
    },
    /// The parent of the process has ended.
    #[error(
        "Process {pid} has ended and cannot be opened again: its parent, process {parent}, has \
         ended too. Send the message to that process."
    )]
    ParentEnded {
        /// The process.
        pid: Pid,
        /// Its parent.
        parent: Pid,
    },
    /// The parent of the process is stopped.
    #[error(
        "Process {pid} has ended and cannot be opened again now: its parent, process {parent}, is \
         stopped. Continue it first."
    )]
    ParentStopped {
        /// The process.
        pid: Pid,
        /// Its parent.
        parent: Pid,
    },
    /// The parent of the process has not recorded the end of the process.
    #[error(
        "Process {pid} has ended and cannot be opened again now: its parent, process {parent}, has \
         not taken note of its end. Send the message again after that."
    )]
    ParentUnaware {
        /// The process.
        pid: Pid,
        /// Its parent.
        parent: Pid,
    },
    /// As many children of the parent run as its program allows.
    #[error(
        "Process {pid} has ended and cannot be opened again now: {running} children of its parent, \
         process {parent}, are running, and the program allows {limit} at a time \
         (limits.max_children). Send the message again when some have ended."
    )]
    TooManyChildren {
        /// The process.
        pid: Pid,
        /// Its parent.
        parent: Pid,
        /// How many children run.
        running: usize,
        /// How many may run.
        limit: usize,
    },
    /// The budget of the parent has no share for the process.
    #[error(
        "Process {pid} has ended and cannot be opened again: process {parent}, its parent, has no \
         share of its budget for it. {insufficient}"
    )]
    NoShare {
        /// The process.
        pid: Pid,
        /// Its parent.
        parent: Pid,
        /// What is missing.
        insufficient: InsufficientBudget,
    },
}
