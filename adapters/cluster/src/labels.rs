//! Budgets of labels that hold for the whole cluster.

use dormouse::label::{Label, LabelBudget};
use dormouse::schedule::period_of;
use dormouse::{Amount, check_label_budget};

use crate::cluster::Cluster;
use crate::database::on_database;
use crate::error::ClusterError;
use crate::label_tables::limited;

/// A label with a budget of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLabel {
    /// The label.
    pub label: Label,
    /// Its budget.
    pub budget: LabelBudget,
    /// When the present period ends: milliseconds since the epoch, UTC.
    pub until_ms: u64,
    /// The limited amounts.
    pub amounts: Vec<LabelAmount>,
}

/// A limited amount of a label, in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelAmount {
    /// What is limited.
    pub amount: Amount,
    /// The most that all trees may use in a period.
    pub limit: u64,
    /// What they have used in the present one, as nodes have reported it: half a second old at
    /// most, and for a shard without an owner what its last owner said.
    pub used: u64,
    /// What shards may use in addition without asking for more. It comes back if it is not used.
    pub leased: u64,
}

impl Cluster {
    /// Sets what all trees with a label may use together, in all shards, for each day or month of a
    /// time zone. It is durable when this returns, and nodes keep it half a second later.
    ///
    /// Each shard takes slices of the budget, a quarter of what is left at a time, and its trees
    /// begin nothing once their slice is used up. What a shard has not used for three seconds goes
    /// back, and so does what it has left when it goes to another node. The slice of a node that is
    /// lost counts as used until another node has its shard; then the records of the shard say what
    /// was used.
    ///
    /// All slices together are at most the budget. What can exceed it are calls that are in flight
    /// when a slice is used up, at most one for each process with the label, as within one kernel;
    /// and what a lost node used for calls whose replies it had not recorded. A limit that is set
    /// lower counts once all nodes have seen it. Nodes name a period by their own clock.
    ///
    /// Usage is counted in a shard from when one of its trees has the label and the budget is set.
    /// Other limits keep the count; another period or zone begins at zero.
    ///
    /// # Errors
    /// [`ClusterError::Label`] if the limits are not valid; [`ClusterError::Database`].
    pub async fn set_label_budget(
        &self,
        label: Label,
        budget: LabelBudget,
    ) -> Result<(), ClusterError> {
        check_label_budget(&budget)?;
        let tables = self.tables();
        Ok(on_database(move || tables.set_label_budget(&label, &budget)).await?)
    }

    /// Removes the budget of a label, and what was counted. Trees that it held up go on.
    ///
    /// # Errors
    /// [`ClusterError::Database`].
    pub async fn remove_label_budget(&self, label: Label) -> Result<(), ClusterError> {
        let tables = self.tables();
        Ok(on_database(move || tables.remove_label_budget(&label)).await?)
    }

    /// The labels that have a budget, sorted, with what was used in the present period.
    ///
    /// # Errors
    /// [`ClusterError::Database`].
    pub async fn label_budgets(&self) -> Result<Vec<ClusterLabel>, ClusterError> {
        let tables = self.tables();
        let read = move || Ok((tables.label_budgets()?, tables.label_sums()?));
        let (budgets, sums) = on_database(read).await?;
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
        let now_ms = now.map_or(0, |now| now.as_millis() as u64);
        let labels = budgets.into_iter().map(|(label, shared)| {
            let budget = shared.budget;
            let period = period_of(budget.per, &budget.zone, now_ms);
            // Beyond the calendar there is one period for ever.
            let end_ms = period.map_or(i64::MAX as u64, |(_, end_ms)| end_ms);
            let sums = sums.get(&label).filter(|sums| sums.until_ms >= end_ms);
            let amounts = limited(&budget.limits).map(|(at, amount, limit)| {
                let (used, granted) = sums.map_or((0, 0), |sums| (sums.used[at], sums.granted[at]));
                LabelAmount {
                    amount,
                    limit,
                    used,
                    leased: granted.saturating_sub(used),
                }
            });
            ClusterLabel {
                label,
                until_ms: sums.map_or(end_ms, |sums| sums.until_ms),
                amounts: amounts.collect(),
                budget,
            }
        });
        Ok(labels.collect())
    }
}
