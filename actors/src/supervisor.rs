//! The supervisor actor: owns the process table, creates processes, routes messages, and restarts
//! processes that fault.
//!
//! The supervisor never waits for a process and never reads the disk. Long operations run in tasks
//! or on blocking threads, and their results come back as messages.
//!
//! `supervisor/table.rs` holds the process table, and `supervisor/entry.rs` one row of it. Each
//! other module handles one kind of message or event; the groups of messages are below.

mod at_rest;
mod birth;
mod branch;
mod children;
mod commit_failure;
mod drain;
mod entry;
mod fork_release;
mod hibernation;
mod labels;
mod local_ids;
mod lookup;
mod mail;
mod pausing;
mod peers;
mod pids;
mod recovery_queue;
mod reopening;
mod run;
mod table;
mod tree;
mod wake_times;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_proto::id::Pid;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

pub(crate) use self::at_rest::{DecideAtRest, NotRecorded, RecordRequest};
pub(crate) use self::birth::{BirthMessage, NewRoot, PendingProcess};
pub(crate) use self::branch::{
    BranchReply, BranchRequest, BranchResult, Launch, ProcessTree, RestoredProcess,
};
use self::drain::Drain;
pub(crate) use self::entry::{Watched, child_slot};
pub(crate) use self::hibernation::HibernationMessage;
use self::labels::HeldByLabels;
use self::local_ids::LocalIds;
pub(crate) use self::lookup::{HandleGuard, HandleParts, HandleReply, Lineage, LookupMessage};
pub(crate) use self::mail::{MailMessage, ReachableProcesses, SendRequest};
pub(crate) use self::pids::PidCounter;
use self::recovery_queue::RecoveryQueue;
use self::reopening::PendingReopenings;
pub(crate) use self::reopening::{RaiseOfEnded, ReopeningCommit};
pub(crate) use self::run::RunMessage;
pub(crate) use self::table::{ListFilter, ListedProcess, MAX_EXAMINED, ProcessTable};
pub(crate) use self::tree::TreeMessage;
pub(crate) use self::wake_times::WakeMessage;
use crate::context::KernelContext;

/// The messages of the supervisor, grouped by the module that handles them.
pub(crate) enum SupervisorMessage {
    /// Queries of the process table.
    Lookup(LookupMessage),
    /// Creation of processes.
    Birth(BirthMessage),
    /// Operations on several processes of a tree.
    Tree(TreeMessage),
    /// Loading, running and ending of processes.
    Run(RunMessage),
    /// Inputs and messages for processes.
    Mail(MailMessage),
    /// Hibernation.
    Hibernation(HibernationMessage),
    /// Times at which processes are woken.
    Wake(WakeMessage),
}

/// Implements the conversion of each message group into [`SupervisorMessage`].
macro_rules! convert_groups {
    ($($group:ident($message:ident)),*) => {
        $(impl From<$message> for SupervisorMessage {
            fn from(message: $message) -> Self {
                Self::$group(message)
            }
        })*
    };
}

convert_groups!(
    Lookup(LookupMessage),
    Birth(BirthMessage),
    Tree(TreeMessage),
    Run(RunMessage),
    Mail(MailMessage),
    Hibernation(HibernationMessage),
    Wake(WakeMessage)
);

pub(crate) struct SupervisorActor;

/// The state of the supervisor.
pub(crate) struct Supervisor {
    context: Arc<KernelContext>,
    myself: ActorRef<SupervisorMessage>,
    table: ProcessTable,
    local_ids: LocalIds,
    /// New processes that start after their first sibling has produced output.
    delayed_starts: BTreeMap<Pid, PendingProcess>,
    /// How many messages were routed so far; makes the request ids of messages unique.
    messages_routed: u64,
    recovery_queue: RecoveryQueue,
    /// The roots of isolated trees, or their highest members that are known: messages from other
    /// trees are refused ([`Kernel::isolate`](crate::handle::Kernel::isolate)).
    isolated_trees: BTreeSet<Pid>,
    reopenings: PendingReopenings,
    /// Decisions of the host about processes that are being loaded.
    waiting_records: Vec<RecordRequest>,
    held_by_labels: HeldByLabels,
    drain: Option<Drain>,
}

impl Actor for SupervisorActor {
    type Msg = SupervisorMessage;
    type State = Supervisor;
    type Arguments = (Arc<KernelContext>, ProcessTable);

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (context, table): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let local_ids = table.local_ids();
        Ok(Supervisor {
            context,
            myself,
            table,
            local_ids,
            delayed_starts: BTreeMap::new(),
            messages_routed: 0,
            recovery_queue: RecoveryQueue::default(),
            isolated_trees: BTreeSet::new(),
            reopenings: PendingReopenings::new(),
            waiting_records: Vec::new(),
            held_by_labels: HeldByLabels::default(),
            drain: None,
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        supervisor: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SupervisorMessage::Lookup(message) => supervisor.handle_lookup(message),
            SupervisorMessage::Birth(message) => supervisor.handle_birth(message).await,
            SupervisorMessage::Tree(message) => supervisor.handle_tree(message),
            SupervisorMessage::Run(message) => supervisor.handle_run(message).await,
            SupervisorMessage::Mail(message) => supervisor.handle_mail(message),
            SupervisorMessage::Hibernation(message) => supervisor.handle_hibernation(message),
            SupervisorMessage::Wake(message) => supervisor.handle_wake(message),
        }
        supervisor.take_up_waiting_records();
        Ok(())
    }

    /// Handles the end of a process actor, which never ends the supervisor or another process. A
    /// process that faulted is restarted.
    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        supervisor: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(cell, error) => {
                supervisor.on_actor_failed(cell.get_id(), &error.to_string())
            }
            SupervisionEvent::ActorTerminated(cell, ..) => {
                supervisor.on_actor_stopped(cell.get_id())
            }
            _ => {}
        }
        supervisor.take_up_waiting_records();
        Ok(())
    }
}
