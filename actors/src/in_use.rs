//! Checkpoints that were just made and are about to be read by who made them. A collection of garbage keeps them, whatever its rules
//! say.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_proto::id::CheckpointId;

/// The checkpoints of a kernel that are in use.
#[derive(Default)]
pub(crate) struct InUse(Mutex<BTreeSet<CheckpointId>>);

impl InUse {
    /// Notes a new checkpoint, until the returned value is dropped. Must be called before the checkpoint is committed.
    pub(crate) fn begin(self: &Arc<Self>, id: CheckpointId) -> Marked {
        self.ids().insert(id);
        Marked { id, in_use: self.clone() }
    }

    /// All of them. List the checkpoints of the store first: one that is made later is not among those.
    pub(crate) fn list(&self) -> BTreeSet<CheckpointId> {
        self.ids().clone()
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<CheckpointId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A checkpoint that was made, and is in use.
pub(crate) struct Marked {
    pub(crate) id: CheckpointId,
    in_use: Arc<InUse>,
}

impl Drop for Marked {
    fn drop(&mut self) {
        self.in_use.ids().remove(&self.id);
    }
}
