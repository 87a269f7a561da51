//! Errors of a cluster.

use std::time::Duration;

use dormouse::id::Pid;
use dormouse::label::LabelError;
use dormouse::ports::StoreError;
use dormouse_postgres::{DatabaseError, ShardId};
use serde::{Deserialize, Serialize};

/// Why an operation of a cluster failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The process, or the kernel that runs it, refuses the request. Nothing was done.
    #[error("{message}")]
    Refused {
        /// What kind of refusal it is.
        kind: Refusal,
        /// Why, and what to try.
        message: String,
    },
    /// No node has answered for the shard in time. Nothing was done.
    #[error(
        "no node answered for {shard} within {waited:?}: {why}. See whether nodes run that have the \
         labels it needs, and can be reached from here"
    )]
    NoOwner {
        /// The shard.
        shard: ShardId,
        /// How long this was tried.
        waited: Duration,
        /// The last attempt's error.
        why: String,
    },
    /// The node that was asked is gone, or did not answer, and may have done what it was asked.
    #[error(
        "whether the {what} was done is not known: {why}. Look at the process before you repeat it"
    )]
    OutcomeUnknown {
        /// What was asked.
        what: &'static str,
        /// Why it is not known.
        why: String,
    },
    /// No live node has the labels that a program needs. Nothing was started.
    #[error(
        "no live node has all of the labels [{}] that the program needs. The live nodes are: {}. \
         Start a node with these labels",
        needs.join(", "), nodes.join(", ")
    )]
    NoNodeWithLabels {
        /// The needs.
        needs: Vec<String>,
        /// The live nodes with their labels.
        nodes: Vec<String>,
    },
    /// The node refuses the token.
    #[error(
        "the node at {address} refuses the token of this cluster: it uses another database or schema"
    )]
    WrongToken {
        /// The address.
        address: String,
    },
    /// A label, or a budget of a label, is not valid.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// A pid that can be that of no process.
    #[error("process {0} cannot exist: its number is of no shard of this cluster")]
    NoShard(Pid),
    /// No address can be listened on, or another setting is not valid.
    #[error("{0}")]
    Options(String),
    /// There is no node of this name.
    #[error("there is no node '{name}'. The live nodes are: {}", nodes.join(", "))]
    NoNode {
        /// The name.
        name: String,
        /// The live nodes.
        nodes: Vec<String>,
    },
}

/// Kinds of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// Something that is named does not exist.
    NotFound,
    /// The process has ended.
    Ended,
    /// The process is held, since its journal could not be read or written.
    Held,
    /// The request is not valid.
    Invalid,
    /// The process is busy: try again later.
    Busy,
    /// Another reason, which the message says.
    Other,
}

impl From<StoreError> for ClusterError {
    fn from(error: StoreError) -> Self {
        Self::Database(error.into())
    }
}
