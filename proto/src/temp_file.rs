//! Temporary files: writable, shared by the processes of one tree, and durable as long as their
//! store is.
//!
//! A file is a sequence of versions. Each change makes the next one, and remembers the call that
//! made it, so that a call that is repeated after a restart is known again. A write names the
//! version that it was made from: where that is no longer the newest it is refused, and nobody's
//! words are lost.
//!
//! Operations and records are generic over how they hold content, as facts are.

pub mod view;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::descriptor::{FdError, FdErrorKind};
use crate::id::{CallId, Pid};

/// The number of a temporary file. Counts from 1 in each tree of processes and is never used again
/// there; shown as `temp:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TempId(pub u32);

impl fmt::Display for TempId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "temp:{}", self.0)
    }
}

/// The text is not the name of a temporary file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a temporary file: expected temp:N")]
pub struct ParseTempError(pub String);

impl FromStr for TempId {
    type Err = ParseTempError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text
            .strip_prefix("temp:")
            .or_else(|| text.strip_prefix("temp-"));
        let number = digits.and_then(crate::id::counted);
        number
            .map(Self)
            .ok_or_else(|| ParseTempError(text.to_owned()))
    }
}

/// What a process asks of its tree's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TempFileOp<C> {
    /// Make a file; this is its version 1.
    Create {
        /// What it holds.
        content: C,
    },
    /// Look at the newest version.
    Read {
        /// The file.
        id: TempId,
    },
    /// Put a content in place of all that the file holds.
    Write {
        /// The file.
        id: TempId,
        /// What it holds from then on.
        content: C,
        /// The version that was read: it must still be the newest.
        version: u64,
    },
    /// Add to what the file holds, whatever that is by then.
    Append {
        /// The file.
        id: TempId,
        /// What follows.
        content: C,
    },
    /// Delete a file.
    Delete {
        /// The file.
        id: TempId,
        /// The version that must still be the newest, if that is asked for.
        version: Option<u64>,
    },
}

impl<C> TempFileOp<C> {
    /// The same operation with its content held in another way.
    #[must_use]
    pub fn map<D>(self, convert: impl FnOnce(C) -> D) -> TempFileOp<D> {
        match self {
            Self::Create { content } => TempFileOp::Create {
                content: convert(content),
            },
            Self::Read { id } => TempFileOp::Read { id },
            Self::Write {
                id,
                content,
                version,
            } => TempFileOp::Write {
                id,
                content: convert(content),
                version,
            },
            Self::Append { id, content } => TempFileOp::Append {
                id,
                content: convert(content),
            },
            Self::Delete { id, version } => TempFileOp::Delete { id, version },
        }
    }
}

/// The call that an operation comes from. No two operations have the same one: an operation that
/// comes again is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TempFileOrigin {
    /// The process.
    pub pid: Pid,
    /// Its call.
    pub call: CallId,
}

/// One change of a tree's files, as it is kept. In the past tense: replaying it cannot fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TempFileRecord<C> {
    /// Its number among the changes of the tree, from 1 without a gap.
    pub number: u64,
    /// The call that made it.
    pub origin: TempFileOrigin,
    /// The file.
    pub id: TempId,
    /// The version that it made; of a deletion the version that was deleted.
    pub version: u64,
    /// What the file holds then, in bytes; of a deletion what it held.
    pub total_bytes: u64,
    /// What was done.
    pub change: TempFileChange<C>,
}

/// What was done to a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TempFileChange<C> {
    /// It was made, and holds this.
    Created(C),
    /// It holds this in place of what it held.
    Written(C),
    /// This follows what it held. Only what was added is kept, so that a long file costs no more to
    /// append to than a short one.
    Appended(C),
    /// It is gone.
    Deleted,
}

impl<C> TempFileRecord<C> {
    /// The same record with its content held in another way.
    ///
    /// # Errors
    /// What `convert` fails with.
    pub fn try_map<D, E>(
        self,
        convert: &mut impl FnMut(C) -> Result<D, E>,
    ) -> Result<TempFileRecord<D>, E> {
        let change = match self.change {
            TempFileChange::Created(content) => TempFileChange::Created(convert(content)?),
            TempFileChange::Written(content) => TempFileChange::Written(convert(content)?),
            TempFileChange::Appended(content) => TempFileChange::Appended(convert(content)?),
            TempFileChange::Deleted => TempFileChange::Deleted,
        };
        let Self {
            number,
            origin,
            id,
            version,
            total_bytes,
            ..
        } = self;
        Ok(TempFileRecord {
            number,
            origin,
            id,
            version,
            total_bytes,
            change,
        })
    }
}

/// What came of an operation that was not refused. `B` is how the content of a whole file is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TempFileReply<B> {
    /// The file was changed.
    Changed {
        /// The file.
        id: TempId,
        /// The version that was made; of a deletion the version that was deleted.
        version: u64,
        /// What the file held then, in bytes.
        total_bytes: u64,
    },
    /// This is what the file holds.
    Contents {
        /// The file.
        id: TempId,
        /// Its newest version.
        version: u64,
        /// What that holds.
        content: B,
    },
}

/// Why an operation was not done. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TempFileError {
    /// The tree never had such a file.
    #[error(
        "There is no temporary file {id} in this process tree. {}",
        newest(known)
    )]
    NotFound {
        /// What was asked for.
        id: TempId,
        /// A few of those there are, the newest first.
        known: Vec<TempId>,
    },
    /// The file was deleted.
    #[error(
        "Temporary file {id} was deleted, and its number is not used again. {}",
        newest(known)
    )]
    Deleted {
        /// What was asked for.
        id: TempId,
        /// A few of those there are, the newest first.
        known: Vec<TempId>,
    },
    /// The file was changed since that version was read.
    #[error(
        "{id} is at version {current}, and version {asked} was given: it is not what you read. \
         Nothing was changed. Read it again with read_temp_file, merge, then try again with \
         version={current}."
    )]
    Stale {
        /// The file.
        id: TempId,
        /// The version that was given.
        asked: u64,
        /// The newest.
        current: u64,
    },
    /// The file would become larger than the program permits.
    #[error(
        "The file would hold {total_bytes} bytes, and {max_bytes} are the most \
         (file_descriptor.max_content_bytes). Nothing was changed. Keep the rest in another file."
    )]
    TooLarge {
        /// What it would hold, in bytes.
        total_bytes: u64,
        /// What it may hold.
        max_bytes: u64,
    },
    /// The tree has as many files as it may have.
    #[error(
        "This process tree has {max_files} temporary files, the most that it may have. Delete one \
         with delete_temp_file, or append to one."
    )]
    TooMany {
        /// How many it may have.
        max_files: usize,
    },
    /// It could not be made durable, or not be read back.
    #[error("{reason}")]
    Unavailable {
        /// What happened, and what is known of the file.
        reason: String,
    },
}

fn newest(known: &[TempId]) -> String {
    let names: Vec<_> = known.iter().map(ToString::to_string).collect();
    if names.is_empty() {
        "There are none now.".to_owned()
    } else {
        format!("The newest are {}.", names.join(", "))
    }
}

impl TempFileError {
    /// The error as a model reads it, about the file that it named `asked`.
    #[must_use]
    pub fn fd_error(&self, asked: Option<&str>) -> FdError {
        let kind = match self {
            Self::NotFound { .. } | Self::Deleted { .. } => FdErrorKind::NotFound,
            Self::Stale { .. } => FdErrorKind::StaleVersion,
            Self::TooLarge { .. } | Self::TooMany { .. } | Self::Unavailable { .. } => {
                FdErrorKind::WriteError
            }
        };
        FdError {
            kind,
            fd: asked.map(str::to_owned),
            message: self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ContentHash;
    use crate::record::{ContentRef, codec};

    #[test]
    fn names_have_one_spelling_out_and_two_in() {
        for (text, shown) in [("temp:1", "temp:1"), ("temp-12", "temp:12")] {
            assert_eq!(text.parse::<TempId>().unwrap().to_string(), shown);
        }
        for text in [
            "", "1", "temp", "temp:", "temp:0", "temp:01", "temp:-1", "Temp:1", "fd:1", "temp:1.2",
        ] {
            assert!(
                text.parse::<TempId>().is_err(),
                "{text:?} must not be a temporary file"
            );
        }
    }

    /// The bytes of a record leave the program: a change of them needs a reader of the old ones.
    #[test]
    fn the_bytes_of_a_record_are_as_they_were() {
        let content = ContentRef {
            hash: ContentHash([7; 32]),
            len: 300,
        };
        let origin = TempFileOrigin {
            pid: Pid(5),
            call: CallId { epoch: 1, seq: 9 },
        };
        let changes = [
            (TempFileChange::Created(content), 0),
            (TempFileChange::Written(content), 1),
            (TempFileChange::Appended(content), 2),
            (TempFileChange::Deleted, 3),
        ];
        for (change, tag) in changes {
            let has_content = change != TempFileChange::Deleted;
            let record = TempFileRecord {
                number: 4,
                origin,
                id: TempId(2),
                version: 3,
                total_bytes: 301,
                change,
            };
            let bytes = codec::encode(&record).unwrap();
            let mut expected = vec![4, 5, 1, 9, 2, 3, 251, 45, 1, tag];
            if has_content {
                expected.extend([7; 32]);
                expected.extend([251, 44, 1]);
            }
            assert_eq!(bytes, expected, "{record:?}");
            assert_eq!(
                codec::decode::<TempFileRecord<ContentRef>>(&bytes).unwrap(),
                record
            );
        }
    }

    #[test]
    fn an_error_says_what_to_do() {
        let cases = [
            (
                TempFileError::Stale {
                    id: TempId(1),
                    asked: 2,
                    current: 5,
                },
                "stale_version",
                "version=5",
            ),
            (
                TempFileError::NotFound {
                    id: TempId(9),
                    known: vec![],
                },
                "not_found",
                "There are none now.",
            ),
            (
                TempFileError::Deleted {
                    id: TempId(9),
                    known: vec![TempId(3)],
                },
                "not_found",
                "The newest are temp:3.",
            ),
            (
                TempFileError::TooLarge {
                    total_bytes: 9,
                    max_bytes: 8,
                },
                "write_error",
                "max_content_bytes",
            ),
            (
                TempFileError::TooMany { max_files: 7 },
                "write_error",
                "delete_temp_file",
            ),
            (
                TempFileError::Unavailable {
                    reason: "the disk is full".to_owned(),
                },
                "write_error",
                "the disk is full",
            ),
        ];
        for (error, kind, message) in cases {
            let answer = error.fd_error(Some("temp:1")).answer();
            assert!(answer.is_error);
            assert!(
                answer
                    .text
                    .starts_with(&format!("<fd_error type=\"{kind}\" fd=\"temp:1\">")),
                "{}",
                answer.text
            );
            assert!(answer.text.contains(message), "{}", answer.text);
        }
    }
}
