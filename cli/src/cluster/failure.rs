//! The errors of clusters as failures of a command, by the exit codes of all commands.

use dormouse_cluster::{ClusterError, MoveError, Refusal};
use dormouse_postgres::DatabaseError;

use crate::failure::Failure;

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::NewerSchema { .. } | DatabaseError::Store(_) => {
                Self::Store(error.to_string())
            }
            _ => Self::Usage(error.to_string()),
        }
    }
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::Database(error) => error.into(),
            ClusterError::Refused {
                kind: Refusal::NotFound | Refusal::Invalid,
                ..
            }
            | ClusterError::Label(_)
            | ClusterError::NoShard(_)
            | ClusterError::Options(_)
            | ClusterError::NoNode { .. } => Self::Usage(error.to_string()),
            ClusterError::Refused {
                kind: Refusal::Held,
                ..
            }
            | ClusterError::NoOwner { .. }
            | ClusterError::OutcomeUnknown { .. }
            | ClusterError::NoNodeWithLabels { .. }
            | ClusterError::WrongToken { .. } => Self::Store(error.to_string()),
            _ => Self::Run(error.to_string()),
        }
    }
}

impl From<MoveError> for Failure {
    fn from(error: MoveError) -> Self {
        match error {
            MoveError::Cluster(error) => error.into(),
            MoveError::Kernel(error) => error.into(),
            MoveError::NoShard(_) | MoveError::Needs { .. } => Self::Usage(error.to_string()),
            _ => Self::Run(error.to_string()),
        }
    }
}
