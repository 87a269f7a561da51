//! What callers outside of the supervisor see of the rows: the list of processes, their status, and
//! their held calls.

use std::collections::BTreeSet;

use dormouse_proto::id::Pid;
use dormouse_proto::process::ProcessRow;

use super::ProcessTable;
use crate::event::ProcessView;
use crate::held_call::HeldCall;
use crate::process_status::ProcessStatus;
use crate::supervisor::entry::{ProcessEntry, RunState};

/// A row of the table, as it is listed.
#[derive(Clone, Debug)]
pub(crate) struct ListedProcess {
    pub(crate) row: ProcessRow,
    pub(crate) status: ProcessStatus,
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
    /// The held calls of the next [`MAX_EXAMINED`] processes after a pid.
    pub(in crate::supervisor) fn list_held(&self, after: Option<Pid>) -> HeldPage {
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
    pub(in crate::supervisor) fn list(&self, filter: ListFilter) -> Vec<ListedProcess> {
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

    /// The status of a process. One that hibernates is not told of a pause above it before it
    /// wakes, and then begins nothing: so the table says what its journal may not. Costs the depth of
    /// the tree for a process that hibernates.
    pub(in crate::supervisor) fn status(&self, pid: Pid) -> Option<ProcessStatus> {
        let entry = self.get(pid)?;
        let is_hibernated = matches!(entry.run_state, RunState::Hibernated { .. });
        Some(match entry.own_status() {
            status @ (ProcessStatus::Paused | ProcessStatus::Stopped) => status,
            _ if is_hibernated && self.is_below_paused(pid) => ProcessStatus::Suspended,
            status => status,
        })
    }
}
