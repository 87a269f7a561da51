//! The records of an export: a process or a tree of processes as one file, which another store can
//! import and people can inspect. `dormouse_kernel::export` defines how records are written to the
//! file; `docs/format.md` specifies all of it.
//!
//! Records reference contents by hash, as journals do; the contents follow them in the file.

use serde::{Deserialize, Serialize};

use crate::checkpoint::Scope;
use crate::id::{CommitNumber, FactNumber, Pid};
use crate::process::ProcessRow;
use crate::record::{ContentRef, Image};
use crate::temp_file::TempFileRecord;

/// The first record of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Program and version that wrote the file, for information.
    pub made_by: String,
    /// Time of the exported state: milliseconds since the epoch, UTC.
    pub at_ms: u64,
    /// Whether it covers one process or a tree.
    pub scope: Scope,
    /// Local id of the exported process, which is the first process of the file.
    pub exported_pid: Pid,
    /// The highest pid of the source store.
    pub last_pid: Pid,
    /// Whether texts were masked.
    pub redaction: Redaction,
}

/// Whether an export is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Redaction {
    /// Nothing is masked.
    Whole,
    /// Selected texts are masked.
    Redacted,
}

/// A process of an export. The exported process comes first, each other one after its parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Row of the process table, with the pids of the source store. It states no exit: the image
    /// does.
    pub row: ProcessRow,
    /// Last fact that the image includes.
    pub at: FactNumber,
    /// Image of the process.
    pub image: Image<ContentRef>,
}

/// Facts of a process, for inspection. Contents that only they reference may be missing from the
/// export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Pid of the process in the source store.
    pub pid: Pid,
    /// Commit of the facts in the source store.
    pub commit: CommitNumber,
    /// Commit time: milliseconds since the epoch, UTC.
    pub at_ms: u64,
    /// Number of the first fact.
    pub first: FactNumber,
    /// The encoded facts.
    pub facts: Vec<Vec<u8>>,
}

/// The records of an export, in this order, before its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first record, once.
    Head(Head),
    /// A process.
    Member(Box<Member>),
    /// Facts of the preceding process.
    Facts(Facts),
    /// A change of the temporary files of the tree.
    TempFile(TempFileRecord<ContentRef>),
}
