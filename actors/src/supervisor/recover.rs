//! What becomes of the processes that a store holds when a kernel is opened on it.
//!
//! They are taken up by rising pid, parents before their children, and few at a time: a store may
//! hold more of them than there is memory for.

use dormouse_proto::id::Pid;

use super::Supervisor;
use super::entry::Run;

/// So many journals are read at once.
const AT_ONCE: usize = 32;

/// Those that are to be taken up.
#[derive(Default)]
pub(super) struct Recovering {
    waiting: std::collections::VecDeque<Pid>,
    reading: std::collections::BTreeSet<Pid>,
}

impl Supervisor {
    /// Runs these from their journals, a few at a time.
    pub(super) fn recover(&mut self, pids: Vec<Pid>) {
        self.recovering.waiting.extend(pids);
        self.go_on_recovering();
    }

    /// A journal was read, or could not be.
    pub(super) fn recovered(&mut self, pid: Pid) {
        if self.recovering.reading.remove(&pid) {
            self.go_on_recovering();
        }
    }

    fn go_on_recovering(&mut self) {
        while self.recovering.reading.len() < AT_ONCE
            && let Some(pid) = self.recovering.waiting.pop_front()
        {
            // Somebody may have spoken to it, or another may have found it, in the meantime.
            if self.table.run_of(pid) == Some(Run::Held) {
                self.recovering.reading.insert(pid);
                self.wake(pid);
            }
        }
    }
}
