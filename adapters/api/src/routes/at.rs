//! Positions and descriptors in paths and queries.

use dormouse_actors::handle::Position;
use dormouse_proto::id::{CallId, CheckpointId, FactNumber, FdId, Pid, ProcessCallId};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;

/// The process in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ProcessPath {
    /// The process.
    pub(crate) pid: u64,
}

impl ProcessPath {
    pub(crate) fn pid(&self) -> Pid {
        Pid(self.pid)
    }
}

/// The descriptor in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct DescriptorPath {
    /// The process.
    pub(crate) pid: u64,
    /// The descriptor, such as `fd:3` or `ref:plan`.
    pub(crate) fd: String,
}

impl DescriptorPath {
    pub(crate) fn id(&self) -> Result<FdId, ApiError> {
        let fd = &self.fd;
        fd.parse().map_err(|_| {
            ApiError::invalid(format!(
                "'{fd}' is not a descriptor: write fd:3, ref:plan or msg:2"
            ))
        })
    }
}

/// The call in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CallPath {
    /// The process.
    pub(crate) pid: u64,
    /// The call, such as `0.7`.
    pub(crate) call: String,
}

impl CallPath {
    pub(crate) fn id(&self) -> Result<ProcessCallId, ApiError> {
        let invalid = || {
            let call = &self.call;
            ApiError::invalid(format!(
                "'{call}' is not a call: write EPOCH.SEQ, such as 0.7"
            ))
        };
        let (epoch, seq) = self.call.split_once('.').ok_or_else(invalid)?;
        let call = CallId {
            epoch: epoch.parse().map_err(|_| invalid())?,
            seq: seq.parse().map_err(|_| invalid())?,
        };
        Ok(ProcessCallId {
            pid: Pid(self.pid),
            call,
        })
    }
}

/// The checkpoint in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CheckpointPath {
    /// The checkpoint, such as `cp:3`.
    pub(crate) checkpoint: String,
}

impl CheckpointPath {
    pub(crate) fn id(&self) -> Result<CheckpointId, ApiError> {
        checkpoint(&self.checkpoint)
    }
}

/// The checkpoint that a text names.
pub(crate) fn checkpoint(text: &str) -> Result<CheckpointId, ApiError> {
    let id = text.starts_with("cp:").then(|| text.parse().ok());
    id.flatten().ok_or_else(|| {
        ApiError::invalid(format!(
            "'{text}' is not a checkpoint: write cp:N, such as cp:3"
        ))
    })
}

/// A position of a process in a query.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AtQuery {
    /// The position: the number of a fact, or a checkpoint such as `cp:3`. Without it, the present.
    pub(crate) at: Option<String>,
}

impl AtQuery {
    pub(crate) fn position(&self) -> Result<Position, ApiError> {
        self.at.as_deref().map_or(Ok(Position::Now), position)
    }
}

/// The position that a text names.
pub(crate) fn position(text: &str) -> Result<Position, ApiError> {
    if text.starts_with("cp:") {
        return checkpoint(text).map(Position::Checkpoint);
    }
    let fact = text.parse().map(|fact| Position::Fact(FactNumber(fact)));
    fact.map_err(|_| {
        ApiError::invalid(format!(
            "'{text}' is not a position: write the number of a fact, or a checkpoint such as cp:3"
        ))
    })
}
