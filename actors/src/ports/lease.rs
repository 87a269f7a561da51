//! The port for a lease on the store of a kernel.

use std::sync::Arc;

/// Says whether this kernel is still the owner of its store. Where another kernel may claim the store
/// once the lease of this one is over, this one must not begin anything by then.
pub trait Lease: Send + Sync + 'static {
    /// Whether the lease is held, with a margin for what begins right after this call. Called before
    /// each effect and each commit, and now and then in between, from any thread: it must not block.
    /// It compares a monotonic clock with the end of the lease, and never says yes again after it has
    /// said no.
    fn is_held(&self) -> bool;
}

impl<L: Lease + ?Sized> Lease for Arc<L> {
    fn is_held(&self) -> bool {
        (**self).is_held()
    }
}
