//! Checkpoints: named positions of a process or of a tree of processes that can be returned to.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{CheckpointId, CommitNumber, FactNumber, Pid};

/// A checkpoint as the store keeps it. It refers to facts in journals and copies none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Id of the checkpoint.
    pub id: CheckpointId,
    /// Label given by its creator; may be empty.
    pub label: Arc<str>,
    /// The process, or the root of the subtree, that the checkpoint was made of.
    pub pid: Pid,
    /// Root of the tree whose temporary files it covers.
    pub root: Pid,
    /// Whether it covers the process or its subtree.
    pub scope: Scope,
    /// Position of each process, in ascending order of pids.
    pub members: Vec<Member>,
    /// The checkpoint includes all commits before this one.
    pub commit: CommitNumber,
    /// Creation time: milliseconds since the epoch, UTC.
    pub at_ms: u64,
}

/// What a checkpoint covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// One process.
    Process,
    /// A process and its subtree, including messages in flight between them.
    Tree,
}

/// One process of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Pid of the process.
    pub pid: Pid,
    /// Last fact that the checkpoint includes.
    pub at: FactNumber,
}

impl Checkpoint {
    /// Position of a process; `None` if the checkpoint does not cover it.
    #[must_use]
    pub fn position_of(&self, pid: Pid) -> Option<FactNumber> {
        let at = self
            .members
            .binary_search_by_key(&pid, |member| member.pid)
            .ok()?;
        Some(self.members[at].at)
    }
}
