//! A named point that a process, or a whole tree of processes, can go back to (the specification's
//! section on checkpoints).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{CheckpointId, CommitNumber, FactNumber, Pid};

/// A checkpoint, as the store keeps it. It names facts that are in the journals anyway, and copies
/// none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Its number.
    pub id: CheckpointId,
    /// What whoever made it calls it; may be empty.
    pub label: Arc<str>,
    /// The process that it was made of, or that is at the top of the tree that it was made of.
    pub of: Pid,
    /// The process that the tree begins with whose temporary files it covers.
    pub root: Pid,
    /// What it covers.
    pub scope: Scope,
    /// How far each process in it had come, by rising pid.
    pub members: Vec<Member>,
    /// Everything that was committed before this belongs to it.
    pub commit: CommitNumber,
    /// When it was made: milliseconds since the epoch, UTC.
    pub at_ms: u64,
}

/// What a checkpoint covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// One process.
    Process,
    /// A process and all below it, messages on their way between them included.
    Tree,
}

/// One process of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The process.
    pub pid: Pid,
    /// Its last fact then.
    pub at: FactNumber,
}

impl Checkpoint {
    /// How far a process had come; none for one that is not in it.
    #[must_use]
    pub fn standing(&self, pid: Pid) -> Option<FactNumber> {
        let at = self
            .members
            .binary_search_by_key(&pid, |member| member.pid)
            .ok()?;
        Some(self.members[at].at)
    }
}
