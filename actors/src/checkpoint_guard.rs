//! Protects checkpoints from garbage collection, whatever its retention rules say, while the
//! operation that created them is about to read them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_proto::id::CheckpointId;

/// The checkpoints of a kernel that an operation uses.
#[derive(Default)]
pub(crate) struct CheckpointsInUse(Mutex<BTreeSet<CheckpointId>>);

impl CheckpointsInUse {
    /// Protects a new checkpoint until the returned guard is dropped. Must be called before the
    /// checkpoint is committed: a collection that starts in between would delete it.
    pub(crate) fn guard(self: &Arc<Self>, id: CheckpointId) -> CheckpointGuard {
        self.ids().insert(id);
        CheckpointGuard {
            id,
            checkpoints: self.clone(),
        }
    }

    /// All protected checkpoints. A collection must list the checkpoints of the store before it
    /// calls this; a checkpoint that is created in between is then not in the collection's list.
    pub(crate) fn list(&self) -> BTreeSet<CheckpointId> {
        self.ids().clone()
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<CheckpointId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Protects a checkpoint from garbage collection while it exists.
pub(crate) struct CheckpointGuard {
    pub(crate) id: CheckpointId,
    checkpoints: Arc<CheckpointsInUse>,
}

impl Drop for CheckpointGuard {
    fn drop(&mut self) {
        self.checkpoints.ids().remove(&self.id);
    }
}
