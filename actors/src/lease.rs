//! The store while a kernel has it. Whoever reads or writes holds a lease, in whatever thread; a kernel that shuts down waits
//! until all are given back, so that the next one can open the store.

use std::convert::Infallible;
use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::ports::Store;

/// A hold on the store. Cloning makes a second one; dropping gives it back.
#[derive(Clone)]
pub(crate) struct Lease {
    // Let go of before the other field, by which the end of a lease is heard.
    store: Arc<dyn Store>,
    _held: mpsc::Sender<Infallible>,
}

/// Hears when no lease is held any more.
pub(crate) struct Returns(mpsc::Receiver<Infallible>);

impl Lease {
    /// The first lease of a store.
    pub(crate) fn of(store: Arc<dyn Store>) -> (Self, Returns) {
        let (held, returns) = mpsc::channel(1);
        (Self { store, _held: held }, Returns(returns))
    }
}

impl Deref for Lease {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl Returns {
    /// Awaits the end of the last lease: nothing of the kernel holds the store then.
    pub(crate) async fn all(mut self) {
        // Nothing is ever sent: this ends when the last sender is dropped.
        let _ = self.0.recv().await;
    }
}
