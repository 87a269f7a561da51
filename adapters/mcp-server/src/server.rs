//! The server: a kernel, and the program that the process of each session runs.

use std::sync::Arc;

use dormouse_actors::KernelError;
use dormouse_actors::handle::Kernel;
use dormouse_kernel::program::Program;

use crate::kept_outputs::KeptOutputs;
use crate::lean_tools::DescriptorTools;
use tokio::sync::Semaphore;

use crate::session_process::{ProcessLifetime, Processes, SessionProcess};

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
    processes: Arc<Processes>,
    kept_outputs: Option<KeptOutputs>,
    descriptor_tools: DescriptorTools,
}

impl McpServer {
    /// A server of processes of `program`. Nothing runs before a client connects.
    #[must_use]
    pub fn new(kernel: Kernel, program: Program, lifetime: ProcessLifetime) -> Self {
        Self {
            processes: Arc::new(Processes::new(kernel, program, lifetime)),
            kept_outputs: None,
            descriptor_tools: DescriptorTools::Full,
        }
    }

    /// Keeps the descriptors of each session beyond its end, under names that cannot be guessed, so
    /// that a client that has a session for each call can read them in a later one. Descriptors of
    /// a [persistent](ProcessLifetime::Persistent) process stay anyway, and are not kept again.
    #[must_use]
    pub fn keep_outputs(mut self, kept_outputs: KeptOutputs) -> Self {
        self.kept_outputs = Some(kept_outputs);
        self
    }

    /// How the tools that read descriptors are described to clients. With
    /// [`DescriptorTools::Lean`], short instructions replace the system prompt of the program.
    #[must_use]
    pub fn descriptor_tools(mut self, descriptor_tools: DescriptorTools) -> Self {
        self.descriptor_tools = descriptor_tools;
        self
    }

    /// The state of a new session.
    pub(crate) fn new_session(&self, permits: Arc<Semaphore>) -> SessionProcess {
        SessionProcess::new(
            self.processes.clone(),
            permits,
            self.kept_outputs.clone(),
            self.descriptor_tools,
        )
    }

    /// Ends the processes of all sessions, except one that is [kept](ProcessLifetime::Persistent).
    /// Call it after serving and before the kernel is shut down: otherwise the store keeps
    /// processes that no client can reach any more.
    pub async fn end(&self) {
        self.processes.end_all().await;
    }
}
