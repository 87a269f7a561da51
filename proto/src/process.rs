//! What is said about a process from outside: how it ended, where it comes from, how it stands.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{CallId, FactNumber, Pid};
use crate::model::Usage;

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The kind of end.
    pub status: ExitStatus,
    /// The last thing it said, or the reason of a failure.
    pub message: Arc<str>,
    /// What it and all below it used of models until then; none: nobody knows.
    pub spent: Option<Usage>,
}

impl Exit {
    /// An end of which nobody knows what was used before it.
    pub fn new(status: ExitStatus, message: impl Into<Arc<str>>) -> Self {
        Self { status, message: message.into(), spent: None }
    }

    /// The same end, and what was used before it.
    #[must_use]
    pub fn after(self, spent: Usage) -> Self {
        Self { spent: Some(spent), ..self }
    }
}

/// Kinds of end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It finished its task.
    Done,
    /// Its last reply was cut at the limit of output tokens.
    Truncated,
    /// It used up `max_iterations`.
    IterationLimit,
    /// It used up its budget, or all below it did together with it.
    BudgetExhausted,
    /// Its model declined.
    Refused,
    /// Its model could not be reached, or gave no usable reply.
    ModelFailed,
    /// It was interrupted before its task was done.
    Interrupted,
    /// It was killed.
    Killed,
    /// The kernel gave it up after repeated faults.
    Faulted,
}

impl ExitStatus {
    /// The word for it, in listings and answers.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Truncated => "truncated",
            Self::IterationLimit => "iteration_limit",
            Self::BudgetExhausted => "budget_exhausted",
            Self::Refused => "refused",
            Self::ModelFailed => "model_failed",
            Self::Interrupted => "interrupted",
            Self::Killed => "killed",
            Self::Faulted => "faulted",
        }
    }
}

/// How soon a process's model calls are made where others wait for the same provider. It says nothing of anything else:
/// what a process holds in memory, and when its messages are taken, do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// After others, but never not at all.
    Low,
    /// As most.
    #[default]
    Normal,
    /// Before others, for someone who waits.
    High,
}

/// Where a process comes from. One of a branch keeps that of the process that it was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// The host started it.
    Started,
    /// A process forked it: child `index` (from 0) of this call.
    Forked {
        /// The call of the parent.
        call: CallId,
        /// Which of the call's children.
        index: u32,
    },
    /// A process spawned it by this call.
    Spawned {
        /// The call of the parent.
        call: CallId,
    },
    /// The host copied it, alone, from a fact of another process's journal.
    Copied {
        /// The process whose journal it was.
        from: Pid,
        /// The last fact that was taken over.
        at: FactNumber,
    },
}

/// A line of the process table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// The process.
    pub pid: Pid,
    /// Its parent, if a process made it.
    pub parent: Option<Pid>,
    /// The name of its program.
    pub program: Arc<str>,
    /// The name that the host gave it, and that others write to it by while it lives.
    pub name: Option<Arc<str>>,
    /// Where it comes from.
    pub origin: Origin,
    /// Of a process of a branch: which process it is a branch of, and from where on.
    pub restored: Option<Restored>,
    /// How it ended; none while it lives.
    pub exit: Option<Exit>,
}

/// What a process of a branch goes on from.
///
/// The processes of a branch go on knowing each other, and themselves, by the numbers that stand in their conversations: those
/// of the processes that they were made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// The process whose journal it was.
    pub from: Pid,
    /// The last fact that was taken over.
    pub at: FactNumber,
    /// The number that it goes by within its tree: that of `from`, or what that went by.
    pub known_as: Pid,
}

impl ProcessRow {
    /// The number that the process goes by within its tree.
    #[must_use]
    pub fn known_as(&self) -> Pid {
        self.restored.map_or(self.pid, |restored| restored.known_as)
    }

    /// Whose journal the process goes on from, and which of its facts was the last of that, where it does.
    #[must_use]
    pub fn ancestor(&self) -> Option<(Pid, FactNumber)> {
        match (self.restored, &self.origin) {
            (Some(restored), _) => Some((restored.from, restored.at)),
            (None, Origin::Copied { from, at }) => Some((*from, *at)),
            (None, Origin::Started | Origin::Forked { .. } | Origin::Spawned { .. }) => None,
        }
    }
}
