//! A handle on a running kernel.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dormouse_kernel::program::{
    Compiled, KnownProviders, Program, ProgramErrors, Registered, compile,
};
use dormouse_proto::file::{FileError, FileErrorKind};
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_proto::process::{Origin, ProcessRow};
use dormouse_proto::record::Speculation;
use ractor::ActorRef;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::builder::KernelBuilder;
use super::events::Events;
use super::process::Process;
use super::start::Start;
use crate::context::KernelContext;
use crate::error::{KernelError, NotFound};
use crate::event::ProcessView;
use crate::held_call::HeldCall;
use crate::ownership::CloseReason;
use crate::ports::Store;
use crate::process_status::ProcessStatus;
use crate::recovery::{self, LoadPurpose, Loaded};
use crate::supervisor::{
    BirthMessage, HandleReply, HibernationMessage, ListFilter, ListedProcess, LookupMessage,
    NewRoot, RunMessage, SupervisorMessage, TreeMessage,
};

/// The number of rows of the process table that one message reads.
const LISTED_AT_ONCE: usize = 4096;

/// How long a drain waits before it looks again whether processes have come to rest. It doubles
/// each time.
const FIRST_DRAIN_PAUSE: Duration = Duration::from_millis(5);
const MAX_DRAIN_PAUSE: Duration = Duration::from_millis(250);

/// A running kernel. Clones share it. Dropping the last handle does not stop the kernel;
/// [`shutdown`](Self::shutdown) does.
#[derive(Clone)]
pub struct Kernel {
    pub(super) context: Arc<KernelContext>,
    pub(super) supervisor: ActorRef<SupervisorMessage>,
}

/// A row of the process table.
#[derive(Clone, Debug)]
pub struct ProcessInfo {
    /// The identity, the origin and the exit of the process.
    pub row: ProcessRow,
    /// What the process does, what it waits for, or what holds it up.
    pub status: ProcessStatus,
    /// The detailed state of the process, if it runs. The state of an ended process is here while a
    /// handle on the process exists, and in a kernel without a store. For all other processes use
    /// [`Kernel::inspect`].
    pub view: Option<Box<ProcessView>>,
}

impl ProcessInfo {
    /// The calls that wait for a person, if the process is loaded; for all others see
    /// [`Kernel::pending`].
    #[must_use]
    pub fn held_calls(&self) -> Vec<HeldCall> {
        self.view
            .as_ref()
            .map(|view| HeldCall::all(self.row.pid, &view.phase))
            .unwrap_or_default()
    }
}

impl Kernel {
    /// Begins to configure a kernel.
    pub fn builder() -> KernelBuilder {
        KernelBuilder::default()
    }

    /// Begins to configure a kernel on a store that may hold processes: `builder().store(store)`.
    /// [`processes`](Self::processes) lists them. [`KernelBuilder::recovery`] decides which of them
    /// run again; [`resume`](Self::resume) and [`resume_all`](Self::resume_all) run the others.
    pub fn open(store: impl Store) -> KernelBuilder {
        KernelBuilder::default().store(store)
    }

    /// Compiles the program at `entry` with all files that it names, as far as the host permits
    /// reading them.
    ///
    /// # Errors
    /// All errors of the program, each with its position in the file.
    pub fn load(&self, entry: impl AsRef<Path>) -> Result<Compiled, ProgramErrors> {
        let entry = entry.as_ref();
        let mut read = |path: &Path| self.context.host.read_program(entry, path);
        self.compile_for_kernel(entry, &mut read)
    }

    /// Compiles a program from text, or from a
    /// [`ProgramBuilder`](dormouse_kernel::program::ProgramBuilder). Files that it names are read
    /// from the working directory, as far as the host permits.
    ///
    /// # Errors
    /// All errors of the program, each with its position in the text.
    pub fn parse(&self, toml: impl Into<Bytes>) -> Result<Compiled, ProgramErrors> {
        let entry = Path::new("program.toml");
        let text = toml.into();
        let mut read = |path: &Path| {
            if path == entry {
                Ok(text.clone())
            } else {
                self.context.host.read(path)
            }
        };
        self.compile_for_kernel(entry, &mut read)
    }

    /// Compiles a program from files in memory, by name; `entry` is the name of the main file.
    ///
    /// # Errors
    /// All errors of the program, each with its position in the file.
    pub fn compile(
        &self,
        entry: &str,
        files: &BTreeMap<String, Bytes>,
    ) -> Result<Compiled, ProgramErrors> {
        let mut read = |path: &Path| {
            let absent = || FileError {
                kind: FileErrorKind::FileNotFound,
                message: format!(
                    "there is no file {} among those that were given",
                    path.display()
                ),
            };
            path.to_str()
                .and_then(|name| files.get(name))
                .cloned()
                .ok_or_else(absent)
        };
        self.compile_for_kernel(Path::new(entry), &mut read)
    }

    /// Begins to start a process.
    pub fn start(&self, program: Program) -> Start {
        Start::new(self.clone(), program)
    }

    /// The process table, sorted by pid. It is read in parts, so that the kernel is not blocked:
    /// each row is as of some moment during the call.
    ///
    /// # Errors
    /// [`KernelError::Closed`].
    pub async fn processes(&self) -> Result<Vec<ProcessInfo>, KernelError> {
        let mut processes: Vec<ProcessInfo> = Vec::new();
        loop {
            let last = processes.last().map(|info| info.row.pid);
            let page = self.list(ListFilter::After(last, LISTED_AT_ONCE)).await?;
            let is_last = page.len() < LISTED_AT_ONCE;
            processes.extend(page);
            if is_last {
                return Ok(processes);
            }
        }
    }

    /// A page of the process table: up to `limit` rows with pids after `after`, sorted by pid. The
    /// last page has fewer than `limit`.
    ///
    /// # Errors
    /// [`KernelError::Closed`].
    pub async fn process_page(
        &self,
        after: Option<Pid>,
        limit: usize,
    ) -> Result<Vec<ProcessInfo>, KernelError> {
        let limit = limit.clamp(1, LISTED_AT_ONCE);
        self.list(ListFilter::After(after, limit)).await
    }

    /// Descriptions of the process records that the store had lost when the kernel was opened;
    /// empty if the store is complete. A process that may be the parent of a lost process does not
    /// continue, because it would create the child again.
    #[must_use]
    pub fn losses(&self) -> &[String] {
        &self.context.losses
    }

    /// Losses that a repair of the store has acknowledged, in addition to [`losses`](Self::losses).
    /// The user knows of these losses, but they have the same effect: a process that may be the
    /// parent of a lost process does not continue.
    #[must_use]
    pub fn acknowledged_losses(&self) -> &[String] {
        &self.context.acknowledged_losses
    }

    /// Contents of the store that could not be read since this kernel was built, with the reasons;
    /// the first hundred. A process that reads one gets an error and continues, so check this list
    /// at the end of a run.
    #[must_use]
    pub fn unreadable(&self) -> Vec<String> {
        self.context.store.unreadable()
    }

    pub(super) async fn list(&self, filter: ListFilter) -> Result<Vec<ProcessInfo>, KernelError> {
        let (reply, rows) = oneshot::channel();
        self.cast(LookupMessage::List { filter, reply })?;
        let rows = rows.await.map_err(|_| KernelError::Closed)?;
        Ok(rows.into_iter().map(ProcessInfo::from).collect())
    }

    /// A handle on a process, loaded or not.
    ///
    /// # Errors
    /// [`NotFound::Process`](crate::NotFound::Process).
    pub async fn process(&self, pid: Pid) -> Result<Process, KernelError> {
        self.request_handle(|reply| LookupMessage::Find { pid, reply })
            .await
    }

    /// A handle on the living process that [`Start::name`] gave this name.
    ///
    /// # Errors
    /// [`NotFound::Name`](crate::NotFound::Name).
    pub async fn process_named(&self, name: &str) -> Result<Process, KernelError> {
        self.request_handle(|reply| LookupMessage::FindNamed {
            name: name.into(),
            reply,
        })
        .await
    }

    /// Runs a process from its journal, under its pid. A process that runs or has ended is left
    /// unchanged.
    ///
    /// # Errors
    /// [`NotFound::Process`](crate::NotFound::Process).
    pub async fn resume(&self, pid: Pid) -> Result<Process, KernelError> {
        self.request_handle(|reply| RunMessage::Resume { pid, reply })
            .await
    }

    /// Runs every process that has not ended, and returns their handles, sorted by pid. Those that
    /// only wait for an alarm or a person [are not loaded](Self::resume_lazily) and are left out.
    /// So are the speculative branches of a race that ended with its kernel: nobody judges them any
    /// more, they stay held, and [`resume`](Self::resume) runs one that you name. Costs a read of
    /// the journal of each held branch.
    ///
    /// # Errors
    /// [`KernelError::Closed`].
    pub async fn resume_all(&self) -> Result<Vec<Process>, KernelError> {
        let mut resumed = Vec::new();
        for info in self.processes().await? {
            if info.row.exit.is_some() {
                continue;
            }
            if info.row.waiting.is_resting() {
                self.resume_lazily([info.row.pid])?;
                continue;
            }
            if self.is_unjudged(&info).await {
                continue;
            }
            match self.resume(info.row.pid).await {
                // The birth of the process was not durable yet when it was listed, and then failed.
                Err(KernelError::NotFound(NotFound::Process(_) | NotFound::MayBeLost { .. })) => {}
                other => resumed.push(other?),
            }
        }
        Ok(resumed)
    }

    /// Whether this is a held branch of a race that ended with its kernel. A process whose journal
    /// cannot be read is none: the reason is told where it is resumed.
    async fn is_unjudged(&self, info: &ProcessInfo) -> bool {
        let may_be_branch =
            info.row.branched_from.is_some() || matches!(info.row.origin, Origin::Copied { .. });
        may_be_branch
            && info.status == ProcessStatus::Held
            && self
                .inspect(info.row.pid)
                .await
                .is_ok_and(|view| view.speculation == Speculation::Branch)
    }

    /// Isolates the trees with these roots: a message to one of their processes from another tree
    /// is refused and wakes no process. A process whose parent the store has lost counts as a root.
    /// The isolation of a tree ends when one of its processes is
    /// [resumed](Self::resume) or gets input from the host. An embedder isolates trees in order to
    /// run the other trees of a store under permissions that the isolated ones must not get.
    ///
    /// # Errors
    /// [`KernelError::Closed`].
    pub fn isolate(&self, roots: impl IntoIterator<Item = Pid>) -> Result<(), KernelError> {
        let roots = roots.into_iter().collect();
        self.cast(TreeMessage::Isolate { roots })
    }

    /// Reads the state of a process after its last durable fact, with its descriptors, from its
    /// journal. Meant for processes that do not run.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`StoreFailure::Load`](crate::StoreFailure::Load).
    pub async fn inspect(&self, pid: Pid) -> Result<ProcessView, KernelError> {
        let loaded = self.load_process(pid, None, LoadPurpose::Inspect).await?;
        Ok(ProcessView::with_table(&loaded.state, loaded.last_fact))
    }

    /// The bytes of durable contents in memory, each content counted once: the value that
    /// [`resident_bytes_limit`](super::KernelBuilder::resident_bytes_limit) limits. O(live
    /// contents).
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.context.content_cache.resident_bytes()
    }

    /// Events of all processes from now on.
    #[must_use]
    pub fn events(&self) -> Events {
        Events::new(self.context.subscribe(), None)
    }

    /// Whether the kernel runs on a store.
    #[must_use]
    pub fn has_store(&self) -> bool {
        self.context.has_store
    }

    /// Whether the store is open for reading only: processes can be looked at, and none runs.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.context.is_read_only()
    }

    /// Why the kernel stopped for good, as [`closed`](Self::closed) says; `None` while it may act.
    #[must_use]
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.context.ownership.close_reason()
    }

    /// Resolves when the kernel stops for good, with the reason: it was shut down, its
    /// [lease](KernelBuilder::lease) is lost, or the store takes no more of its commits. In the
    /// last two cases no process runs any more, calls and commands were ended or are just being
    /// ended, and the table can still be read; what remains is to [shut down](Self::shutdown). Each
    /// future resolves, however many there are.
    pub fn closed(&self) -> impl Future<Output = CloseReason> + Send + use<> {
        self.context.ownership.closed()
    }

    /// Lets the work that is in flight come to its end, then [shuts down](Self::shutdown): for a
    /// kernel whose store is to be opened elsewhere. From the beginning, no turn, no model call and
    /// no tool begins; what runs may go on until the deadline, and its results are kept. Processes
    /// hibernate as soon as they rest, also in the middle of a turn, and go on where the store is
    /// opened again. Calls that only wait for messages or a time are not waited for. Inputs are
    /// still accepted, and wait.
    ///
    /// Returns how many processes were still at work at the deadline: their calls were cut off, as
    /// by a shutdown. A kernel without a store is shut down at once.
    ///
    /// # Errors
    /// As [`shutdown`](Self::shutdown); [`KernelError::Closed`] if the kernel was shut down before.
    pub async fn drain(self, deadline: Duration) -> Result<usize, KernelError> {
        let at_work = match self.context.has_store {
            true => self.hibernate_until(Instant::now() + deadline).await?,
            false => 0,
        };
        self.shutdown().await.map(|()| at_work)
    }

    /// Hibernates all processes as soon as they rest. Returns how many were still at work at `end`.
    async fn hibernate_until(&self, end: Instant) -> Result<usize, KernelError> {
        let mut pause = FIRST_DRAIN_PAUSE;
        loop {
            let (reply, counted) = oneshot::channel();
            self.cast(HibernationMessage::Drain { reply })?;
            let at_work = counted.await.map_err(|_| KernelError::Closed)?;
            let left = end.saturating_duration_since(Instant::now());
            if at_work == 0 || left.is_zero() {
                return Ok(at_work);
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (2 * pause).min(MAX_DRAIN_PAUSE);
        }
    }

    /// Stops all actors, commits all queued records, and releases the store. Work in progress
    /// resumes when the store is opened again. A kernel whose handles are only dropped keeps
    /// running.
    ///
    /// # Errors
    /// [`StoreFailure::NotDurable`](crate::StoreFailure::NotDurable): data that was acknowledged as
    /// written could not be synced to the disk, now or since the kernel was built, and nothing else
    /// has reported it. A power loss may lose it. The kernel is shut down nevertheless.
    pub async fn shutdown(self) -> Result<(), KernelError> {
        self.supervisor
            .get_cell()
            .stop_children_and_wait(None, None)
            .await;
        // A supervisor that has already stopped returns an error, which is ignored.
        let _ = self.supervisor.stop_and_wait(None, None).await;
        Ok(self.context.close().await?)
    }

    /// Checks the program against the tools and prices of this kernel.
    fn check_tools_and_prices(&self, compiled: Compiled) -> Result<Compiled, ProgramErrors> {
        let tools = &self.context.host_context.tools;
        let compiled = compiled.check_parameters(
            &tools
                .iter()
                .map(|(name, tool)| (&**name, &*tool.spec.schema))
                .collect(),
        )?;
        compiled.check_prices(&self.context.host_context.prices)
    }

    /// Compiles a program for the tools and providers of this kernel.
    fn compile_for_kernel(
        &self,
        entry: &Path,
        read: &mut dyn FnMut(&Path) -> Result<Bytes, FileError>,
    ) -> Result<Compiled, ProgramErrors> {
        let tools: Vec<_> = self.context.tools.keys().map(String::as_str).collect();
        let providers: Vec<_> = self.context.providers.keys().map(String::as_str).collect();
        let registered = Registered {
            tools: &tools,
            providers: KnownProviders::Only(&providers),
        };
        self.check_tools_and_prices(compile(entry, read, registered)?)
    }

    /// Loads the process as of fact `up_to`; `None` means its last fact, once all queued writes
    /// have reached the store.
    pub(super) async fn load_process(
        &self,
        pid: Pid,
        up_to: Option<FactNumber>,
        purpose: LoadPurpose,
    ) -> Result<Loaded, KernelError> {
        if up_to.is_none() {
            self.wait_for_queued_writes().await;
        }
        let store = self.context.open_store()?;
        let context = self.context.clone();
        let load = move || recovery::load_process(&*store, &context, pid, up_to, purpose);
        Ok(tokio::task::spawn_blocking(load).await??)
    }

    /// Waits until all records that are queued now, for instance birth records, are written or
    /// refused.
    pub(super) async fn wait_for_queued_writes(&self) {
        let (done, written) = oneshot::channel();
        let acknowledge = Box::new(|_| {
            // The requester has dropped its receiver if it no longer waits.
            let _ = done.send(());
        });
        self.context.append_records(Vec::new(), acknowledge);
        // If the checkpoint actor has stopped, no write is queued.
        let _ = written.await;
    }

    pub(super) async fn create(&self, root: NewRoot) -> Result<Process, KernelError> {
        let root = Box::new(root);
        self.request_handle(|reply| BirthMessage::Start { root, reply })
            .await
    }

    pub(super) fn cast(&self, message: impl Into<SupervisorMessage>) -> Result<(), KernelError> {
        self.supervisor
            .cast(message.into())
            .map_err(|_| KernelError::Closed)
    }

    pub(super) async fn request_handle<M: Into<SupervisorMessage>>(
        &self,
        message: impl FnOnce(HandleReply) -> M,
    ) -> Result<Process, KernelError> {
        let events = self.context.subscribe();
        let (reply, handle) = oneshot::channel();
        self.cast(message(reply))?;
        let handle = handle.await.map_err(|_| KernelError::Closed)??;
        Ok(Process::new(self.clone(), handle, events))
    }
}

impl From<ListedProcess> for ProcessInfo {
    fn from(ListedProcess { row, status, view }: ListedProcess) -> Self {
        Self { row, status, view }
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").finish_non_exhaustive()
    }
}
