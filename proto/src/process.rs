//! A process from the outside: its exit, its origin and its row in the process table.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{CallId, FactNumber, Pid};
use crate::model::Usage;

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Kind of the exit.
    pub status: ExitStatus,
    /// Last reply of the model, or the reason of a failure.
    pub message: Arc<str>,
    /// Model usage of the process and its subtree; `None` if unknown.
    pub spent: Option<Usage>,
}

impl Exit {
    /// An exit with unknown usage.
    pub fn new(status: ExitStatus, message: impl Into<Arc<str>>) -> Self {
        Self {
            status,
            message: message.into(),
            spent: None,
        }
    }

    /// The exit with this usage.
    #[must_use]
    pub fn after(self, spent: Usage) -> Self {
        Self {
            spent: Some(spent),
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
        }
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
    #[serde(with = "restored")]
    pub restored: Option<Restored>,
    /// Its exit; `None` while it is alive.
    pub exit: Option<Exit>,
}

/// What a process of a branch or an import continues from.
///
/// Conversations contain pids. The processes of a branch or an import therefore know themselves and
/// each other by the pids of their originals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Original process, in this store or in the source store of the export.
    pub from: Pid,
    /// Last fact that was copied.
    pub at: FactNumber,
    /// Pid of this process within its tree: the pid by which `from` was known there.
    pub known_as: Pid,
    /// Data about the source store, if the tree was ever imported.
    pub foreign: Option<Foreign>,
}

/// Data about the store that a tree was imported from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Foreign {
    /// Export that contained the process; `None` if it is a branch, made here, of an imported
    /// process.
    pub export: Option<ExportId>,
    /// Highest pid of that store. A pid up to it that is not part of the tree refers to a process
    /// of that store, and to none here.
    pub last: Pid,
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

/// Serialization of `restored`, compatible with rows that were written before imports existed.
mod restored {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{FactNumber, Foreign, Pid, Restored};

    #[derive(Serialize, Deserialize)]
    enum Stored {
        None,
        Here {
            from: Pid,
            at: FactNumber,
            known_as: Pid,
        },
        Foreign {
            from: Pid,
            at: FactNumber,
            known_as: Pid,
            foreign: Foreign,
        },
    }

    pub(super) fn serialize<S: Serializer>(
        restored: &Option<Restored>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let stored = match *restored {
            None => Stored::None,
            Some(Restored {
                from,
                at,
                known_as,
                foreign: None,
            }) => Stored::Here { from, at, known_as },
            Some(Restored {
                from,
                at,
                known_as,
                foreign: Some(foreign),
            }) => Stored::Foreign {
                from,
                at,
                known_as,
                foreign,
            },
        };
        stored.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Restored>, D::Error> {
        Ok(match Stored::deserialize(from)? {
            Stored::None => None,
            Stored::Here { from, at, known_as } => Some(Restored {
                from,
                at,
                known_as,
                foreign: None,
            }),
            Stored::Foreign {
                from,
                at,
                known_as,
                foreign,
            } => Some(Restored {
                from,
                at,
                known_as,
                foreign: Some(foreign),
            }),
        })
    }
}

impl ProcessRow {
    /// Whether its pid is higher than its parent's, so that walking from child to parent
    /// terminates.
    #[must_use]
    pub fn is_younger_than_its_parent(&self) -> bool {
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
            restored: None,
            exit: None,
        }
    }

    /// The pid of the process within its tree.
    #[must_use]
    pub fn known_as(&self) -> Pid {
        self.restored.map_or(self.pid, |restored| restored.known_as)
    }

    /// The process and position in this store that the process continues from. `None` for an
    /// imported process, whose original journal is not here.
    #[must_use]
    pub fn ancestor(&self) -> Option<(Pid, FactNumber)> {
        match (self.restored, &self.origin) {
            (
                Some(Restored {
                    foreign:
                        Some(Foreign {
                            export: Some(_), ..
                        }),
                    ..
                }),
                _,
            ) => None,
            (Some(restored), _) => Some((restored.from, restored.at)),
            (None, Origin::Copied { from, at }) => Some((*from, *at)),
            (None, Origin::Started | Origin::Forked { .. } | Origin::Spawned { .. }) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::codec;

    /// The bytes of a row leave the program: those of branches are as they were before there were
    /// imports.
    #[test]
    fn a_row_is_stored_by_what_it_goes_on_from() {
        let here = Restored {
            from: Pid(4),
            at: FactNumber(5),
            known_as: Pid(3),
            foreign: None,
        };
        let brought = Foreign {
            export: Some(ExportId([9; 32])),
            last: Pid(8),
        };
        let branch_of_one = Foreign {
            export: None,
            ..brought
        };
        let tail = |restored: &[u8]| [&[7, 0, 1, b'p', 0, 0][..], restored, &[0]].concat();
        let cases = [
            (None, vec![0]),
            (Some(here), vec![1, 4, 5, 3]),
            (
                Some(Restored {
                    foreign: Some(branch_of_one),
                    ..here
                }),
                vec![2, 4, 5, 3, 0, 8],
            ),
            (
                Some(Restored {
                    foreign: Some(brought),
                    ..here
                }),
                [&[2, 4, 5, 3, 1][..], &[9; 32], &[8]].concat(),
            ),
        ];
        for (restored, bytes) in cases {
            let row = ProcessRow {
                restored,
                ..ProcessRow::started(Pid(7), "p")
            };
            let encoded = codec::encode(&row).unwrap();
            assert_eq!(encoded, tail(&bytes), "{row:?}");
            assert_eq!(codec::decode::<ProcessRow>(&encoded).unwrap(), row);
        }
        let row = |restored| ProcessRow {
            restored: Some(restored),
            ..ProcessRow::started(Pid(7), "p")
        };
        assert_eq!(row(here).ancestor(), Some((Pid(4), FactNumber(5))));
        assert_eq!(
            row(Restored {
                foreign: Some(branch_of_one),
                ..here
            })
            .ancestor(),
            Some((Pid(4), FactNumber(5)))
        );
        assert_eq!(
            row(Restored {
                foreign: Some(brought),
                ..here
            })
            .ancestor(),
            None
        );
    }
}
