//! Collecting garbage while a kernel runs.

use std::ops::ControlFlow;

use dormouse_kernel::retention::Retention;

use super::kernel::Kernel;
use crate::clock::now_ms;
use crate::error::KernelError;
use crate::garbage::{Collection, Garbage, Unreadable, collect};
use crate::ports::{Bounds, OwnerToken, Purpose};
use crate::supervisor::SupervisorMessage;

impl Kernel {
    /// Gives up what the rules say, and the room that nothing needs any more; or counts it and writes nothing. Processes run on
    /// meanwhile. Costs a read of every journal that is kept. A process that is given up is in no list from then on, and its
    /// number is never given again.
    ///
    /// # Errors
    /// [`KernelError::NoStore`], [`KernelError::Store`], [`KernelError::Closed`] where the kernel shuts down. What was given
    /// up or freed before stays so; it can be called again.
    pub async fn collect_garbage(&self, retention: Retention, purpose: Purpose) -> Result<Garbage, KernelError> {
        let store = self.world.store().ok_or(KernelError::NoStore)?;
        let (owner, world) = (OwnerToken(self.world.opening), self.world.clone());
        let work = move || {
            // A kernel that shuts down does not wait for the end of it.
            let watch = &mut |_| if world.is_open() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
            let (retention, bounds, unreadable) = (&retention, Bounds::default(), Unreadable::KeepContents);
            collect(&*store, Collection { owner, retention, unreadable, purpose, bounds, now_ms: now_ms(), watch })
        };
        let garbage = tokio::task::spawn_blocking(work).await.map_err(|_| KernelError::Closed)??;
        if purpose == Purpose::Free {
            let pids = garbage.forgotten.processes.iter().copied().collect();
            self.supervisor.cast(SupervisorMessage::Forget { pids }).map_err(|_| KernelError::Closed)?;
        }
        Ok(garbage)
    }
}
