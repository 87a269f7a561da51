//! What an export holds: a process, or a tree of them, as one file that another store can take in,
//! and that a person can look into. How the records stand in the file is for
//! `dormouse_kernel::export` to know; all of it is described in `docs/format.md`.
//!
//! Records hold no content: they name it, as journals do, and the contents stand beside them.

use serde::{Deserialize, Serialize};

use crate::checkpoint::Scope;
use crate::id::{CommitNumber, FactNumber, Pid};
use crate::process::ProcessRow;
use crate::record::{ContentRef, Image};
use crate::temp_file::TempFileRecord;

/// What an export begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The program that wrote it, and its version: for whoever looks.
    pub made_by: String,
    /// The moment that it shows: milliseconds since the epoch, UTC.
    pub at_ms: u64,
    /// What it covers.
    pub scope: Scope,
    /// The number by which its first process, the one that it is of, is known in its tree.
    pub of: Pid,
    /// No process of the store that it was made of had a greater number.
    pub last: Pid,
    /// Whether something in it was masked.
    pub redaction: Redaction,
}

/// Whether an export says all that was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Redaction {
    /// It does.
    Whole,
    /// What was to be kept out of it is masked.
    Redacted,
}

/// A process of an export. The one that it is of comes first, and each other after its parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its line in the process table, in the numbers of the store that it is of. It says no end:
    /// the image does.
    pub row: ProcessRow,
    /// The last fact in the image.
    pub at: FactNumber,
    /// The process as it stood.
    pub image: Image<ContentRef>,
}

/// Facts of a process of an export: what had become of it. They are for reading. Contents that only
/// they name need not be in the export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The process, by its number in the store that it is of.
    pub pid: Pid,
    /// The commit that they were written in, in that store.
    pub commit: CommitNumber,
    /// When they were written: milliseconds since the epoch, UTC.
    pub at_ms: u64,
    /// The number of the first.
    pub first: FactNumber,
    /// Each as it is journalled.
    pub facts: Vec<Vec<u8>>,
}

/// What stands in an export beside contents, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// What it begins with, once.
    Head(Head),
    /// A process.
    Member(Box<Member>),
    /// Facts of the process before it.
    Facts(Facts),
    /// A change of the temporary files of the tree.
    TempFile(TempFileRecord<ContentRef>),
}
