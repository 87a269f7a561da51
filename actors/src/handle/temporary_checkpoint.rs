//! Deletes checkpoints that exist for one operation only, for instance for an export of the present
//! state, when that operation ends.

use std::sync::Arc;

use super::kernel::Kernel;
use crate::checkpoint::LogRecord;
use crate::context::KernelContext;
use crate::in_use::CheckpointGuard;

/// Deletes its checkpoint when this value goes out of scope, even if the future that holds it is
/// cancelled.
pub(super) struct TemporaryCheckpoint {
    context: Arc<KernelContext>,
    guard: Option<CheckpointGuard>,
}

impl TemporaryCheckpoint {
    /// `None`: there is no checkpoint to delete.
    pub(super) fn new(kernel: &Kernel, guard: Option<CheckpointGuard>) -> Self {
        Self {
            context: kernel.context.clone(),
            guard,
        }
    }

    /// Returns the guard without deleting the checkpoint. The caller deletes the checkpoint with a
    /// record [`LogRecord::CheckpointDropped`].
    pub(super) fn into_guard(mut self) -> Option<CheckpointGuard> {
        self.guard.take()
    }
}

impl Drop for TemporaryCheckpoint {
    fn drop(&mut self) {
        if let Some(CheckpointGuard { id, .. }) = self.guard {
            // The result is not awaited: if this fails, the checkpoint stays listed, and the user
            // can drop it.
            self.context
                .append_records(vec![LogRecord::CheckpointDropped { id }], Box::new(drop));
        }
    }
}
