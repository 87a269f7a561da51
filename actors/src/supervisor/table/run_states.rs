//! The changes of run states: loading and unloading, the actors of processes, and the callers that
//! wait until a process runs.

use dormouse_proto::id::Pid;
use dormouse_proto::process::{ProcessRow, Waiting};
use ractor::{ActorId, ActorRef};

use super::{ProcessTable, is_in_wake_queue};
use crate::process::ProcessMessage;
use crate::supervisor::HandleReply;
use crate::supervisor::entry::{ProcessEntry, Rest, RunState, Watched};

impl ProcessTable {
    /// Changes the run state of a process. A process that runs or is being loaded gets live state.
    /// Callers that requested hibernation get no answer if the process faulted or was stopped.
    pub(in crate::supervisor) fn set_run_state(&mut self, pid: Pid, run_state: RunState) {
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

    /// Resumes those of these processes that only wait for their next alarm or for a person,
    /// without loading them. Returns the others. May be called with all processes of a store at
    /// once.
    pub(in crate::supervisor) fn resume_resting(&mut self, mut pids: Vec<Pid>) -> Vec<Pid> {
        let mut due = Vec::new();
        pids.retain(|pid| {
            let is_resting = self.is_resting(*pid);
            if is_resting && let Some(entry) = self.entries.get_mut(*pid) {
                // A held process is not loaded, not quiescent, and not in the wake queue.
                let rest = Rest::Waiting;
                entry.run_state = RunState::Hibernated { rest };
                entry.drop_live_if_unused();
                due.extend(entry.waiting().wake_ms().map(|due_ms| (due_ms, *pid)));
            }
            !is_resting
        });
        self.wake_queue.schedule(due);
        pids
    }

    /// Keeps `reply` until the process runs. Returns it if the process already runs or has ended,
    /// and if it was asked to hibernate: then an input wakes it.
    pub(in crate::supervisor) fn await_run(
        &mut self,
        pid: Pid,
        reply: HandleReply,
    ) -> Option<HandleReply> {
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
    pub(in crate::supervisor) fn has_run_waiters(&self, pid: Pid) -> bool {
        let live = self.get(pid).and_then(ProcessEntry::live);
        live.is_some_and(|live| !live.run_waiters.is_empty())
    }

    pub(in crate::supervisor) fn take_run_waiters(&mut self, pid: Pid) -> Vec<HandleReply> {
        self.live_mut(pid)
            .map(|live| std::mem::take(&mut live.run_waiters))
            .unwrap_or_default()
    }

    /// Unloads a process that cannot continue. Callers that wait for its end get `reason`.
    pub(in crate::supervisor) fn unload(&mut self, pid: Pid, reason: &str) -> Option<ProcessRow> {
        let inbox_capacity = self.inbox_capacity;
        let entry = self
            .get_mut(pid)
            .filter(|entry| entry.run_state != RunState::Ended)?;
        let live = entry.live_or_create(inbox_capacity);
        live.waiting_inputs.clear();
        live.watched.send_replace(Watched {
            outcome: Some(Err(reason.into())),
            view: None,
        });
        self.set_run_state(pid, RunState::Held);
        // What the process reported last may not be durable.
        self.set_waiting(pid, Waiting::Unknown);
        self.row(pid)
    }

    pub(in crate::supervisor) fn mark_running(
        &mut self,
        pid: Pid,
        actor: ActorRef<ProcessMessage>,
    ) {
        self.actors.insert(actor.get_id(), pid);
        self.set_run_state(pid, RunState::Running);
        // The process reports itself what it waits for.
        self.set_waiting(pid, Waiting::Nothing);
        if let Some(live) = self.live_mut(pid) {
            live.actor = Some(actor);
        }
    }

    pub(in crate::supervisor) fn mark_loading(&mut self, pid: Pid) {
        // A process that has ended in the meantime stays ended.
        if self
            .run_state(pid)
            .is_some_and(|run_state| run_state != RunState::Ended)
        {
            self.set_run_state(pid, RunState::Loading);
            if let Some(live) = self.live_mut(pid) {
                live.watched.send_modify(|watched| watched.outcome = None);
            }
        }
    }

    pub(in crate::supervisor) fn remove_actor(&mut self, actor: ActorId) -> Option<Pid> {
        self.actors.remove(&actor)
    }

    /// Records that an actor was asked to stop. It may have stopped already.
    pub(in crate::supervisor) fn mark_stopping(&mut self, actor: ActorId) {
        if let Some(pid) = self.actors.get(&actor) {
            self.stopping.insert(*pid, false);
        }
    }

    /// Defers loading a process until its previous actor has stopped, since that actor may still
    /// write to the journal. Returns false if there is no such actor.
    pub(in crate::supervisor) fn defer_load_until_stopped(&mut self, pid: Pid) -> bool {
        let stopping = self.stopping.get_mut(&pid);
        stopping
            .map(|is_load_deferred| *is_load_deferred = true)
            .is_some()
    }

    /// Records that the actor of a process has stopped. Returns whether a deferred load is due.
    pub(in crate::supervisor) fn finish_stopping(&mut self, pid: Pid) -> bool {
        self.stopping.remove(&pid).unwrap_or_default()
            && self.run_state(pid) == Some(RunState::Loading)
    }
}

fn is_loaded(run_state: RunState) -> bool {
    matches!(run_state, RunState::Loading | RunState::Running)
}
