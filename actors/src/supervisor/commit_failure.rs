//! Handles commits that the store refuses. The affected processes stop, and no caller gets a
//! success that is not durable. When the processes are resumed, they continue from their journals.
//!
//! A process that cannot be made durable stops together with all of its ancestors. A parent that
//! continued without the result of its child would turn a full disk into a permanent failure. If
//! the store accepts no further commits, every process stops.

use dormouse_proto::id::Pid;
use dormouse_proto::process::{Origin, ProcessRow};

use super::entry::{ProcessEntry, RunState};
use super::{PendingProcess, Supervisor};
use crate::checkpoint::CommitError;
use crate::error::NotFound;
use crate::ownership::CloseReason;

impl Supervisor {
    /// The facts of a process could not be made durable.
    pub(super) fn on_commit_failed(&mut self, pid: Pid, error: &CommitError) {
        match error {
            CommitError::Codec(_) => self.unload_failed(pid, &error.to_string()),
            CommitError::Store(_) | CommitError::Closed | CommitError::LeaseLost => {
                self.stop_for_commit_error(pid, error);
            }
        }
    }

    /// A child whose birth could not be made durable does not exist. If the store refused it, its
    /// parent stops and creates it again when it is resumed; if the child itself cannot be encoded,
    /// its parent receives the error as the exit of the child.
    pub(super) fn on_creation_failed(&mut self, process: &PendingProcess, error: &CommitError) {
        self.remove_pending(&process.row);
        match (process.row.parent, &process.row.origin) {
            (
                Some(parent),
                Origin::Forked { .. } | Origin::Spawned { .. } | Origin::Judge { .. },
            ) if error.is_from_store() => {
                self.stop_for_commit_error(parent, error);
            }
            _ => self.report_creation_failed(process, error),
        }
    }

    /// Removes a process whose birth could not be made durable. Callers that wait for it to run learn
    /// that it does not exist.
    pub(super) fn remove_pending(&mut self, row: &ProcessRow) {
        for reply in self.table.take_run_waiters(row.pid) {
            // The requester has dropped its receiver if it no longer waits.
            let _ = reply.send(Err(NotFound::Process(row.pid).into()));
        }
        self.table.remove(row);
    }

    fn stop_for_commit_error(&mut self, pid: Pid, error: &CommitError) {
        if !error.is_final() {
            return self.stop_with_ancestors(pid, &error.to_string());
        }
        self.stop_all(&error.to_string());
    }

    /// Stops every process, since the kernel may begin nothing any more.
    pub(super) fn stop_all(&mut self, reason: &str) {
        let living: Vec<_> = self.table.living().collect();
        for pid in living {
            self.stop_process(pid, reason);
        }
    }

    /// Leaves a process unloaded, because the kernel has closed. Callers that wait for it get the
    /// reason.
    pub(super) fn refuse_load(&mut self, pid: Pid, reason: &CloseReason) {
        self.table.unload(pid, &reason.to_string());
        self.answer_run_waiters(pid);
    }

    /// Stops a process that cannot continue, and its ancestors, which wait for it.
    pub(super) fn stop_with_ancestors(&mut self, pid: Pid, reason: &str) {
        let parent = |pid: &Pid| self.table.get(*pid).and_then(ProcessEntry::parent);
        let pids: Vec<_> = std::iter::successors(Some(pid), parent).collect();
        pids.into_iter()
            .for_each(|pid| self.stop_process(pid, reason));
        // A process that was being woken has made room for another one.
        self.wake_due_processes();
    }

    /// Kills the actor and leaves the process unloaded; callers that wait for the process get the
    /// reason.
    fn stop_process(&mut self, pid: Pid, reason: &str) {
        if !matches!(
            self.table.run_state(pid),
            Some(RunState::Running | RunState::Loading | RunState::Hibernating)
        ) {
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

    /// Answers the callers that wait for the process to run with a handle; waiting for its end
    /// returns the reason.
    fn answer_run_waiters(&mut self, pid: Pid) {
        for reply in self.table.take_run_waiters(pid) {
            // The requester has dropped its receiver if it no longer waits.
            let _ = reply.send(self.handle_parts(pid));
        }
    }
}
