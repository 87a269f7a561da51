//! The process table: which processes exist, which of them are loaded, and which callers wait for
//! them. It is designed for a million rows; see `entry.rs` for the size of a row.
//!
//! A process is in one of six run states ([`RunState`]). It has an actor while it is `Running` or
//! `Hibernating`, and counts as loaded while it is `Loading` or `Running`. Inputs go to the actor
//! of a `Running` process, wait in the table in any other state, and are refused once it has
//! `Ended`.

mod ancestry;
mod ends;
mod listing;
mod run_states;
#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use dormouse_kernel::process::{Input, Signal};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::pid_map::PidMap;
use dormouse_proto::process::{ProcessRow, Waiting};
use ractor::{ActorId, MessagingErr};
use tokio::sync::{Semaphore, watch};

pub(super) use self::ends::FinalState;
pub(crate) use self::listing::{HeldPage, ListFilter, ListedProcess, MAX_EXAMINED};
use super::entry::{LiveState, ProcessEntry, RunState, Watched, child_slot};
use super::hibernation::QuiescentQueue;
use super::local_ids::LocalIds;
use super::pids::PidCounter;
use super::wake_times::WakeQueue;
use crate::error::{KernelError, NotFound, ProcessError};
use crate::ports::ProcessListing;
use crate::process::{Delivery, ProcessMessage};

/// The process table.
pub(crate) struct ProcessTable {
    pub(super) pids: PidCounter,
    inbox_capacity: usize,
    entries: PidMap<ProcessEntry>,
    actors: HashMap<ActorId, Pid>,
    /// Processes whose actors were asked to stop and have not stopped yet, and whether to load the
    /// process afterwards.
    stopping: BTreeMap<Pid, bool>,
    /// The children, by their parents and their slots ([`child_slot`]). They are found by these
    /// when a parent that was restarted repeats the call that created them.
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
    pub(super) watched: watch::Receiver<Watched>,
    pub(super) inbox_slots: Arc<Semaphore>,
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
        if run_state != RunState::Held {
            self.set_run_state(pid, run_state);
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

    /// Whether a held process only waits for its next alarm or a person. A process with children is
    /// loaded: one of them may have ended without its parent knowing.
    fn is_resting(&self, pid: Pid) -> bool {
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

    /// The living process with this name.
    pub(super) fn find_by_name(&self, name: &str) -> Option<Pid> {
        self.names.get(name).copied()
    }

    /// The living processes that have a name.
    pub(super) fn named_processes(&self) -> impl Iterator<Item = Pid> {
        self.names.values().copied()
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

    /// All processes whose end is not durable.
    pub(super) fn living(&self) -> impl Iterator<Item = Pid> {
        self.entries
            .iter()
            .filter(|(_, entry)| entry.exit().is_none())
            .map(|(pid, _)| pid)
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
            watched: live.watched.subscribe(),
            inbox_slots: live.inbox_slots.clone(),
        })
    }
}

/// Whether the wake queue has the next time of a process in this state (`wake_times.rs`).
fn is_in_wake_queue(run_state: RunState) -> bool {
    !matches!(run_state, RunState::Held | RunState::Ended)
}
