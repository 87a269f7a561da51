//! The data about a process outside of its journal: its exit, its origin, and its row in the
//! process table.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::id::{CallId, FactNumber, Pid};
use crate::label::Label;
use crate::model::Usage;

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Kind of the exit.
    pub status: ExitStatus,
    /// Last reply of the model, or the reason of a failure.
    pub message: Arc<str>,
    /// Model usage of the process and its subtree; `None` if unknown.
    pub spent: Option<Box<Usage>>,
    /// How long the process ran, in milliseconds; 0 if its wall time is not limited.
    #[serde(default)]
    pub ran_ms: u64,
    /// Whether `message` is the result that the process submitted: JSON text that its result schema
    /// accepts.
    #[serde(default)]
    pub is_result: bool,
    /// How often the process had been opened again before this end.
    #[serde(default)]
    pub reopenings: u32,
}

/// An exit does not hold a result of the type that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// There is no result.
    #[error(
        "there is no typed result: the status is {}, and the message is {message:?}. Give the \
         program a [result] schema, and check the status first",
        .status.word()
    )]
    NoResult {
        /// Status of the exit.
        status: ExitStatus,
        /// Beginning of the message of the exit.
        message: String,
    },
    /// The result is no value of the type.
    #[error("the result is not a value of the type {type_name}: {source}")]
    OtherType {
        /// Name of the type.
        type_name: &'static str,
        /// Why the result cannot be read as that type.
        source: serde_json::Error,
    },
}

impl Exit {
    /// An exit with unknown usage.
    pub fn new(status: ExitStatus, message: impl Into<Arc<str>>) -> Self {
        Self {
            status,
            message: message.into(),
            spent: None,
            ran_ms: 0,
            is_result: false,
            reopenings: 0,
        }
    }

    /// The exit of a process that submitted a result. `json` is the text of the value.
    pub fn with_result(json: impl Into<Arc<str>>) -> Self {
        Self {
            is_result: true,
            ..Self::new(ExitStatus::Done, json)
        }
    }

    /// The result that the process submitted, as JSON text; `None` if it submitted none.
    #[must_use]
    pub fn result(&self) -> Option<&Arc<str>> {
        self.is_result.then_some(&self.message)
    }

    /// The result that the process submitted, as a value of `T`. O(n).
    ///
    /// # Errors
    /// [`ResultError`] if there is no result, or if it is no value of `T`.
    pub fn result_as<T: DeserializeOwned>(&self) -> Result<T, ResultError> {
        /// How much of a message an error quotes, in characters.
        const QUOTED_CHARS: usize = 200;
        let Some(json) = self.result() else {
            return Err(ResultError::NoResult {
                status: self.status,
                message: self.message.chars().take(QUOTED_CHARS).collect(),
            });
        };
        serde_json::from_str(json).map_err(|source| ResultError::OtherType {
            type_name: std::any::type_name::<T>(),
            source,
        })
    }

    /// The exit with this usage.
    #[must_use]
    pub fn with_usage(self, spent: Usage) -> Self {
        Self {
            spent: Some(Box::new(spent)),
            ..self
        }
    }
}

/// Kinds of exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It finished its task.
    Done,
    /// Its last reply was truncated at the limit of output tokens.
    Truncated,
    /// It used up `max_iterations`.
    IterationLimit,
    /// The budget of the process and its subtree was used up.
    BudgetExhausted,
    /// Its model refused.
    Refused,
    /// Its model could not be reached, or gave no usable reply.
    ModelFailed,
    /// It was interrupted before its task was done.
    Interrupted,
    /// It was killed.
    Killed,
    /// The kernel stopped restarting it after repeated faults.
    Faulted,
    /// It submitted no result that its result schema accepts, in as many attempts as it has.
    InvalidResult,
}

impl ExitStatus {
    /// The name in listings and answers.
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
            Self::InvalidResult => "invalid_result",
        }
    }

    /// Whether a message opens a process again that ended in this way: it was neither killed nor
    /// did it fault.
    #[must_use]
    pub fn can_be_reopened(self) -> bool {
        !matches!(self, Self::Killed | Self::Faulted)
    }
}

/// The priority of a process's model calls among those that wait for the same provider. It affects
/// nothing else: neither memory nor the order of messages.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// After others, without starving.
    Low,
    /// The default.
    #[default]
    Normal,
    /// Before others, for interactive use.
    High,
}

/// The origin of a process. A process of a branch keeps the origin of its original.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// Started by the host.
    Started,
    /// Forked by its parent: child `index` (from 0) of this call.
    Forked {
        /// Call of the parent.
        call: CallId,
        /// Index of the child within the call.
        index: u32,
    },
    /// Spawned by its parent with this call.
    Spawned {
        /// Call of the parent.
        call: CallId,
    },
    /// Copied by the host from a position of another process's journal.
    Copied {
        /// Process that was copied.
        from: Pid,
        /// Last fact that was copied.
        at: FactNumber,
    },
    /// Spawned by its parent in this call of `explore`, to judge another child of the call.
    Judge {
        /// Call of the parent.
        call: CallId,
        /// Index within the call, which follows those of the children that are judged.
        index: u32,
    },
}

/// A row of the process table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// Pid of the process.
    pub pid: Pid,
    /// Pid of its parent, if it has one.
    pub parent: Option<Pid>,
    /// Name of its program.
    pub program: Arc<str>,
    /// Name that the host assigned, by which others can write to it while it is alive.
    pub name: Option<Arc<str>>,
    /// How the process was created.
    pub origin: Origin,
    /// For a process of a branch or import: the process and position that it continues from.
    pub branched_from: Option<BranchOrigin>,
    /// Its exit; `None` while it is alive.
    pub exit: Option<Exit>,
    /// What it waits for.
    #[serde(default)]
    pub waiting: Waiting,
    /// How often the process was opened again after it had ended.
    #[serde(default)]
    pub reopenings: u32,
    /// Whether it is paused at a limit of its budget: it and all processes below it begin nothing.
    #[serde(default)]
    pub is_paused: bool,
    /// The labels of its tree, sorted. Empty for a process with a parent, whose tree has those of
    /// its root.
    #[serde(default)]
    pub labels: Arc<[Label]>,
}

/// What a process waits for, as the process table knows it without reading its journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waiting {
    /// Neither for an alarm nor for a person: no call of it is held.
    #[default]
    Nothing,
    /// Only for an alarm and for input: nothing has to be done for it before the alarm is due.
    Alarm {
        /// When its next alarm is due: milliseconds since the epoch, UTC.
        due_ms: u64,
    },
    /// Only for a person and for input: calls of it are held, and nothing else has to be done for
    /// it before one of them expires.
    Person {
        /// When the next of its held calls expires: milliseconds since the epoch, UTC.
        expires_ms: Option<u64>,
    },
    /// Its journal says it: calls of it are held while other work is under way, or the record of
    /// what it waits for is lost.
    Unknown,
}

impl Waiting {
    /// When the next alarm is due, if the process waits for one.
    #[must_use]
    pub fn alarm_ms(self) -> Option<u64> {
        match self {
            Self::Alarm { due_ms } => Some(due_ms),
            Self::Nothing | Self::Person { .. } | Self::Unknown => None,
        }
    }

    /// When the process has to be woken; `None` if no time wakes it.
    #[must_use]
    pub fn wake_ms(self) -> Option<u64> {
        match self {
            Self::Alarm { due_ms } => Some(due_ms),
            Self::Person { expires_ms } => expires_ms,
            Self::Nothing | Self::Unknown => None,
        }
    }

    /// Whether nothing has to be done for the process before that time.
    #[must_use]
    pub fn is_resting(self) -> bool {
        matches!(self, Self::Alarm { .. } | Self::Person { .. })
    }

    /// Whether calls of the process may be held.
    #[must_use]
    pub fn may_hold_calls(self) -> bool {
        matches!(self, Self::Person { .. } | Self::Unknown)
    }
}

/// The process and position that a process of a branch or an import continues from.
///
/// Conversations contain pids. The processes of a branch or an import therefore know themselves and
/// each other by the pids of their originals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchOrigin {
    /// Original process, in this store or in the source store of the export.
    pub pid: Pid,
    /// Last fact that was copied.
    pub fact: FactNumber,
    /// The pid by which the processes of its tree know this process: that of the original in its
    /// tree.
    pub local_id: Pid,
    /// Where the tree comes from, if it was ever imported.
    pub import: Option<ImportSource>,
}

/// The store that a tree was imported from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportSource {
    /// Export that contained the process; `None` if it is a branch, made here, of an imported
    /// process.
    pub export: Option<ExportId>,
    /// Highest pid of that store. A pid up to this one that belongs to no process of the tree
    /// refers to a process of that store, never to a process of this store. 0 if that store has no
    /// pid in common with this one.
    pub last_pid: Pid,
}

impl BranchOrigin {
    /// Whether the process comes from an export, so that its original is in another store.
    #[must_use]
    pub fn is_imported(&self) -> bool {
        self.import.is_some_and(|import| import.export.is_some())
    }
}

/// The id of an export: the last hash of its file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExportId(pub [u8; 32]);

impl fmt::Display for ExportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ExportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ProcessRow {
    /// Whether its pid is higher than its parent's, so that walking from child to parent
    /// terminates.
    #[must_use]
    pub fn has_higher_pid_than_parent(&self) -> bool {
        self.parent.is_none_or(|parent| parent < self.pid)
    }

    /// The row of an unnamed process that the host starts.
    #[must_use]
    pub fn started(pid: Pid, program: impl Into<Arc<str>>) -> Self {
        let program = program.into();
        let origin = Origin::Started;
        Self {
            pid,
            parent: None,
            program,
            name: None,
            origin,
            branched_from: None,
            exit: None,
            waiting: Waiting::Nothing,
            reopenings: 0,
            is_paused: false,
            labels: Arc::default(),
        }
    }

    /// The pid by which the processes of its tree know the process.
    #[must_use]
    pub fn local_id(&self) -> Pid {
        self.branched_from
            .map_or(self.pid, |origin| origin.local_id)
    }

    /// The process and position in this store that the process continues from. `None` for an
    /// imported process, whose original journal is not here.
    #[must_use]
    pub fn ancestor(&self) -> Option<(Pid, FactNumber)> {
        match (self.branched_from, &self.origin) {
            (Some(origin), _) => (!origin.is_imported()).then_some((origin.pid, origin.fact)),
            (None, Origin::Copied { from, at }) => Some((*from, *at)),
            (
                None,
                Origin::Started
                | Origin::Forked { .. }
                | Origin::Spawned { .. }
                | Origin::Judge { .. },
            ) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_read_as_a_type_and_errors_say_why_not() {
        let exit = Exit::with_result(r#"{"a":[1,2]}"#);
        let read: std::collections::BTreeMap<String, Vec<u8>> = exit.result_as().unwrap();
        assert_eq!(read["a"], [1, 2]);
        let other = exit.result_as::<Vec<u8>>().unwrap_err().to_string();
        assert!(other.contains("Vec<u8>"), "{other}");
        let untyped = Exit::new(ExitStatus::Truncated, "1");
        let none = untyped.result_as::<u8>().unwrap_err().to_string();
        assert!(
            none.contains("truncated") && none.contains("[result]"),
            "{none}"
        );
    }

    #[test]
    fn a_process_has_an_ancestor_if_its_original_is_in_this_store() {
        let here = BranchOrigin {
            pid: Pid(4),
            fact: FactNumber(5),
            local_id: Pid(3),
            import: None,
        };
        let import = ImportSource {
            export: Some(ExportId([9; 32])),
            last_pid: Pid(8),
        };
        let imported = BranchOrigin {
            import: Some(import),
            ..here
        };
        let branch_of_imported = BranchOrigin {
            import: Some(ImportSource {
                export: None,
                ..import
            }),
            ..here
        };
        let ancestor = Some((Pid(4), FactNumber(5)));
        for (branched_from, expected) in [
            (None, None),
            (Some(here), ancestor),
            (Some(imported), None),
            (Some(branch_of_imported), ancestor),
        ] {
            let row = ProcessRow {
                branched_from,
                ..ProcessRow::started(Pid(7), "p")
            };
            assert_eq!(row.ancestor(), expected, "{row:?}");
        }
    }
}
