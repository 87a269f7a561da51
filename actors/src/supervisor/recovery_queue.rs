//! Loads the processes that run again when a kernel is opened on a store.
//!
//! They are loaded in the order of their pids, parents before their children, and only a few at a
//! time: a store may hold more processes than there is memory for.

use dormouse_proto::id::Pid;

use super::Supervisor;
use super::entry::RunState;

/// How many journals are read concurrently.
const MAX_CONCURRENT_LOADS: usize = 32;

/// The processes that wait for a load, and those that are being loaded.
#[derive(Default)]
pub(super) struct RecoveryQueue {
    queued_pids: std::collections::VecDeque<Pid>,
    loading_pids: std::collections::BTreeSet<Pid>,
}

impl Supervisor {
    /// Loads these processes, a few at a time. Those that only wait for an alarm or a person
    /// are not loaded.
    pub(super) fn recover(&mut self, pids: Vec<Pid>) {
        let others = self.table.resume_resting(pids);
        self.recovery_queue.queued_pids.extend(others);
        self.wake_due_processes();
        self.load_next_processes();
    }

    /// Starts the next loads after a journal was read, or could not be read. Returns whether it was
    /// read because the kernel was opened.
    pub(super) fn on_recovery_load_finished(&mut self, pid: Pid) -> bool {
        let is_recovery = self.recovery_queue.loading_pids.remove(&pid);
        if is_recovery {
            self.load_next_processes();
        }
        is_recovery
    }

    fn load_next_processes(&mut self) {
        while self.drain.is_none()
            && self.recovery_queue.loading_pids.len() < MAX_CONCURRENT_LOADS
            && let Some(pid) = self.recovery_queue.queued_pids.pop_front()
        {
            // A message or a parent may have loaded it in the meantime.
            if self.table.run_state(pid) == Some(RunState::Held) {
                self.recovery_queue.loading_pids.insert(pid);
                self.wake(pid);
            }
        }
    }
}
