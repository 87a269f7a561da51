//! The supervisor actor: the process table, births, ends, and restarts of processes that faulted.
//!
//! It never awaits a process and never reads the disk: what takes long runs beside it and comes
//! back as a message.

mod alias;
mod birth;
mod branch;
mod children;
mod entry;
mod lookup;
mod post;
mod recover;
mod refusal;
mod release;
mod rest;
mod run;
mod table;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_proto::id::Pid;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use self::alias::Aliases;
pub(crate) use self::birth::{BirthMessage, PendingProcess};
pub(crate) use self::branch::{
    Branched, BranchedReply, Branching, ImportedProcess, Launch, ProcessTree,
};
pub(crate) use self::entry::Ended;
pub(crate) use self::lookup::{HandleGuard, HandleParts, HandleReply, Lineage, LookupMessage};
pub(crate) use self::post::{MailMessage, Neighbours, Post};
use self::recover::Recovering;
pub(crate) use self::rest::RestMessage;
pub(crate) use self::run::RunMessage;
pub(crate) use self::table::{Listed, Table, Which};
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
    Rest(RestMessage),
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
    Rest(RestMessage)
);

pub(crate) struct SupervisorActor;

pub(crate) struct Supervisor {
    context: Arc<KernelContext>,
    myself: ActorRef<SupervisorMessage>,
    table: Table,
    aliases: Aliases,
    /// New processes that wait for the first of their siblings.
    held_back: BTreeMap<Pid, PendingProcess>,
    /// Messages that were taken to a receiver so far.
    posted: u64,
    recovering: Recovering,
    /// The roots of trees that messages from other trees do not wake.
    kept_held: BTreeSet<Pid>,
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
        let (held_back, recovering) = (BTreeMap::new(), Recovering::default());
        let aliases = table.aliases();
        let kept_held = BTreeSet::new();
        Ok(Supervisor {
            context,
            myself,
            table,
            aliases,
            held_back,
            posted: 0,
            recovering,
            kept_held,
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
            SupervisorMessage::Rest(message) => supervisor.handle_rest(message),
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
                supervisor.faulted(cell.get_id(), &error.to_string())
            }
            SupervisionEvent::ActorTerminated(cell, ..) => supervisor.stopped(cell.get_id()),
            _ => {}
        }
        Ok(())
    }
}
