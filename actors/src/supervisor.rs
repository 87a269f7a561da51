//! The supervisor actor: the process table, births, ends, and restarts of processes that faulted.
//!
//! It never awaits a process and never reads the disk: what takes long runs beside it and comes back as a message.

mod children;
mod post;
mod release;
mod restart;
mod signals;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_kernel::process::{Child, Image, Input, State};
use dormouse_kernel::program::Program;
use dormouse_proto::id::{CallId, FactNumber, Pid};
use dormouse_proto::process::{Exit, Origin, ProcessRow};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;

use crate::checkpoint::{CommitError, Durable};
use crate::error::KernelError;
use crate::ports::Listing;
use crate::process::{CopyReply, Delivery, Herald, ProcessMessage, Received};
use crate::recovery::{self, LoadError, Loaded, Purpose};
use crate::world::World;

pub(crate) use post::{Neighbours, Post};
pub(crate) use signals::Signal;
use table::Run;
pub(crate) use table::{Listed, Seat, Table};

/// Where the handle of a process goes.
pub(crate) type SeatReply = oneshot::Sender<Result<Seat, KernelError>>;

pub(crate) enum SupervisorMessage {
    /// Make a process that no process asked for.
    Start { program: Program, image: Box<Image>, origin: Origin, name: Option<Arc<str>>, reply: SeatReply },
    /// See to it that a process has these children.
    StartChildren { parent: Pid, children: Vec<Child> },
    /// Births are durable, or cannot be made so.
    Born { newborns: Vec<Newborn>, result: Result<(), CommitError>, reply: Option<SeatReply> },
    /// A journal was read.
    Loaded { pid: Pid, result: Result<Box<Loaded>, LoadError> },
    /// Something for a process; it is woken where it does not run.
    Deliver { pid: Pid, delivery: Box<Delivery> },
    /// Something for a process and all below it.
    SignalTree { root: Pid, signal: Signal, received: Received },
    /// Run newborns that are held back.
    Release { pids: Vec<Pid> },
    /// Hand out a process as it stands; the reply is dropped where it does not run.
    Copy { pid: Pid, reply: CopyReply },
    /// Take a message to its receiver.
    Post(Box<Post>),
    /// The processes that one can write to.
    ListNeighbours { of: Pid, reply: oneshot::Sender<Neighbours> },
    /// Look for a child that a call made, and tell its parent what came of it.
    FindChild { parent: Pid, call: CallId, index: u32 },
    /// Kill the children of these calls.
    Abandon { parent: Pid, calls: Vec<CallId> },
    /// Kill the children of all calls but these.
    KeepChildren { parent: Pid, calls: Vec<CallId> },
    /// A process stopped since its facts could not be made durable.
    Undurable { pid: Pid, reason: String },
    /// A process ended, durably.
    Ended { pid: Pid, exit: Exit },
    /// A pause after a fault is over.
    Restart { pid: Pid },
    /// Run a process from its journal.
    Resume { pid: Pid, reply: SeatReply },
    /// The handle of a process, as it stands.
    Find { pid: Pid, reply: SeatReply },
    /// The handle of the living process of a name.
    FindNamed { name: Arc<str>, reply: SeatReply },
    /// Processes that have ended were given up.
    Forget { pids: Vec<Pid> },
    /// The process table, or of it the children of one.
    List { parent: Option<Pid>, reply: oneshot::Sender<Vec<Listed>> },
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
    /// Newborns that wait for the first of their siblings.
    held_back: BTreeMap<Pid, Newborn>,
    /// Messages that were taken to a receiver so far.
    posted: u64,
}

impl Actor for SupervisorActor {
    type Msg = SupervisorMessage;
    type State = Supervisor;
    type Arguments = (Arc<World>, Listing);

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (world, listing): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let table = Table::new(listing, world.limits.inbox);
        Ok(Supervisor { world, myself, table, held_back: BTreeMap::new(), posted: 0 })
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
            SupervisorMessage::Start { program, image, origin, name, reply } => {
                self.start(program, image, origin, name, reply);
            }
            SupervisorMessage::StartChildren { parent, children } => self.start_children(parent, children),
            SupervisorMessage::Born { newborns, result, reply } => self.born(newborns, result, reply).await,
            SupervisorMessage::Loaded { pid, result } => self.loaded(pid, result).await,
            SupervisorMessage::Deliver { pid, delivery } => self.deliver(pid, *delivery),
            SupervisorMessage::SignalTree { root, signal, received } => self.signal_tree(root, signal, received),
            SupervisorMessage::Release { pids } => self.release(pids).await,
            SupervisorMessage::Copy { pid, reply } => self.copy(pid, reply),
            SupervisorMessage::Post(post) => self.post(*post),
            SupervisorMessage::ListNeighbours { of, reply } => self.list_neighbours(of, reply),
            SupervisorMessage::FindChild { parent, call, index } => self.find_child(parent, call, index),
            SupervisorMessage::Abandon { parent, calls } => self.abandon(parent, &calls),
            SupervisorMessage::KeepChildren { parent, calls } => self.keep_children(parent, &calls),
            SupervisorMessage::Undurable { pid, reason } => self.park(pid, &reason),
            SupervisorMessage::Ended { pid, exit } => self.ended(pid, exit),
            SupervisorMessage::Restart { pid } => self.load(pid),
            SupervisorMessage::Resume { pid, reply } => self.resume(pid, reply),
            SupervisorMessage::Find { pid, reply } => {
                let _ = reply.send(self.table.seat(pid));
            }
            SupervisorMessage::FindNamed { name, reply } => {
                let pid = self.table.named(&name).ok_or_else(|| KernelError::UnknownName(name.to_string()));
                let _ = reply.send(pid.and_then(|pid| self.table.seat(pid)));
            }
            SupervisorMessage::Forget { pids } => pids.into_iter().for_each(|pid| self.table.forget(pid)),
            SupervisorMessage::List { parent, reply } => {
                let _ = reply.send(self.table.list(parent));
            }
        }
    }

    fn start(&mut self, program: Program, image: Box<Image>, origin: Origin, name: Option<Arc<str>>, reply: SeatReply) {
        if let Some((name, pid)) = name.as_ref().and_then(|name| Some((name, self.table.named(name)?))) {
            // Who no longer waits has dropped its side.
            return drop(reply.send(Err(KernelError::NameTaken { name: name.to_string(), pid })));
        }
        let mut newborn = self.newborn(None, program, image, origin);
        newborn.row.name = name;
        self.bear(vec![newborn], Some(reply));
    }

    fn newborn(&mut self, parent: Option<Pid>, program: Program, image: Box<Image>, origin: Origin) -> Newborn {
        let pid = self.table.next_pid();
        let row = ProcessRow { pid, parent, program: program.name().into(), name: None, origin, exit: None };
        Newborn { row, program, image }
    }

    /// Makes births durable, all together; they run once they are.
    fn bear(&mut self, newborns: Vec<Newborn>, reply: Option<SeatReply>) {
        let kept = newborns.iter().filter(|_| self.world.is_kept);
        let entries = kept.map(|born| Durable::Born { row: born.row.clone(), image: born.image.clone() }).collect();
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
        match &result {
            Ok(()) => {
                let rows: Vec<_> = newborns.iter().map(|born| born.row.clone()).collect();
                self.run_newborns(newborns).await;
                rows.iter().for_each(|row| self.report_start(row));
            }
            Err(error) => newborns.iter().for_each(|born| self.stillborn(born, error)),
        }
        if let (Some(pid), Some(reply)) = (pid, reply) {
            let seat = result.map_err(KernelError::from).and_then(|()| self.table.seat(pid));
            let _ = reply.send(seat);
        }
    }

    async fn first_run(&mut self, born: Newborn, herald: Option<Herald>) {
        let pid = born.row.pid;
        match State::from_image(pid, born.program, self.world.around.clone(), *born.image) {
            Ok(state) => self.run(Loaded { state, last: FactNumber(0), snapshot_at: FactNumber(0) }, herald).await,
            Err(error) => self.give_up(pid, &error.to_string()),
        }
    }

    /// Runs a process that is only its journal; the reply waits until that was read.
    fn resume(&mut self, pid: Pid, reply: SeatReply) {
        if let Some(reply) = self.table.await_run(pid, reply) {
            // Who no longer waits has dropped its side.
            let _ = reply.send(self.table.seat(pid));
        }
        self.wake(pid);
    }

    /// Reads a process's journal beside the actor, once what is on its way to the store has arrived there.
    fn load(&mut self, pid: Pid) {
        self.table.loading(pid);
        let (world, myself) = (self.world.clone(), self.myself.clone());
        let read = move |_durable| {
            tokio::task::spawn_blocking(move || {
                let loaded = match world.store() {
                    Some(store) => recovery::load(&*store, &world, pid, None, Purpose::Run),
                    None => Err(LoadError::NoStore),
                };
                let _ = myself.cast(SupervisorMessage::Loaded { pid, result: loaded.map(Box::new) });
            });
        };
        self.world.append(Vec::new(), Box::new(read));
    }

    /// A journal that cannot be read now may be readable later, by a kernel with another tool or a mended disk: nothing is
    /// written, and the process stays what it is.
    async fn loaded(&mut self, pid: Pid, result: Result<Box<Loaded>, LoadError>) {
        match result.map_err(KernelError::from) {
            Ok(loaded) => self.run(*loaded, None).await,
            Err(error) => {
                let waiting = self.table.take_awaiting(pid);
                self.park(pid, &error.to_string());
                let KernelError::Load(error) = error else { return };
                waiting.into_iter().for_each(|reply| drop(reply.send(Err(KernelError::Load(error.clone())))));
            }
        }
    }

    /// Hands `delivery` to a process: at once where it runs, once it does where it is being read or sleeps.
    fn deliver(&mut self, pid: Pid, delivery: Delivery) {
        if self.table.deliver(pid, delivery) {
            self.wake(pid);
            self.release_for_delivery(pid);
        }
    }

    fn copy(&self, pid: Pid, reply: CopyReply) {
        if let Some(Run::Running(actor)) = self.table.get(pid).map(|entry| &entry.run) {
            // One that has just ended drops the reply.
            let _ = actor.cast(ProcessMessage::Copy { reply });
        }
    }

    /// Begins to run a process that is only its journal.
    fn wake(&mut self, pid: Pid) {
        if self.table.is_held(pid) {
            self.load(pid);
        }
    }

    /// An input from inside; a process that has ended does not hear it.
    fn tell(&mut self, pid: Pid, input: Input) {
        self.deliver(pid, Delivery::internal(input));
    }
}
