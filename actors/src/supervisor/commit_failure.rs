//! What becomes of processes when the store refuses a commit: they stop, are told of nothing that
//! has not happened, and go on from their journals when they are resumed.
//!
//! A process that cannot be made durable stops, and with it all above it, up to the one that the
//! host waits for: a parent that went on would go on without what its child was about to do, and
//! end for good what a full disk has only stopped. Where the store takes nothing more, every
//! process stops.

use dormouse_proto::id::Pid;
use dormouse_proto::process::Origin;

use super::entry::{ProcessEntry, Run};
use super::{PendingProcess, Supervisor};
use crate::checkpoint::CommitError;
use crate::error::NotFound;

impl Supervisor {
    /// Facts of a process were not made durable.
    pub(super) fn on_commit_failed(&mut self, pid: Pid, error: &CommitError) {
        match error {
            CommitError::Codec(_) => self.unload_failed(pid, &error.to_string()),
            CommitError::Store(_) | CommitError::Closed => self.stop_for_commit_error(pid, error),
        }
    }

    /// A child that could not be made durable never was. Its parent makes it again when it is
    /// resumed; where it is the child itself that cannot be written, its parent gets that as its
    /// end.
    pub(super) fn on_creation_failed(&mut self, process: &PendingProcess, error: &CommitError) {
        for reply in self.table.take_run_waiters(process.row.pid) {
            // The requester has dropped its receiver if it no longer waits.
            let _ = reply.send(Err(NotFound::Process(process.row.pid).into()));
        }
        self.table.remove(&process.row);
        match (process.row.parent, &process.row.origin) {
            (Some(parent), Origin::Forked { .. } | Origin::Spawned { .. })
                if error.is_from_store() =>
            {
                self.stop_for_commit_error(parent, error);
            }
            _ => self.report_creation_failed(process, error),
        }
    }

    fn stop_for_commit_error(&mut self, pid: Pid, error: &CommitError) {
        if !error.is_final() {
            return self.stop_with_ancestors(pid, &error.to_string());
        }
        let others: Vec<_> = self.table.living().filter(|other| *other != pid).collect();
        for pid in [pid].into_iter().chain(others) {
            self.stop_process(pid, &error.to_string());
        }
    }

    /// Stops a process that cannot go on, and all that wait for it.
    pub(super) fn stop_with_ancestors(&mut self, pid: Pid, reason: &str) {
        let parent = |pid: &Pid| self.table.get(*pid).and_then(ProcessEntry::parent);
        let stopping: Vec<_> = std::iter::successors(Some(pid), parent).collect();
        stopping
            .into_iter()
            .for_each(|pid| self.stop_process(pid, reason));
    }

    /// It is only its journal from here on; whoever waits for it is told why.
    fn stop_process(&mut self, pid: Pid, reason: &str) {
        if !matches!(self.table.run_of(pid), Some(Run::Running | Run::Loading)) {
            return;
        }
        tracing::error!(%pid, reason, "a process was stopped");
        if let Some(actor) = self.table.live_mut(pid).and_then(|live| live.actor.take()) {
            actor.kill();
            self.table.mark_stopping(actor.get_id());
        }
        self.table.unload(pid, reason);
        self.answer_run_waiters(pid);
    }

    /// Answers those who wait for a process to run that was stopped first: to wait for its end says
    /// why.
    fn answer_run_waiters(&mut self, pid: Pid) {
        for reply in self.table.take_run_waiters(pid) {
            // The requester has dropped its receiver if it no longer waits.
            let _ = reply.send(self.handle_parts(pid));
        }
    }
}
