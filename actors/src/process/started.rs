//! The word that something has come of a process: the first piece of a reply, a whole reply, or its
//! end.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// Says once that something has come. Dropping the last clone says it as well, so that a process
/// that ends, faults or is killed keeps nobody waiting.
#[derive(Clone, Debug)]
pub(crate) struct StartedSignal(Arc<Mutex<Option<oneshot::Sender<()>>>>);

impl StartedSignal {
    /// A signal, and what is resolved, with or without a value, once it has spoken.
    pub(crate) fn new() -> (Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    pub(crate) fn notify(&self) {
        if let Some(sender) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Who no longer listens has waited long enough.
            let _ = sender.send(());
        }
    }
}
