//! Checkpoints that were just made and are about to be read by who made them. A collection of
//! garbage keeps them, whatever its rules say.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_proto::id::CheckpointId;

/// The checkpoints of a kernel that are in use.
#[derive(Default)]
pub(crate) struct CheckpointsInUse(Mutex<BTreeSet<CheckpointId>>);

impl CheckpointsInUse {
    /// Notes a new checkpoint, until the returned value is dropped. Must be called before the
    /// checkpoint is committed.
    pub(crate) fn guard(self: &Arc<Self>, id: CheckpointId) -> CheckpointGuard {
        self.ids().insert(id);
        CheckpointGuard {
            id,
            checkpoints: self.clone(),
        }
    }

    /// All of them. List the checkpoints of the store first: one that is made later is not among
    /// those.
    pub(crate) fn list(&self) -> BTreeSet<CheckpointId> {
        self.ids().clone()
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<CheckpointId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A checkpoint that is in use while this exists.
pub(crate) struct CheckpointGuard {
    pub(crate) id: CheckpointId,
    checkpoints: Arc<CheckpointsInUse>,
}

impl Drop for CheckpointGuard {
    fn drop(&mut self) {
        self.checkpoints.ids().remove(&self.id);
    }
}
