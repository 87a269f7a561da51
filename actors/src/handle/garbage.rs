//! Collecting garbage while a kernel runs.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dormouse_kernel::retention::Retention;
use dormouse_proto::id::Pid;

use super::kernel::Kernel;
use crate::clock::now_ms;
use crate::error::{KernelError, StoreFailure};
use crate::garbage::{Collection, Garbage, Unreadable, collect};
use crate::ports::{Bounds, OwnerToken, Purpose};
use crate::supervisor::LookupMessage;

/// Says that nobody waits any more, when it is dropped.
struct CallerGuard(Arc<AtomicBool>);

impl Drop for CallerGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Kernel {
    /// Gives up what the rules say, and the room that nothing needs any more; or counts it and
    /// writes nothing. Processes run on meanwhile. The first collection of a kernel reads every
    /// journal that is kept; each later one reads what came since, and nothing where nothing came.
    /// What is remembered for that takes some 70 bytes of memory for each content and 300 for each
    /// process ([`dormouse_kernel::inventory`]). A process that is given up is in no list from then
    /// on, and its number is never given again. One collection runs at a time; another waits for
    /// it.
    ///
    /// To drop the future breaks it off, and so does a shutdown: after some hundred records, or one
    /// step of the sweep, at most. What was given up or freed before stays so, and it can be called
    /// again. What was broken off says so:
    /// [`Progress::BrokenOff`](crate::ports::Progress::BrokenOff).
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`StoreFailure::Store`](crate::StoreFailure::Store), [`KernelError::Closed`] where the
    /// kernel shuts down. What was given up or freed before stays so; it can be called again.
    pub async fn collect_garbage(
        &self,
        retention: Retention,
        purpose: Purpose,
    ) -> Result<Garbage, KernelError> {
        // The store handle comes second: whoever waits here for another collection does not hold up a
        // shutdown.
        let mut inventory = self.context.gc_inventory.clone().lock_owned().await;
        let store = self.context.store_handle().ok_or(StoreFailure::NoStore)?;
        let (owner, context, supervisor) = (
            OwnerToken(self.context.owner_token),
            self.context.clone(),
            self.supervisor.clone(),
        );
        let is_awaited = Arc::new(AtomicBool::new(true));
        let caller = CallerGuard(is_awaited.clone());
        let work = move || {
            let watch = &mut |_| match context.is_open() && is_awaited.load(Ordering::Relaxed) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            };
            // Said at once, and here: whatever becomes of the rest, the table is to show what the
            // store holds.
            let forgot = &mut |pids: &BTreeSet<Pid>| {
                // If the supervisor has stopped, there is no table to update.
                let _ = supervisor.cast(
                    LookupMessage::RemoveDeleted {
                        pids: pids.iter().copied().collect(),
                    }
                    .into(),
                );
            };
            let (retention, bounds, unreadable) =
                (&retention, Bounds::default(), Unreadable::KeepAll);
            let now_ms = now_ms();
            let inventory = &mut *inventory;
            let in_use = &|| context.checkpoints_in_use.list();
            let collection = Collection {
                owner,
                inventory,
                retention,
                in_use,
                unreadable,
                purpose,
                bounds,
                now_ms,
                forgot,
                watch,
            };
            collect(&*store, collection)
        };
        let garbage = tokio::task::spawn_blocking(work)
            .await
            .map_err(|_| KernelError::Closed)??;
        drop(caller);
        Ok(garbage)
    }
}
