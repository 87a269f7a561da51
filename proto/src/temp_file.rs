//! Temporary files: writable, shared by the processes of one tree, and as durable as their store.
//!
//! A file is a sequence of versions. Each change creates the next version and records the call that
//! made it, so that a repeated call is recognised after a restart. A write names the version that
//! it is based on and is refused if that is outdated, so that no change is lost.
//!
//! Operations and records are generic over the representation of contents, as facts are.
//! `kernel/machine/src/temp_files.rs` decides what an operation does.

pub mod view;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::descriptor::{FdError, FdErrorKind};
use crate::id::{CallId, Pid};

/// The number of a temporary file. Counts from 1 in each process tree and is never reused; shown as
/// `temp:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TempId(pub u32);

impl fmt::Display for TempId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "temp:{}", self.0)
    }
}

/// The text is not the id of a temporary file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a temporary file: expected temp:N")]
pub struct ParseTempError(pub String);

impl FromStr for TempId {
    type Err = ParseTempError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text
            .strip_prefix("temp:")
            .or_else(|| text.strip_prefix("temp-"));
        let number = digits.and_then(crate::id::parse_count);
        number
            .map(Self)
            .ok_or_else(|| ParseTempError(text.to_owned()))
    }
}

/// An operation on the temporary files of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TempFileOp<C> {
    /// Create a file with version 1.
    Create {
        /// Content of the file.
        content: C,
    },
    /// Read the newest version.
    Read {
        /// Id of the file.
        id: TempId,
    },
    /// Replace the content of a file.
    Write {
        /// Id of the file.
        id: TempId,
        /// New content.
        content: C,
        /// Version that the write is based on; it must be the newest.
        version: u64,
    },
    /// Append to a file, whatever its version.
    Append {
        /// Id of the file.
        id: TempId,
        /// Content to append.
        content: C,
    },
    /// Delete a file.
    Delete {
        /// Id of the file.
        id: TempId,
        /// Version that must be the newest, if given.
        version: Option<u64>,
    },
}

impl<C> TempFileOp<C> {
    /// Converts the representation of the content.
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

/// The call that requested an operation. It identifies the operation: a second operation with the
/// same origin is a repetition, made after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TempFileOrigin {
    /// Pid of the process.
    pub pid: Pid,
    /// Call of the process.
    pub call: CallId,
}

/// One change of a tree's files, in the past tense: replaying it cannot fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TempFileRecord<C> {
    /// Number of the change within the tree, from 1 without gaps.
    pub number: u64,
    /// Call that made the change.
    pub origin: TempFileOrigin,
    /// Id of the file.
    pub id: TempId,
    /// Version that the change created; for a deletion, the deleted version.
    pub version: u64,
    /// Size of the file after the change in bytes; for a deletion, before it.
    pub total_bytes: u64,
    /// The change.
    pub change: TempFileChange<C>,
}

/// A change of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TempFileChange<C> {
    /// The file was created with this content.
    Created(C),
    /// The content was replaced.
    Written(C),
    /// This content was appended. Only the appended part is stored, so that the cost of an append
    /// does not depend on the size of the file.
    Appended(C),
    /// The file was deleted.
    Deleted,
}

impl<C> TempFileRecord<C> {
    /// Converts the representation of the content.
    ///
    /// # Errors
    /// Errors of `convert`.
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

/// The result of an operation. `B` represents the content of a whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TempFileReply<B> {
    /// The file was changed.
    Changed {
        /// Id of the file.
        id: TempId,
        /// Version that was created; for a deletion, the deleted version.
        version: u64,
        /// Size of the file in bytes.
        total_bytes: u64,
    },
    /// The content of the file.
    Contents {
        /// Id of the file.
        id: TempId,
        /// Newest version.
        version: u64,
        /// Content of that version.
        content: B,
    },
}

/// Why an operation was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TempFileError {
    /// The tree never had such a file.
    #[error(
        "There is no temporary file {id} in this process tree. {}",
        format_newest(known)
    )]
    NotFound {
        /// Requested file.
        id: TempId,
        /// Some existing files, newest first.
        known: Vec<TempId>,
    },
    /// The file was deleted.
    #[error(
        "Temporary file {id} was deleted, and its number is not used again. {}",
        format_newest(known)
    )]
    Deleted {
        /// Requested file.
        id: TempId,
        /// Some existing files, newest first.
        known: Vec<TempId>,
    },
    /// The given version is outdated.
    #[error(
        "{id} is at version {current}, and version {given} was given: it is not what you read. \
         Nothing was changed. Read it again with read_temp_file, merge, then try again with \
         version={current}."
    )]
    Stale {
        /// Id of the file.
        id: TempId,
        /// Given version.
        given: u64,
        /// Newest version.
        current: u64,
    },
    /// The file would become larger than the program permits.
    #[error(
        "The file would hold {total_bytes} bytes, and {max_bytes} are the most \
         (file_descriptor.max_content_bytes). Nothing was changed. Keep the rest in another file."
    )]
    TooLarge {
        /// Size that the file would have, in bytes.
        total_bytes: u64,
        /// Maximum size in bytes.
        max_bytes: u64,
    },
    /// The tree has the maximum number of files.
    #[error(
        "This process tree has {max_files} temporary files, the most that it may have. Delete one \
         with delete_temp_file, or append to one."
    )]
    TooMany {
        /// Maximum number of files.
        max_files: usize,
    },
    /// The change could not be made durable, or the file could not be read.
    #[error("{reason}")]
    Unavailable {
        /// What happened, and what is known about the file.
        reason: String,
    },
}

fn format_newest(known: &[TempId]) -> String {
    let names: Vec<_> = known.iter().map(ToString::to_string).collect();
    if names.is_empty() {
        "There are none now.".to_owned()
    } else {
        format!("The newest are {}.", names.join(", "))
    }
}

impl TempFileError {
    /// The error as a descriptor tool error; `requested_file` is the file as the model named it.
    #[must_use]
    pub fn fd_error(&self, requested_file: Option<&str>) -> FdError {
        let kind = match self {
            Self::NotFound { .. } | Self::Deleted { .. } => FdErrorKind::NotFound,
            Self::Stale { .. } => FdErrorKind::StaleVersion,
            Self::TooLarge { .. } | Self::TooMany { .. } | Self::Unavailable { .. } => {
                FdErrorKind::WriteError
            }
        };
        FdError::new(kind, requested_file.map(str::to_owned), self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ContentHash;
    use crate::record::{ContentRef, codec};

    #[test]
    fn ids_parse_from_two_spellings_and_display_one() {
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

    /// Stores hold these bytes: a later version must still decode them.
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
            let mut expected = vec![codec::VERSION, 4, 5, 1, 9, 2, 3, 251, 45, 1, tag];
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
                    given: 2,
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
