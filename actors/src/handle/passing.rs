//! Checkpoints that are made for one purpose, and go with whoever has it.

use std::sync::Arc;

use super::kernel::Kernel;
use crate::checkpoint::Durable;
use crate::in_use::CheckpointGuard;
use crate::world::World;

/// A checkpoint that is given up when this is dropped, also where that is because nobody waits any more.
pub(super) struct Passing {
    world: Arc<World>,
    marked: Option<CheckpointGuard>,
}

impl Passing {
    /// None: there is nothing to give up.
    pub(super) fn of(kernel: &Kernel, marked: Option<CheckpointGuard>) -> Self {
        Self { world: kernel.world.clone(), marked }
    }

    /// From here on somebody else gives it up.
    pub(super) fn hand_over(mut self) -> Option<CheckpointGuard> {
        self.marked.take()
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        if let Some(CheckpointGuard { id, .. }) = self.marked {
            // Nobody waits for it. Where it fails, the checkpoint can be seen and dropped.
            self.world.append(vec![Durable::CheckpointDropped { id }], Box::new(drop));
        }
    }
}
