//! The supervisor actor: the process table, births, ends, and restarts of processes that faulted.
//!
//! It never awaits a process and never reads the disk: what takes long runs beside it and comes
//! back as a message.

mod birth;
mod branch;
mod children;
mod commit_failure;
mod entry;
mod fork_release;
mod hibernation;
mod local_ids;
mod lookup;
mod mail;
mod recovery_queue;
mod run;
mod table;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_proto::id::Pid;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

pub(crate) use self::birth::{BirthMessage, PendingProcess};
pub(crate) use self::branch::{
    BranchRequest, Branched, BranchedReply, ImportedProcess, Launch, ProcessTree,
};
pub(crate) use self::entry::Ended;
pub(crate) use self::hibernation::HibernationMessage;
use self::local_ids::LocalIds;
pub(crate) use self::lookup::{HandleGuard, HandleParts, HandleReply, Lineage, LookupMessage};
pub(crate) use self::mail::{MailMessage, Neighbours, SendRequest};
use self::recovery_queue::RecoveryQueue;
pub(crate) use self::run::RunMessage;
pub(crate) use self::table::{ListFilter, ListedProcess, Table};
pub(crate) use self::tree::TreeMessage;
use crate::context::KernelContext;

/// What the supervisor is asked and told, by the part of it that answers.
pub(crate) enum SupervisorMessage {
    /// The process table: who there is.
    Lookup(LookupMessage),
    /// New processes.
    Birth(BirthMessage),
    /// Several processes of one tree.
    Tree(TreeMessage),
    /// Whether a process runs.
    Run(RunMessage),
    /// Something for a process.
    Mail(MailMessage),
    /// Hibernation.
    Hibernation(HibernationMessage),
}

/// Each group becomes the message that holds it.
macro_rules! groups {
    ($($group:ident($message:ident)),*) => {
        $(impl From<$message> for SupervisorMessage {
            fn from(message: $message) -> Self {
                Self::$group(message)
            }
        })*
    };
}

groups!(
    Lookup(LookupMessage),
    Birth(BirthMessage),
    Tree(TreeMessage),
    Run(RunMessage),
    Mail(MailMessage),
    Hibernation(HibernationMessage)
);

pub(crate) struct SupervisorActor;

pub(crate) struct Supervisor {
    context: Arc<KernelContext>,
    myself: ActorRef<SupervisorMessage>,
    table: Table,
    local_ids: LocalIds,
    /// New processes that wait for the first of their siblings.
    delayed_starts: BTreeMap<Pid, PendingProcess>,
    /// Messages that were taken to a receiver so far.
    messages_routed: u64,
    recovery_queue: RecoveryQueue,
    /// The roots of trees that messages from other trees do not wake.
    held_trees: BTreeSet<Pid>,
}

impl Actor for SupervisorActor {
    type Msg = SupervisorMessage;
    type State = Supervisor;
    type Arguments = (Arc<KernelContext>, Table);

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (context, table): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let (delayed_starts, recovery_queue) = (BTreeMap::new(), RecoveryQueue::default());
        let local_ids = table.local_ids();
        let held_trees = BTreeSet::new();
        Ok(Supervisor {
            context,
            myself,
            table,
            local_ids,
            delayed_starts,
            messages_routed: 0,
            recovery_queue,
            held_trees,
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
        }
        Ok(())
    }

    /// A child's end never ends the supervisor: a fault restarts the child, and its siblings do not
    /// notice.
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
        Ok(())
    }
}
