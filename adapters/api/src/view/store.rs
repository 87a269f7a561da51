//! The kernel and its store: losses, facts, checkpoints.

use dormouse_actors::handle::LogLine;
use dormouse_proto::checkpoint::{Checkpoint, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kernel and its store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelView {
    /// The version of Dormouse.
    pub version: String,
    /// Whether processes run: `false` for a store that is open for reading only.
    pub running: bool,
    /// Why the kernel stopped for good, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// How many processes there are, ended ones included.
    pub processes: usize,
    /// How many of them are in memory.
    pub loaded: usize,
    /// Bytes of durable contents in memory.
    pub resident_bytes: u64,
    /// The last commit of the log: the position from which a stream of events begins. Absent for a
    /// store that is open for reading only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_commit: Option<u64>,
    /// Records that the store has lost.
    pub losses: Vec<String>,
    /// Losses that a repair has acknowledged.
    pub acknowledged_losses: Vec<String>,
    /// Contents that could not be read since the kernel was built.
    pub unreadable: Vec<String>,
}

/// A fact, as `dormouse log --json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FactLine {
    /// Its number in the journal of its process; 0 for the birth.
    pub fact: u64,
    /// The commit that wrote it.
    pub commit: u64,
    /// The time of the commit: milliseconds since the epoch, UTC.
    pub at_ms: u64,
    /// The name of the fact.
    pub name: String,
    /// A summary, in one line.
    pub summary: String,
}

impl From<&LogLine> for FactLine {
    fn from(line: &LogLine) -> Self {
        Self {
            fact: line.number.0,
            commit: line.commit.0,
            at_ms: line.at_ms,
            name: line.name.to_owned(),
            summary: line.summary.clone(),
        }
    }
}

/// A part of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FactPage {
    /// The process.
    pub pid: u64,
    /// The facts, the oldest first.
    pub facts: Vec<FactLine>,
    /// The first fact that is retained; `null` if none is.
    pub first: Option<u64>,
    /// The last fact.
    pub last: Option<u64>,
    /// The parameter `from` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// Why the facts after these cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// A checkpoint, as `dormouse checkpoints --json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointView {
    /// Its number: `cp:N` names it.
    pub id: u64,
    /// Its label; may be empty.
    pub label: String,
    /// The process, or the root of the tree, that it was made of.
    pub pid: u64,
    /// The root of the tree whose temporary files it covers.
    pub root: u64,
    /// `Process` or `Tree`.
    pub scope: String,
    /// Its processes.
    pub members: Vec<MemberView>,
    /// It includes all commits before this one.
    pub commit: u64,
    /// When it was made: milliseconds since the epoch, UTC.
    pub at_ms: u64,
}

/// A process of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberView {
    /// The process.
    pub pid: u64,
    /// Its last fact in the checkpoint.
    pub at: u64,
}

impl From<&Checkpoint> for CheckpointView {
    fn from(checkpoint: &Checkpoint) -> Self {
        let scope = match checkpoint.scope {
            Scope::Process => "Process",
            Scope::Tree => "Tree",
        };
        let members = checkpoint.members.iter();
        Self {
            id: checkpoint.id.0,
            label: checkpoint.label.to_string(),
            pid: checkpoint.pid.0,
            root: checkpoint.root.0,
            scope: scope.to_owned(),
            members: members
                .map(|member| MemberView {
                    pid: member.pid.0,
                    at: member.at.0,
                })
                .collect(),
            commit: checkpoint.commit.0,
            at_ms: checkpoint.at_ms,
        }
    }
}
