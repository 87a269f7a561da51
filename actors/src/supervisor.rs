//! The supervisor actor: the process table, births, ends, and restarts of processes that faulted.
//!
//! It never awaits a process and never reads the disk: what takes long runs beside it and comes back as a message.

mod children;
mod restart;
mod table;

use std::sync::Arc;

use dormouse_kernel::process::{Child, Image, Input, State};
use dormouse_kernel::program::Program;
use dormouse_proto::id::{CallId, FactNumber, Pid};
use dormouse_proto::process::{Exit, Origin, ProcessRow};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::checkpoint::{CommitError, Durable};
use crate::error::KernelError;
use crate::process::Delivery;
use crate::recovery::{self, LoadError};
use crate::world::World;

pub(crate) use table::{Listed, Seat, Table};

/// Where the handle of a process goes.
pub(crate) type SeatReply = oneshot::Sender<Result<Seat, KernelError>>;

pub(crate) enum SupervisorMessage {
    /// Make a process that no process asked for.
    Start { program: Program, image: Box<Image>, origin: Origin, reply: SeatReply },
    /// See to it that a process has these children.
    StartChildren { parent: Pid, children: Vec<Child> },
    /// Births are durable, or cannot be made so.
    Born { newborns: Vec<Newborn>, result: Result<(), CommitError>, reply: Option<SeatReply> },
    /// A journal was read.
    Loaded { pid: Pid, result: Result<Box<(State, FactNumber)>, LoadError> },
    /// Something for a process; it is woken where it does not run.
    Deliver { pid: Pid, delivery: Box<Delivery>, refused: oneshot::Sender<KernelError> },
    /// Kill the children of these calls.
    Abandon { parent: Pid, calls: Vec<CallId> },
    /// A process ended, durably.
    Ended { pid: Pid, exit: Exit },
    /// A pause after a fault is over.
    Restart { pid: Pid },
    /// Run a process from its journal.
    Resume { pid: Pid, reply: SeatReply },
    /// The handle of a process, as it stands.
    Find { pid: Pid, reply: SeatReply },
    /// The process table.
    List { reply: oneshot::Sender<Vec<Listed>> },
}

/// A process that is about to be.
pub(crate) struct Newborn {
    row: ProcessRow,
    program: Program,
    image: Box<Image>,
}

pub(crate) struct SupervisorActor;

pub(crate) struct Supervisor {
    world: Arc<World>,
    myself: ActorRef<SupervisorMessage>,
    table: Table,
    /// The tasks of process actors; those that have ended are let go of when the next begins.
    tasks: Vec<JoinHandle<()>>,
}

impl Actor for SupervisorActor {
    type Msg = SupervisorMessage;
    type State = Supervisor;
    type Arguments = (Arc<World>, Vec<ProcessRow>);

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (world, rows): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let table = Table::new(rows, world.limits.inbox);
        Ok(Supervisor { world, myself, table, tasks: Vec::new() })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        supervisor: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        supervisor.take(message).await;
        Ok(())
    }

    /// A process actor that has stopped may still hold the store for a moment: its task is awaited.
    async fn post_stop(
        &self,
        _myself: ActorRef<Self::Msg>,
        supervisor: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        for task in std::mem::take(&mut supervisor.tasks) {
            task.abort();
            let _ = task.await;
        }
        Ok(())
    }

    /// A child's end never ends the supervisor: a fault restarts the child, and its siblings do not notice.
    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        supervisor: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(cell, error) => supervisor.faulted(cell.get_id(), &error.to_string()),
            SupervisionEvent::ActorTerminated(cell, ..) => drop(supervisor.table.forget_actor(cell.get_id())),
            _ => {}
        }
        Ok(())
    }
}

impl Supervisor {
    async fn take(&mut self, message: SupervisorMessage) {
        match message {
            SupervisorMessage::Start { program, image, origin, reply } => self.start(program, image, origin, reply),
            SupervisorMessage::StartChildren { parent, children } => self.start_children(parent, children),
            SupervisorMessage::Born { newborns, result, reply } => self.born(newborns, result, reply).await,
            SupervisorMessage::Loaded { pid, result } => self.loaded(pid, result).await,
            SupervisorMessage::Deliver { pid, delivery, refused } => {
                if let Err(error) = self.deliver(pid, *delivery) {
                    // A sender that does not wait for a refusal has dropped its side.
                    let _ = refused.send(error);
                }
            }
            SupervisorMessage::Abandon { parent, calls } => self.abandon(parent, &calls),
            SupervisorMessage::Ended { pid, exit } => self.ended(pid, exit),
            SupervisorMessage::Restart { pid } => self.load(pid),
            SupervisorMessage::Resume { pid, reply } => {
                self.wake(pid);
                let _ = reply.send(self.table.seat(pid));
            }
            SupervisorMessage::Find { pid, reply } => {
                let _ = reply.send(self.table.seat(pid));
            }
            SupervisorMessage::List { reply } => {
                let _ = reply.send(self.table.list());
            }
        }
    }

    fn start(&mut self, program: Program, image: Box<Image>, origin: Origin, reply: SeatReply) {
        let newborn = self.newborn(None, program, image, origin);
        self.bear(vec![newborn], Some(reply));
    }

    fn newborn(&mut self, parent: Option<Pid>, program: Program, image: Box<Image>, origin: Origin) -> Newborn {
        let pid = self.table.next_pid();
        let row = ProcessRow { pid, parent, program: program.name().into(), origin, exit: None };
        Newborn { row, program, image }
    }

    /// Makes births durable, all together; they run once they are.
    fn bear(&mut self, newborns: Vec<Newborn>, reply: Option<SeatReply>) {
        let entries = newborns.iter();
        let entries = entries.map(|born| Durable::Born { row: born.row.clone(), image: born.image.clone() }).collect();
        newborns.iter().for_each(|born| self.table.reserve(born.row.clone()));
        let myself = self.myself.clone();
        let acknowledge = Box::new(move |result| {
            // Where the supervisor is gone, the kernel is.
            let _ = myself.cast(SupervisorMessage::Born { newborns, result, reply });
        });
        self.world.append(entries, acknowledge);
    }

    async fn born(&mut self, newborns: Vec<Newborn>, result: Result<(), CommitError>, reply: Option<SeatReply>) {
        let pid = newborns.first().map(|born| born.row.pid);
        for born in newborns {
            match &result {
                Ok(()) => self.first_run(born).await,
                Err(error) => self.stillborn(&born, error),
            }
        }
        if let (Some(pid), Some(reply)) = (pid, reply) {
            let seat = result.map_err(KernelError::from).and_then(|()| self.table.seat(pid));
            let _ = reply.send(seat);
        }
    }

    async fn first_run(&mut self, born: Newborn) {
        let pid = born.row.pid;
        match State::from_image(pid, born.program, self.world.around.clone(), *born.image) {
            Ok(state) => self.run(state, FactNumber(0)).await,
            Err(error) => self.give_up(pid, &error.to_string()),
        }
    }

    /// Reads a process's journal beside the actor.
    fn load(&mut self, pid: Pid) {
        let Some(store) = self.world.store.clone() else {
            return self.give_up(pid, "this kernel has no store to read its journal from");
        };
        self.table.loading(pid);
        let (world, myself) = (self.world.clone(), self.myself.clone());
        tokio::task::spawn_blocking(move || {
            let result = recovery::load(&*store, &world, pid, None).map(Box::new);
            let _ = myself.cast(SupervisorMessage::Loaded { pid, result });
        });
    }

    async fn loaded(&mut self, pid: Pid, result: Result<Box<(State, FactNumber)>, LoadError>) {
        match result {
            Ok(loaded) => {
                let (state, last) = *loaded;
                self.run(state, last).await;
            }
            Err(error) => self.give_up(pid, &error.to_string()),
        }
    }

    /// Hands `delivery` to a process: at once where it runs, once it does where it is being read or sleeps.
    ///
    /// # Errors
    /// Where there is no such process, or it has ended.
    fn deliver(&mut self, pid: Pid, delivery: Delivery) -> Result<(), KernelError> {
        self.table.deliver(pid, delivery)?;
        self.wake(pid);
        Ok(())
    }

    /// Begins to run a process that is only its journal.
    fn wake(&mut self, pid: Pid) {
        if self.table.is_held(pid) {
            self.load(pid);
        }
    }

    /// An input from inside, for a process that may have ended by now.
    fn tell(&mut self, pid: Pid, input: Input) {
        if let Err(error) = self.deliver(pid, Delivery::internal(input)) {
            tracing::debug!(%pid, %error, "not told");
        }
    }
}
