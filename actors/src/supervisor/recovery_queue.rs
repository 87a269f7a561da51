//! Loads the processes that run again: when a kernel is opened on a store, and after an outage of the
//! store.
//!
//! They are loaded in the order of their pids, parents before their children, and only a few at a
//! time: a store may hold more processes than there is memory for.
//!
//! A process that cannot be read since the store does not answer is held, and read again after a
//! delay, until that succeeds or the host resumes it: nobody has to watch for the end of an outage.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use dormouse_proto::id::Pid;

use super::Supervisor;
use super::entry::RunState;
use super::run::RunMessage;

/// How many journals are read concurrently.
const MAX_CONCURRENT_LOADS: usize = 32;

/// The delay before a process is read again that could not be read. It doubles with each failure.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The longest delay before a process is read again.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(300);

/// The processes that wait for a load, those that are being loaded, and those whose load failed.
#[derive(Default)]
pub(super) struct RecoveryQueue {
    queued_pids: VecDeque<Pid>,
    loading_pids: BTreeSet<Pid>,
    /// How often each of these could not be read, one time after the other.
    failures: BTreeMap<Pid, u32>,
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

    /// Reads a held process again after a delay, since the store did not answer. Costs a timer.
    pub(super) fn retry_load_later(&mut self, pid: Pid) {
        let failures = self.recovery_queue.failures.entry(pid).or_default();
        let delay = FIRST_RETRY_DELAY.saturating_mul(2_u32.saturating_pow(*failures));
        *failures = failures.saturating_add(1);
        let delay = delay.min(MAX_RETRY_DELAY);
        tracing::warn!(%pid, ?delay, "a process that could not be read is read again later");
        let myself = self.myself.clone();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            // If the supervisor has stopped, the kernel is shutting down.
            let _ = myself.cast(RunMessage::RetryLoad { pid }.into());
        });
    }

    /// Reads a process again whose load failed, unless it was loaded, ended or removed meanwhile.
    pub(super) fn retry_load(&mut self, pid: Pid) {
        if !self.recovery_queue.failures.contains_key(&pid) {
            return;
        }
        match self.table.run_state(pid) {
            Some(RunState::Held) => {
                self.recovery_queue.queued_pids.push_back(pid);
                self.load_next_processes();
            }
            // It is being loaded: if that fails, it is tried again as well.
            Some(RunState::Loading) => {}
            _ => self.forget_failed_loads(pid),
        }
    }

    /// Forgets how often a process could not be read: it was read, or is never read again.
    pub(super) fn forget_failed_loads(&mut self, pid: Pid) {
        self.recovery_queue.failures.remove(&pid);
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
