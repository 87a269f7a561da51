//! Hibernation, as seen by the process: it reports when nothing is pending, and stops when the
//! supervisor asks it to hibernate and still nothing is pending.

use dormouse_kernel::process::BusyReason;
use dormouse_proto::id::Pid;

use super::{ProcessMessage, RunningProcess};
use crate::checkpoint::{AppendSize, CommitError, LogRecord, SnapshotOutcome};
use crate::error::{KernelError, ProcessError};
use crate::supervisor::HibernationMessage;

/// Why a process does not hibernate.
#[derive(Clone, Debug)]
pub(crate) enum HibernationBlocker {
    /// The machine has work to do.
    Busy(BusyReason),
    /// Calls are in flight.
    Calls,
    /// Calls wait for their timeouts, and nothing else is in flight.
    Timeouts,
    /// Facts are not durable yet.
    PendingCommits,
    /// The snapshot could not be written.
    SnapshotFailed(CommitError),
}

impl HibernationBlocker {
    /// The error for the caller that requested the hibernation.
    pub(crate) fn error(&self, pid: Pid) -> KernelError {
        let pending_error =
            |what: String| KernelError::Process(ProcessError::Pending { pid, what });
        match self {
            Self::Busy(BusyReason::Ended) => KernelError::Process(ProcessError::Ended(pid)),
            Self::Busy(reason) => pending_error(reason.to_string()),
            Self::Calls | Self::Timeouts => pending_error("calls are in flight".to_owned()),
            Self::PendingCommits => pending_error("its last facts are not durable yet".to_owned()),
            Self::SnapshotFailed(error) => KernelError::from(error.clone()),
        }
    }
}

impl RunningProcess {
    fn hibernation_blocker(&self) -> Option<HibernationBlocker> {
        if let Some(reason) = self.state.busy_reason() {
            return Some(HibernationBlocker::Busy(reason));
        }
        let mut calls = self.call_tasks.keys();
        if calls.any(|call| !self.timeouts.contains(call)) {
            return Some(HibernationBlocker::Calls);
        }
        if !self.pending_commits.is_empty() {
            return Some(HibernationBlocker::PendingCommits);
        }
        (!self.call_tasks.is_empty()).then_some(HibernationBlocker::Timeouts)
    }

    /// Reports to the supervisor, once, that nothing is pending, if hibernation is enabled.
    pub(super) fn report_quiescence(&mut self) {
        if !self.is_quiescent
            && self.context.is_hibernation_enabled()
            && self.hibernation_blocker().is_none()
        {
            self.is_quiescent = true;
            self.cast_to_supervisor(HibernationMessage::Quiescent { pid: self.pid() });
        }
    }

    /// Hibernates if nothing is pending; all facts are durable then. If many facts follow the
    /// latest snapshot, a new one is written first, so that waking needs little replay. The
    /// process leaves memory only after that write, so the snapshots that wait for a slow disk are
    /// never more than the processes in memory.
    pub(super) fn hibernate(&mut self) {
        if let Some(blocker) = self.hibernation_blocker() {
            return self.decline_hibernation(blocker);
        }
        // `None`: the journal is short enough to be replayed, so no snapshot is needed.
        let Some(max_bytes) = self.journal_tail.max_image_bytes_before_hibernation() else {
            return self.stop_hibernated();
        };
        self.journal_tail = self.journal_tail.with_pending_image();
        let pid = self.pid();
        let at = self.last_fact;
        let image = Box::new(self.state.image());
        let myself = self.myself.clone();
        let acknowledge = Box::new(move |result| {
            // If the actor has stopped, its successor reads the journal instead.
            let _ = myself.cast(ProcessMessage::SnapshotWritten { result });
        });
        self.context.append_records(
            vec![LogRecord::Snapshot {
                pid,
                at,
                image,
                max_bytes,
            }],
            acknowledge,
        );
    }

    /// Hibernates, if the time that the write took has left nothing to do: the timer of the process
    /// itself may have expired a call.
    pub(super) fn on_snapshot_written(&mut self, result: Result<AppendSize, CommitError>) {
        let snapshot = result.map(|size| size.snapshot);
        self.journal_tail = match &snapshot {
            Ok(SnapshotOutcome::Written(bytes)) => self.journal_tail.after_image(*bytes),
            Ok(SnapshotOutcome::Skipped | SnapshotOutcome::None) | Err(_) => {
                self.journal_tail.without_pending_image()
            }
        };
        let failed = snapshot.err().map(HibernationBlocker::SnapshotFailed);
        match failed.or_else(|| self.hibernation_blocker()) {
            Some(blocker) => self.decline_hibernation(blocker),
            None => self.stop_hibernated(),
        }
    }

    /// Stops the actor. Nothing is pending, and the supervisor delivers no input until it has the
    /// answer.
    fn stop_hibernated(&mut self) {
        self.is_quiescent = true;
        self.cast_to_supervisor(HibernationMessage::Hibernated { pid: self.pid() });
        self.myself.stop(None);
    }

    fn decline_hibernation(&mut self, blocker: HibernationBlocker) {
        self.cast_to_supervisor(HibernationMessage::HibernationDeclined {
            pid: self.pid(),
            blocker,
        });
    }
}
