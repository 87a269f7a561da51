//! The server: a kernel, and the program that the process of each session runs.

use std::sync::Arc;

use dormouse_actors::KernelError;
use dormouse_actors::handle::Kernel;
use dormouse_kernel::program::Program;

use crate::session_process::{ProcessLifetime, Processes};

/// Why clients cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The process of a session cannot be started or read.
    #[error("the session has no process: {0}")]
    Process(#[from] KernelError),
    /// The listener accepts no connections.
    #[error("the listener fails: {0}. Name another address, or stop the program that has this one")]
    Listener(std::io::Error),
    /// The client does not speak the protocol, or its session failed.
    #[error("the client cannot be served: {0}")]
    Session(String),
    /// Settings that contradict each other.
    #[error("{0}")]
    Settings(String),
}

/// Processes of one program, as a server of the Model Context Protocol. Cloning costs a pointer.
///
/// The program's model is never called: the processes only execute the calls of clients. On a
/// kernel with a store, the process can be [kept](ProcessLifetime::Persistent) from one start to
/// the next.
#[derive(Clone, Debug)]
pub struct McpServer {
    pub(crate) processes: Arc<Processes>,
}

impl McpServer {
    /// A server of processes of `program`. Nothing runs before a client connects.
    #[must_use]
    pub fn new(kernel: Kernel, program: Program, lifetime: ProcessLifetime) -> Self {
        Self {
            processes: Arc::new(Processes::new(kernel, program, lifetime)),
        }
    }

    /// Ends the processes of all sessions, except one that is [kept](ProcessLifetime::Persistent).
    /// Call it after serving and before the kernel is shut down: otherwise the store keeps
    /// processes that no client can reach any more.
    pub async fn end(&self) {
        self.processes.end_all().await;
    }
}
