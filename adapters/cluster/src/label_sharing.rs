//! How a node shares the budgets of labels with other nodes: it reads the budgets, tells its
//! kernels, reports what they have used, and takes and gives back slices.
//!
//! A kernel counts for a label once one of its trees has the label. From then on the truth of what
//! a shard has used is in its own records, and `label_slice` says how much it may use. A slice
//! belongs to the shard: it ends with the claim, and the next owner begins with what the records
//! show.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use dormouse::label::Label;
use dormouse::ports::StoreError;
use dormouse::{Kernel, KernelError, LabelStatus};
use dormouse_postgres::{Claim, ShardId};
use futures_util::future::join_all;
use tokio::sync::Notify;

use crate::database::on_database;
use crate::label_slices::{ShardSlices, SharedBudgets};
use crate::label_tables::{SharedBudget, UsageReport, amounts_of};
use crate::node::{Node, Phase};

/// How often budgets are read, and usage is reported.
const EVERY: Duration = Duration::from_millis(500);

/// What a node knows of the budgets of labels.
#[derive(Default)]
pub(crate) struct LabelSharing {
    budgets: SharedBudgets,
    wake: Arc<Notify>,
    shards: Mutex<BTreeMap<ShardId, Arc<ShardSlices>>>,
}

impl LabelSharing {
    fn shards(&self) -> MutexGuard<'_, BTreeMap<ShardId, Arc<ShardSlices>>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with a shard that was claimed: it has no slices yet.
    pub(crate) fn open(&self, claim: &Claim) -> Arc<ShardSlices> {
        let (shard, epoch) = (claim.shard(), claim.owner().0);
        let (budgets, wake) = (self.budgets.clone(), self.wake.clone());
        let slices = Arc::new(ShardSlices::new(shard, epoch, budgets, wake));
        self.shards().insert(shard, slices.clone());
        // What an earlier owner has left is given back.
        self.wake.notify_one();
        slices
    }

    /// Ends with a shard that is released or lost.
    fn close(&self, claim: &Claim) -> Option<Arc<ShardSlices>> {
        let mut shards = self.shards();
        let is_same = |slices: &Arc<ShardSlices>| slices.epoch == claim.owner().0;
        match shards.get(&claim.shard()).is_some_and(is_same) {
            true => shards.remove(&claim.shard()),
            false => None,
        }
    }

    fn budgets(&self) -> BTreeMap<Label, SharedBudget> {
        let budgets = self.budgets.read().unwrap_or_else(PoisonError::into_inner);
        budgets.clone()
    }
}

impl Node {
    /// Shares the budgets of labels until the node leaves.
    pub(crate) async fn share_labels(self: Arc<Self>) {
        while self.phase() != Phase::Left {
            let is_woken = tokio::select! {
                () = tokio::time::sleep(EVERY) => false,
                () = self.labels.wake.notified() => true,
            };
            let shared = async {
                if !is_woken {
                    self.read_label_budgets().await?;
                }
                self.share_labels_once().await
            };
            if let Err(error) = shared.await {
                tracing::warn!(%error, "the budgets of labels were not shared");
            }
        }
    }

    /// Reads all budgets of labels.
    pub(crate) async fn read_label_budgets(&self) -> Result<(), StoreError> {
        let tables = self.caller.tables.clone();
        let read = on_database(move || tables.label_budgets()).await?;
        let budgets: &RwLock<_> = &self.labels.budgets;
        *budgets.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    async fn share_labels_once(&self) -> Result<(), StoreError> {
        let shards: Vec<_> = self.labels.shards().values().cloned().collect();
        let budgets = &self.labels.budgets();
        let counting = shards.into_iter().map(async |slices| {
            let kernel = self.kernel_of(&slices)?;
            // It is tried again with the next round; a kernel that closed is removed by its owner.
            if let Err(error) = self.count_labels(&kernel, &slices, budgets).await {
                tracing::warn!(shard = %slices.shard, %error, "a shard does not count for a label");
            }
            Some((slices, kernel))
        });
        let counting: Vec<_> = join_all(counting).await.into_iter().flatten().collect();
        let reports: Vec<UsageReport> = counting
            .iter()
            .flat_map(|(slices, _)| slices.reports())
            .collect();
        if reports.is_empty() {
            return Ok(());
        }
        let (tables, sent) = (self.caller.tables.clone(), reports.clone());
        let answers = on_database(move || tables.share_labels(sent)).await?;
        for (slices, kernel) in counting {
            let mut is_changed = false;
            for answer in answers.iter().filter(|answer| answer.shard == slices.shard) {
                let mut of_shard = reports.iter().filter(|it| it.shard == slices.shard);
                if let Some(report) = of_shard.find(|report| report.label == answer.label) {
                    is_changed |= slices.apply(report, answer);
                }
            }
            if is_changed {
                // A kernel that closed has nothing to release.
                let _ = kernel.label_slices_changed();
            }
        }
        Ok(())
    }

    /// The kernel of a shard, if it is open under the same claim.
    fn kernel_of(&self, slices: &ShardSlices) -> Option<Kernel> {
        let held = self.caller.held.get(slices.shard)?;
        let is_same = held.claim?.owner().0 == slices.epoch;
        held.kernel.filter(|_| is_same)
    }

    /// Makes a kernel count for the budgets of its trees, and takes over what it has counted.
    async fn count_labels(
        &self,
        kernel: &Kernel,
        slices: &ShardSlices,
        budgets: &BTreeMap<Label, SharedBudget>,
    ) -> Result<(), KernelError> {
        let mut counted: BTreeMap<Label, LabelStatus> = BTreeMap::new();
        for status in kernel.labels() {
            if budgets.contains_key(&status.label) {
                observe(slices, &status);
                counted.insert(status.label.clone(), status);
            } else {
                kernel.remove_label_budget(status.label.clone()).await?;
                slices.remove(&status.label);
            }
        }
        let mut before = None;
        for (label, generation) in slices.generations() {
            let Some(shared) = budgets.get(&label) else {
                slices.remove(&label);
                kernel.label_slices_changed()?;
                continue;
            };
            let own = counted.get(&label);
            let is_counted = generation == Some(shared.generation);
            if is_counted && own.is_some_and(|own| own.budget == shared.budget) {
                continue;
            }
            if !is_counted {
                let before = match &mut before {
                    Some(before) => before,
                    None => before.insert(self.generations_of(slices.shard).await?),
                };
                // The records of another generation count for nothing.
                if own.is_some() && before.get(&label) != Some(&shared.generation) {
                    kernel.remove_label_budget(label.clone()).await?;
                }
            }
            let budget = shared.budget.clone();
            kernel.set_label_budget(label.clone(), budget).await?;
            if !is_counted {
                slices.set_generation(&label, shared.generation);
            }
            let mut statuses = kernel.labels().into_iter();
            if let Some(status) = statuses.find(|status| status.label == label) {
                observe(slices, &status);
            }
        }
        Ok(())
    }

    async fn generations_of(&self, shard: ShardId) -> Result<BTreeMap<Label, i64>, StoreError> {
        let tables = self.caller.tables.clone();
        on_database(move || tables.label_generations(shard)).await
    }

    /// Gives back what a shard has not used, if its kernel has come to its end in order.
    pub(crate) async fn close_slices(&self, claim: &Claim, kernel: Option<&Kernel>) {
        let (Some(slices), Some(kernel)) = (self.labels.close(claim), kernel) else {
            return;
        };
        for status in kernel.labels() {
            observe(&slices, &status);
        }
        let reports = slices.final_reports();
        if reports.is_empty() {
            return;
        }
        let tables = self.caller.tables.clone();
        if let Err(error) = on_database(move || tables.share_labels(reports)).await {
            tracing::warn!(shard = %slices.shard, %error, "slices come back with the next owner");
        }
    }
}

fn observe(slices: &ShardSlices, status: &LabelStatus) {
    slices.observe(&status.label, status.until_ms, amounts_of(&status.spent));
}
