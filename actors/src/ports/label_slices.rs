//! The port for budgets of labels that several kernels share.

use std::sync::Arc;

use dormouse_proto::label::Label;
use dormouse_proto::model::Usage;

pub use dormouse_kernel::labels::LabelSlice;

/// Says what a kernel may use by itself of the budget of a label. The kernel counts its own usage, in
/// the records of its own store, and begins nothing for a label whose slice is used up.
///
/// A slice that grows is announced by
/// [`Kernel::label_slices_changed`](crate::handle::Kernel::label_slices_changed).
pub trait LabelSlices: Send + Sync + 'static {
    /// What the trees of this kernel may use of the budget of `label`, in the period that ends at
    /// `until_ms` (milliseconds since the epoch, UTC), of which they have used `used`; `None` if it has
    /// no budget. If the budget is not set in this kernel yet, `until_ms` is 0, and the trees with the
    /// label begin nothing until it is. Called before
    /// each decision of a process with the label, from any thread, while the labels of the kernel are
    /// locked: it must neither block nor call the kernel. It is the place to ask for a larger slice
    /// before this one is used up.
    fn slice(&self, label: &Label, until_ms: u64, used: &Usage) -> Option<LabelSlice>;
}

impl<S: LabelSlices + ?Sized> LabelSlices for Arc<S> {
    fn slice(&self, label: &Label, until_ms: u64, used: &Usage) -> Option<LabelSlice> {
        (**self).slice(label, until_ms, used)
    }
}
