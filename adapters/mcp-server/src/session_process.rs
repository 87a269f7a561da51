//! The Dormouse processes that execute the calls of MCP sessions.
//!
//! A session has a process of its own, which starts with the first request of the session and is
//! killed when the session ends. A call outside of a session has a process of its own too, since
//! nothing tells which calls come from the same client (over HTTP, the protocol has no sessions
//! from version 2026-07-28 on). What such clients list (tools, prompts, resources) is what one
//! process has that all of them share, and that executes no call. If the process is persistent, all
//! clients share it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::kept_outputs::KeptOutputs;
use crate::lean_tools::{self, DescriptorTools};
use crate::session_client::SessionClient;
use crate::session_outputs::SessionOutputs;
use dormouse_actors::handle::{Kernel, Process};
use dormouse_actors::{KernelError, NotFound, ProcessView, StartError};
use dormouse_kernel::program::Program;
use dormouse_proto::id::Pid;
use dormouse_proto::tool::ToolSpec;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

/// The name of the persistent process in its store.
const PERSISTENT_NAME: &str = "mcp";

/// Whether the process of a session outlives the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessLifetime {
    /// Each session has a process of its own, which ends with the session.
    PerSession,
    /// All sessions share one process, which stays in the store of the kernel. The next server on
    /// that store resumes the process, so descriptors survive. If the program or the tools of its
    /// servers have changed since, the process ends and a new one starts.
    Persistent,
}

/// Starts and ends the processes of a server.
#[derive(Debug)]
pub(crate) struct Processes {
    kernel: Kernel,
    program: Program,
    lifetime: ProcessLifetime,
    shared: OnceCell<Process>,
    /// The processes that belong to one session each.
    session_processes: Mutex<BTreeMap<Pid, Process>>,
}

impl Processes {
    pub(crate) fn new(kernel: Kernel, program: Program, lifetime: ProcessLifetime) -> Self {
        Self {
            kernel,
            program,
            lifetime,
            shared: OnceCell::new(),
            session_processes: Mutex::default(),
        }
    }

    /// The process whose lists clients without a session get.
    async fn shared(&self) -> Result<Process, KernelError> {
        let start = async || match self.lifetime {
            ProcessLifetime::PerSession => self.start_process().await,
            ProcessLifetime::Persistent => self.resume_persistent().await,
        };
        self.shared.get_or_try_init(start).await.cloned()
    }

    async fn start_process(&self) -> Result<Process, KernelError> {
        self.kernel
            .start(self.program.clone())
            .session()
            .without_input()
            .await
    }

    /// Starts a process that serves a client.
    async fn start_serving(&self, client: &Arc<SessionClient>) -> Result<Process, KernelError> {
        let client: Weak<SessionClient> = Arc::downgrade(client);
        self.kernel
            .start(self.program.clone())
            .session()
            .without_input()
            .serve_client(client)
            .await
    }

    /// Resumes the persistent process if a new process would have the same program, tools and
    /// system prompt, which never change in the life of a process. Otherwise ends it and starts a
    /// new one.
    async fn resume_persistent(&self) -> Result<Process, KernelError> {
        let start = || {
            self.kernel
                .start(self.program.clone())
                .session()
                .without_input()
                .name(PERSISTENT_NAME)
        };
        let existing = match self.kernel.process_named(PERSISTENT_NAME).await {
            Err(KernelError::NotFound(NotFound::Name(_))) => return start().await,
            existing => existing?.pid(),
        };
        self.refuse_imported(existing).await?;
        let existing = self.kernel.resume(existing).await?;
        let probe = self.start_process().await?;
        let new_view = current_view(&probe).await;
        end_process(&probe).await;
        let (new_view, existing_view) = (new_view?, current_view(&existing).await?);
        let is_unchanged = new_view.tools.specs() == existing_view.tools.specs()
            && new_view.system == existing_view.system
            && new_view.program.bundle().to_bytes() == existing_view.program.bundle().to_bytes();
        if is_unchanged {
            return Ok(existing);
        }
        tracing::warn!(
            "the program or its tools have changed since the process was kept: a new process starts"
        );
        end_process(&existing).await;
        start().await
    }

    /// Refuses a persistent process that was imported. An import can bring a process of any name,
    /// which would run with permissions that the user gave to this server's own program.
    async fn refuse_imported(&self, existing: Pid) -> Result<(), KernelError> {
        let mut processes = self.kernel.processes().await?.into_iter();
        let row = processes
            .find(|info| info.row.pid == existing)
            .map(|info| info.row);
        match row.and_then(|row| row.branched_from?.import) {
            None => Ok(()),
            Some(_) => Err(KernelError::Start(StartError::UnmetRequirement(format!(
                "the store has a process of the name '{PERSISTENT_NAME}' that was imported from another \
                 store, process {existing}. It is not resumed: serve from another store"
            )))),
        }
    }

    fn session_processes(&self) -> std::sync::MutexGuard<'_, BTreeMap<Pid, Process>> {
        self.session_processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all processes except a persistent one.
    pub(crate) async fn end_all(&self) {
        // A process that is ending is still in the map, so this waits for its end too.
        let session_processes: Vec<_> = self.session_processes().values().cloned().collect();
        for process in &session_processes {
            end_process(process).await;
        }
        if let Some(process) = self
            .shared
            .get()
            .filter(|_| self.lifetime == ProcessLifetime::PerSession)
        {
            end_process(process).await;
        }
    }
}

/// The state of a process. A process that hibernates is woken.
pub(crate) async fn current_view(process: &Process) -> Result<ProcessView, KernelError> {
    process.wait_for(|_| true).await
}

/// Kills a process and waits for its end.
async fn end_process(process: &Process) {
    // A process that has ended already cannot be killed or waited for; these errors are ignored.
    let _ = process.kill().await;
    let _ = process.wait().await;
}

/// The process of one session. It starts when it is first needed.
#[derive(Debug)]
pub(crate) struct SessionProcess {
    processes: Arc<Processes>,
    /// Bounds the number of processes that belong to one session each.
    permits: Arc<Semaphore>,
    client: Arc<SessionClient>,
    own_process: OnceCell<(Process, OwnedSemaphorePermit)>,
    /// The kept outputs, unless the process is persistent.
    pub(crate) outputs: Option<SessionOutputs>,
    descriptor_tools: DescriptorTools,
}

/// Why a session has no process.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoProcess {
    #[error(
        "there are as many sessions as this server serves at once: end one, or wait until one that \
         idles has ended"
    )]
    Full,
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl SessionProcess {
    pub(crate) fn new(
        processes: Arc<Processes>,
        permits: Arc<Semaphore>,
        kept_outputs: Option<KeptOutputs>,
        descriptor_tools: DescriptorTools,
    ) -> Self {
        let kept_outputs =
            kept_outputs.filter(|_| processes.lifetime == ProcessLifetime::PerSession);
        Self {
            processes,
            permits,
            client: Arc::new(SessionClient::new()),
            outputs: kept_outputs.map(SessionOutputs::new),
            descriptor_tools,
            own_process: OnceCell::new(),
        }
    }

    /// The client of this session.
    pub(crate) fn client(&self) -> &Arc<SessionClient> {
        &self.client
    }

    /// The process of this session.
    pub(crate) async fn for_session(&self) -> Result<Process, NoProcess> {
        if self.processes.lifetime == ProcessLifetime::Persistent {
            return Ok(self.shared().await?);
        }
        let start = async || {
            let permit = self
                .permits
                .clone()
                .try_acquire_owned()
                .map_err(|_| NoProcess::Full)?;
            let process = self.processes.start_serving(&self.client).await?;
            self.processes
                .session_processes()
                .insert(process.pid(), process.clone());
            Ok::<_, NoProcess>((process, permit))
        };
        let (process, _) = self.own_process.get_or_try_init(start).await?;
        Ok(process.clone())
    }

    /// The process whose lists clients without a session get.
    pub(crate) async fn shared(&self) -> Result<Process, KernelError> {
        self.processes.shared().await
    }

    /// What clients are told to do with descriptors.
    pub(crate) fn instructions<'a>(&self, system: &'a str) -> &'a str {
        match self.descriptor_tools {
            DescriptorTools::Full => system,
            DescriptorTools::Lean => lean_tools::INSTRUCTIONS,
        }
    }

    /// A tool as it is described to clients.
    pub(crate) fn describe<'a>(&self, spec: &'a ToolSpec) -> Cow<'a, ToolSpec> {
        match self.descriptor_tools {
            DescriptorTools::Full => Cow::Borrowed(spec),
            DescriptorTools::Lean => lean_tools::shorten(spec),
        }
    }

    /// Characters of a page, as the program configures them.
    pub(crate) fn page_chars(&self) -> u32 {
        self.processes
            .program
            .descriptors()
            .copied()
            .unwrap_or_default()
            .page_chars
    }
}

impl Drop for SessionProcess {
    /// Ends the process of the session, even if a call is running.
    fn drop(&mut self) {
        let (Some((process, permit)), Ok(runtime)) = (
            self.own_process.take(),
            tokio::runtime::Handle::try_current(),
        ) else {
            return;
        };
        let processes = self.processes.clone();
        runtime.spawn(async move {
            end_process(&process).await;
            processes.session_processes().remove(&process.pid());
            drop(permit);
        });
    }
}
