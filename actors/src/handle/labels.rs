//! Budgets of labels, which all trees with a label share.

use dormouse_kernel::labels::{LabelChange, LabelStatus, check_label_budget};
use dormouse_proto::label::{Label, LabelBudget};
use tokio::sync::oneshot;

use super::kernel::Kernel;
use crate::checkpoint::LogRecord;
use crate::error::KernelError;
use crate::supervisor::WakeMessage;

impl Kernel {
    /// Sets what all trees with a label may use together, for each day or month of a time zone. It is
    /// durable when this returns, and holds for trees that run as well.
    ///
    /// Before each model call, the usage of all trees with the label is looked at. If the budget is
    /// used up, their processes begin nothing, whatever their programs say: a call in flight ends,
    /// and may use more. They go on when the next period begins in a running kernel, or when they are
    /// resumed after that, or when a larger budget is set.
    ///
    /// Usage is counted from the first time that a budget is set, in the period in which it becomes
    /// durable. Other limits keep the count, and another period or zone begins it at zero. A model
    /// without a price costs nothing.
    ///
    /// # Errors
    /// [`KernelError::Label`] if the limits are not valid, and
    /// [`StoreFailure`](crate::StoreFailure) if the store refuses it.
    pub async fn set_label_budget(
        &self,
        label: Label,
        budget: LabelBudget,
    ) -> Result<(), KernelError> {
        check_label_budget(&budget)?;
        self.change_label_budget(label, Some(budget)).await
    }

    /// Removes the budget of a label, and what was counted. Trees that it held up go on.
    ///
    /// # Errors
    /// [`StoreFailure`](crate::StoreFailure) if the store refuses it.
    pub async fn remove_label_budget(&self, label: Label) -> Result<(), KernelError> {
        self.change_label_budget(label, None).await
    }

    /// The labels that have a budget, sorted, with what was used in the present period. Usage that is
    /// not durable yet is included.
    #[must_use]
    pub fn labels(&self) -> Vec<LabelStatus> {
        self.context.labels.statuses()
    }

    /// Says that the [slices](super::KernelBuilder::label_slices) of this kernel have changed: trees
    /// that can begin something again go on.
    ///
    /// # Errors
    /// [`KernelError::Closed`].
    pub fn label_slices_changed(&self) -> Result<(), KernelError> {
        self.cast(WakeMessage::LabelChanged)
    }

    async fn change_label_budget(
        &self,
        label: Label,
        budget: Option<LabelBudget>,
    ) -> Result<(), KernelError> {
        let change = LabelChange::BudgetSet { label, budget };
        if self.context.has_store {
            let (reply, result) = oneshot::channel();
            let acknowledge = Box::new(|result| {
                // The requester has dropped its receiver if it no longer waits.
                let _ = reply.send(result);
            });
            let records = vec![LogRecord::Label(change)];
            self.context.append_records(records, acknowledge);
            result.await.map_err(|_| KernelError::Closed)??;
        } else {
            self.context.labels.apply(&change);
        }
        self.cast(WakeMessage::LabelChanged)
    }
}
