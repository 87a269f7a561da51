//! The process table: who there is, who runs, who waits for whom.
//!
//! It is made for a million rows: 56 bytes for a process that does not run, and its entry in the
//! map of children. Channels, inbox and waiters are in a box that is made on demand and dropped
//! when no handle is left.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use dormouse_kernel::process::{Input, Signal};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::pid_map::PidMap;
use dormouse_proto::process::{Exit, Origin, ProcessRow};
use ractor::{ActorId, ActorRef, MessagingErr};
use tokio::sync::{Semaphore, watch};

use super::alias::Aliases;
use super::entry::{Ended, Entry, Live, Run, place};
use super::rest::Resting;
use crate::error::{KernelError, NotFound, ProcessError};
use crate::event::View;
use crate::ports::Listing;
use crate::process::{Delivery, ProcessMessage};
use crate::supervisor::HandleReply;

pub(crate) struct Table {
    next_pid: u64,
    inbox: usize,
    entries: PidMap<Entry>,
    actors: HashMap<ActorId, Pid>,
    /// Processes whose actors were told to stop and have not yet, and whether to read the journal
    /// once they have.
    stopping: BTreeMap<Pid, bool>,
    children: BTreeMap<(Pid, CallId, u32), Pid>,
    /// Those that live, or are about to, by the names that the host gave them.
    names: BTreeMap<Arc<str>, Pid>,
    /// The names of programs: each is in memory once.
    programs: BTreeSet<Arc<str>>,
    /// Those that are in memory, or about to be.
    awake: usize,
    pub(super) resting: Resting,
}

/// What a handle of a process is told by.
pub(super) struct HandleChannels {
    pub(super) exit: watch::Receiver<Option<Ended>>,
    pub(super) view: watch::Receiver<Option<View>>,
    pub(super) inbox: Arc<Semaphore>,
}

/// A line of the table as it is listed.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) row: ProcessRow,
    pub(crate) status: &'static str,
    pub(crate) view: Option<Box<View>>,
}

/// Which lines of the table are listed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// So many at most, after this pid.
    After(Option<Pid>, usize),
    /// The children of one.
    Children(Pid),
}

impl Table {
    /// From what a store lists. Costs a pass over it.
    pub(crate) fn new(Listing { rows, last, .. }: Listing, inbox: usize) -> Self {
        let next_pid = last + 1;
        let mut table = Self {
            next_pid,
            inbox,
            entries: PidMap::default(),
            actors: HashMap::new(),
            stopping: BTreeMap::new(),
            children: BTreeMap::new(),
            names: BTreeMap::new(),
            programs: BTreeSet::new(),
            awake: 0,
            resting: Resting::default(),
        };
        for row in rows {
            let run = if row.exit.is_some() {
                Run::Ended
            } else {
                Run::Held
            };
            table.insert(row, run);
        }
        table.doom_orphans();
        table
    }

    /// Children outlived the end of their parent, if the kernel stopped in between: they go where
    /// it went.
    fn doom_orphans(&mut self) {
        let has_ended = |pid| self.get(pid).is_some_and(|entry| entry.run == Run::Ended);
        let is_orphan =
            |entry: &Entry| entry.run != Run::Ended && entry.parent().is_some_and(has_ended);
        let orphans: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| is_orphan(entry))
            .map(|(pid, _)| pid)
            .collect();
        for orphan in orphans {
            if let Some(entry) = self.get_mut(orphan) {
                entry.doomed = true;
            }
        }
    }

    pub(super) fn next_pid(&mut self) -> Pid {
        let pid = Pid(self.next_pid);
        self.next_pid += 1;
        pid
    }

    /// All pids from here on are greater than `last`.
    pub(super) fn begin_after(&mut self, last: Pid) {
        self.next_pid = self.next_pid.max(last.0 + 1);
    }

    /// The highest pid that was given; 0 where there was none.
    pub(super) fn last_pid(&self) -> Pid {
        Pid(self.next_pid - 1)
    }

    /// Takes in a process whose birth is not yet durable.
    pub(super) fn reserve(&mut self, row: ProcessRow) {
        let pid = row.pid;
        let is_halted = self.is_halted(row.parent);
        self.insert(row, Run::Loading);
        self.halt(pid, is_halted);
    }

    /// Whether the tree of a process was stopped: children of its are born stopped.
    pub(super) fn is_halted(&self, parent: Option<Pid>) -> bool {
        parent
            .and_then(|parent| self.get(parent))
            .is_some_and(|parent| parent.halted)
    }

    /// Notes whether the tree that a process belongs to is stopped.
    pub(super) fn halt(&mut self, pid: Pid, is_halted: bool) {
        if let Some(entry) = self.get_mut(pid) {
            entry.halted = is_halted;
        }
    }

    /// The numbers that processes of branches go by. Costs the table.
    pub(super) fn aliases(&self) -> Aliases {
        let mut aliases = Aliases::default();
        let restored = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.restored().is_some());
        restored.for_each(|(pid, entry)| aliases.note(self.root(pid), &entry.row(pid)));
        aliases
    }

    /// Whether something waits for a process that does not run yet.
    pub(super) fn is_spoken_to(&self, pid: Pid) -> bool {
        let is_waited = |entry: &Entry| entry.live().is_some_and(|live| !live.waiting.is_empty());
        self.get(pid)
            .is_some_and(|entry| entry.doomed || is_waited(entry))
    }

    fn insert(&mut self, mut row: ProcessRow, run: Run) {
        let pid = row.pid;
        if let (Some(parent), Some((call, index))) = (row.parent, place(&row.origin)) {
            self.children.insert((parent, call, index), pid);
        }
        if let Some(name) = row.name.clone().filter(|_| row.exit.is_none()) {
            self.names.insert(name, pid);
        }
        match self.programs.get(&row.program) {
            Some(known) => row.program = known.clone(),
            None => drop(self.programs.insert(row.program.clone())),
        }
        self.entries.insert(pid, Entry::new(row, Run::Held));
        self.set_run(pid, run);
    }

    /// How a process runs from here on. One that runs, or is about to, has what that takes.
    pub(super) fn set_run(&mut self, pid: Pid, run: Run) {
        let inbox = self.inbox;
        let Some(entry) = self.entries.get_mut(pid) else {
            return;
        };
        self.awake -= usize::from(is_awake(entry.run));
        self.awake += usize::from(is_awake(run));
        entry.run = run;
        if run != Run::Running {
            self.resting.forget(entry);
        }
        match run {
            Run::Loading | Run::Running | Run::FallingAsleep => drop(entry.awake(inbox)),
            Run::Held | Run::Hibernated { .. } | Run::Ended => {
                if let Some(live) = entry.live_mut() {
                    live.actor = None;
                    live.faults.clear();
                }
                entry.let_go();
            }
        }
    }

    /// A process that runs is at rest.
    pub(super) fn rests(&mut self, pid: Pid) {
        if let Some(entry) = self
            .entries
            .get_mut(pid)
            .filter(|entry| entry.run == Run::Running)
        {
            self.resting.note(pid, entry);
        }
    }

    /// How many are in memory, or about to be.
    pub(super) fn awake(&self) -> usize {
        self.awake
    }

    /// Takes out a process that was never born.
    pub(super) fn remove(&mut self, row: &ProcessRow) {
        self.set_run(row.pid, Run::Ended);
        self.entries.remove(row.pid);
        self.forget_name(row);
        if let (Some(parent), Some((call, index))) = (row.parent, place(&row.origin)) {
            self.children.remove(&(parent, call, index));
        }
    }

    /// Takes out a process that has ended. Its name may be another's by now, and its number is
    /// never given again.
    pub(super) fn forget(&mut self, pid: Pid) {
        if !self
            .get(pid)
            .is_some_and(|entry| matches!(entry.run, Run::Ended))
        {
            return;
        }
        let place = self
            .entries
            .remove(pid)
            .and_then(|entry| Some((entry.parent()?, place(&entry.origin())?)));
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
        self.entries.get_mut(pid)
    }

    pub(super) fn get(&self, pid: Pid) -> Option<&Entry> {
        self.entries.get(pid)
    }

    /// What a process has that runs or is watched, where it does.
    pub(super) fn live_mut(&mut self, pid: Pid) -> Option<&mut Live> {
        self.get_mut(pid)?.live_mut()
    }

    pub(super) fn run_of(&self, pid: Pid) -> Option<Run> {
        self.get(pid).map(|entry| entry.run)
    }

    pub(super) fn row(&self, pid: Pid) -> Option<ProcessRow> {
        self.get(pid).map(|entry| entry.row(pid))
    }

    /// The process that the tree of `pid` begins with. Costs the depth of the tree.
    pub(super) fn root(&self, pid: Pid) -> Pid {
        let parent = |pid: &Pid| self.get(*pid).and_then(Entry::parent);
        std::iter::successors(Some(pid), parent)
            .last()
            .unwrap_or(pid)
    }

    /// All that have not ended, durably.
    pub(super) fn living(&self) -> impl Iterator<Item = Pid> {
        self.entries
            .iter()
            .filter(|(_, entry)| entry.exit().is_none())
            .map(|(pid, _)| pid)
    }

    /// The child that a call made, if it did.
    pub(super) fn child(&self, parent: Pid, origin: &Origin) -> Option<ProcessRow> {
        let (call, index) = place(origin)?;
        self.child_at(parent, call, index)
    }

    /// The same, by the call and which of its children it is.
    pub(super) fn child_at(&self, parent: Pid, call: CallId, index: u32) -> Option<ProcessRow> {
        self.row(*self.children.get(&(parent, call, index))?)
    }

    /// The children that have not ended, and the calls that made them.
    pub(super) fn living_children(&self, parent: Pid) -> Vec<(Pid, CallId)> {
        let lives = |pid: Pid| self.run_of(pid).is_some_and(|run| run != Run::Ended);
        self.children_of(parent)
            .filter(|(child, _)| lives(*child))
            .collect()
    }

    /// The children, living or not, and the calls that made them.
    pub(super) fn children_of(&self, parent: Pid) -> impl Iterator<Item = (Pid, CallId)> {
        let first = (parent, CallId { epoch: 0, seq: 0 }, 0);
        let children = self
            .children
            .range(first..)
            .take_while(move |((of, ..), _)| *of == parent);
        children.map(|((_, call, _), child)| (*child, *call))
    }

    /// A process and all below it that have not ended, parents first.
    pub(super) fn tree(&self, root: Pid) -> Vec<Pid> {
        let mut tree = vec![root];
        let mut next = 0;
        while let Some(parent) = tree.get(next).copied() {
            tree.extend(
                self.living_children(parent)
                    .into_iter()
                    .map(|(child, _)| child),
            );
            next += 1;
        }
        tree
    }

    /// Keeps `reply` until the process runs; gives it back where that is not to be waited for.
    pub(super) fn await_run(&mut self, pid: Pid, reply: HandleReply) -> Option<HandleReply> {
        let inbox = self.inbox;
        match self.get_mut(pid) {
            Some(entry)
                if matches!(entry.run, Run::Held | Run::Hibernated { .. } | Run::Loading) =>
            {
                entry.awake(inbox).awaiting.push(reply);
                None
            }
            _ => Some(reply),
        }
    }

    pub(super) fn take_awaiting(&mut self, pid: Pid) -> Vec<HandleReply> {
        self.live_mut(pid)
            .map(|live| std::mem::take(&mut live.awaiting))
            .unwrap_or_default()
    }

    /// The process is only its journal from here on. Who waits for its end is told that it does not
    /// come.
    pub(super) fn park(&mut self, pid: Pid, reason: &str) -> Option<ProcessRow> {
        let inbox = self.inbox;
        let entry = self.get_mut(pid).filter(|entry| entry.run != Run::Ended)?;
        let live = entry.awake(inbox);
        live.waiting.clear();
        live.view.send_replace(None);
        live.exit.send_replace(Some(Err(reason.into())));
        self.set_run(pid, Run::Held);
        self.row(pid)
    }

    pub(super) fn running(&mut self, pid: Pid, actor: ActorRef<ProcessMessage>) {
        self.actors.insert(actor.get_id(), pid);
        self.set_run(pid, Run::Running);
        if let Some(live) = self.live_mut(pid) {
            live.actor = Some(actor);
        }
    }

    pub(super) fn loading(&mut self, pid: Pid) {
        // One that has ended in the meantime stays ended.
        if self.run_of(pid).is_some_and(|run| run != Run::Ended) {
            self.set_run(pid, Run::Loading);
            self.live_mut(pid).map(|live| live.exit.send_replace(None));
        }
    }

    pub(super) fn forget_actor(&mut self, actor: ActorId) -> Option<Pid> {
        self.actors.remove(&actor)
    }

    /// Notes that an actor was told to stop. It may have stopped already.
    pub(super) fn note_stopping(&mut self, actor: ActorId) {
        if let Some(pid) = self.actors.get(&actor) {
            self.stopping.insert(*pid, false);
        }
    }

    /// Puts off the reading of a journal until the actor of the process has stopped, since the
    /// actor may still write to it. ShutdownBarrier false if there is nothing to wait for.
    pub(super) fn read_after_stop(&mut self, pid: Pid) -> bool {
        let stopping = self.stopping.get_mut(&pid);
        stopping
            .map(|is_to_be_read| *is_to_be_read = true)
            .is_some()
    }

    /// Notes that the actor of a process has stopped. ShutdownBarrier whether to read the journal now.
    pub(super) fn has_stopped(&mut self, pid: Pid) -> bool {
        self.stopping.remove(&pid).unwrap_or_default() && self.run_of(pid) == Some(Run::Loading)
    }

    /// Notes how a process ended, durably, and tells who waits. `last` is how it stood, where no
    /// journal says so. ShutdownBarrier its row; none where that is known already.
    pub(super) fn end(&mut self, pid: Pid, exit: &Exit, keeps: Keeps) -> Option<ProcessRow> {
        let entry = self.get_mut(pid).filter(|entry| entry.run != Run::Ended)?;
        let last = match keeps {
            Keeps::Journal => None,
            Keeps::Nothing => entry.view(),
        };
        entry.note_end(exit.clone(), last);
        if let Some(live) = entry.live_mut() {
            live.waiting.clear();
            live.to_hibernate.clear();
            live.exit.send_replace(Some(Ok(exit.clone())));
        }
        self.set_run(pid, Run::Ended);
        let row = self.row(pid)?;
        self.forget_name(&row);
        Some(row)
    }

    /// Hands over `delivery`, or keeps it until the process runs; false where it was refused.
    pub(super) fn deliver(&mut self, pid: Pid, delivery: Delivery) -> bool {
        let inbox = self.inbox;
        let Some(entry) = self.entries.get_mut(pid) else {
            delivery.refuse(KernelError::NotFound(NotFound::Process(pid)));
            return false;
        };
        if entry.run == Run::Ended {
            delivery.refuse(KernelError::Process(ProcessError::Ended(pid)));
            return false;
        }
        entry.doomed |= matches!(delivery.input, Input::Signal(Signal::Kill));
        entry.halted &= !matches!(delivery.input, Input::Signal(Signal::Continue));
        self.resting.forget(entry);
        let is_running = entry.run == Run::Running;
        let live = entry.awake(inbox);
        match live.actor.as_ref().filter(|_| is_running) {
            Some(actor) => {
                // An actor that has just faulted takes nothing: what it does not take waits for its
                // successor.
                if let Err(MessagingErr::SendErr(ProcessMessage::Input(delivery))) =
                    actor.cast(ProcessMessage::Input(Box::new(delivery)))
                {
                    live.waiting.push(*delivery);
                }
            }
            None => live.waiting.push(delivery),
        }
        true
    }

    pub(super) fn handle_channels(&mut self, pid: Pid) -> Result<HandleChannels, KernelError> {
        let inbox = self.inbox;
        let live = self
            .get_mut(pid)
            .ok_or(NotFound::Process(pid))?
            .awake(inbox);
        Ok(HandleChannels {
            exit: live.exit.subscribe(),
            view: live.view.subscribe(),
            inbox: live.inbox.clone(),
        })
    }

    /// By rising pid.
    pub(super) fn list(&self, which: Which) -> Vec<Listed> {
        let listed = |(pid, entry): (Pid, &Entry)| Listed {
            row: entry.row(pid),
            status: entry.status(),
            view: entry.view().map(Box::new),
        };
        match which {
            Which::After(pid, most) => self.entries.after(pid).take(most).map(listed).collect(),
            Which::Children(parent) => {
                let children: BTreeSet<Pid> =
                    self.children_of(parent).map(|(child, _)| child).collect();
                children
                    .into_iter()
                    .filter_map(|child| Some((child, self.get(child)?)))
                    .map(listed)
                    .collect()
            }
        }
    }
}

/// What says how a process stood when it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeps {
    /// Its journal does.
    Journal,
    /// Nothing but its last view.
    Nothing,
}

fn is_awake(run: Run) -> bool {
    matches!(run, Run::Loading | Run::Running)
}
