//! Building a kernel.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use dormouse_kernel::process::{HostContext, HostTool};
use dormouse_proto::budget::Price;
use dormouse_proto::id::Pid;
use dormouse_proto::mail::Reach;
use ractor::Actor;
use tokio::sync::{Semaphore, broadcast};

use super::file_tools::file_tools;
use super::kernel::Kernel;
use super::recovery::Recovery;
use crate::checkpoint::CheckpointActor;
use crate::content_cache::ContentCache;
use crate::context::{KernelContext, Limits};
use crate::durability::Durability;
use crate::environment;
use crate::error::{KernelError, NameError};
use crate::permits::{CallLimits, PermitQueues};
use crate::ports::{
    Host, Listing, Model, NoHost, OwnerToken, Provider, Store, StoreError, Tool, ToolServers,
};
use crate::read_pool::ReadPool;
use crate::store_handle::{StoreHandle, StoreSlot};
use crate::supervisor::{RunMessage, SupervisorActor, Table};
use crate::temp_files::TempFilesActor;
use dormouse_kernel::syscall;

const EVENT_CAPACITY: usize = 8192;

/// What a kernel is made of. Without a store it forgets everything at its end; without a host it
/// touches no file and runs no command.
#[must_use = "a kernel runs when it is built"]
pub struct KernelBuilder {
    store: Option<Arc<dyn Store>>,
    models: BTreeMap<String, Arc<dyn Model>>,
    providers: BTreeMap<String, Arc<dyn Provider>>,
    tools: BTreeMap<String, Arc<dyn Tool>>,
    servers: Option<Arc<dyn ToolServers>>,
    host: Arc<dyn Host>,
    prices: BTreeMap<String, Price>,
    model_calls: CallLimits,
    durability: Durability,
    resident_bytes: Option<u64>,
    limits: Limits,
    recovery: Recovery,
}

impl Default for KernelBuilder {
    fn default() -> Self {
        let limits = Limits {
            inbox: 256,
            reach: Reach::default(),
            model_deadline: Duration::from_secs(600),
            model_attempts: 4,
            snapshot_after_facts: None,
            restarts: 3,
            hibernate_after: None,
            max_awake: None,
        };
        Self {
            store: None,
            models: BTreeMap::new(),
            providers: BTreeMap::new(),
            tools: BTreeMap::new(),
            servers: None,
            host: Arc::new(NoHost),
            prices: BTreeMap::new(),
            model_calls: CallLimits {
                each: 16,
                named: BTreeMap::new(),
            },
            durability: Durability::default(),
            resident_bytes: None,
            limits,
            recovery: Recovery::default(),
        }
    }
}

impl KernelBuilder {
    /// Where everything durable goes. One kernel at a time writes a store. On one that is open for
    /// reading only, processes can be listed and inspected as they stood when it was opened;
    /// whatever would be written is refused.
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// A model, for programs whose `[model] name` is `name`.
    pub fn model(mut self, name: impl Into<String>, model: impl Model) -> Self {
        self.models.insert(name.into(), Arc::new(model));
        self
    }

    /// A provider, for programs that say `[model] provider = "name"` and whose model is not
    /// registered by name. One of your own, or another for a word that every kernel knows
    /// (`anthropic`, `openai`, `openai-chat`, `gemini`, `scripted`). A program that names one that is
    /// not registered does not compile, and a process that comes back without its provider is held.
    pub fn provider(mut self, name: impl Into<String>, provider: impl Provider) -> Self {
        self.providers.insert(name.into(), Arc::new(provider));
        self
    }

    /// A tool of the host. Programs enable it by its name, as any other.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools
            .insert(tool.spec().name.to_string(), Arc::new(tool));
        self
    }

    /// What reaches the tool servers that programs name (`[mcp]`). Without it a program that uses
    /// one does not start.
    pub fn tool_servers(mut self, servers: impl ToolServers) -> Self {
        self.servers = Some(Arc::new(servers));
        self
    }

    /// What the model of this name costs, for programs that do not say.
    pub fn price(mut self, model: impl Into<String>, price: Price) -> Self {
        self.prices.insert(model.into(), price);
        self
    }

    /// The same for many, as a table of prices gives them.
    pub fn prices(mut self, prices: impl IntoIterator<Item = (String, Price)>) -> Self {
        self.prices.extend(prices);
        self
    }

    /// Files and commands of the machine, under its permissions.
    pub fn host(mut self, host: impl Host) -> Self {
        self.host = Arc::new(host);
        self
    }

    /// How many model calls run at once at each provider, and at each server that a program names
    /// in its place (`base_url`); 16, until said otherwise. Calls that wait are served by the
    /// priority of their process ([`Start::priority`](super::Start::priority)), and the trees of a
    /// priority in turn. A call that backs off holds no permit. Where one says how long it wants to
    /// be left alone, none of its calls begins before.
    pub fn model_calls(mut self, at_once: usize) -> Self {
        self.model_calls.each = at_once.max(1);
        self
    }

    /// The same for one provider, by the word in `[model] provider = "…"`.
    pub fn provider_calls(mut self, provider: impl Into<String>, at_once: usize) -> Self {
        self.model_calls
            .named
            .insert(provider.into(), at_once.max(1));
        self
    }

    /// How many inputs wait at most for one process; 256, until said otherwise. One more is refused
    /// as busy.
    pub fn inbox(mut self, inputs: usize) -> Self {
        self.limits.inbox = inputs.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// How far processes can write to each other by `send_message`: within their tree, until said
    /// otherwise.
    pub fn reach(mut self, reach: Reach) -> Self {
        self.limits.reach = reach;
        self
    }

    /// After so long a model call has failed; ten minutes, until said otherwise.
    pub fn model_deadline(mut self, deadline: Duration) -> Self {
        self.limits.model_deadline = deadline;
        self
    }

    /// How often a model is asked before a transient failure is final; 4, until said otherwise.
    pub fn model_attempts(mut self, attempts: u32) -> Self {
        self.limits.model_attempts = attempts.max(1);
        self
    }

    /// After so many facts a process's image is written, so that reading its journal stays short.
    /// Until said otherwise it is written where over 1 MiB would have to be replayed and the image
    /// is at most a quarter of that: all images of a process take about a third of what its facts
    /// take, at most.
    pub fn snapshot_after(mut self, facts: u64) -> Self {
        self.limits.snapshot_after_facts = Some(facts.max(1));
        self
    }

    /// When facts have to be on the disk; before anything is done because of them, until said
    /// otherwise.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// A process that has had nothing to do for so long hibernates: it is only its journal and a
    /// line in the process table, until a message, a signal, the end of a child or somebody who
    /// waits for it wakes it, under its pid. None does by itself, until said otherwise
    /// ([`Process::hibernate`](super::Process::hibernate) is asked for). Never while something is
    /// pending, a turn, a call, a message or the end of its wall time, and never in a kernel
    /// without a store, which would have nothing to wake it from.
    pub fn hibernate_after(mut self, idle: Duration) -> Self {
        self.limits.hibernate_after = Some(idle);
        self
    }

    /// How many processes are in memory at once; without bound, until said otherwise. Over it,
    /// those hibernate that have had nothing to do for longest. Processes with work pending are
    /// never put to sleep, so that there may be more of those; nor are any in a kernel without a
    /// store.
    pub fn max_awake(mut self, processes: usize) -> Self {
        self.limits.max_awake = Some(processes);
        self
    }

    /// What becomes of the processes of the store that have not ended; they are held, until said
    /// otherwise.
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = recovery;
        self
    }

    /// How many bytes of contents stay in memory; all, until said otherwise, and always all without
    /// a store. Each counts once, however many processes hold it. Over that, the least recently
    /// read are let go of and read from the store when somebody asks for them; what a model is
    /// answered is the same. The kernel may take more by what is being made durable or served at
    /// the moment, and by 1 % of all that is live. It is a bound of contents and not of the
    /// program: processes that are awake, the process table, the index, pages of the store's files
    /// that are mapped, and what the allocator keeps for its threads come on top
    /// (`docs/garbage.md`).
    pub fn resident_bytes_limit(mut self, bytes: u64) -> Self {
        self.resident_bytes = Some(bytes);
        self
    }

    /// Starts the kernel. Processes of the store are listed; which of them run is said by
    /// [`recovery`](Self::recovery), and their journals are read after this returns. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`StoreFailure::Store`](crate::StoreFailure::Store) where the store cannot be claimed or
    /// read; [`NameError::ReservedTool`](crate::NameError::ReservedTool).
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
            resumed,
            last_checkpoint_id,
            lost,
            acknowledged,
        } = self.claim().await?;
        let owner_token = claimed.as_ref().map_or(0, |(_, owner)| owner.0);
        let (claimed, handle) = match claimed {
            Some((store, owner)) => {
                let (store_handle, barrier) = StoreHandle::with_barrier(store);
                (
                    Some((store_handle.clone(), owner)),
                    Some((store_handle, barrier)),
                )
            }
            None => (None, None),
        };
        let has_store = handle.is_some();
        let store = Arc::new(StoreSlot::new(handle));
        let content_cache = Arc::new(ContentCache::new(store.clone(), self.resident_bytes));
        let spawned = CheckpointActor::spawn(
            None,
            CheckpointActor,
            (
                claimed,
                last_checkpoint_id,
                content_cache.clone(),
                self.durability,
            ),
        )
        .await;
        let (checkpoint, _task) = spawned.map_err(|_| KernelError::Closed)?;
        let files = (checkpoint.clone(), store.handle(), content_cache.clone());
        let spawned = TempFilesActor::spawn(None, TempFilesActor, files).await;
        let (temp_files, _task) = spawned.map_err(|_| KernelError::Closed)?;
        let context = Arc::new(KernelContext {
            has_store,
            lost,
            acknowledged,
            store,
            content_cache,
            owner_token,
            host_context: Arc::new(HostContext {
                tools: host_tools(&self.tools),
                environment: environment::standard(),
                prices: self.prices,
            }),
            models: self.models,
            providers: self.providers,
            tools: self.tools,
            servers: self.servers,
            host: self.host,
            checkpoint,
            temp_files,
            events: RwLock::new(Some(broadcast::Sender::new(EVENT_CAPACITY))),
            model_permits: PermitQueues::new(self.model_calls),
            limits: self.limits,
            gc_inventory: Arc::default(),
            checkpoints_in_use: Arc::default(),
            read_pool: ReadPool::new(),
            program_cache: Mutex::default(),
        });
        let spawned = SupervisorActor::spawn(None, SupervisorActor, (context.clone(), table)).await;
        let (supervisor, _task) = spawned.map_err(|_| KernelError::Closed)?;
        supervisor
            .cast(RunMessage::Recover { pids: resumed }.into())
            .map_err(|_| KernelError::Closed)?;
        Ok(Kernel {
            context,
            supervisor,
        })
    }

    /// Claims the store, and reads its process table.
    async fn claim(&self) -> Result<ClaimedStore, KernelError> {
        let inbox = self.limits.inbox;
        let Some(store) = self.store.clone() else {
            let table = Table::new(Listing::default(), inbox);
            let (resumed, lost, acknowledged) = (Vec::new(), Vec::new(), Vec::new());
            return Ok(ClaimedStore {
                store: None,
                table,
                resumed,
                last_checkpoint_id: 0,
                lost,
                acknowledged,
            });
        };
        let recovery = self.recovery.clone();
        let claim = move || -> Result<ClaimedStore, KernelError> {
            let (listing, last_checkpoint_id) = (store.processes()?, store.last_checkpoint()?);
            listing.lost.iter().for_each(
                |lost| tracing::error!(%lost, "not all processes of the store can be listed"),
            );
            let (owner, resumed) = match store.claim() {
                // A kernel to look into a store that is only read: nothing in it goes on, and what
                // is done is refused.
                Err(StoreError::ReadOnly { .. }) => (OwnerToken(0), Vec::new()),
                claimed => (claimed?, recovery.of(&listing.rows)),
            };
            let (lost, acknowledged) = (listing.lost.clone(), listing.acknowledged.clone());
            let table = Table::new(listing, inbox);
            Ok(ClaimedStore {
                store: Some((store, owner)),
                table,
                resumed,
                last_checkpoint_id,
                lost,
                acknowledged,
            })
        };
        tokio::task::spawn_blocking(claim)
            .await
            .map_err(|_| KernelError::Closed)?
    }
}

/// A store that was claimed, if there is one.
struct ClaimedStore {
    store: Option<(Arc<dyn Store>, OwnerToken)>,
    table: Table,
    /// Those that are to run.
    resumed: Vec<Pid>,
    /// The highest number that a checkpoint had.
    last_checkpoint_id: u64,
    /// What the store cannot list, and why.
    lost: Vec<String>,
    /// The same for what a repair has acknowledged.
    acknowledged: Vec<String>,
}

fn host_tools(tools: &BTreeMap<String, Arc<dyn Tool>>) -> BTreeMap<Arc<str>, HostTool> {
    let tools = tools.values().map(|tool| HostTool {
        spec: tool.spec(),
        policy: tool.policy(),
    });
    tools.map(|tool| (tool.spec.name.clone(), tool)).collect()
}
