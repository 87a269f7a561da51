//! Selects the processes of a store that run again when a kernel is opened on it.

use std::fmt;
use std::sync::Arc;

use dormouse_proto::id::Pid;
use dormouse_proto::process::ProcessRow;

use super::kernel::ProcessInfo;
use crate::process_status::ProcessStatus;

/// Which processes run again when a kernel is opened on a store.
///
/// A process that runs again resumes its work: a pending model call is made again, a tool call in
/// flight only if that is harmless. A process that had hibernated has no work: it is loaded, and
/// hibernates again in time. A process that only waits for an alarm is not loaded before it is due.
/// A speculative branch is held in any case, since its race ended with the kernel.
/// All other processes are held, and their alarms do not fire: they are listed, and loaded by
/// [`Kernel::resume`](super::Kernel::resume), by an input, or by a parent that looks for them.
///
/// The default is to hold all, because a kernel is also opened to list the processes of a store, to
/// inspect a process, or to restore one; none of that should call a model or run a command. Held
/// work is not lost, and a store with a million hibernated processes opens without loading them.
#[derive(Clone, Default)]
pub enum Recovery {
    /// All processes are held.
    #[default]
    Hold,
    /// All processes that have not ended run, in the order of their pids and a few at a time. Their
    /// events begin while the kernel is being built: to see all of them, hold the processes,
    /// subscribe, then call [`Kernel::resume_all`](super::Kernel::resume_all).
    Resume,
    /// A function decides for each process that has not ended: see [`Recovery::decide`].
    Decide(Arc<RecoveryFn>),
}

/// Decides what happens to a process when a store is opened.
pub type RecoveryFn = dyn Fn(&ProcessInfo) -> RecoveryAction + Send + Sync;

/// What happens to one process when a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryAction {
    /// The process runs again.
    Resume,
    /// The process is held.
    Hold,
}

impl Recovery {
    /// Calls `decide` for each process that has not ended, in the order of their pids, before the
    /// kernel is built. It runs on a blocking thread.
    pub fn decide(decide: impl Fn(&ProcessInfo) -> RecoveryAction + Send + Sync + 'static) -> Self {
        Self::Decide(Arc::new(decide))
    }

    /// Selects the processes of these rows that run again.
    pub(super) fn select_pids(&self, rows: &[ProcessRow]) -> Vec<Pid> {
        let runs = |row: &&ProcessRow| match self {
            Self::Hold => false,
            Self::Resume => true,
            Self::Decide(decide) => {
                let info = ProcessInfo {
                    row: ProcessRow::clone(row),
                    status: ProcessStatus::Held,
                    view: None,
                };
                decide(&info) == RecoveryAction::Resume
            }
        };
        rows.iter()
            .filter(|row| row.exit.is_none())
            .filter(runs)
            .map(|row| row.pid)
            .collect()
    }
}

impl fmt::Debug for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hold => "Hold",
            Self::Resume => "Resume",
            Self::Decide(_) => "Decide",
        })
    }
}
