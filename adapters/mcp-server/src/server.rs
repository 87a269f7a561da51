//! A server: a kernel, and the program that a process of each session runs.

use std::sync::Arc;

use dormouse_actors::KernelError;
use dormouse_actors::handle::Kernel;
use dormouse_kernel::program::Program;

use crate::seat::{Keeping, Processes};

/// Why a server could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No process can stand behind a session.
    #[error("no process stands behind the session: {0}")]
    Process(#[from] KernelError),
    /// The listener does not listen.
    #[error("the listener fails: {0}. Name another address, or end who has this one")]
    Listener(std::io::Error),
    /// The client does not speak the protocol, or the serving of it failed.
    #[error("the client cannot be served: {0}")]
    Session(String),
    /// Settings that contradict each other.
    #[error("{0}")]
    Settings(String),
}

/// Processes of one program, as a server of the Model Context Protocol. Cloning costs a pointer.
///
/// The program's model is never asked: processes wait for calls. Of a kernel with a store they are
/// [kept](Keeping::Kept), where that is wanted.
#[derive(Clone, Debug)]
pub struct McpServer {
    pub(crate) processes: Arc<Processes>,
}

impl McpServer {
    /// A server of processes of `program`. Nothing runs before a client comes.
    #[must_use]
    pub fn new(kernel: Kernel, program: Program, keeping: Keeping) -> Self {
        Self {
            processes: Arc::new(Processes::new(kernel, program, keeping)),
        }
    }

    /// Ends the processes of all sessions, but for one that is [kept](Keeping::Kept). Called behind
    /// the serving, before the kernel is shut down, so that nothing stays in a store that nobody
    /// comes back to.
    pub async fn end(&self) {
        self.processes.end_all().await;
    }
}
