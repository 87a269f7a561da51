//! The signal that a process has produced its first output: the first part of a reply, a whole
//! reply, or its end.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// Notifies once. Dropping the last clone closes the channel, so that a process that ends, faults
/// or is killed keeps no sibling waiting.
#[derive(Clone, Debug)]
pub(crate) struct StartedSignal(Arc<Mutex<Option<oneshot::Sender<()>>>>);

impl StartedSignal {
    /// A signal, and a receiver that resolves (with or without a value) once the signal was
    /// notified or dropped.
    pub(crate) fn new() -> (Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    pub(crate) fn notify(&self) {
        if let Some(sender) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The receiver stops waiting after a timeout.
            let _ = sender.send(());
        }
    }
}
