//! The supervisor actor: the process table, births, ends, and restarts of processes that faulted.
//!
//! It never awaits a process and never reads the disk: what takes long runs beside it and comes back as a message.

mod alias;
mod branch;
mod children;
mod entry;
mod post;
mod recover;
mod refusal;
mod release;
mod rest;
mod restart;
mod signals;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_kernel::journal::Tail;
use dormouse_kernel::process::{Child, Image, Input, Signal, State};
use dormouse_kernel::program::Program;
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CallId, FactNumber, Pid};
use dormouse_proto::process::{Exit, Origin, ProcessRow};
use dormouse_proto::record::Control;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{Semaphore, oneshot, watch};

use crate::checkpoint::{CommitError, Durable, MarkReply, Size};
use crate::error::KernelError;
use crate::event::View;
use crate::process::{CopyReply, Delivery, Herald, ProcessMessage, Received, StaysAwake};
use crate::recovery::{self, LoadError, Loaded, Purpose};
use crate::world::World;

use alias::Aliases;
pub(crate) use branch::{Branching, Family, FamilyReply, Graft, Growing, Grown, GrownReply, Launch};
pub(crate) use entry::Ended;
use entry::Run;
pub(crate) use post::{Neighbours, Post};
use recover::Recovering;
pub(crate) use rest::HibernateReply;
use table::Desk;
pub(crate) use table::{Listed, Table, Which};

/// What a handle of a process holds.
pub(crate) struct Seat {
    pub(crate) pid: Pid,
    pub(crate) exit: watch::Receiver<Option<Ended>>,
    pub(crate) view: watch::Receiver<Option<View>>,
    pub(crate) inbox: Arc<Semaphore>,
    pub(crate) taken: Arc<Taken>,
}

/// Tells the supervisor, when it is dropped, that nobody holds this seat any more.
pub(crate) struct Taken {
    pid: Pid,
    supervisor: ActorRef<SupervisorMessage>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Where the supervisor is gone, the kernel is.
        let _ = self.supervisor.cast(SupervisorMessage::Vacated { pid: self.pid });
    }
}

/// Where the handle of a process goes.
pub(crate) type SeatReply = oneshot::Sender<Result<Seat, KernelError>>;

pub(crate) enum SupervisorMessage {
    /// Make a process that no process asked for.
    Start { program: Program, image: Box<Image>, origin: Origin, name: Option<Arc<str>>, reply: SeatReply },
    /// See to it that a process has these children.
    StartChildren { parent: Pid, children: Vec<Child>, may_exist: bool },
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
    /// Make a checkpoint of a process, or of it and all below it.
    MakeCheckpoint { of: Pid, scope: Scope, label: Arc<str>, reply: MarkReply },
    /// A process and all below it, those that have ended too.
    ListFamily { of: Pid, reply: FamilyReply },
    /// Make new processes of those of a cut.
    Branch(Box<Branching>),
    /// The births of a branch are durable, or cannot be made so.
    Branched { growing: Box<Growing>, result: Result<(), CommitError> },
    /// What a process goes on from.
    Lineage { of: Pid, reply: oneshot::Sender<Lineage> },
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
    Undurable { pid: Pid, error: CommitError },
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
    /// Lines of the process table.
    List { which: Which, reply: oneshot::Sender<Vec<Listed>> },
    /// What has to do with hibernation.
    Rest(RestMessage),
    /// Run these from their journals, a few at a time.
    Recover { pids: Vec<Pid> },
    /// Nobody holds a seat any more.
    Vacated { pid: Pid },
    /// Hold the trees with these roots: messages from other trees are refused.
    Hold { roots: Vec<Pid> },
}

/// What is said of processes that rest, sleep and wake.
pub(crate) enum RestMessage {
    /// A process has nothing to do.
    Rests { pid: Pid },
    /// The time of the one that rests longest may be over.
    Due,
    /// The host wants a process to hibernate.
    Hibernate { pid: Pid, reply: HibernateReply },
    /// A process is durable and gone.
    Asleep { pid: Pid },
    /// It was to hibernate and cannot.
    StaysAwake { pid: Pid, why: StaysAwake },
    /// Somebody waits for a process.
    LookAt { pid: Pid },
}

/// A process, then the one that it goes on from, and so on, each with the last fact that was taken over.
pub(crate) type Lineage = Vec<(Pid, Option<FactNumber>)>;

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
    aliases: Aliases,
    /// Newborns that wait for the first of their siblings.
    held_back: BTreeMap<Pid, Newborn>,
    /// Messages that were taken to a receiver so far.
    posted: u64,
    recovering: Recovering,
    /// The roots of trees that messages from other trees do not wake.
    kept_held: BTreeSet<Pid>,
}

impl Actor for SupervisorActor {
    type Msg = SupervisorMessage;
    type State = Supervisor;
    type Arguments = (Arc<World>, Table);

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (world, table): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let (held_back, recovering) = (BTreeMap::new(), Recovering::default());
        let aliases = table.aliases();
        let kept_held = BTreeSet::new();
        Ok(Supervisor { world, myself, table, aliases, held_back, posted: 0, recovering, kept_held })
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
            SupervisionEvent::ActorTerminated(cell, ..) => supervisor.stopped(cell.get_id()),
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
            SupervisorMessage::StartChildren { parent, children, may_exist } => {
                self.start_children(parent, children, may_exist);
            }
            SupervisorMessage::Born { newborns, result, reply } => self.born(newborns, result, reply).await,
            SupervisorMessage::Loaded { pid, result } => self.loaded(pid, result).await,
            SupervisorMessage::Deliver { pid, delivery } => {
                self.unhold_tree(pid);
                self.deliver(pid, self.addressed(pid, *delivery));
            }
            SupervisorMessage::SignalTree { root, signal, received } => self.signal_tree(root, signal, received),
            SupervisorMessage::Release { pids } => self.release(pids).await,
            SupervisorMessage::Copy { pid, reply } => self.copy(pid, reply),
            SupervisorMessage::MakeCheckpoint { of, scope, label, reply } => {
                self.make_checkpoint(of, scope, label, reply);
            }
            SupervisorMessage::ListFamily { of, reply } => self.list_family(of, reply),
            SupervisorMessage::Branch(branching) => self.branch(*branching),
            SupervisorMessage::Branched { growing, result } => self.branched(*growing, result).await,
            SupervisorMessage::Lineage { of, reply } => drop(reply.send(self.lineage(of))),
            SupervisorMessage::Post(post) => self.post(*post),
            SupervisorMessage::ListNeighbours { of, reply } => self.list_neighbours(of, reply),
            SupervisorMessage::FindChild { parent, call, index } => self.find_child(parent, call, index),
            SupervisorMessage::Abandon { parent, calls } => self.abandon(parent, &calls),
            SupervisorMessage::KeepChildren { parent, calls } => self.keep_children(parent, &calls),
            SupervisorMessage::Undurable { pid, error } => self.refused(pid, &error),
            SupervisorMessage::Ended { pid, exit } => self.ended(pid, exit),
            SupervisorMessage::Restart { pid } => self.load(pid),
            SupervisorMessage::Resume { pid, reply } => self.resume(pid, reply),
            SupervisorMessage::Find { pid, reply } => {
                let _ = reply.send(self.seat(pid));
            }
            SupervisorMessage::FindNamed { name, reply } => {
                let pid = self.table.named(&name).ok_or_else(|| KernelError::UnknownName(name.to_string()));
                let pid = pid.map_err(|unknown| self.or_lost(unknown));
                let _ = reply.send(pid.and_then(|pid| self.seat(pid)));
            }
            SupervisorMessage::Forget { pids } => self.forget(&pids),
            SupervisorMessage::List { which, reply } => {
                let _ = reply.send(self.table.list(which));
            }
            SupervisorMessage::Rest(message) => self.take_rest(message),
            SupervisorMessage::Recover { pids } => self.recover(pids),
            SupervisorMessage::Vacated { pid } => self.vacated(pid),
            SupervisorMessage::Hold { roots } => self.kept_held.extend(roots),
        }
    }

    /// Takes out processes that have ended, by whole trees.
    fn forget(&mut self, pids: &[Pid]) {
        for row in pids.iter().filter_map(|pid| self.table.row(*pid)) {
            self.aliases.forget(self.table.root(row.pid), &row);
        }
        pids.iter().for_each(|pid| self.table.forget(*pid));
    }

    fn take_rest(&mut self, message: RestMessage) {
        match message {
            RestMessage::Rests { pid } => self.rests(pid),
            RestMessage::Due => self.timer_rang(),
            RestMessage::Hibernate { pid, reply } => self.hibernate(pid, reply),
            RestMessage::Asleep { pid } => self.asleep(pid),
            RestMessage::StaysAwake { pid, why } => self.stays_awake(pid, &why),
            RestMessage::LookAt { pid } => self.look_at(pid),
        }
    }

    /// A place at a process, for a handle.
    fn seat(&mut self, pid: Pid) -> Result<Seat, KernelError> {
        let Desk { exit, view, inbox } = self.table.desk(pid).map_err(|unknown| self.or_lost(unknown))?;
        let taken = Arc::new(Taken { pid, supervisor: self.myself.clone() });
        Ok(Seat { pid, exit, view, inbox, taken })
    }

    /// That a process is not in the table is known only where the store could list all.
    fn or_lost(&self, unknown: KernelError) -> KernelError {
        match self.world.missing() {
            None => unknown,
            Some(lost) => KernelError::MayBeLost { unknown: unknown.to_string(), lost },
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
        let row = ProcessRow { parent, origin, ..ProcessRow::started(pid, program.name()) };
        Newborn { row, program, image }
    }

    /// Makes births durable, all together; they run once they are. In a tree that was stopped they are born stopped, which
    /// is as durable as they are.
    fn bear(&mut self, mut newborns: Vec<Newborn>, reply: Option<SeatReply>) {
        for born in newborns.iter_mut().filter(|born| self.table.is_halted(born.row.parent)) {
            born.image.control = Control::Stopped;
        }
        let kept = newborns.iter().filter(|_| self.world.is_kept);
        let entries = kept.map(|born| Durable::Born { row: born.row.clone(), image: born.image.clone() }).collect();
        newborns.iter().for_each(|born| self.table.reserve(born.row.clone()));
        let myself = self.myself.clone();
        let acknowledge = Box::new(move |result: Result<_, _>| {
            // Where the supervisor is gone, the kernel is.
            let _ = myself.cast(SupervisorMessage::Born { newborns, result: result.map(drop), reply });
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
            let seat = result.map_err(KernelError::from).and_then(|()| self.seat(pid));
            let _ = reply.send(seat);
        }
    }

    async fn first_run(&mut self, born: Newborn, herald: Option<Herald>) {
        let pid = born.row.pid;
        match State::from_image(born.row.known_as(), born.program, self.world.around.clone(), *born.image) {
            Ok(state) => self.run(Loaded { pid, state, last: FactNumber(0), tail: Tail::of(0) }, herald).await,
            Err(error) => self.give_up(pid, &error.to_string()),
        }
    }

    /// Runs a process that is only its journal; the reply waits until that was read.
    fn resume(&mut self, pid: Pid, reply: SeatReply) {
        if let Some(reply) = self.table.await_run(pid, reply) {
            // Who no longer waits has dropped its side.
            let _ = reply.send(self.seat(pid));
        }
        self.unhold_tree(pid);
        self.wake(pid);
    }

    /// Ends the hold of a process's tree, since the host resumed the process or gave it an input.
    fn unhold_tree(&mut self, pid: Pid) {
        self.kept_held.remove(&self.table.root(pid));
    }

    /// An actor has stopped: it was told to, or had nothing left to do.
    fn stopped(&mut self, actor: ActorId) {
        if let Some(pid) = self.table.forget_actor(actor)
            && self.table.has_stopped(pid)
        {
            self.load(pid);
        }
    }

    /// Reads a process's journal beside the actor, once what is on its way to the store has arrived there. All of one that
    /// hibernates has.
    fn load(&mut self, pid: Pid) {
        let is_asleep = matches!(self.table.run_of(pid), Some(Run::Hibernated { .. }));
        self.table.loading(pid);
        if self.table.read_after_stop(pid) {
            return;
        }
        if let Some(live) = self.table.live_mut(pid) {
            live.is_waking = is_asleep;
        }
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
        if is_asleep { read(Ok(Size::default())) } else { self.world.append(Vec::new(), Box::new(read)) }
    }

    /// A journal that cannot be read now may be readable later, by a kernel with another tool or a mended disk: nothing is
    /// written, and the process stays what it is.
    async fn loaded(&mut self, pid: Pid, result: Result<Box<Loaded>, LoadError>) {
        self.recovered(pid);
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
        let running = self.table.get(pid).filter(|entry| entry.run == Run::Running);
        if let Some(actor) = running.and_then(|entry| entry.live()?.actor.as_ref()) {
            // One that has just ended drops the reply.
            let _ = actor.cast(ProcessMessage::Copy { reply });
        }
    }

    /// Begins to run a process that is only its journal.
    fn wake(&mut self, pid: Pid) {
        if matches!(self.table.run_of(pid), Some(Run::Held | Run::Hibernated { .. })) {
            self.load(pid);
        }
    }

    /// An input from inside; a process that has ended does not hear it.
    fn tell(&mut self, pid: Pid, input: Input) {
        self.deliver(pid, Delivery::internal(input));
    }
}
