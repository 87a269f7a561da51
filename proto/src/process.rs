//! What is said about a process from outside: how it ended, where it comes from, how it stands.

use std::fmt;
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
        Self {
            status,
            message: message.into(),
            spent: None,
        }
    }

    /// The same end, and what was used before it.
    #[must_use]
    pub fn after(self, spent: Usage) -> Self {
        Self {
            spent: Some(spent),
            ..self
        }
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

/// How soon a process's model calls are made where others wait for the same provider. It says
/// nothing of anything else: what a process holds in memory, and when its messages are taken, do
/// not depend on it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
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
    /// Of a process of a branch or an import: which process it goes on from, and from where on.
    #[serde(with = "restored")]
    pub restored: Option<Restored>,
    /// How it ended; none while it lives.
    pub exit: Option<Exit>,
}

/// What a process of a branch or of an import goes on from.
///
/// The processes of a branch go on knowing each other, and themselves, by the numbers that stand in
/// their conversations: those of the processes that they were made from. So do those of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The process whose journal it was, in this store or in the one that it was exported from.
    pub from: Pid,
    /// The last fact that was taken over.
    pub at: FactNumber,
    /// The number that it goes by within its tree: that of `from`, or what that went by.
    pub known_as: Pid,
    /// Where its tree came from another store, now or before.
    pub foreign: Option<Foreign>,
}

/// What is kept of the store that a tree was brought from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Foreign {
    /// The export that the process was brought in by; none: it is a branch of one that was, made
    /// here.
    pub export: Option<ExportId>,
    /// No process of that store had a greater number. Up to it, a number that is none of the tree's
    /// own means somebody there, and nobody here.
    pub last: Pid,
}

/// The name of an export: the hash that its file ends with.
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

/// How that is stored: a row of a branch has the same bytes as before there were imports.
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
    /// Whether its parent has a lower number, as pids rise: whoever goes from child to parent then
    /// comes to an end.
    #[must_use]
    pub fn is_younger_than_its_parent(&self) -> bool {
        self.parent.is_none_or(|parent| parent < self.pid)
    }

    /// The row of a process that the host starts, without a name.
    #[must_use]
    pub fn started(pid: Pid, program: impl Into<Arc<str>>) -> Self {
        let (program, origin) = (program.into(), Origin::Started);
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

    /// The number that the process goes by within its tree.
    #[must_use]
    pub fn known_as(&self) -> Pid {
        self.restored.map_or(self.pid, |restored| restored.known_as)
    }

    /// Whose journal the process goes on from, and which of its facts was the last of that, where
    /// it does. None of one that was brought from another store: that journal is not here.
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
