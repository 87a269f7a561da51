//! Garbage collection of a running kernel.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dormouse_kernel::retention::Retention;
use dormouse_proto::id::Pid;

use super::kernel::Kernel;
use crate::clock::now_ms;
use crate::error::KernelError;
use crate::garbage::{CollectionReport, CollectionRequest, UnreadablePolicy, collect};
use crate::ports::{OwnerToken, SweepLimits, SweepMode};
use crate::supervisor::LookupMessage;

/// Marks a collection as no longer awaited when it is dropped. The collection then stops.
struct CallerGuard(Arc<AtomicBool>);

impl Drop for CallerGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Kernel {
    /// Deletes the data that the retention rules select, and frees the space of data that no record
    /// refers to; or only counts both. Processes continue to run. The first collection of a kernel
    /// reads every retained journal; a later one reads the records written since. The inventory
    /// takes about 70 bytes of memory for each content and 300 for each process
    /// ([`dormouse_kernel::inventory`]). A deleted process is no longer listed, and its pid is
    /// never reused. One collection runs at a time; another one waits for it.
    ///
    /// Dropping the future or shutting down stops a collection that runs, after about a hundred
    /// records or one step of the sweep. After a shutdown the report says
    /// [`SweepOutcome::Interrupted`](crate::ports::SweepOutcome::Interrupted).
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore);
    /// [`StoreFailure::Store`](crate::StoreFailure::Store); [`KernelError::Closed`] if the kernel
    /// shut down before the collection began; [`KernelError::Panicked`]. Data that was deleted or
    /// freed before stays deleted or freed; the collection can be called again.
    pub async fn collect_garbage(
        &self,
        retention: Retention,
        mode: SweepMode,
    ) -> Result<CollectionReport, KernelError> {
        // The lock comes before the store handle: a caller that waits for another collection does
        // not delay a shutdown.
        let mut shared_inventory = self.context.gc_inventory.clone().lock_owned().await;
        let store = self.context.open_store()?;
        let owner = OwnerToken(self.context.owner_token);
        let context = self.context.clone();
        let supervisor = self.supervisor.clone();
        let is_awaited = Arc::new(AtomicBool::new(true));
        let caller = CallerGuard(is_awaited.clone());
        let work = move || {
            let watch = &mut |_| match context.is_open() && is_awaited.load(Ordering::Relaxed) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            };
            // Reported at once: even if a later step fails, the table must not list processes that
            // the store has deleted.
            let on_deleted = &mut |pids: &BTreeSet<Pid>| {
                // If the supervisor has stopped, there is no table to update.
                let _ = supervisor.cast(
                    LookupMessage::RemoveDeleted {
                        pids: pids.iter().copied().collect(),
                    }
                    .into(),
                );
            };
            let (retention, limits, unreadable) = (
                &retention,
                SweepLimits::default(),
                UnreadablePolicy::KeepAll,
            );
            let now_ms = now_ms();
            // The shared inventory stays empty until the end: after a panic in the middle of an update,
            // the next collection must not believe an incomplete one.
            let mut inventory = std::mem::take(&mut *shared_inventory);
            let in_use = &*context.in_use;
            let request = CollectionRequest {
                owner,
                inventory: &mut inventory,
                retention,
                in_use,
                unreadable,
                mode,
                limits,
                now_ms,
                on_deleted,
                watch,
            };
            let result = collect(&*store, request);
            *shared_inventory = inventory;
            result
        };
        let report = tokio::task::spawn_blocking(work).await??;
        drop(caller);
        Ok(report)
    }
}
