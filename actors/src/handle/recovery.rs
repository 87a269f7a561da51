//! What becomes of the processes that a store holds when a kernel is opened on it.

use std::fmt;
use std::sync::Arc;

use dormouse_proto::id::Pid;
use dormouse_proto::process::ProcessRow;

use super::kernel::ProcessInfo;

/// Which processes run again when a kernel is opened on a store that holds some.
///
/// One that runs again takes up what it was doing: a pending model call is made again, and a tool
/// call that was in flight only where that is harmless. One that had hibernated has nothing to take
/// up: it wakes, and goes to sleep again in its time. Those that are not run are held: listed, and
/// run by [`Kernel::resume`](super::Kernel::resume), by whatever is said to them, or by a parent
/// that looks for them.
///
/// They are held until said otherwise, since a kernel is opened for other reasons too: to list what
/// a store holds, to look into a process or to restore one. Nothing of that should ask a model or
/// run a command before somebody wants it. What is pending is not lost by being held, and a store
/// of a million sleepers opens without waking them.
#[derive(Clone, Default)]
pub enum Recovery {
    /// None, before it is asked for or spoken to.
    #[default]
    Hold,
    /// All that have not ended, by rising pid and a few at a time. Their events begin while the
    /// kernel is being built: who wants to see all of them holds, watches, then calls
    /// [`Kernel::resume_all`](super::Kernel::resume_all).
    Resume,
    /// As the function says of each that has not ended: see [`Recovery::ask`].
    Ask(Arc<AskFn>),
}

/// Says what becomes of a process.
pub type AskFn = dyn Fn(&ProcessInfo) -> Recover + Send + Sync;

/// What becomes of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recover {
    /// It runs again.
    Resume,
    /// It is held.
    Hold,
}

impl Recovery {
    /// Asks `decide` about each process that has not ended, by rising pid, before the kernel is
    /// built. It is called where blocking is allowed.
    pub fn ask(decide: impl Fn(&ProcessInfo) -> Recover + Send + Sync + 'static) -> Self {
        Self::Ask(Arc::new(decide))
    }

    /// Those of these rows that are to run.
    pub(super) fn of(&self, rows: &[ProcessRow]) -> Vec<Pid> {
        let runs = |row: &&ProcessRow| match self {
            Self::Hold => false,
            Self::Resume => true,
            Self::Ask(decide) => {
                let info = ProcessInfo {
                    row: ProcessRow::clone(row),
                    status: "held",
                    view: None,
                };
                decide(&info) == Recover::Resume
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
            Self::Ask(_) => "Ask",
        })
    }
}
