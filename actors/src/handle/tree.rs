//! A handle on a process and all that descend from it.

use super::process::Process;
use crate::error::KernelError;
use dormouse_kernel::process::Signal;

/// A process and all its descendants, as they are when a signal is sent. Each signal is durable,
/// with all that have not ended, when its method returns; a model or tool that hangs delays none.
#[derive(Clone, Debug)]
pub struct Tree(pub(super) Process);

impl Tree {
    /// Ends the current turn of each cleanly, as [`Process::interrupt`] does.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended) where the process at its top has.
    pub async fn interrupt(&self) -> Result<(), KernelError> {
        self.0.signal_tree(Signal::Interrupt).await
    }

    /// Stops each, as [`Process::stop`] does. Children that are on their way are born stopped.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended) where the process at its top has.
    pub async fn stop(&self) -> Result<(), KernelError> {
        self.0.signal_tree(Signal::Stop).await
    }

    /// Lets each go on, as [`Process::cont`] does.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended) where the process at its top has.
    pub async fn cont(&self) -> Result<(), KernelError> {
        self.0.signal_tree(Signal::Continue).await
    }

    /// Ends each.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended) where the process at its top has.
    pub async fn kill(&self) -> Result<(), KernelError> {
        self.0.signal_tree(Signal::Kill).await
    }
}
