//! A handle on a process and its descendants.

use super::process::Process;
use crate::error::KernelError;
use dormouse_kernel::process::Signal;

/// A process and its descendants, which are determined when a signal is sent. When a method
/// returns, its signal is durable in all of these processes that have not ended; a model or tool
/// that hangs does not delay it. If the signal is not durable in some process, the method returns
/// the error of the first such process:
/// [`ProcessError::Unanswered`](crate::ProcessError::Unanswered) if that process stopped before.
#[derive(Clone, Debug)]
pub struct Tree(pub(super) Process);

impl Tree {
    /// Ends the current turn of each process, as [`Process::interrupt`] does.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended) if the root of the tree has ended.
    pub async fn interrupt(&self) -> Result<(), KernelError> {
        self.0.signal_tree(Signal::Interrupt).await
    }

    /// Stops each process, as [`Process::stop`] does. Children that are being created start
    /// stopped.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended) if the root of the tree has ended.
    pub async fn stop(&self) -> Result<(), KernelError> {
        self.0.signal_tree(Signal::Stop).await
    }

    /// Continues each process, as [`Process::cont`] does.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended) if the root of the tree has ended.
    pub async fn cont(&self) -> Result<(), KernelError> {
        self.0.signal_tree(Signal::Continue).await
    }

    /// Ends each process.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended) if the root of the tree has ended.
    pub async fn kill(&self) -> Result<(), KernelError> {
        self.0.signal_tree(Signal::Kill).await
    }
}
