//! The process table: which processes exist, which of them are loaded, and which callers wait for
//! them. It is designed for a million rows; see `entry.rs` for the size of a row.
//!
//! A process is in one of six run states ([`RunState`]). It has an actor while it is `Running` or
//! `Hibernating`, and counts as loaded while it is `Loading` or `Running`. Inputs go to the actor of
//! a `Running` process, wait in the table in any other state, and are refused once it has `Ended`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use dormouse_kernel::process::{Input, Signal};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::label::Label;
use dormouse_proto::pid_map::PidMap;
use dormouse_proto::process::{Exit, Origin, ProcessRow, Waiting};
use ractor::{ActorId, ActorRef, MessagingErr};
use tokio::sync::{Semaphore, watch};

use super::entry::{LiveState, ProcessEntry, RunState, WaitOutcome, child_slot};
use super::hibernation::QuiescentQueue;
use super::local_ids::LocalIds;
use super::pids::PidCounter;
use super::wake_times::WakeQueue;
use crate::error::{KernelError, NotFound, ProcessError};
use crate::event::ProcessView;
use crate::held_call::HeldCall;
use crate::ports::ProcessListing;
use crate::process::{Delivery, ProcessMessage};
use crate::supervisor::HandleReply;

/// The process table.
pub(crate) struct ProcessTable {
    pub(super) pids: PidCounter,
    inbox_capacity: usize,
    entries: PidMap<ProcessEntry>,
    actors: HashMap<ActorId, Pid>,
    /// Processes whose actors were asked to stop and have not stopped yet, and whether to load the
    /// process afterwards.
    stopping: BTreeMap<Pid, bool>,
    /// The children, by their parents and their slots ([`child_slot`]). They are found by these when
    /// a parent that was restarted repeats the call that created them.
    children: BTreeMap<(Pid, CallId, u32), Pid>,
    /// Living and pending processes, by the names that the host gave them.
    names: BTreeMap<Arc<str>, Pid>,
    /// The names of programs; all rows share one string per program.
    programs: BTreeSet<Arc<str>>,
    /// How many processes are loaded or being loaded.
    loaded: usize,
    pub(super) quiescent: QuiescentQueue,
    pub(super) wake_queue: WakeQueue,
}

/// The channels that a process handle subscribes to.
pub(super) struct HandleChannels {
    pub(super) wait_outcome: watch::Receiver<Option<WaitOutcome>>,
    pub(super) view: watch::Receiver<Option<ProcessView>>,
    pub(super) inbox_slots: Arc<Semaphore>,
}

/// A row of the table, as it is listed.
#[derive(Clone, Debug)]
pub(crate) struct ListedProcess {
    pub(crate) row: ProcessRow,
    pub(crate) status: &'static str,
    pub(crate) view: Option<Box<ProcessView>>,
}

/// How many rows are examined for held calls in one message.
pub(crate) const MAX_EXAMINED: usize = 4096;

/// The held calls of some rows of the table.
#[derive(Debug, Default)]
pub(crate) struct HeldPage {
    /// Those of processes that are loaded.
    pub(crate) calls: Vec<HeldCall>,
    /// The processes that are not loaded and may hold calls: their journals tell.
    pub(crate) unloaded: Vec<Pid>,
    /// The last row that was examined.
    pub(crate) last: Option<Pid>,
    /// The number of rows that were examined.
    pub(crate) examined: usize,
}

/// Which rows are listed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListFilter {
    /// At most this many processes after this pid.
    After(Option<Pid>, usize),
    /// The children of a process.
    Children(Pid),
}

impl ProcessTable {
    /// The table of the processes that a store lists. Costs a pass over the list.
    pub(crate) fn new(
        ProcessListing { rows, .. }: ProcessListing,
        pids: PidCounter,
        inbox_capacity: usize,
    ) -> Self {
        let mut table = Self {
            pids,
            inbox_capacity,
            entries: PidMap::default(),
            actors: HashMap::new(),
            stopping: BTreeMap::new(),
            children: BTreeMap::new(),
            names: BTreeMap::new(),
            programs: BTreeSet::new(),
            loaded: 0,
            quiescent: QuiescentQueue::default(),
            wake_queue: WakeQueue::default(),
        };
        for row in rows {
            let run_state = if row.exit.is_some() {
                RunState::Ended
            } else {
                RunState::Held
            };
            table.insert(row, run_state);
        }
        table.mark_orphans();
        table
    }

    /// Marks children whose parents have ended, so that they are killed. Such a child exists if the
    /// kernel stopped between the end of the parent and the end of the child.
    fn mark_orphans(&mut self) {
        let has_ended = |pid| {
            self.get(pid)
                .is_some_and(|entry| entry.run_state == RunState::Ended)
        };
        let is_orphan = |entry: &ProcessEntry| {
            entry.run_state != RunState::Ended && entry.parent().is_some_and(has_ended)
        };
        let orphans: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| is_orphan(entry))
            .map(|(pid, _)| pid)
            .collect();
        for orphan in orphans {
            if let Some(entry) = self.get_mut(orphan) {
                entry.is_kill_pending = true;
            }
        }
    }

    /// Adds a process whose birth record is not durable yet.
    pub(super) fn reserve(&mut self, row: ProcessRow) {
        let pid = row.pid;
        let inherits_stop = self.inherits_stop(row.parent);
        self.insert(row, RunState::Loading);
        self.set_stop_inherited(pid, inherits_stop);
    }

    /// Whether the tree of a process was stopped, so that its new children start stopped.
    pub(super) fn inherits_stop(&self, parent: Option<Pid>) -> bool {
        parent
            .and_then(|parent| self.get(parent))
            .is_some_and(|parent| parent.children_start_stopped)
    }

    /// Records whether the tree of a process is stopped.
    pub(super) fn set_stop_inherited(&mut self, pid: Pid, inherits_stop: bool) {
        if let Some(entry) = self.get_mut(pid) {
            entry.children_start_stopped = inherits_stop;
        }
    }

    /// The local ids of all processes of branches and imports. Costs a pass over the table.
    pub(super) fn local_ids(&self) -> LocalIds {
        let mut local_ids = LocalIds::default();
        let copies = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.branched_from().is_some());
        copies.for_each(|(pid, entry)| local_ids.insert(self.root(pid), &entry.row(pid)));
        local_ids
    }

    /// Whether an input or a kill waits for a process that is not running.
    pub(super) fn has_pending_input(&self, pid: Pid) -> bool {
        self.has_waiting_input(pid) || self.get(pid).is_some_and(|entry| entry.is_kill_pending)
    }

    /// Whether an input waits for a process that is not running.
    pub(super) fn has_waiting_input(&self, pid: Pid) -> bool {
        let live = self.get(pid).and_then(ProcessEntry::live);
        live.is_some_and(|live| !live.waiting_inputs.is_empty())
    }

    fn insert(&mut self, mut row: ProcessRow, run_state: RunState) {
        let pid = row.pid;
        if let (Some(parent), Some((call, index))) = (row.parent, child_slot(&row.origin)) {
            self.children.insert((parent, call, index), pid);
        }
        if let Some(name) = row.name.clone().filter(|_| row.exit.is_none()) {
            self.names.insert(name, pid);
        }
        match self.programs.get(&row.program) {
            Some(known) => row.program = known.clone(),
            None => drop(self.programs.insert(row.program.clone())),
        }
        self.entries
            .insert(pid, ProcessEntry::new(row, RunState::Held));
        self.set_run_state(pid, run_state);
    }

    /// Changes the run state of a process. A process that runs or is being loaded gets live state.
    /// Callers that requested hibernation get no answer if the process faulted or was stopped.
    pub(super) fn set_run_state(&mut self, pid: Pid, run_state: RunState) {
        let inbox_capacity = self.inbox_capacity;
        let Some(entry) = self.entries.get_mut(pid) else {
            return;
        };
        self.loaded -= usize::from(is_loaded(entry.run_state));
        self.loaded += usize::from(is_loaded(run_state));
        let was_in_wake_queue = is_in_wake_queue(entry.run_state);
        entry.run_state = run_state;
        if run_state != RunState::Running {
            self.quiescent.remove(entry);
        }
        let wake_ms = entry.waiting().wake_ms();
        // A process that is neither held nor ended has its next time in the wake queue. One that is
        // held or has ended leaves the queue, and gives back its place among those being woken.
        match (was_in_wake_queue, is_in_wake_queue(run_state)) {
            (false, true) => self.wake_queue.reschedule(pid, None, wake_ms),
            (true, false) => {
                self.wake_queue.reschedule(pid, wake_ms, None);
                self.wake_queue.finish_waking(pid);
            }
            (false, false) | (true, true) => {}
        }
        if run_state != RunState::Hibernating
            && let Some(live) = entry.live_mut()
        {
            live.hibernate_replies.clear();
        }
        match run_state {
            RunState::Loading | RunState::Running | RunState::Hibernating => {
                entry.live_or_create(inbox_capacity);
            }
            RunState::Held | RunState::Hibernated { .. } | RunState::Ended => {
                if let Some(live) = entry.live_mut() {
                    live.actor = None;
                    live.faults.clear();
                }
                entry.drop_live_if_unused();
            }
        }
    }

    /// Records what a process waits for.
    pub(super) fn set_waiting(&mut self, pid: Pid, waiting: Waiting) {
        let Some(entry) = self.entries.get_mut(pid) else {
            return;
        };
        let before_ms = entry.waiting().wake_ms();
        entry.set_waiting(waiting);
        if is_in_wake_queue(entry.run_state) {
            self.wake_queue
                .reschedule(pid, before_ms, waiting.wake_ms());
        }
    }

    /// Records whether a process is paused at a limit. Returns whether that changes anything.
    pub(super) fn set_paused(&mut self, pid: Pid, is_paused: bool) -> bool {
        let entry = self.get_mut(pid);
        let entry = entry.filter(|entry| entry.run_state != RunState::Ended);
        entry.is_some_and(|entry| entry.set_paused(is_paused))
    }

    /// Whether a process above this one is paused at a limit. Costs the depth of the tree.
    pub(super) fn is_below_paused(&self, pid: Pid) -> bool {
        let parent = |pid: Pid| self.get(pid).and_then(ProcessEntry::parent);
        let mut above = std::iter::successors(parent(pid), |pid| parent(*pid));
        above.any(|pid| self.get(pid).is_some_and(ProcessEntry::is_paused))
    }

    /// The status word of a process. One that hibernates is not told of a pause above it before it
    /// wakes, and then begins nothing: so the table says what its journal may not. Costs the depth of
    /// the tree for a process that hibernates.
    pub(super) fn status(&self, pid: Pid) -> Option<&'static str> {
        let entry = self.get(pid)?;
        let is_hibernated = matches!(entry.run_state, RunState::Hibernated { .. });
        Some(match entry.own_status() {
            status @ ("paused" | "stopped") => status,
            _ if is_hibernated && self.is_below_paused(pid) => "suspended",
            status => status,
        })
    }

    /// Whether a held process only waits for its next alarm or a person. A process with children is
    /// loaded: one of them may have ended without its parent knowing.
    pub(super) fn is_resting(&self, pid: Pid) -> bool {
        let is_waiting = |entry: &ProcessEntry| {
            entry.run_state == RunState::Held
                && entry.waiting().is_resting()
                && !entry.is_kill_pending
        };
        self.get(pid).is_some_and(is_waiting) && self.children_of(pid).next().is_none()
    }

    /// Adds a running process to the quiescent ones.
    pub(super) fn mark_quiescent(&mut self, pid: Pid) {
        if let Some(entry) = self
            .entries
            .get_mut(pid)
            .filter(|entry| entry.run_state == RunState::Running)
        {
            self.quiescent.insert(pid, entry);
        }
    }

    /// How many processes are loaded or being loaded.
    pub(super) fn loaded_count(&self) -> usize {
        self.loaded
    }

    /// Removes a process whose creation failed.
    pub(super) fn remove(&mut self, row: &ProcessRow) {
        self.set_run_state(row.pid, RunState::Ended);
        self.entries.remove(row.pid);
        self.release_name(row);
        if let (Some(parent), Some((call, index))) = (row.parent, child_slot(&row.origin)) {
            self.children.remove(&(parent, call, index));
        }
    }

    /// Removes a process that has ended. Its name may belong to another process by now, and its pid
    /// is never reused.
    pub(super) fn remove_ended(&mut self, pid: Pid) {
        if !self
            .get(pid)
            .is_some_and(|entry| matches!(entry.run_state, RunState::Ended))
        {
            return;
        }
        let slot = self
            .entries
            .remove(pid)
            .and_then(|entry| Some((entry.parent()?, child_slot(&entry.origin())?)));
        if let Some((parent, (call, index))) = slot {
            self.children.remove(&(parent, call, index));
        }
    }

    /// The living process with this name.
    pub(super) fn find_by_name(&self, name: &str) -> Option<Pid> {
        self.names.get(name).copied()
    }

    /// The living processes that have a name.
    pub(super) fn named_processes(&self) -> impl Iterator<Item = Pid> {
        self.names.values().copied()
    }

    /// Makes the name of a process that was removed or has ended available again.
    fn release_name(&mut self, row: &ProcessRow) {
        if let Some(name) = &row.name {
            self.names.remove(name);
        }
    }

    pub(super) fn get_mut(&mut self, pid: Pid) -> Option<&mut ProcessEntry> {
        self.entries.get_mut(pid)
    }

    pub(super) fn get(&self, pid: Pid) -> Option<&ProcessEntry> {
        self.entries.get(pid)
    }

    /// The live state of a process, if it runs or a handle exists.
    pub(super) fn live_mut(&mut self, pid: Pid) -> Option<&mut LiveState> {
        self.get_mut(pid)?.live_mut()
    }

    pub(super) fn run_state(&self, pid: Pid) -> Option<RunState> {
        self.get(pid).map(|entry| entry.run_state)
    }

    pub(super) fn row(&self, pid: Pid) -> Option<ProcessRow> {
        self.get(pid).map(|entry| entry.row(pid))
    }

    /// The root of the tree of `pid`, by which ids and temporary files of the tree are found. If the
    /// store has lost an ancestor of `pid`, the result is the lost process nearest to `pid`, which
    /// is not in the table. Costs the depth of the tree.
    pub(super) fn root(&self, pid: Pid) -> Pid {
        let parent = |pid: &Pid| self.get(*pid).and_then(ProcessEntry::parent);
        std::iter::successors(Some(pid), parent)
            .last()
            .unwrap_or(pid)
    }

    /// The labels of the tree of `pid`. Costs the depth of the tree.
    pub(super) fn labels(&self, pid: Pid) -> Arc<[Label]> {
        let root = self.get(self.root(pid));
        root.map(ProcessEntry::labels).unwrap_or_default()
    }

    /// The highest ancestor of `pid` that is in the table: the root of its tree, unless the store
    /// has lost an ancestor. The isolation of a tree is recorded under this process, because users
    /// see it as the root. Costs the depth of the tree.
    pub(super) fn highest_known_ancestor(&self, pid: Pid) -> Pid {
        let known_parent = |pid: &Pid| {
            let parent = self.get(*pid).and_then(ProcessEntry::parent)?;
            self.get(parent).map(|_| parent)
        };
        std::iter::successors(Some(pid), known_parent)
            .last()
            .unwrap_or(pid)
    }

    /// All processes whose end is not durable.
    pub(super) fn living(&self) -> impl Iterator<Item = Pid> {
        self.entries
            .iter()
            .filter(|(_, entry)| entry.exit().is_none())
            .map(|(pid, _)| pid)
    }

    /// The child that a call created, if there is one.
    pub(super) fn child(&self, parent: Pid, origin: &Origin) -> Option<ProcessRow> {
        let (call, index) = child_slot(origin)?;
        self.child_at(parent, call, index)
    }

    /// Like [`child`](Self::child), by the call and the index of the child.
    pub(super) fn child_at(&self, parent: Pid, call: CallId, index: u32) -> Option<ProcessRow> {
        self.row(*self.children.get(&(parent, call, index))?)
    }

    /// The children that have not ended, and the calls that created them.
    pub(super) fn living_children(&self, parent: Pid) -> Vec<(Pid, CallId)> {
        let is_living = |pid: Pid| {
            self.run_state(pid)
                .is_some_and(|run_state| run_state != RunState::Ended)
        };
        self.children_of(parent)
            .filter(|(child, _)| is_living(*child))
            .collect()
    }

    /// All children, and the calls that created them.
    pub(super) fn children_of(&self, parent: Pid) -> impl Iterator<Item = (Pid, CallId)> {
        let first = (parent, CallId { epoch: 0, seq: 0 }, 0);
        let children = self
            .children
            .range(first..)
            .take_while(move |((of, ..), _)| *of == parent);
        children.map(|((_, call, _), child)| (*child, *call))
    }

    /// A process and its descendants that have not ended, parents first.
    pub(super) fn living_tree(&self, root: Pid) -> Vec<Pid> {
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

    /// Keeps `reply` until the process runs. Returns it if the process already runs or has ended, and
    /// if it was asked to hibernate: then an input wakes it.
    pub(super) fn await_run(&mut self, pid: Pid, reply: HandleReply) -> Option<HandleReply> {
        let inbox_capacity = self.inbox_capacity;
        match self.get_mut(pid) {
            Some(entry)
                if matches!(
                    entry.run_state,
                    RunState::Held | RunState::Hibernated { .. } | RunState::Loading
                ) =>
            {
                entry.live_or_create(inbox_capacity).run_waiters.push(reply);
                None
            }
            _ => Some(reply),
        }
    }

    /// Whether a caller waits until the process runs.
    pub(super) fn has_run_waiters(&self, pid: Pid) -> bool {
        let live = self.get(pid).and_then(ProcessEntry::live);
        live.is_some_and(|live| !live.run_waiters.is_empty())
    }

    pub(super) fn take_run_waiters(&mut self, pid: Pid) -> Vec<HandleReply> {
        self.live_mut(pid)
            .map(|live| std::mem::take(&mut live.run_waiters))
            .unwrap_or_default()
    }

    /// Unloads a process that cannot continue. Callers that wait for its end get `reason`.
    pub(super) fn unload(&mut self, pid: Pid, reason: &str) -> Option<ProcessRow> {
        let inbox_capacity = self.inbox_capacity;
        let entry = self
            .get_mut(pid)
            .filter(|entry| entry.run_state != RunState::Ended)?;
        let live = entry.live_or_create(inbox_capacity);
        live.waiting_inputs.clear();
        live.view.send_replace(None);
        live.wait_outcome.send_replace(Some(Err(reason.into())));
        self.set_run_state(pid, RunState::Held);
        // What the process reported last may not be durable.
        self.set_waiting(pid, Waiting::Unknown);
        self.row(pid)
    }

    pub(super) fn mark_running(&mut self, pid: Pid, actor: ActorRef<ProcessMessage>) {
        self.actors.insert(actor.get_id(), pid);
        self.set_run_state(pid, RunState::Running);
        // The process reports itself what it waits for.
        self.set_waiting(pid, Waiting::Nothing);
        if let Some(live) = self.live_mut(pid) {
            live.actor = Some(actor);
        }
    }

    pub(super) fn mark_loading(&mut self, pid: Pid) {
        // A process that has ended in the meantime stays ended.
        if self
            .run_state(pid)
            .is_some_and(|run_state| run_state != RunState::Ended)
        {
            self.set_run_state(pid, RunState::Loading);
            self.live_mut(pid)
                .map(|live| live.wait_outcome.send_replace(None));
        }
    }

    pub(super) fn remove_actor(&mut self, actor: ActorId) -> Option<Pid> {
        self.actors.remove(&actor)
    }

    /// Records that an actor was asked to stop. It may have stopped already.
    pub(super) fn mark_stopping(&mut self, actor: ActorId) {
        if let Some(pid) = self.actors.get(&actor) {
            self.stopping.insert(*pid, false);
        }
    }

    /// Defers loading a process until its previous actor has stopped, since that actor may still
    /// write to the journal. Returns false if there is no such actor.
    pub(super) fn defer_load_until_stopped(&mut self, pid: Pid) -> bool {
        let stopping = self.stopping.get_mut(&pid);
        stopping
            .map(|is_load_deferred| *is_load_deferred = true)
            .is_some()
    }

    /// Records that the actor of a process has stopped. Returns whether a deferred load is due.
    pub(super) fn finish_stopping(&mut self, pid: Pid) -> bool {
        self.stopping.remove(&pid).unwrap_or_default()
            && self.run_state(pid) == Some(RunState::Loading)
    }

    /// Records the durable end of a process and notifies the callers that wait for it. Returns its
    /// row, or `None` if the end was recorded before.
    pub(super) fn record_end(
        &mut self,
        pid: Pid,
        exit: &Exit,
        final_state: FinalState,
    ) -> Option<ProcessRow> {
        let entry = self
            .get_mut(pid)
            .filter(|entry| entry.run_state != RunState::Ended)?;
        let last_view = match final_state {
            FinalState::InJournal => None,
            FinalState::LastView => entry.view(),
        };
        entry.record_exit(exit.clone(), last_view);
        if let Some(live) = entry.live_mut() {
            live.waiting_inputs.clear();
            live.wait_outcome.send_replace(Some(Ok(exit.clone())));
        }
        self.set_run_state(pid, RunState::Ended);
        let row = self.row(pid)?;
        self.release_name(&row);
        Some(row)
    }

    /// Records that an ended process was opened again, durably. Returns how often it has been opened
    /// again; `None` if it has not ended. The process is held until it is loaded.
    pub(super) fn record_reopening(&mut self, pid: Pid) -> Option<u32> {
        let parent = self.get(pid).and_then(ProcessEntry::parent);
        let is_orphan =
            parent.is_some_and(|parent| self.run_state(parent) == Some(RunState::Ended));
        let entry = self
            .get_mut(pid)
            .filter(|entry| entry.run_state == RunState::Ended)?;
        let reopenings = entry.record_reopening();
        // If its parent ended during the commit, the parent did not kill it, because it was not
        // alive yet: it is killed when it is loaded.
        entry.is_kill_pending = is_orphan;
        // The process runs again, even if its tree was stopped before its end.
        entry.children_start_stopped = false;
        let name = entry.name().cloned();
        if let Some(live) = entry.live_mut() {
            live.view.send_replace(None);
            live.wait_outcome.send_replace(None);
        }
        if let Some(name) = name {
            self.names.insert(name, pid);
        }
        self.set_run_state(pid, RunState::Held);
        Some(reopenings)
    }

    /// Delivers an input, or keeps it until the process runs. Returns false if the input was
    /// refused.
    pub(super) fn deliver(&mut self, pid: Pid, delivery: Delivery) -> bool {
        let inbox_capacity = self.inbox_capacity;
        let Some(entry) = self.entries.get_mut(pid) else {
            delivery.refuse(KernelError::NotFound(NotFound::Process(pid)));
            return false;
        };
        if entry.run_state == RunState::Ended {
            delivery.refuse(KernelError::Process(ProcessError::Ended(pid)));
            return false;
        }
        entry.is_kill_pending |= matches!(delivery.input, Input::Signal(Signal::Kill));
        entry.children_start_stopped &= !matches!(delivery.input, Input::Signal(Signal::Continue));
        self.quiescent.remove(entry);
        let is_running = entry.run_state == RunState::Running;
        let live = entry.live_or_create(inbox_capacity);
        match live.actor.as_ref().filter(|_| is_running) {
            Some(actor) => {
                // An actor that has just faulted accepts no message: the input waits for its
                // successor.
                if let Err(MessagingErr::SendErr(ProcessMessage::Input(delivery))) =
                    actor.cast(ProcessMessage::Input(Box::new(delivery)))
                {
                    live.waiting_inputs.push(*delivery);
                }
            }
            None => live.waiting_inputs.push(delivery),
        }
        true
    }

    pub(super) fn handle_channels(&mut self, pid: Pid) -> Result<HandleChannels, KernelError> {
        let inbox_capacity = self.inbox_capacity;
        let live = self
            .get_mut(pid)
            .ok_or(NotFound::Process(pid))?
            .live_or_create(inbox_capacity);
        Ok(HandleChannels {
            wait_outcome: live.wait_outcome.subscribe(),
            view: live.view.subscribe(),
            inbox_slots: live.inbox_slots.clone(),
        })
    }

    /// The held calls of the next [`MAX_EXAMINED`] processes after a pid.
    pub(super) fn list_held(&self, after: Option<Pid>) -> HeldPage {
        let mut page = HeldPage::default();
        for (pid, entry) in self.entries.after(after).take(MAX_EXAMINED) {
            page.examined += 1;
            page.last = Some(pid);
            match (entry.run_state, entry.view()) {
                (RunState::Ended, _) => {}
                (RunState::Hibernated { .. } | RunState::Held, _) => {
                    if entry.waiting().may_hold_calls() {
                        page.unloaded.push(pid);
                    }
                }
                (_, Some(view)) => page.calls.extend(HeldCall::all(pid, &view.phase)),
                (_, None) => page.unloaded.push(pid),
            }
        }
        page
    }

    /// The selected rows, sorted by pid.
    pub(super) fn list(&self, filter: ListFilter) -> Vec<ListedProcess> {
        let listed_process = |(pid, entry): (Pid, &ProcessEntry)| ListedProcess {
            row: entry.row(pid),
            status: self.status(pid).unwrap_or_else(|| entry.own_status()),
            view: entry.view().map(Box::new),
        };
        match filter {
            ListFilter::After(pid, max_rows) => self
                .entries
                .after(pid)
                .take(max_rows)
                .map(listed_process)
                .collect(),
            ListFilter::Children(parent) => {
                let children: BTreeSet<Pid> =
                    self.children_of(parent).map(|(child, _)| child).collect();
                children
                    .into_iter()
                    .filter_map(|child| Some((child, self.get(child)?)))
                    .map(listed_process)
                    .collect()
            }
        }
    }
}

/// Where the state of an ended process is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinalState {
    /// In its journal.
    InJournal,
    /// In its last view, because there is no journal.
    LastView,
}

/// Whether the wake queue has the next time of a process in this state (`wake_times.rs`).
fn is_in_wake_queue(run_state: RunState) -> bool {
    !matches!(run_state, RunState::Held | RunState::Ended)
}

fn is_loaded(run_state: RunState) -> bool {
    matches!(run_state, RunState::Loading | RunState::Running)
}

#[cfg(test)]
pub(super) mod tests {
    use dormouse_proto::process::ExitStatus;
    use tokio::sync::oneshot;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use crate::supervisor::entry::Rest;

    const NOTHING: Waiting = Waiting::Nothing;
    const ALARM: Waiting = Waiting::Alarm { due_ms: 7 };
    const PERSON: Waiting = Waiting::Person { expires_ms: None };

    pub(in crate::supervisor) fn table_of(rows: Vec<ProcessRow>) -> ProcessTable {
        let last_pid = rows.iter().map(|row| row.pid.0).max().unwrap();
        let listing = ProcessListing {
            rows,
            last_pid,
            ..ProcessListing::default()
        };
        new_table(listing)
    }

    fn new_table(listing: ProcessListing) -> ProcessTable {
        let pids = PidCounter::new(&(Pid(1)..=Pid::MAX), &listing).unwrap();
        ProcessTable::new(listing, pids, 1)
    }

    #[test]
    fn a_request_to_hibernate_ends_with_the_hibernation() {
        let pid = Pid(1);
        for next in [RunState::Loading, RunState::Held, RunState::Ended] {
            let mut table = table_of(vec![ProcessRow::started(pid, "p")]);
            table.set_run_state(pid, RunState::Running);
            let (reply, mut result) = oneshot::channel();
            table.live_mut(pid).unwrap().hibernate_replies.push(reply);
            table.set_run_state(pid, RunState::Hibernating);
            assert!(matches!(result.try_recv(), Err(TryRecvError::Empty)));
            table.set_run_state(pid, next);
            assert!(
                matches!(result.try_recv(), Err(TryRecvError::Closed)),
                "{next:?}"
            );
        }
    }

    #[test]
    fn the_children_of_a_process_that_is_opened_again_run() {
        let pid = Pid(1);
        let mut table = table_of(vec![ProcessRow::started(pid, "p")]);
        table.set_stop_inherited(pid, true);
        let exit = Exit::new(ExitStatus::Interrupted, "");
        table.record_end(pid, &exit, FinalState::InJournal).unwrap();
        assert_eq!(table.record_reopening(pid), Some(1));
        assert!(!table.inherits_stop(Some(pid)));
    }

    /// The statuses of process 2 while it is held and while it hibernates; process 1 is its parent.
    fn statuses(is_parent_paused: bool, row: ProcessRow, rest: Rest) -> [&'static str; 2] {
        let parent = ProcessRow {
            is_paused: is_parent_paused,
            ..ProcessRow::started(Pid(1), "p")
        };
        let row = ProcessRow {
            parent: Some(Pid(1)),
            ..row
        };
        let listing = ProcessListing {
            rows: vec![parent, row],
            last_pid: 2,
            ..ProcessListing::default()
        };
        let mut table = new_table(listing);
        let held = table.status(Pid(2)).unwrap();
        table.set_run_state(Pid(2), RunState::Hibernated { rest });
        let listed = table.list(ListFilter::After(Some(Pid(1)), 1));
        assert_eq!(Some(listed[0].status), table.status(Pid(2)));
        [held, listed[0].status]
    }

    /// What holds a process up comes before what it waits for.
    #[test]
    fn a_status_says_what_holds_a_process_up_before_what_it_waits_for() {
        for (is_parent_paused, is_paused, rest, waiting, expected) in [
            (false, false, Rest::Waiting, NOTHING, "hibernated"),
            (false, false, Rest::Waiting, ALARM, "asleep"),
            (false, false, Rest::Waiting, PERSON, "asking"),
            (false, false, Rest::Waiting, Waiting::Unknown, "asking"),
            (false, false, Rest::Stopped, NOTHING, "stopped"),
            (false, false, Rest::Stopped, Waiting::Unknown, "stopped"),
            (false, true, Rest::Waiting, NOTHING, "paused"),
            (false, true, Rest::Waiting, Waiting::Unknown, "paused"),
            (false, true, Rest::Stopped, NOTHING, "paused"),
            (true, false, Rest::Waiting, NOTHING, "suspended"),
            (true, false, Rest::Waiting, ALARM, "suspended"),
            (true, false, Rest::Waiting, Waiting::Unknown, "suspended"),
            (true, false, Rest::Stopped, Waiting::Unknown, "stopped"),
            (true, true, Rest::Waiting, NOTHING, "paused"),
        ] {
            let row = ProcessRow {
                waiting,
                is_paused,
                ..ProcessRow::started(Pid(2), "p")
            };
            let case = format!("{is_parent_paused} {is_paused} {rest:?} {waiting:?}");
            assert_eq!(
                statuses(is_parent_paused, row, rest),
                ["held", expected],
                "{case}"
            );
        }
        let ended = ProcessRow {
            exit: Some(Exit::new(ExitStatus::Done, "")),
            ..ProcessRow::started(Pid(2), "p")
        };
        let mut table = new_table(ProcessListing::default());
        table.insert(ended, RunState::Ended);
        assert_eq!(table.status(Pid(2)), Some("done"));
    }
}
