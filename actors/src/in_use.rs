//! Checkpoints that were just made and are about to be read by who made them. A collection of
//! garbage keeps them, whatever its rules say.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_proto::id::CheckpointId;

/// The checkpoints of a kernel that are in use.
#[derive(Default)]
pub(crate) struct InUse(Mutex<BTreeSet<CheckpointId>>);

impl InUse {
    /// Notes a new checkpoint, until the returned value is dropped. Must be called before the
    /// checkpoint is committed.
    pub(crate) fn begin(self: &Arc<Self>, id: CheckpointId) -> CheckpointGuard {
        self.ids().insert(id);
        CheckpointGuard {
            id,
            in_use: self.clone(),
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
    in_use: Arc<InUse>,
}

impl Drop for CheckpointGuard {
    fn drop(&mut self) {
        self.in_use.ids().remove(&self.id);
    }
}
