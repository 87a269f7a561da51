//! Configures and starts a kernel.

mod claim;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::Duration;

use dormouse_kernel::process::{Attendance, HostContext, HostTool};
use dormouse_proto::budget::Price;
use dormouse_proto::effect::RepeatRule;
use dormouse_proto::id::Pid;
use dormouse_proto::mail::Reach;
use ractor::Actor;
use tokio::sync::{Semaphore, broadcast};

use self::claim::ClaimedStore;
use super::file_tools::file_tools;
use super::kernel::Kernel;
use super::recovery::Recovery;
use crate::checkpoint::CheckpointActor;
use crate::commit_feed::CommitFeed;
use crate::content_cache::ContentCache;
use crate::context::{KernelContext, Limits};
use crate::durability::Durability;
use crate::environment;
use crate::error::{KernelError, NameError};
use crate::ownership::{self, Ownership};
use crate::permits::{CallLimits, ModelPermits};
use crate::ports::{
    Host, LabelSlices, Lease, Model, NoHost, Peers, Provider, Store, Tool, ToolServers,
};
use crate::read_pool::ReadPool;
use crate::server_questions::{AnsweringClient, ServerQuestions};
use crate::store_handle::{StoreHandle, StoreSlot};
use crate::supervisor::{RunMessage, SupervisorActor};
use crate::temp_files::TempFilesActor;
use dormouse_kernel::syscall;

/// How many unread events a subscriber can have before it misses some.
const EVENT_CAPACITY: usize = 8192;

/// The configuration of a kernel. Without a store, the kernel forgets everything when it ends.
/// Without a host, it accesses no file and runs no command. Clones share models, tools and host; a
/// store and tool servers are one kernel's own.
#[derive(Clone)]
#[must_use = "a kernel runs when it is built"]
pub struct KernelBuilder {
    store: Option<Arc<dyn Store>>,
    models: BTreeMap<String, Arc<dyn Model>>,
    providers: BTreeMap<String, Arc<dyn Provider>>,
    tools: BTreeMap<String, Arc<dyn Tool>>,
    servers: Option<Arc<dyn ToolServers>>,
    host: Arc<dyn Host>,
    peers: Option<Arc<dyn Peers>>,
    label_slices: Option<Arc<dyn LabelSlices>>,
    prices: BTreeMap<String, Price>,
    lease: Option<Arc<dyn Lease>>,
    model_calls: CallLimits,
    /// Permits that other kernels share, in place of `model_calls`.
    shared_permits: Option<Arc<ModelPermits>>,
    durability: Durability,
    resident_bytes: Option<u64>,
    limits: Limits,
    pids: RangeInclusive<Pid>,
    recovery: Recovery,
    attendance: Attendance,
    /// How long a question of a tool server waits; `None` if servers cannot ask.
    server_questions: Option<Duration>,
}

impl Default for KernelBuilder {
    fn default() -> Self {
        let limits = Limits {
            inbox_capacity: 256,
            reach: Reach::default(),
            model_deadline: Duration::from_secs(600),
            model_attempts: 4,
            snapshot_after_facts: None,
            max_restarts: 3,
            hibernate_after: None,
            max_loaded: None,
        };
        Self {
            store: None,
            models: BTreeMap::new(),
            providers: BTreeMap::new(),
            tools: BTreeMap::new(),
            servers: None,
            host: Arc::new(NoHost),
            peers: None,
            label_slices: None,
            prices: BTreeMap::new(),
            lease: None,
            model_calls: CallLimits {
                default: 16,
                by_provider: BTreeMap::new(),
            },
            shared_permits: None,
            durability: Durability::default(),
            resident_bytes: None,
            limits,
            pids: Pid(1)..=Pid::MAX,
            recovery: Recovery::default(),
            attendance: Attendance::Attended,
            server_questions: None,
        }
    }
}

impl KernelBuilder {
    /// The store for all durable data. Only one kernel at a time can write to a store. If the store
    /// is open for reading only, processes can be listed and inspected as of the opening;
    /// everything that would write is refused.
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// A model, for programs whose `[model] name` is `name`.
    pub fn model(mut self, name: impl Into<String>, model: impl Model) -> Self {
        self.models.insert(name.into(), Arc::new(model));
        self
    }

    /// A provider, for programs with `[model] provider = "name"` whose model is not registered by
    /// name. `name` is a word of your own, or a word that every kernel knows and whose provider
    /// this one replaces (`anthropic`, `openai`, `openai-chat`, `gemini`, `scripted`). A program
    /// that names an unregistered provider does not compile, and a process whose provider is
    /// missing after a restart is held.
    pub fn provider(mut self, name: impl Into<String>, provider: impl Provider) -> Self {
        self.providers.insert(name.into(), Arc::new(provider));
        self
    }

    /// A tool of the host. Programs enable it by name, like any other tool.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools
            .insert(tool.spec().name.to_string(), Arc::new(tool));
        self
    }

    /// The client for the tool servers that programs name (`[mcp]`). Without it, a program that
    /// requires one does not start.
    pub fn tool_servers(mut self, servers: impl ToolServers) -> Self {
        self.servers = Some(Arc::new(servers));
        self
    }

    /// Lets tool servers ask the user (elicitation), while one of their calls runs:
    /// [`Event::ServerAsks`](crate::Event::ServerAsks) announces a question,
    /// [`Kernel::pending`](super::Kernel::pending) lists it, and
    /// [`Kernel::answer_server`](super::Kernel::answer_server) or
    /// [`Kernel::decline_server`](super::Kernel::decline_server) answers it. A question that nobody
    /// has answered after `expires_after` is cancelled, and the server goes on without an answer.
    /// The time of the question counts in no deadline of the call. By default servers are told that
    /// nobody can be asked. Process trees that serve an MCP client
    /// ([`Start::serve_client`](super::Start::serve_client)) ask that client.
    pub fn server_questions(mut self, expires_after: Duration) -> Self {
        self.server_questions = Some(expires_after);
        self
    }

    /// The price of a model, for programs that do not set one.
    pub fn price(mut self, model: impl Into<String>, price: Price) -> Self {
        self.prices.insert(model.into(), price);
        self
    }

    /// Like [`price`](Self::price), for many models.
    pub fn prices(mut self, prices: impl IntoIterator<Item = (String, Price)>) -> Self {
        self.prices.extend(prices);
        self
    }

    /// States that nobody answers held calls. After a process went back to an earlier point, a call
    /// that repeats an effect beyond that point then gets the recorded answer, unless a policy says
    /// otherwise. Without a store a kernel is always unattended in this sense. Rules of
    /// `tools.ask`, and the policy `ask` where it is named, hold calls all the same.
    pub fn unattended(mut self) -> Self {
        self.attendance = Attendance::Unattended;
        self
    }

    /// Access to the files and commands of the machine, under its permissions.
    pub fn host(mut self, host: impl Host) -> Self {
        self.host = Arc::new(host);
        self
    }

    /// The number of concurrent model calls at each provider, and at each server and with each key
    /// that programs name instead (`base_url`, `api_key_env`); the default is 16. Waiting calls are
    /// served by the priority of their process ([`Start::priority`](super::Start::priority));
    /// within a priority, trees take turns. A call that backs off holds no permit. If a provider
    /// names a delay, no call to it begins earlier.
    pub fn model_calls(mut self, max_concurrent: usize) -> Self {
        self.model_calls.default = max_concurrent.max(1);
        self
    }

    /// Like [`model_calls`](Self::model_calls), for one provider, by the word in `[model] provider
    /// = "…"`.
    pub fn provider_calls(mut self, provider: impl Into<String>, max_concurrent: usize) -> Self {
        self.model_calls
            .by_provider
            .insert(provider.into(), max_concurrent.max(1));
        self
    }

    /// Other kernels, whose processes can be written to by their pids, if the [reach](Self::reach)
    /// is [`Reach::Everyone`] or the process is answered. Each message is delivered once
    /// ([`Kernel::deliver`](super::Kernel::deliver)). Names, lists and signals are those of one
    /// kernel.
    pub fn peers(mut self, peers: impl Peers) -> Self {
        self.peers = Some(Arc::new(peers));
        self
    }

    /// Slices of the budgets of labels, for a kernel that shares these budgets with others
    /// ([`Kernel::set_label_budget`](super::Kernel::set_label_budget)): its trees begin nothing for
    /// a label whose slice they have used up.
    pub fn label_slices(mut self, slices: impl LabelSlices) -> Self {
        self.label_slices = Some(Arc::new(slices));
        self
    }

    /// The lease on the store, for a kernel that another one may replace: before each effect and
    /// each commit, and twice a second, the kernel looks whether the lease is held. When it is
    /// lost, the kernel closes at once ([`Kernel::closed`](super::Kernel::closed)): calls are
    /// cancelled and commands ended, nothing begins and nothing is committed any more. A kernel
    /// without a lease closes when the store refuses a commit because of a newer owner.
    pub fn lease(mut self, lease: impl Lease) -> Self {
        self.lease = Some(Arc::new(lease));
        self
    }

    /// Permits for model calls that this kernel shares with others of the same program, in place of
    /// those of [`model_calls`](Self::model_calls) and [`provider_calls`](Self::provider_calls).
    /// The trees of all these kernels take turns, so the kernels have different [pids](Self::pids).
    /// They run on one tokio runtime.
    pub fn model_permits(mut self, permits: Arc<ModelPermits>) -> Self {
        self.shared_permits = Some(permits);
        self
    }

    /// The pids that the processes of this kernel get, in order; by default all from 1 to
    /// [`Pid::MAX`]. Kernels whose ranges do not overlap have no pid in common. A store is always
    /// opened with the range that it was made with. Other ids, such as those of checkpoints, count
    /// from 1 in each store.
    pub fn pids(mut self, range: RangeInclusive<Pid>) -> Self {
        self.pids = range;
        self
    }

    /// The number of inputs that can wait for one process; the default is 256. Further inputs fail
    /// with [`ProcessError::Busy`](crate::ProcessError::Busy).
    pub fn inbox_capacity(mut self, inputs: usize) -> Self {
        self.limits.inbox_capacity = inputs.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Which processes can write to each other by `send_message`; the default is those of one tree.
    pub fn reach(mut self, reach: Reach) -> Self {
        self.limits.reach = reach;
        self
    }

    /// The deadline of a model call; the default is ten minutes.
    pub fn model_deadline(mut self, deadline: Duration) -> Self {
        self.limits.model_deadline = deadline;
        self
    }

    /// The number of attempts before a transient failure of a model is final; the default is 4.
    pub fn model_attempts(mut self, attempts: u32) -> Self {
        self.limits.model_attempts = attempts.max(1);
        self
    }

    /// Writes a snapshot of a process after this many facts, so that loading it stays fast. By
    /// default a snapshot is written when more than 1 MiB would have to be replayed and the
    /// snapshot has at most a quarter of that size: all snapshots of a process take at most about a
    /// third of the space of its facts.
    pub fn snapshot_after_facts(mut self, facts: u64) -> Self {
        self.limits.snapshot_after_facts = Some(facts.max(1));
        self
    }

    /// When facts must be on the disk; the default is [`Durability::EveryFact`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Hibernates each process for which nothing was pending during this time. A hibernated process
    /// consists of its journal and a row in the process table; a message, a signal, the end of a
    /// child, or a caller that waits for it wakes it under its pid. By default, processes hibernate
    /// only on request ([`Process::hibernate`](super::Process::hibernate)). A process never
    /// hibernates in a turn, unless it was stopped or its calls only wait for a person or for
    /// children; nor while a call of the host, a message or a summary is pending, nor in a kernel
    /// without a store.
    pub fn hibernate_after(mut self, idle: Duration) -> Self {
        self.limits.hibernate_after = Some(idle);
        self
    }

    /// The number of loaded processes; unlimited by default. Over the limit, the processes that
    /// have been idle longest hibernate, and a process that is started without anything to do is
    /// not loaded before it has. Processes with pending work never hibernate, so more of
    /// them than the limit may be loaded. The limit has no effect in a kernel without a store.
    pub fn max_loaded(mut self, processes: usize) -> Self {
        self.limits.max_loaded = Some(processes);
        self
    }

    /// Which processes of the store run again. By default all are held: they are listed and do not
    /// run.
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = recovery;
        self
    }

    /// The most bytes of contents in memory; unlimited by default, and in any kernel without a
    /// store. A content counts once, however many processes hold it. Over the limit, the least
    /// recently read contents are evicted and read from the store on demand; the answers to models
    /// do not change. The kernel can exceed the limit by contents that are being made durable or
    /// read, and by 1 % of all live bytes. The limit covers contents only: loaded processes, the
    /// process table, the index, mapped pages of the store, and memory that the allocator retains
    /// are not counted (`docs/garbage.md`).
    pub fn resident_bytes_limit(mut self, bytes: u64) -> Self {
        self.resident_bytes = Some(bytes);
        self
    }

    /// Starts the kernel. The processes of the store are listed; [`recovery`](Self::recovery)
    /// decides which of them run, and their journals are read after this returns. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`StoreFailure::Store`](crate::StoreFailure::Store) if the store cannot be claimed or
    /// read; [`StoreFailure::PidRange`](crate::StoreFailure::PidRange),
    /// [`StoreFailure::PidOutOfRange`](crate::StoreFailure::PidOutOfRange);
    /// [`NameError::ReservedTool`](crate::NameError::ReservedTool).
    pub async fn build(mut self) -> Result<Kernel, KernelError> {
        for (name, tool) in file_tools(&self.host) {
            self.tools.entry(name.to_owned()).or_insert(tool);
        }
        if let Some(name) = self.tools.keys().find(|name| syscall::tool(name).is_some()) {
            return Err(NameError::ReservedTool(name.clone()).into());
        }
        if let Some(folder) = self.store.as_ref().and_then(|store| store.folder()) {
            self.host.seal(folder);
        }
        let ClaimedStore {
            store: claimed,
            table,
            resumed_pids,
            last_checkpoint_id,
            labels,
            losses,
            acknowledged_losses,
        } = self.claim_store().await?;
        let labels = Arc::new(labels.with_slices(self.label_slices));
        let commit_feed = Arc::new(CommitFeed::new());
        let ownership = Arc::new(Ownership::new(self.lease));
        let owner_token = claimed.as_ref().map_or(0, |(_, owner)| owner.0);
        let (claimed, handle) = match claimed {
            Some((store, owner)) => {
                // A shutdown waits at the barrier until the last handle on the store is dropped.
                let (store_handle, barrier) = StoreHandle::with_barrier(store);
                (
                    Some((store_handle.clone(), owner)),
                    Some((store_handle, barrier)),
                )
            }
            None => (None, None),
        };
        let has_store = handle.is_some();
        let model_permits = self.shared_permits.unwrap_or_else(|| {
            let limits = self.model_calls;
            Arc::new(ModelPermits::with_limits(limits))
        });
        let store = Arc::new(StoreSlot::new(handle));
        let content_cache = Arc::new(ContentCache::new(store.clone(), self.resident_bytes));
        let spawned = CheckpointActor::spawn(
            None,
            CheckpointActor,
            (
                claimed,
                last_checkpoint_id,
                content_cache.clone(),
                labels.clone(),
                commit_feed.clone(),
                ownership.clone(),
                self.durability,
            ),
        )
        .await;
        let (checkpoint, _task) = spawned.map_err(|_| KernelError::Closed)?;
        let temp_files_args = (checkpoint.clone(), store.handle(), content_cache.clone());
        let spawned = TempFilesActor::spawn(None, TempFilesActor, temp_files_args).await;
        let (temp_files, _task) = spawned.map_err(|_| KernelError::Closed)?;
        let events = broadcast::Sender::new(EVENT_CAPACITY);
        let server_questions = self.server_questions.map(|expires_after| {
            let questions = ServerQuestions::new(expires_after, &events);
            Arc::new(AnsweringClient(Arc::new(questions)))
        });
        if let (Some(servers), Some(client)) = (&self.servers, &server_questions) {
            let client: Weak<AnsweringClient> = Arc::downgrade(client);
            servers.serve_by_default(client);
        }
        let context = Arc::new(KernelContext {
            has_store,
            losses,
            acknowledged_losses,
            store,
            content_cache,
            owner_token,
            host_context: Arc::new(HostContext {
                kernel_tools: &syscall::TOOL_SET,
                tools: host_tools(&self.tools),
                environment: environment::standard_env_info(),
                prices: self.prices,
                repeat_rules: repeat_rules(&self.tools),
                attendance: match has_store {
                    true => self.attendance,
                    false => Attendance::Unattended,
                },
            }),
            models: self.models,
            providers: self.providers,
            tools: self.tools,
            servers: self.servers,
            server_questions,
            host: self.host,
            peers: self.peers,
            checkpoint,
            temp_files,
            events: RwLock::new(Some(events)),
            commit_feed,
            labels,
            model_permits,
            limits: self.limits,
            ownership: ownership.clone(),
            gc_inventory: Arc::default(),
            in_use: Arc::default(),
            read_pool: ReadPool::new(),
            program_cache: Mutex::default(),
            inspected_programs: Mutex::default(),
        });
        let spawned = SupervisorActor::spawn(None, SupervisorActor, (context.clone(), table)).await;
        let (supervisor, _task) = spawned.map_err(|_| KernelError::Closed)?;
        supervisor
            .cast(RunMessage::Recover { pids: resumed_pids }.into())
            .map_err(|_| KernelError::Closed)?;
        let servers = context.servers.clone();
        tokio::spawn(ownership::stop_when_closed(
            ownership,
            supervisor.clone(),
            servers,
        ));
        Ok(Kernel {
            context,
            supervisor,
        })
    }
}

fn repeat_rules(tools: &BTreeMap<String, Arc<dyn Tool>>) -> BTreeMap<Arc<str>, RepeatRule> {
    let tools = tools.values();
    tools
        .map(|tool| (tool.spec().name, tool.repeat_rule()))
        .collect()
}

fn host_tools(tools: &BTreeMap<String, Arc<dyn Tool>>) -> BTreeMap<Arc<str>, HostTool> {
    let tools = tools.values().map(|tool| HostTool {
        spec: tool.spec(),
        policy: tool.policy(),
    });
    tools.map(|tool| (tool.spec.name.clone(), tool)).collect()
}
