//! The processes behind sessions: one for each, or one that all share and that is kept.
//!
//! A session's own process begins with the session and is killed with it. A shared one serves
//! clients that have no sessions (the protocol has none any more from 2026-07-28 on, over HTTP)
//! and, where processes are kept, everybody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_actors::handle::{Kernel, Process};
use dormouse_actors::{KernelError, NotFound, StartError, View};
use dormouse_kernel::program::Program;
use dormouse_proto::id::Pid;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

/// The name that a kept process goes by in its store.
const KEPT: &str = "mcp";

/// What becomes of a session's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Each session has a process of its own, which ends with it.
    PerSession,
    /// All sessions share one process, which stays in the kernel's store and is taken up again by
    /// whoever serves from that next: descriptors survive. Where the program, or what its servers
    /// offer, has changed since, it ends, and another begins.
    Kept,
}

/// The processes of a server.
#[derive(Debug)]
pub(crate) struct Processes {
    kernel: Kernel,
    program: Program,
    keeping: Keeping,
    shared: OnceCell<Process>,
    own: Mutex<BTreeMap<Pid, Process>>,
}

impl Processes {
    pub(crate) fn new(kernel: Kernel, program: Program, keeping: Keeping) -> Self {
        Self {
            kernel,
            program,
            keeping,
            shared: OnceCell::new(),
            own: Mutex::default(),
        }
    }

    /// The process for those who have none of their own.
    async fn shared(&self) -> Result<Process, KernelError> {
        let begin = async || match self.keeping {
            Keeping::PerSession => self.begin().await,
            Keeping::Kept => self.take_up().await,
        };
        self.shared.get_or_try_init(begin).await.cloned()
    }

    async fn begin(&self) -> Result<Process, KernelError> {
        self.kernel
            .start(self.program.clone())
            .session()
            .without_input()
            .await
    }

    /// The process that was kept, if it is what one would be that begins now: its program and its
    /// tools are frozen at its birth.
    async fn take_up(&self) -> Result<Process, KernelError> {
        let begin = || {
            self.kernel
                .start(self.program.clone())
                .session()
                .without_input()
                .name(KEPT)
        };
        let kept = match self.kernel.named(KEPT).await {
            Err(KernelError::NotFound(NotFound::Name(_))) => return begin().await,
            kept => kept?.pid(),
        };
        self.refuse_import(kept).await?;
        let kept = self.kernel.resume(kept).await?;
        let probe = self.begin().await?;
        let (now, then) = (standing(&probe).await?, standing(&kept).await?);
        end(&probe).await;
        let is_same = (now.tools.specs(), &now.system) == (then.tools.specs(), &then.system);
        if is_same && now.program.bundle().to_bytes() == then.program.bundle().to_bytes() {
            return Ok(kept);
        }
        tracing::warn!(
            "the program or its tools are others than those of the process that was kept: another \
             one begins"
        );
        end(&kept).await;
        begin().await
    }

    /// What was imported may have any name, and would run under permissions that are meant for
    /// another.
    async fn refuse_import(&self, kept: Pid) -> Result<(), KernelError> {
        let mut processes = self.kernel.processes().await?.into_iter();
        let row = processes
            .find(|info| info.row.pid == kept)
            .map(|info| info.row);
        match row.and_then(|row| row.restored?.foreign) {
            None => Ok(()),
            Some(_) => Err(KernelError::Start(StartError::Unmet(format!(
                "the store has a process of the name '{KEPT}' that was imported from another \
                 store, process {kept}. It is not resumed: serve from another store"
            )))),
        }
    }

    fn own(&self) -> std::sync::MutexGuard<'_, BTreeMap<Pid, Process>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn end_all(&self) {
        // Those too that are about to end: they are here until they have.
        let own: Vec<_> = self.own().values().cloned().collect();
        for process in &own {
            end(process).await;
        }
        if let Some(process) = self
            .shared
            .get()
            .filter(|_| self.keeping == Keeping::PerSession)
        {
            end(process).await;
        }
    }
}

/// How a process stands, awake.
pub(crate) async fn standing(process: &Process) -> Result<View, KernelError> {
    process.wait_for(|_| true).await
}

async fn end(process: &Process) {
    // One that has ended already, or is about to, needs no signal.
    let _ = process.kill().await;
    let _ = process.wait().await;
}

/// Where a session sits: its process begins when it is first asked for.
#[derive(Debug)]
pub(crate) struct Seat {
    processes: Arc<Processes>,
    /// Bounds the processes of their own that sessions have.
    places: Arc<Semaphore>,
    own: OnceCell<(Process, OwnedSemaphorePermit)>,
}

/// Why a session has no process.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoSeat {
    #[error(
        "there are as many sessions as this server serves at once: end one, or wait until one that \
         idles has ended"
    )]
    Full,
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl Seat {
    pub(crate) fn new(processes: Arc<Processes>, places: Arc<Semaphore>) -> Self {
        Self {
            processes,
            places,
            own: OnceCell::new(),
        }
    }

    /// The process of this session.
    pub(crate) async fn own(&self) -> Result<Process, NoSeat> {
        if self.processes.keeping == Keeping::Kept {
            return Ok(self.shared().await?);
        }
        let begin = async || {
            let place = self
                .places
                .clone()
                .try_acquire_owned()
                .map_err(|_| NoSeat::Full)?;
            let process = self.processes.begin().await?;
            self.processes.own().insert(process.pid(), process.clone());
            Ok::<_, NoSeat>((process, place))
        };
        let (process, _) = self.own.get_or_try_init(begin).await?;
        Ok(process.clone())
    }

    /// The process of all who have no session.
    pub(crate) async fn shared(&self) -> Result<Process, KernelError> {
        self.processes.shared().await
    }

    /// Characters of a page, as the program says.
    pub(crate) fn page_chars(&self) -> u32 {
        self.processes
            .program
            .descriptors()
            .copied()
            .unwrap_or_default()
            .page_chars
    }
}

impl Drop for Seat {
    /// The session is over, and with it whatever its process still does.
    fn drop(&mut self) {
        let (Some((process, place)), Ok(runtime)) =
            (self.own.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let processes = self.processes.clone();
        runtime.spawn(async move {
            end(&process).await;
            processes.own().remove(&process.pid());
            drop(place);
        });
    }
}
