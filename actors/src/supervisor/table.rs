//! The process table: who there is, who runs, who waits for whom.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use dormouse_kernel::process::Input;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::process::{Exit, Origin, ProcessRow};
use ractor::{ActorId, ActorRef, MessagingErr};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::error::KernelError;
use crate::event::View;
use crate::ports::Listing;
use crate::process::{Delivery, ProcessMessage};
use crate::supervisor::SeatReply;

pub(crate) struct Table {
    next_pid: u64,
    inbox: usize,
    entries: BTreeMap<Pid, Entry>,
    actors: HashMap<ActorId, Pid>,
    children: BTreeMap<(Pid, CallId, u32), Pid>,
    /// Those that live, or are about to, by the names that the host gave them.
    names: BTreeMap<Arc<str>, Pid>,
}

pub(super) struct Entry {
    pub(super) row: ProcessRow,
    pub(super) run: Run,
    pub(super) waiting: Vec<Delivery>,
    pub(super) faults: Vec<Instant>,
    /// Who waits for it to run.
    awaiting: Vec<SeatReply>,
    /// Its tree was stopped: children that it makes are born stopped.
    halted: bool,
    /// It is to be killed, whatever became of the message that says so.
    pub(super) doomed: bool,
    exit: watch::Sender<Option<Exit>>,
    pub(super) view: watch::Sender<Option<View>>,
    inbox: Arc<Semaphore>,
}

/// How an entry of the table runs.
pub(super) enum Run {
    /// Its birth is on its way to the disk, its journal is being read, or it pauses after a fault.
    Loading,
    /// It is only its journal.
    Held,
    Running(ActorRef<ProcessMessage>),
    Ended,
}

/// What a handle of a process holds.
pub(crate) struct Seat {
    pub(crate) pid: Pid,
    pub(crate) exit: watch::Receiver<Option<Exit>>,
    pub(crate) view: watch::Receiver<Option<View>>,
    pub(crate) inbox: Arc<Semaphore>,
}

/// A line of the table as it is listed.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) row: ProcessRow,
    pub(crate) status: &'static str,
    pub(crate) view: Option<View>,
}

impl Entry {
    /// The word for how it stands.
    pub(super) fn status(&self) -> &'static str {
        match (&self.row.exit, &*self.view.borrow()) {
            (Some(exit), _) => exit.status.word(),
            (None, Some(view)) => view.status(),
            (None, None) if matches!(self.run, Run::Held) => "held",
            (None, None) => "starting",
        }
    }

    /// What a process gets when it begins to run: signals that waited, then its start, then all else that waited. Where it
    /// is to be continued, what comes after that keeps its place.
    pub(super) fn begin(&mut self) -> Vec<Delivery> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let continued = waiting.iter().position(|delivery| matches!(delivery.input, Input::Continued));
        let later = waiting.split_off(continued.unwrap_or(waiting.len()));
        let (signals, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(Delivery::is_signal);
        // Whoever waits to hear that the process was killed is not to come behind its end.
        let is_told = signals.iter().any(|delivery| matches!(delivery.input, Input::Killed));
        let doom = (self.doomed && !is_told).then(|| Delivery::internal(Input::Killed));
        let start = Delivery::internal(Input::Resumed);
        doom.into_iter().chain(signals).chain([start]).chain(rest).chain(later).collect()
    }
}

impl Table {
    pub(crate) fn new(Listing { rows, last, .. }: Listing, inbox: usize) -> Self {
        let next_pid = last + 1;
        let mut table = Self {
            next_pid,
            inbox,
            entries: BTreeMap::new(),
            actors: HashMap::new(),
            children: BTreeMap::new(),
            names: BTreeMap::new(),
        };
        for row in rows {
            let run = if row.exit.is_some() { Run::Ended } else { Run::Held };
            table.insert(row, run);
        }
        table.doom_orphans();
        table
    }

    /// Children outlived the end of their parent, if the kernel stopped in between: they go where it went.
    fn doom_orphans(&mut self) {
        let ended: HashSet<Pid> = self.ended().collect();
        for entry in self.entries.values_mut() {
            entry.doomed = entry.row.exit.is_none() && entry.row.parent.is_some_and(|parent| ended.contains(&parent));
        }
    }

    fn ended(&self) -> impl Iterator<Item = Pid> {
        self.entries.values().filter(|entry| entry.row.exit.is_some()).map(|entry| entry.row.pid)
    }

    pub(super) fn next_pid(&mut self) -> Pid {
        let pid = Pid(self.next_pid);
        self.next_pid += 1;
        pid
    }

    /// Takes in a process whose birth is not yet durable. In a tree that was stopped it is born stopped.
    pub(super) fn reserve(&mut self, row: ProcessRow) {
        let pid = row.pid;
        let is_halted = row.parent.and_then(|parent| self.get(parent)).is_some_and(|parent| parent.halted);
        self.insert(row, Run::Loading);
        if is_halted {
            self.halt(pid, true);
            self.deliver(pid, Delivery::internal(Input::Stopped));
        }
    }

    /// Notes whether the tree that a process belongs to is stopped.
    pub(super) fn halt(&mut self, pid: Pid, is_halted: bool) {
        if let Some(entry) = self.entries.get_mut(&pid) {
            entry.halted = is_halted;
        }
    }

    /// Whether something waits for a process that does not run yet.
    pub(super) fn is_spoken_to(&self, pid: Pid) -> bool {
        self.get(pid).is_some_and(|entry| entry.doomed || !entry.waiting.is_empty())
    }

    fn insert(&mut self, row: ProcessRow, run: Run) {
        if let (Some(parent), Some((call, index))) = (row.parent, place(&row.origin)) {
            self.children.insert((parent, call, index), row.pid);
        }
        if let Some(name) = row.name.clone().filter(|_| row.exit.is_none()) {
            self.names.insert(name, row.pid);
        }
        let entry = Entry {
            exit: watch::Sender::new(row.exit.clone()),
            view: watch::Sender::new(None),
            inbox: Arc::new(Semaphore::new(self.inbox)),
            waiting: Vec::new(),
            faults: Vec::new(),
            awaiting: Vec::new(),
            halted: false,
            doomed: false,
            run,
            row,
        };
        self.entries.insert(entry.row.pid, entry);
    }

    /// Takes out a process that was never born.
    pub(super) fn remove(&mut self, row: &ProcessRow) {
        self.entries.remove(&row.pid);
        self.forget_name(row);
        if let (Some(parent), Some((call, index))) = (row.parent, place(&row.origin)) {
            self.children.remove(&(parent, call, index));
        }
    }

    /// Takes out a process that has ended. Its name may be another's by now, and its number is never given again.
    pub(super) fn forget(&mut self, pid: Pid) {
        if !self.get(pid).is_some_and(|entry| matches!(entry.run, Run::Ended)) {
            return;
        }
        let place = self.entries.remove(&pid).and_then(|entry| Some((entry.row.parent?, place(&entry.row.origin)?)));
        if let Some((parent, (call, index))) = place {
            self.children.remove(&(parent, call, index));
        }
    }

    /// The living process that the host gave this name.
    pub(super) fn named(&self, name: &str) -> Option<Pid> {
        self.names.get(name).copied()
    }

    /// Those that have a name and live.
    pub(super) fn names(&self) -> impl Iterator<Item = Pid> {
        self.names.values().copied()
    }

    /// A name is free again where its process is gone.
    fn forget_name(&mut self, row: &ProcessRow) {
        if let Some(name) = &row.name {
            self.names.remove(name);
        }
    }

    pub(super) fn get_mut(&mut self, pid: Pid) -> Option<&mut Entry> {
        self.entries.get_mut(&pid)
    }

    pub(super) fn get(&self, pid: Pid) -> Option<&Entry> {
        self.entries.get(&pid)
    }

    /// The process that the tree of `pid` begins with. Costs the depth of the tree.
    pub(super) fn root(&self, pid: Pid) -> Pid {
        let parent = |pid: &Pid| self.get(*pid).and_then(|entry| entry.row.parent);
        std::iter::successors(Some(pid), parent).last().unwrap_or(pid)
    }

    /// All that have not ended.
    pub(super) fn living(&self) -> impl Iterator<Item = Pid> {
        self.entries.values().filter(|entry| entry.row.exit.is_none()).map(|entry| entry.row.pid)
    }

    /// The child that a call made, if it did.
    pub(super) fn child(&self, parent: Pid, origin: &Origin) -> Option<&Entry> {
        let (call, index) = place(origin)?;
        self.child_at(parent, call, index)
    }

    /// The same, by the call and which of its children it is.
    pub(super) fn child_at(&self, parent: Pid, call: CallId, index: u32) -> Option<&Entry> {
        self.get(*self.children.get(&(parent, call, index))?)
    }

    /// The children that have not ended, and the calls that made them.
    pub(super) fn living_children(&self, parent: Pid) -> Vec<(Pid, CallId)> {
        let lives = |pid: Pid| self.get(pid).is_some_and(|entry| !matches!(entry.run, Run::Ended));
        self.children_of(parent).filter(|(child, _)| lives(*child)).collect()
    }

    /// The children, living or not, and the calls that made them.
    fn children_of(&self, parent: Pid) -> impl Iterator<Item = (Pid, CallId)> {
        let first = (parent, CallId { epoch: 0, seq: 0 }, 0);
        let children = self.children.range(first..).take_while(move |((of, ..), _)| *of == parent);
        children.map(|((_, call, _), child)| (*child, *call))
    }

    /// A process and all below it that have not ended, parents first.
    pub(super) fn tree(&self, root: Pid) -> Vec<Pid> {
        let mut tree = vec![root];
        let mut next = 0;
        while let Some(parent) = tree.get(next).copied() {
            tree.extend(self.living_children(parent).into_iter().map(|(child, _)| child));
            next += 1;
        }
        tree
    }

    /// Keeps `reply` until the process runs; gives it back where that is not to be waited for.
    pub(super) fn await_run(&mut self, pid: Pid, reply: SeatReply) -> Option<SeatReply> {
        match self.entries.get_mut(&pid) {
            Some(entry) if matches!(entry.run, Run::Held | Run::Loading) => {
                entry.awaiting.push(reply);
                None
            }
            _ => Some(reply),
        }
    }

    pub(super) fn take_awaiting(&mut self, pid: Pid) -> Vec<SeatReply> {
        self.entries.get_mut(&pid).map(|entry| std::mem::take(&mut entry.awaiting)).unwrap_or_default()
    }

    /// The process is only its journal from here on. Who waits for its end is told that it does not come.
    pub(super) fn park(&mut self, pid: Pid, exit: &Exit) -> Option<ProcessRow> {
        let entry = self.entries.get_mut(&pid).filter(|entry| !matches!(entry.run, Run::Ended))?;
        entry.run = Run::Held;
        entry.waiting.clear();
        entry.view.send_replace(None);
        entry.exit.send_replace(Some(exit.clone()));
        Some(entry.row.clone())
    }

    pub(super) fn running(&mut self, pid: Pid, actor: ActorRef<ProcessMessage>) {
        self.actors.insert(actor.get_id(), pid);
        if let Some(entry) = self.entries.get_mut(&pid) {
            entry.run = Run::Running(actor);
        }
    }

    pub(super) fn loading(&mut self, pid: Pid) {
        // One that has ended in the meantime stays ended.
        if let Some(entry) = self.entries.get_mut(&pid).filter(|entry| !matches!(entry.run, Run::Ended)) {
            entry.run = Run::Loading;
            entry.exit.send_replace(None);
        }
    }

    pub(super) fn is_held(&self, pid: Pid) -> bool {
        self.get(pid).is_some_and(|entry| matches!(entry.run, Run::Held))
    }

    pub(super) fn forget_actor(&mut self, actor: ActorId) -> Option<Pid> {
        self.actors.remove(&actor)
    }

    /// Notes how a process ended and tells who waits. Returns its row; none where that is known already.
    pub(super) fn end(&mut self, pid: Pid, exit: &Exit) -> Option<ProcessRow> {
        let entry = self.entries.get_mut(&pid).filter(|entry| !matches!(entry.run, Run::Ended))?;
        entry.run = Run::Ended;
        entry.row.exit = Some(exit.clone());
        entry.waiting.clear();
        entry.exit.send_replace(Some(exit.clone()));
        let row = entry.row.clone();
        self.forget_name(&row);
        Some(row)
    }

    /// Hands over `delivery`, or keeps it until the process runs; false where it was refused.
    pub(super) fn deliver(&mut self, pid: Pid, delivery: Delivery) -> bool {
        let Some(entry) = self.entries.get_mut(&pid) else {
            delivery.refuse(KernelError::UnknownProcess(pid));
            return false;
        };
        entry.doomed |= matches!(delivery.input, Input::Killed);
        entry.halted &= !matches!(delivery.input, Input::Continued);
        match &entry.run {
            Run::Running(actor) => {
                // An actor that has just faulted takes nothing: what it does not take waits for its successor.
                if let Err(MessagingErr::SendErr(ProcessMessage::Input(delivery))) =
                    actor.cast(ProcessMessage::Input(Box::new(delivery)))
                {
                    entry.waiting.push(*delivery);
                }
            }
            Run::Loading | Run::Held => entry.waiting.push(delivery),
            Run::Ended => {
                delivery.refuse(KernelError::Ended(pid));
                return false;
            }
        }
        true
    }

    pub(super) fn seat(&self, pid: Pid) -> Result<Seat, KernelError> {
        let entry = self.entries.get(&pid).ok_or(KernelError::UnknownProcess(pid))?;
        Ok(Seat { pid, exit: entry.exit.subscribe(), view: entry.view.subscribe(), inbox: entry.inbox.clone() })
    }

    /// All, or the children of one; by rising pid.
    pub(super) fn list(&self, parent: Option<Pid>) -> Vec<Listed> {
        let listed = |entry: &Entry| Listed {
            row: entry.row.clone(),
            status: entry.status(),
            view: entry.view.borrow().clone(),
        };
        match parent {
            None => self.entries.values().map(listed).collect(),
            Some(parent) => {
                let children: BTreeSet<Pid> = self.children_of(parent).map(|(child, _)| child).collect();
                children.into_iter().filter_map(|child| self.get(child)).map(listed).collect()
            }
        }
    }
}

/// The call that made a process, and which of its children it is.
pub(super) fn place(origin: &Origin) -> Option<(CallId, u32)> {
    match origin {
        Origin::Forked { call, index } => Some((*call, *index)),
        Origin::Spawned { call } => Some((*call, 0)),
        Origin::Started | Origin::Restored { .. } => None,
    }
}
