//! Temporary checkpoints: each is made for one operation and given up after it.

use std::sync::Arc;

use super::kernel::Kernel;
use crate::checkpoint::LogRecord;
use crate::checkpoint_guard::CheckpointGuard;
use crate::context::KernelContext;

/// A checkpoint that is given up when this is dropped, also if the future that holds it is dropped.
pub(super) struct TemporaryCheckpoint {
    context: Arc<KernelContext>,
    checkpoint: Option<CheckpointGuard>,
}

impl TemporaryCheckpoint {
    /// None: there is nothing to give up.
    pub(super) fn of(kernel: &Kernel, checkpoint: Option<CheckpointGuard>) -> Self {
        Self {
            context: kernel.context.clone(),
            checkpoint,
        }
    }

    /// From here on the caller gives it up.
    pub(super) fn hand_over(mut self) -> Option<CheckpointGuard> {
        self.checkpoint.take()
    }
}

impl Drop for TemporaryCheckpoint {
    fn drop(&mut self) {
        if let Some(CheckpointGuard { id, .. }) = self.checkpoint {
            // The result is not awaited. If this fails, the checkpoint stays listed and can be
            // dropped.
            self.context
                .append(vec![LogRecord::CheckpointDropped { id }], Box::new(drop));
        }
    }
}
