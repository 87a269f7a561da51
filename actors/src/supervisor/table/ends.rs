//! The end of a process, its reopening, and the removal of its row.

use dormouse_proto::id::Pid;
use dormouse_proto::process::{Exit, ProcessRow};

use super::ProcessTable;
use crate::supervisor::entry::{ProcessEntry, RunState, Watched, child_slot};

impl ProcessTable {
    /// Removes a process whose creation failed.
    pub(in crate::supervisor) fn remove(&mut self, row: &ProcessRow) {
        self.set_run_state(row.pid, RunState::Ended);
        self.entries.remove(row.pid);
        self.release_name(row);
        if let (Some(parent), Some((call, index))) = (row.parent, child_slot(&row.origin)) {
            self.children.remove(&(parent, call, index));
        }
    }

    /// Removes a process that has ended. Its name may belong to another process by now, and its pid
    /// is never reused.
    pub(in crate::supervisor) fn remove_ended(&mut self, pid: Pid) {
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

    /// Records the durable end of a process and notifies the callers that wait for it. Returns its
    /// row, or `None` if the end was recorded before.
    pub(in crate::supervisor) fn record_end(
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
            let outcome = Some(Ok(Box::new(exit.clone())));
            live.watched
                .send_modify(|watched| watched.outcome = outcome);
        }
        self.set_run_state(pid, RunState::Ended);
        let row = self.row(pid)?;
        self.release_name(&row);
        Some(row)
    }

    /// Records that an ended process was opened again, durably. Returns how often it has been opened
    /// again; `None` if it has not ended. The process is held until it is loaded.
    pub(in crate::supervisor) fn record_reopening(&mut self, pid: Pid) -> Option<u32> {
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
            live.watched.send_replace(Watched::default());
        }
        if let Some(name) = name {
            self.names.insert(name, pid);
        }
        self.set_run_state(pid, RunState::Held);
        Some(reopenings)
    }

    /// Makes the name of a process that was removed or has ended available again.
    fn release_name(&mut self, row: &ProcessRow) {
        if let Some(name) = &row.name {
            self.names.remove(name);
        }
    }
}

/// Where the state of an ended process is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::supervisor) enum FinalState {
    /// In its journal.
    InJournal,
    /// In its last view, because there is no journal.
    LastView,
}
