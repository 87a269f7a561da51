//! Claims the store of a kernel that is built, and reads what the kernel starts with.

use std::sync::Arc;

use dormouse_proto::id::Pid;

use super::KernelBuilder;
use crate::error::KernelError;
use crate::labels::Labels;
use crate::ports::{OwnerToken, ProcessListing, Store, StoreError};
use crate::supervisor::{PidCounter, ProcessTable};

/// The result of claiming the store, if there is one.
pub(super) struct ClaimedStore {
    pub(super) store: Option<(Arc<dyn Store>, OwnerToken)>,
    pub(super) table: ProcessTable,
    /// The processes that run again.
    pub(super) resumed_pids: Vec<Pid>,
    /// The highest number that a checkpoint ever had.
    pub(super) last_checkpoint_id: u64,
    /// The budgets of labels.
    pub(super) labels: Labels,
    /// Descriptions of the records that the store has lost.
    pub(super) losses: Vec<String>,
    /// Losses that a repair has acknowledged.
    pub(super) acknowledged_losses: Vec<String>,
}

impl KernelBuilder {
    /// Claims the store and reads its process table.
    pub(super) async fn claim_store(&self) -> Result<ClaimedStore, KernelError> {
        let inbox_capacity = self.limits.inbox_capacity;
        let Some(store) = self.store.clone() else {
            let listing = ProcessListing::default();
            let pids = PidCounter::new(&self.pids, &listing)?;
            let table = ProcessTable::new(listing, pids, inbox_capacity);
            return Ok(ClaimedStore {
                store: None,
                table,
                resumed_pids: Vec::new(),
                last_checkpoint_id: 0,
                labels: Labels::default(),
                losses: Vec::new(),
                acknowledged_losses: Vec::new(),
            });
        };
        let recovery = self.recovery.clone();
        let range = self.pids.clone();
        let claim = move || -> Result<ClaimedStore, KernelError> {
            // First, since an earlier owner can commit until then.
            let owner = match store.claim() {
                Err(StoreError::ReadOnly { .. }) => None,
                claimed => Some(claimed?),
            };
            let listing = store.processes()?;
            let pids = PidCounter::new(&range, &listing)?;
            let last_checkpoint_id = store.last_checkpoint()?;
            let labels = Labels::read(&*store)?;
            listing.losses.iter().for_each(
                |lost| tracing::error!(%lost, "not all processes of the store can be listed"),
            );
            // On a read-only store the kernel only serves inspection: no process runs, and writes
            // are refused.
            let resumed_pids = match owner {
                Some(_) => recovery.select_pids(&listing.rows),
                None => Vec::new(),
            };
            let owner = owner.unwrap_or(OwnerToken(0));
            let losses = listing.losses.clone();
            let acknowledged_losses = listing.acknowledged_losses.clone();
            let table = ProcessTable::new(listing, pids, inbox_capacity);
            Ok(ClaimedStore {
                store: Some((store, owner)),
                table,
                resumed_pids,
                last_checkpoint_id,
                labels,
                losses,
                acknowledged_losses,
            })
        };
        tokio::task::spawn_blocking(claim).await?
    }
}
