//! What becomes of the processes that a store holds when a kernel is opened on it.
//!
//! They are taken up by rising pid, parents before their children, and few at a time: a store may
//! hold more of them than there is memory for.

use dormouse_proto::id::Pid;

use super::Supervisor;
use super::entry::Run;

/// So many journals are read at once.
const MAX_CONCURRENT_LOADS: usize = 32;

/// Those that are to be taken up.
#[derive(Default)]
pub(super) struct RecoveryQueue {
    waiting: std::collections::VecDeque<Pid>,
    loading: std::collections::BTreeSet<Pid>,
}

impl Supervisor {
    /// Runs these from their journals, a few at a time.
    pub(super) fn recover(&mut self, pids: Vec<Pid>) {
        self.recovery_queue.waiting.extend(pids);
        self.load_next();
    }

    /// A journal was read, or could not be.
    pub(super) fn on_recovery_load_finished(&mut self, pid: Pid) {
        if self.recovery_queue.loading.remove(&pid) {
            self.load_next();
        }
    }

    fn load_next(&mut self) {
        while self.recovery_queue.loading.len() < MAX_CONCURRENT_LOADS
            && let Some(pid) = self.recovery_queue.waiting.pop_front()
        {
            // Somebody may have spoken to it, or another may have found it, in the meantime.
            if self.table.run_of(pid) == Some(Run::Held) {
                self.recovery_queue.loading.insert(pid);
                self.wake(pid);
            }
        }
    }
}
