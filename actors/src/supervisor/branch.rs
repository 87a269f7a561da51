//! Checkpoints of a tree, and the creation of several processes in one commit for a branch or an
//! import.
//!
//! A branch copies no content and rewrites no image. Each member of the cut (`consistent_cut.rs`)
//! becomes a new process with a new pid. The parent of a new process is the new process that was
//! made from the original parent. A new process keeps the origin of the original, so that its
//! parent finds it by the call that created it. Each new process then resumes as after a restart.
//! The temporary files of the tree are copied with it. An import creates its processes in the same
//! way.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_content::Content;
use dormouse_kernel::process::{Image, waiting_of_image};
use dormouse_kernel::program::Program;
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CheckpointId, Pid};
use dormouse_proto::process::{BranchOrigin, Exit, ProcessRow};
use dormouse_proto::record::Phase;
use dormouse_proto::temp_file::TempFileRecord;
use tokio::sync::oneshot;

use super::entry::RunState;
use super::table::FinalState;
use super::{BirthMessage, HandleParts, PendingProcess, Supervisor};
use crate::checkpoint::{
    CheckpointMessage, CommitError, LogRecord, NewCheckpoint, NewCheckpointReply,
};
use crate::error::{KernelError, NotFound};

/// A process and its descendants, including those that have ended.
pub(crate) struct ProcessTree {
    /// The root process of the tree.
    pub(crate) root: Pid,
    /// Sorted by pid, so parents come before their children.
    pub(crate) rows: Vec<ProcessRow>,
    /// The highest pid that was assigned so far.
    pub(crate) last_pid: Pid,
}

impl ProcessTree {
    /// The processes whose records belong to the tree. Those of the root include the temporary
    /// files, even if the root is not among the rows.
    pub(crate) fn pids(&self) -> impl Iterator<Item = Pid> {
        self.rows.iter().map(|row| row.pid).chain([self.root])
    }
}

/// Receives the process tree.
pub(crate) type ProcessTreeReply = oneshot::Sender<Result<ProcessTree, KernelError>>;

/// A request to create processes from the members of a cut or an export.
pub(crate) struct BranchRequest {
    /// The members, each after its parent.
    pub(crate) processes: Vec<RestoredProcess>,
    /// The index in `processes` of the member whose handle is returned.
    pub(crate) requested_index: usize,
    /// The changes of the temporary files of the tree.
    pub(crate) temp_files: Vec<TempFileRecord<Content>>,
    /// A temporary checkpoint that the commit drops.
    pub(crate) drop_checkpoint: Option<CheckpointId>,
    pub(crate) launch: Launch,
    pub(crate) reply: BranchReply,
}

/// A member of a cut or an export, in the state of that cut.
pub(crate) struct RestoredProcess {
    /// The original row. The name is kept if no living process has it.
    pub(crate) row: ProcessRow,
    pub(crate) branched_from: BranchOrigin,
    pub(crate) program: Program,
    pub(crate) image: Box<Image>,
}

/// What happens to new processes once they are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launch {
    /// They run.
    Run,
    /// They are held: they stay unloaded until they are resumed or receive an input.
    Hold,
}

/// The result of a branch or an import.
pub(crate) struct BranchResult {
    /// The handle of the requested process.
    pub(crate) handle: HandleParts,
    /// The new processes, in the order of the request.
    pub(crate) pids: Vec<Pid>,
}

/// Receives the result of a branch or an import.
pub(crate) type BranchReply = oneshot::Sender<Result<BranchResult, KernelError>>;

/// New processes whose birth records are not durable yet.
pub(crate) struct PendingBranch {
    pending: Vec<PendingProcess>,
    requested_index: usize,
    launch: Launch,
    reply: BranchReply,
}

impl Supervisor {
    /// Requests a checkpoint of the processes that exist now. A process that is created later is not
    /// a member, and need not be: its birth record follows the checkpoint in the log, so no member
    /// knows of it at the cut.
    pub(super) fn make_checkpoint(
        &self,
        pid: Pid,
        scope: Scope,
        label: Arc<str>,
        reply: NewCheckpointReply,
    ) {
        if self.table.get(pid).is_none() {
            // The requester has dropped its receiver if it no longer waits.
            return drop(reply.send(Err(
                self.or_lost_record(KernelError::NotFound(NotFound::Process(pid))),
            )));
        }
        let members = match scope {
            Scope::Process => vec![pid],
            Scope::Tree => self.tree_pids(pid),
        };
        let checkpoint = NewCheckpoint {
            label,
            pid,
            root: self.table.root(pid),
            scope,
            members,
        };
        // If the actor has stopped, the reply channel is dropped with the message.
        let _ = self
            .context
            .checkpoint
            .cast(CheckpointMessage::MakeCheckpoint {
                new_checkpoint: checkpoint,
                in_use: self.context.in_use.clone(),
                reply,
            });
    }

    pub(super) fn list_tree(&self, pid: Pid, reply: ProcessTreeReply) {
        let rows = self
            .tree_pids(pid)
            .into_iter()
            .filter_map(|pid| self.table.row(pid));
        let process_tree = ProcessTree {
            root: self.table.root(pid),
            rows: rows.collect(),
            last_pid: self.table.pids.last_assigned(),
        };
        let is_unknown = process_tree.rows.is_empty();
        // The requester has dropped its receiver if it no longer waits.
        let _ = reply.send(if is_unknown {
            Err(self.or_lost_record(KernelError::NotFound(NotFound::Process(pid))))
        } else {
            Ok(process_tree)
        });
    }

    /// A process and its descendants, living or ended, sorted by pid.
    fn tree_pids(&self, pid: Pid) -> Vec<Pid> {
        let mut pids = vec![pid];
        let mut next = 0;
        while let Some(parent) = pids.get(next).copied() {
            pids.extend(self.table.children_of(parent).map(|(child, _)| child));
            next += 1;
        }
        pids.sort_unstable();
        pids
    }

    /// Makes the birth records of all processes of a branch or an import durable in one commit.
    pub(super) fn branch(&mut self, request: BranchRequest) {
        let BranchRequest {
            processes,
            requested_index,
            temp_files,
            drop_checkpoint,
            launch,
            reply,
        } = request;
        let pending = match self.assign_pids(processes) {
            Ok(pending) => pending,
            // The requester has dropped its receiver if it no longer waits.
            Err(error) => return drop(reply.send(Err(error))),
        };
        let Some(root) = pending.first().map(|process| process.row.pid) else {
            // The requester has dropped its receiver if it no longer waits.
            return drop(reply.send(Err(NotFound::Member.into())));
        };
        let mut records = Vec::new();
        for process in &pending {
            records.push(LogRecord::Created {
                row: process.row.clone(),
                image: process.image.clone(),
            });
            records.extend(process.exit_at_cut().map(|exit| LogRecord::Ended {
                pid: process.row.pid,
                exit,
            }));
        }
        for record in temp_files {
            records.push(LogRecord::TempFile { root, record });
        }
        records.extend(drop_checkpoint.map(|id| LogRecord::CheckpointDropped { id }));
        for process in &pending {
            self.table.reserve(process.row.clone());
            self.local_ids.insert(root, &process.row);
        }
        let branch = PendingBranch {
            pending,
            requested_index,
            launch,
            reply,
        };
        let myself = self.myself.clone();
        let acknowledge = Box::new(move |result: Result<_, _>| {
            // If the supervisor has stopped, the kernel is shutting down.
            let _ = myself.cast(
                BirthMessage::BranchCommitted {
                    branch: Box::new(branch),
                    result: result.map(drop),
                }
                .into(),
            );
        });
        self.context.append_records(records, acknowledge);
    }

    /// Assigns new pids; parents come before their children. The new pids are greater than every
    /// local id in the conversations of the processes: an id there never means one of the new
    /// processes by accident. If the exporting kernel numbers higher than this one may, the new pids
    /// are greater than the local ids of the members, and `local_ids.rs` tells the others apart.
    ///
    /// # Errors
    /// [`StartError::NoPidLeft`](crate::StartError::NoPidLeft);
    /// [`ExportFailure::Unusable`](crate::ExportFailure::Unusable).
    fn assign_pids(
        &mut self,
        processes: Vec<RestoredProcess>,
    ) -> Result<Vec<PendingProcess>, KernelError> {
        let mut new_pids: BTreeMap<Pid, Pid> = BTreeMap::new();
        for RestoredProcess { branched_from, .. } in &processes {
            if let Some(import) = branched_from.import {
                self.table.pids.skip_up_to(import.last_pid)?;
                self.table.pids.skip_up_to(branched_from.local_id)?;
            }
        }
        let to_pending = |RestoredProcess {
                              row,
                              branched_from,
                              program,
                              image,
                          }|
         -> Result<PendingProcess, KernelError> {
            let pid = self.table.pids.assign()?;
            new_pids.insert(row.pid, pid);
            let parent = row.parent.and_then(|parent| new_pids.get(&parent).copied());
            // The root of a branch may have been a child. An import has the labels that it was given.
            let labels = match parent {
                None if branched_from.is_imported() => row.labels,
                None => self.table.labels(row.pid),
                Some(_) => Arc::default(),
            };
            let name = row
                .name
                .filter(|name| self.table.find_by_name(name).is_none());
            let row = ProcessRow {
                pid,
                parent,
                branched_from: Some(branched_from),
                name,
                exit: None,
                reopenings: image.reopenings,
                waiting: waiting_of_image(&image),
                is_paused: image.pausing.paused.is_some(),
                labels,
                ..row
            };
            Ok(PendingProcess {
                row,
                program,
                image,
                client: None,
            })
        };
        processes.into_iter().map(to_pending).collect()
    }

    pub(super) async fn on_branch_committed(
        &mut self,
        branch: PendingBranch,
        result: Result<(), CommitError>,
    ) {
        let PendingBranch {
            pending,
            requested_index,
            launch,
            reply,
        } = branch;
        let pids: Vec<Pid> = pending.iter().map(|process| process.row.pid).collect();
        let Some(root) = pids.first().copied() else {
            return;
        };
        if let Err(error) = result {
            for process in &pending {
                self.local_ids.remove(root, &process.row);
                self.remove_pending(&process.row);
            }
            // The requester has dropped its receiver if it no longer waits.
            return drop(reply.send(Err(error.into())));
        }
        let requested = pids.get(requested_index).copied().unwrap_or(root);
        let (ended, living): (Vec<_>, Vec<_>) = pending
            .into_iter()
            .partition(|process| process.exit_at_cut().is_some());
        for process in &ended {
            process.exit_at_cut().iter().for_each(|exit| {
                drop(
                    self.table
                        .record_end(process.row.pid, exit, FinalState::InJournal),
                )
            });
        }
        for process in living {
            self.mark_orphan(&process.row);
            match launch {
                Launch::Run => self.run_new_process(process, None).await,
                Launch::Hold => self.leave_unloaded(process.row.pid),
            }
        }
        let _ = reply.send(
            self.handle_parts(requested)
                .map(|handle| BranchResult { handle, pids }),
        );
    }

    /// Leaves a new process unloaded, unless an input for it arrived in the meantime.
    pub(super) fn leave_unloaded(&mut self, pid: Pid) {
        self.table.set_run_state(pid, RunState::Held);
        if self.table.has_pending_input(pid) {
            self.wake(pid);
        }
    }

    /// Marks a process whose parent had ended at the cut, so that it is killed, as after a restart.
    fn mark_orphan(&mut self, row: &ProcessRow) {
        let parent = row.parent.and_then(|parent| self.table.get(parent));
        let is_orphan = parent.is_some_and(|parent| parent.exit().is_some());
        if let Some(entry) = self.table.get_mut(row.pid) {
            entry.is_kill_pending |= is_orphan;
        }
    }
}

impl PendingProcess {
    /// The exit of the process, if it had ended at the cut.
    fn exit_at_cut(&self) -> Option<Exit> {
        match &self.image.phase {
            Phase::Ended { exit } => Some(exit.clone()),
            Phase::Idle | Phase::Thinking { .. } | Phase::Acting { .. } | Phase::Ready { .. } => {
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::Kernel;

    #[tokio::test]
    async fn a_branch_without_processes_is_an_error() {
        let kernel = Kernel::builder().build().await.unwrap();
        let request = |reply| BranchRequest {
            processes: Vec::new(),
            requested_index: 0,
            temp_files: Vec::new(),
            drop_checkpoint: None,
            launch: Launch::Run,
            reply,
        };
        let error = kernel.create_branch(request).await.unwrap_err();
        assert!(
            matches!(error, KernelError::NotFound(NotFound::Member)),
            "{error}"
        );
    }
}
