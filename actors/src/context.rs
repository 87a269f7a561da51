//! What all processes of one kernel share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use dormouse_kernel::inventory::Inventory;
use dormouse_kernel::journal::Tail;
use dormouse_kernel::process::HostContext;
use dormouse_kernel::program::{ModelChoice, Program};
use dormouse_proto::command::Command;
use dormouse_proto::mail::Reach;
use dormouse_proto::model::{ModelError, ModelErrorKind};
use dormouse_proto::tool::OutsideTool;
use ractor::ActorRef;
use tokio::sync::{broadcast, oneshot};

use crate::checkpoint::{self, Acknowledge, CheckpointMessage, LogRecord};
use crate::checkpoint_guard::CheckpointsInUse;
use crate::content_cache::ContentCache;
use crate::error::{KernelError, StoreFailure};
use crate::event::Event;
use crate::permits::PermitQueues;
use crate::ports::{Asked, Host, Model, Provider, Store, Tool, ToolServers};
use crate::process::tool_call::ToolRun;
use crate::read_pool::ReadPool;
use crate::recovery::ProgramCache;
use crate::store_handle::{StoreHandle, StoreSlot};
use crate::temp_files::TempFilesMessage;

/// Ports, permits and the event channel of a kernel. Shared by reference, changed by nobody.
pub(crate) struct KernelContext {
    pub(crate) store: Arc<StoreSlot>,
    pub(crate) content_cache: Arc<ContentCache>,
    /// Whether there is a store: without one no births are copied for it.
    pub(crate) has_store: bool,
    /// What the store cannot list of its processes, and why. Empty where all is well.
    pub(crate) lost: Vec<String>,
    /// The same for what a repair has acknowledged.
    pub(crate) acknowledged: Vec<String>,
    /// Differs with each opening of a store.
    pub(crate) owner_token: u64,
    pub(crate) models: BTreeMap<String, Arc<dyn Model>>,
    pub(crate) providers: BTreeMap<String, Arc<dyn Provider>>,
    pub(crate) tools: BTreeMap<String, Arc<dyn Tool>>,
    pub(crate) servers: Option<Arc<dyn ToolServers>>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) host_context: Arc<HostContext>,
    pub(crate) checkpoint: ActorRef<CheckpointMessage>,
    pub(crate) temp_files: ActorRef<TempFilesMessage>,
    /// None after the kernel was shut down, so that whoever watches is told: handles that are still
    /// held keep no stream open.
    pub(crate) events: RwLock<Option<broadcast::Sender<Event>>>,
    pub(crate) model_permits: PermitQueues,
    pub(crate) limits: Limits,
    /// What collections of garbage have found in the store. Held by the one that runs.
    pub(crate) gc_inventory: Arc<tokio::sync::Mutex<Inventory>>,
    /// Checkpoints that collections leave.
    pub(crate) checkpoints_in_use: Arc<CheckpointsInUse>,
    /// Where contents are read that are too large for a handler.
    pub(crate) read_pool: ReadPool,
    /// The programs that journals name, compiled.
    pub(crate) program_cache: Mutex<ProgramCache>,
}

/// Bounds of a kernel that are not a program's business.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) inbox: usize,
    pub(crate) reach: Reach,
    pub(crate) model_deadline: Duration,
    pub(crate) model_attempts: u32,
    /// None: as [`Tail`] decides.
    pub(crate) snapshot_after_facts: Option<u64>,
    pub(crate) restarts: u32,
    pub(crate) hibernate_after: Option<Duration>,
    pub(crate) max_awake: Option<usize>,
}

impl Limits {
    /// Where an image is to be made: the most bytes that it may have.
    pub(crate) fn snapshot_limit(&self, tail: Tail) -> Option<u64> {
        match self.snapshot_after_facts {
            Some(facts) => (tail.facts() >= facts).then_some(u64::MAX),
            None => tail.is_long().then(|| tail.worth()),
        }
    }
}

impl KernelContext {
    /// Makes `entries` durable together; `acknowledge` is told when that is done, or that it cannot
    /// be.
    pub(crate) fn append(&self, entries: Vec<LogRecord>, acknowledge: Acknowledge) {
        checkpoint::append(&self.checkpoint, entries, acknowledge);
    }

    /// The store, while the kernel runs on one.
    pub(crate) fn store_handle(&self) -> Option<StoreHandle> {
        self.store.handle()
    }

    /// Runs `query` on the store, on a thread where blocking is allowed.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`], and the error of `query`.
    pub(crate) async fn query_store<T: Send + 'static>(
        self: &Arc<Self>,
        query: impl FnOnce(&dyn Store, &Self) -> Result<T, KernelError> + Send + 'static,
    ) -> Result<T, KernelError> {
        let store = self.store_handle().ok_or(StoreFailure::NoStore)?;
        let context = self.clone();
        tokio::task::spawn_blocking(move || query(&*store, &context))
            .await
            .map_err(|_| KernelError::Closed)?
    }

    /// All that the store could not list, acknowledged or not; none where nothing is missing.
    pub(crate) fn lost_records(&self) -> Option<String> {
        let missing: Vec<_> = self
            .lost
            .iter()
            .chain(&self.acknowledged)
            .map(String::as_str)
            .collect();
        (!missing.is_empty()).then(|| missing.join("; "))
    }

    /// Whether the store takes no commits: nobody could claim it.
    pub(crate) fn is_read_only(&self) -> bool {
        self.has_store && self.owner_token == 0
    }

    /// Whether the kernel runs: it is neither shut down nor about to be.
    pub(crate) fn is_open(&self) -> bool {
        self.store.is_open()
    }

    /// Commits what is on its way and lets go of the store.
    pub(crate) async fn close(&self) {
        if let Some(servers) = &self.servers {
            servers.close().await;
        }
        // One that is gone already needs no stopping.
        let _ = self.temp_files.stop_and_wait(None, None).await;
        let (reply, closed) = oneshot::channel();
        if self
            .checkpoint
            .cast(CheckpointMessage::Close { reply })
            .is_ok()
        {
            let _ = closed.await;
        }
        self.checkpoint.stop(None);
        self.store.close().await;
        drop(
            self.events
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }

    /// Tells whoever watches. Nobody watching is no error.
    pub(crate) fn publish(&self, event: Event) {
        if let Some(events) = &*self.events.read().unwrap_or_else(PoisonError::into_inner) {
            let _ = events.send(event);
        }
    }

    /// Events from now on; none come from a kernel that was shut down.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        let events = self.events.read().unwrap_or_else(PoisonError::into_inner);
        events.as_ref().map_or_else(
            || broadcast::Sender::new(1).subscribe(),
            broadcast::Sender::subscribe,
        )
    }

    /// Whether processes are to say when they are at rest.
    pub(crate) fn hibernation_enabled(&self) -> bool {
        self.has_store && (self.limits.hibernate_after.is_some() || self.limits.max_awake.is_some())
    }

    /// Whether somebody watches.
    pub(crate) fn has_subscribers(&self) -> bool {
        let events = self.events.read().unwrap_or_else(PoisonError::into_inner);
        events
            .as_ref()
            .is_some_and(|events| events.receiver_count() > 0)
    }

    /// The model for a program: registered under its name, or made by its provider.
    pub(crate) fn model(
        &self,
        program: &Program,
        choice: &ModelChoice,
    ) -> Result<Arc<dyn Model>, ModelError> {
        if let Some(model) = self.models.get(&choice.name) {
            return Ok(model.clone());
        }
        match self.providers.get(choice.provider.word()) {
            Some(provider) => provider.model(Asked {
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
        let known: Vec<_> = self
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
            known.join(", ")
        )
    }

    /// A call of a tool that a process of `program` was given.
    ///
    /// # Errors
    /// A text for the model: the tool is no longer there.
    pub(crate) fn tool_run(
        &self,
        program: &Program,
        tool: &OutsideTool,
        args: String,
    ) -> Result<ToolRun, String> {
        if let Some(server) = &tool.server {
            return self.server_tool_run(program, server, tool, args);
        }
        let command = program
            .commands()
            .iter()
            .find(|command| *command.name == *tool.name);
        // With the access that the program gave it: what reads only is held to that.
        let command = command.map(|command| Command {
            policy: tool.policy,
            ..command.clone()
        });
        let command = command.map(|command| self.host.command(&command));
        let found = command.or_else(|| self.tools.get(&*tool.name).cloned());
        let found =
            found.ok_or_else(|| format!("The tool '{}' is no longer registered.", tool.name))?;
        Ok(Box::new(move |out| found.call(args, out)))
    }

    fn server_tool_run(
        &self,
        program: &Program,
        server: &str,
        tool: &OutsideTool,
        args: String,
    ) -> Result<ToolRun, String> {
        let choice = program
            .servers()
            .iter()
            .find(|choice| *choice.server.name == *server);
        let (Some(servers), Some(choice)) = (&self.servers, choice) else {
            return Err(format!(
                "The tool '{}' cannot run: this kernel does not reach the server '{server}'.",
                tool.given
            ));
        };
        let (servers, host, server, name) = (
            servers.clone(),
            self.host.clone(),
            choice.server.clone(),
            tool.name.clone(),
        );
        Ok(Box::new(move |out| {
            servers.call(&host, &server, &name, args, out)
        }))
    }
}
