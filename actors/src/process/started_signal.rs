//! The signal that a process has produced its first output: the first part of a reply, a whole
//! reply, or its end. The siblings of a forked process wait for this signal, so that their requests
//! find the prompt cache of the provider filled (`supervisor/fork_release.rs`).

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// Notifies the receiver once. Dropping the last clone closes the channel, so that no sibling waits
/// for a process that ends, faults or is killed.
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
            // The receiver is dropped if its timeout has expired.
            let _ = sender.send(());
        }
    }
}
