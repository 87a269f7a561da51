//! The context that all actors of one kernel share: ports, caches, limits, permits and the event
//! channel.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use dormouse_kernel::inventory::Inventory;
use dormouse_kernel::journal::JournalTail;
use dormouse_kernel::process::{Fact as ProcessFact, HostContext};
use dormouse_kernel::program::{ModelChoice, Program};
use dormouse_proto::command::Command;
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_proto::mail::Reach;
use dormouse_proto::model::{ModelError, ModelErrorKind};
use dormouse_proto::tool::ExternalTool;
use ractor::ActorRef;
use tokio::sync::{broadcast, oneshot};

use crate::checkpoint::{self, Acknowledge, CheckpointMessage, CommitError, LogRecord};
use crate::commit_feed::CommitFeed;
use crate::content_cache::ContentCache;
use crate::error::{KernelError, StoreFailure};
use crate::event::Event;
use crate::in_use::InUse;
use crate::labels::Labels;
use crate::ownership::{CloseReason, Ownership};
use crate::permits::ModelPermits;
use crate::ports::{
    Host, Model, Peers, Provider, ProviderRequest, Store, Tool, ToolError, ToolServers,
};
use crate::process::tool_call::ToolRun;
use crate::read_pool::ReadPool;
use crate::recovery::ProgramCache;
use crate::server_questions::AnsweringClient;
use crate::store_handle::{StoreHandle, StoreSlot};
use crate::temp_files::TempFilesMessage;

/// Shared by reference between all actors. It is immutable except for the channels, caches and
/// locks inside.
pub(crate) struct KernelContext {
    pub(crate) store: Arc<StoreSlot>,
    pub(crate) content_cache: Arc<ContentCache>,
    /// Whether the kernel has a store. Without one, no journal record is built.
    pub(crate) has_store: bool,
    /// Descriptions of the records that the store has lost. Empty if the store is complete.
    pub(crate) losses: Vec<String>,
    /// Losses that a repair has acknowledged.
    pub(crate) acknowledged_losses: Vec<String>,
    /// The owner token of this opening of the store; 0 if the store is read-only or absent.
    pub(crate) owner_token: u64,
    pub(crate) models: BTreeMap<String, Arc<dyn Model>>,
    pub(crate) providers: BTreeMap<String, Arc<dyn Provider>>,
    pub(crate) tools: BTreeMap<String, Arc<dyn Tool>>,
    pub(crate) servers: Option<Arc<dyn ToolServers>>,
    /// If the host answers questions of tool servers: what these servers see as their client.
    pub(crate) server_questions: Option<Arc<AnsweringClient>>,
    pub(crate) host: Arc<dyn Host>,
    /// Other kernels, whose processes can be written to.
    pub(crate) peers: Option<Arc<dyn Peers>>,
    /// What the machine knows of this kernel: its tools, prices and environment.
    pub(crate) host_context: Arc<HostContext>,
    pub(crate) checkpoint: ActorRef<CheckpointMessage>,
    pub(crate) temp_files: ActorRef<TempFilesMessage>,
    /// `None` after shutdown. Dropping the sender ends every event stream, even if handles still
    /// exist.
    pub(crate) events: RwLock<Option<broadcast::Sender<Event>>>,
    /// The commits of this kernel.
    pub(crate) commit_feed: Arc<CommitFeed>,
    /// The budgets of labels, and what was used of them.
    pub(crate) labels: Arc<Labels>,
    pub(crate) model_permits: Arc<ModelPermits>,
    pub(crate) limits: Limits,
    /// Whether the kernel may still act.
    pub(crate) ownership: Arc<Ownership>,
    /// The inventory of the last garbage collection. A running collection holds the lock.
    pub(crate) gc_inventory: Arc<tokio::sync::Mutex<Inventory>>,
    /// What no garbage collection may delete now.
    pub(crate) in_use: Arc<InUse>,
    /// The pool for reads that are too large for a message handler.
    pub(crate) read_pool: ReadPool,
    /// Compiled programs, by the bundle that journals refer to.
    pub(crate) program_cache: Mutex<ProgramCache>,
    /// Programs that were compiled to inspect processes. They must not be used to run.
    pub(crate) inspected_programs: Mutex<ProgramCache>,
}

/// The process that calls a tool.
pub(crate) struct ToolCaller<'a> {
    pub(crate) program: &'a Program,
    /// The root of its tree.
    pub(crate) root: Pid,
}

/// Limits of a kernel that programs cannot set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How many inputs can wait for one process.
    pub(crate) inbox_capacity: usize,
    /// Which processes can send messages to each other.
    pub(crate) reach: Reach,
    /// The deadline of one attempt of a model call.
    pub(crate) model_deadline: Duration,
    pub(crate) model_attempts: u32,
    /// `None`: [`JournalTail`] decides when a snapshot is due.
    pub(crate) snapshot_after_facts: Option<u64>,
    /// How often a process is restarted for faults within a time window; the next fault ends it.
    pub(crate) max_restarts: u32,
    /// How long a process is idle before it hibernates.
    pub(crate) hibernate_after: Option<Duration>,
    /// The number of loaded processes above which idle ones hibernate.
    pub(crate) max_loaded: Option<usize>,
}

impl Limits {
    /// If a snapshot is due: the largest size that it may have, in bytes.
    pub(crate) fn snapshot_limit(&self, journal_tail: JournalTail) -> Option<u64> {
        match self.snapshot_after_facts {
            Some(facts) => (journal_tail.facts() >= facts).then_some(u64::MAX),
            None => journal_tail
                .is_image_due()
                .then(|| journal_tail.max_image_bytes()),
        }
    }
}

impl KernelContext {
    /// Makes `records` durable in one commit, then calls `acknowledge` with the result.
    pub(crate) fn append_records(&self, records: Vec<LogRecord>, acknowledge: Acknowledge) {
        checkpoint::append_records(&self.checkpoint, records, acknowledge);
    }

    /// A handle on the store, while the kernel runs on one.
    pub(crate) fn store_handle(&self) -> Option<StoreHandle> {
        self.store.handle()
    }

    /// As [`store_handle`](Self::store_handle).
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`]; [`KernelError::Closed`] after a shutdown.
    pub(crate) fn open_store(&self) -> Result<StoreHandle, KernelError> {
        match self.store_handle() {
            Some(store) => Ok(store),
            None if self.has_store => Err(KernelError::Closed),
            None => Err(StoreFailure::NoStore.into()),
        }
    }

    /// Runs `query` on the store, on a thread where blocking is allowed.
    ///
    /// # Errors
    /// As [`open_store`](Self::open_store); [`KernelError::Panicked`], and the error of `query`.
    pub(crate) async fn query_store<T: Send + 'static>(
        self: &Arc<Self>,
        query: impl FnOnce(&dyn Store, &Self) -> Result<T, KernelError> + Send + 'static,
    ) -> Result<T, KernelError> {
        let store = self.open_store()?;
        let context = self.clone();
        tokio::task::spawn_blocking(move || query(&*store, &context)).await?
    }

    /// Describes all losses of the store, acknowledged or not; `None` if the store is complete.
    pub(crate) fn describe_losses(&self) -> Option<String> {
        let missing: Vec<_> = self
            .losses
            .iter()
            .chain(&self.acknowledged_losses)
            .map(String::as_str)
            .collect();
        (!missing.is_empty()).then(|| missing.join("; "))
    }

    /// Whether the store is open for reading only: it could not be claimed.
    pub(crate) fn is_read_only(&self) -> bool {
        self.has_store && self.owner_token == 0
    }

    /// Whether the kernel runs and no shutdown has begun.
    pub(crate) fn is_open(&self) -> bool {
        self.store.is_open()
    }

    /// Checks that the kernel may begin something outside of itself.
    ///
    /// # Errors
    /// [`KernelError::LeaseLost`], [`StoreFailure::NotDurable`] or [`KernelError::Closed`], as the
    /// kernel closed.
    pub(crate) fn check_may_act(&self) -> Result<(), KernelError> {
        match self.ownership.may_act() {
            true => Ok(()),
            false => Err(self
                .ownership
                .close_reason()
                .map_or(KernelError::Closed, KernelError::from)),
        }
    }

    /// Commits the queue of the checkpoint actor and releases the store.
    ///
    /// # Errors
    /// The first failed sync that no append has reported.
    pub(crate) async fn close(&self) -> Result<(), CommitError> {
        if let Some(servers) = &self.servers {
            servers.close().await;
        }
        // An actor that has already stopped returns an error, which is ignored.
        let _ = self.temp_files.stop_and_wait(None, None).await;
        let (reply, close_result) = oneshot::channel();
        // An actor that has already stopped drops the reply: another shutdown has closed the store.
        let _ = self.checkpoint.cast(CheckpointMessage::Close { reply });
        let close_result = close_result.await.unwrap_or(Ok(()));
        self.checkpoint.stop(None);
        self.store.close().await;
        drop(
            self.events
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        self.commit_feed.close();
        self.ownership.close(CloseReason::ShutDown);
        close_result
    }

    /// Sends an event to all subscribers. No subscriber is not an error.
    pub(crate) fn publish(&self, event: Event) {
        if let Some(events) = &*self.events.read().unwrap_or_else(PoisonError::into_inner) {
            let _ = events.send(event);
        }
    }

    /// Publishes facts that are durable, with references in place of contents.
    pub(crate) fn publish_facts(&self, pid: Pid, first: FactNumber, facts: &[ProcessFact]) {
        if !self.has_subscribers() {
            return;
        }
        for (number, fact) in (first.0..).zip(facts) {
            let Ok(fact) = fact
                .clone()
                .try_map(&mut |content| Ok::<_, Infallible>(content.reference()));
            self.publish(Event::Fact {
                pid,
                number: FactNumber(number),
                fact: Arc::new(fact),
            });
        }
    }

    /// The events from now on. After shutdown the stream is empty.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        let events = self.events.read().unwrap_or_else(PoisonError::into_inner);
        events.as_ref().map_or_else(
            || broadcast::Sender::new(1).subscribe(),
            broadcast::Sender::subscribe,
        )
    }

    /// Whether processes must report when nothing is pending for them.
    pub(crate) fn is_hibernation_enabled(&self) -> bool {
        self.has_store
            && (self.limits.hibernate_after.is_some() || self.limits.max_loaded.is_some())
    }

    /// Whether the event channel has a subscriber.
    pub(crate) fn has_subscribers(&self) -> bool {
        let events = self.events.read().unwrap_or_else(PoisonError::into_inner);
        events
            .as_ref()
            .is_some_and(|events| events.receiver_count() > 0)
    }

    /// The longest time for one call of a model: as its program says, otherwise the kernel's.
    pub(crate) fn model_deadline(&self, choice: &ModelChoice) -> Duration {
        choice
            .timeout_ms
            .map_or(self.limits.model_deadline, Duration::from_millis)
    }

    /// The model of a program: one that is registered by name, otherwise one from its provider.
    pub(crate) fn model(
        &self,
        program: &Program,
        choice: &ModelChoice,
    ) -> Result<Arc<dyn Model>, ModelError> {
        if let Some(model) = self.models.get(&choice.name) {
            return Ok(model.clone());
        }
        match self.providers.get(choice.provider.word()) {
            Some(provider) => provider.model(ProviderRequest {
                program,
                model: choice,
                host: &self.host,
            }),
            None => Err(ModelError::new(
                ModelErrorKind::Unavailable,
                self.no_model_message(program, choice),
            )),
        }
    }

    fn no_model_message(&self, program: &Program, choice: &ModelChoice) -> String {
        let available: Vec<_> = self
            .models
            .keys()
            .chain(self.providers.keys())
            .map(String::as_str)
            .collect();
        format!(
            "program {} asks for model '{}' of provider '{}', and this kernel has neither. It has: \
             {}",
            program.name(),
            choice.name,
            choice.provider.word(),
            available.join(", ")
        )
    }

    /// Prepares a call of a tool of the process `caller`.
    ///
    /// # Errors
    /// The tool is no longer registered, or its server cannot be reached from this kernel.
    pub(crate) fn tool_run(
        &self,
        caller: &ToolCaller<'_>,
        tool: &ExternalTool,
        args: String,
    ) -> Result<ToolRun, ToolError> {
        if let Some(server) = &tool.server {
            return self.mcp_tool_run(caller, server, tool, args);
        }
        let command = caller
            .program
            .commands()
            .iter()
            .find(|command| *command.name == *tool.name);
        // The policy of the image overrides that of the program: a command with read access stays
        // restricted to reading.
        let command = command.map(|command| Command {
            policy: tool.policy,
            ..command.clone()
        });
        let command = command.map(|command| self.host.command(&command));
        let registered = command.or_else(|| self.tools.get(&*tool.name).cloned());
        let tool_handler = registered
            .ok_or_else(|| format!("The tool '{}' is no longer registered.", tool.name))?;
        Ok(Box::new(move |out| tool_handler.call(args, out)))
    }

    fn mcp_tool_run(
        &self,
        caller: &ToolCaller<'_>,
        server: &str,
        tool: &ExternalTool,
        args: String,
    ) -> Result<ToolRun, ToolError> {
        let enabled_server = caller
            .program
            .servers()
            .iter()
            .find(|enabled_server| *enabled_server.server.name == *server);
        let (Some(servers), Some(enabled_server)) = (&self.servers, enabled_server) else {
            return Err(format!(
                "The tool '{}' cannot run: this kernel does not reach the server '{server}'.",
                tool.name_for_model
            )
            .into());
        };
        let servers = servers.clone();
        let host = self.host.clone();
        let server = enabled_server.server.clone();
        let name = tool.name.clone();
        let root = caller.root;
        Ok(Box::new(move |out| {
            servers.call(&host, &server, root, &name, args, out)
        }))
    }
}
