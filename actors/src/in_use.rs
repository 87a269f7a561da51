//! Checkpoints that somebody is about to use: whoever made one reads it before it is known to anybody else. A collection of garbage
//! leaves them, whatever its rules say.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_proto::id::CheckpointId;

/// Those of a kernel.
#[derive(Default)]
pub(crate) struct InUse(Mutex<BTreeSet<CheckpointId>>);

impl InUse {
    /// A new checkpoint, which is in use until what this returns is dropped. To be called before it can be seen in the store.
    pub(crate) fn begin(self: &Arc<Self>, id: CheckpointId) -> Marked {
        self.ids().insert(id);
        Marked { id, in_use: self.clone() }
    }

    /// All of them. Whoever has listed the checkpoints of the store before knows which of those are in use.
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
