//! The table of processes at one moment, and what holds each of them up.

use std::sync::Arc;

use dormouse_actors::handle::{Kernel, ProcessInfo};
use dormouse_actors::ports::StoreError;
use dormouse_actors::{KernelError, LoadError, ProcessStatus, ProcessView, StoreFailure};
use dormouse_kernel::labels::LabelStatus;
use dormouse_proto::id::Pid;
use dormouse_proto::label::Label;

use super::label::{describe_used_up, find_used_up};
use super::process::ProcessLine;

/// The processes of a kernel, sorted by pid, with the labels that have budgets.
#[derive(Debug)]
pub struct ProcessTable {
    processes: Vec<ProcessInfo>,
    labels: Vec<LabelStatus>,
}

impl ProcessTable {
    /// Reads the table. Costs a pass over it; no journal is read.
    ///
    /// # Errors
    /// [`KernelError::Closed`].
    pub async fn read(kernel: &Kernel) -> Result<Self, KernelError> {
        Ok(Self {
            processes: kernel.processes().await?,
            labels: kernel.labels(),
        })
    }

    /// All processes, sorted by pid.
    #[must_use]
    pub fn processes(&self) -> &[ProcessInfo] {
        &self.processes
    }

    /// The process with this pid.
    #[must_use]
    pub fn find(&self, pid: Pid) -> Option<&ProcessInfo> {
        let at = self
            .processes
            .binary_search_by_key(&pid, |info| info.row.pid);
        at.ok().map(|at| &self.processes[at])
    }

    /// The process, its parent, and so on up to the root of its tree. A parent that the store lost
    /// ends it.
    pub fn ancestry<'a>(&'a self, info: &'a ProcessInfo) -> impl Iterator<Item = &'a ProcessInfo> {
        std::iter::successors(Some(info), |info| self.find(info.row.parent?))
    }

    /// The root of the tree of a process.
    #[must_use]
    pub fn root<'a>(&'a self, info: &'a ProcessInfo) -> &'a ProcessInfo {
        self.ancestry(info).last().unwrap_or(info)
    }

    /// The labels of the tree of a process.
    #[must_use]
    pub fn labels(&self, info: &ProcessInfo) -> Arc<[Label]> {
        self.root(info).row.labels.clone()
    }

    /// The status of a process, as far as the table and its view tell. What holds it up comes
    /// before what it does.
    #[must_use]
    pub fn status(&self, info: &ProcessInfo, view: Option<&ProcessView>) -> ProcessStatus {
        match view {
            _ if info.row.exit.is_some() => info.status,
            Some(view) if view.paused.is_some() => ProcessStatus::Paused,
            None if info.row.is_paused => ProcessStatus::Paused,
            _ if !info.row.is_paused && self.used_up_label(info, view).is_some() => {
                ProcessStatus::Suspended
            }
            Some(view) if view.stopped => ProcessStatus::Stopped,
            // Its journal may say otherwise: it is told when it is resumed.
            _ if self.ancestry(info).skip(1).any(|above| above.row.is_paused) => {
                ProcessStatus::Suspended
            }
            _ => info.status,
        }
    }

    /// The label that holds a process up, if there is one.
    fn used_up_label(&self, info: &ProcessInfo, view: Option<&ProcessView>) -> Option<LabelStatus> {
        let is_suspended = view.is_some_and(|view| view.suspended);
        if !is_suspended {
            return None;
        }
        find_used_up(&self.labels, &self.labels(info))
    }

    /// The line of a process, from its view; if its journal could not be read, from the error.
    #[must_use]
    pub fn line(
        &self,
        info: &ProcessInfo,
        view: Result<&ProcessView, &KernelError>,
    ) -> ProcessLine {
        let used_up = self.used_up_label(info, view.ok());
        let status = self.status(info, view.ok()).word();
        let line = ProcessLine::new(info, status, view.ok());
        ProcessLine {
            waits_for_label: used_up.as_ref().map(describe_used_up),
            unreadable: view.err().map(ToString::to_string),
            ..line
        }
    }

    /// The line of a process that is not in memory, as far as its row tells.
    #[must_use]
    pub fn brief_line(&self, info: &ProcessInfo) -> ProcessLine {
        ProcessLine::new(info, self.status(info, None).word(), None)
    }

    /// The state of a process: from memory if it runs, or else from its journal.
    ///
    /// # Errors
    /// As [`Kernel::inspect`].
    pub async fn view(kernel: &Kernel, info: &ProcessInfo) -> Result<ProcessView, KernelError> {
        match &info.view {
            Some(view) => Ok(ProcessView::clone(view)),
            None => kernel.inspect(info.row.pid).await,
        }
    }
}

/// Whether the error reports a loss that a repair of the store has acknowledged.
#[must_use]
pub fn is_acknowledged_loss(error: &KernelError) -> bool {
    let error = match error {
        KernelError::Store(StoreFailure::Store(error)) => error,
        KernelError::Store(StoreFailure::Load(error)) => match &**error {
            LoadError::Store(error) => error,
            _ => return false,
        },
        _ => return false,
    };
    matches!(error, StoreError::Lost { .. })
}
