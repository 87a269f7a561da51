//! Branches and checkpoints of a tree: who is in one, and the births of a branch or an import, all
//! in one commit.
//!
//! A branch copies no content and rewrites no image: each process that is in the cut becomes a new
//! one under a new pid, its parent is the branch of its parent, and its origin is that of the
//! other, so that the parent finds it by call, as after a restart. Then each goes on as after a
//! restart. The temporary files of the tree come with it. What an export holds is born in the same
//! way.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_content::Content;
use dormouse_kernel::process::Image;
use dormouse_kernel::program::Program;
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CheckpointId, Pid};
use dormouse_proto::process::{Exit, ProcessRow, Restored};
use dormouse_proto::record::Phase;
use dormouse_proto::temp_file::TempFileRecord;
use tokio::sync::oneshot;

use super::entry::Run;
use super::table::FinalState;
use super::{BirthMessage, HandleParts, PendingProcess, Supervisor};
use crate::checkpoint::{
    CheckpointMessage, CommitError, LogRecord, NewCheckpoint, NewCheckpointReply,
};
use crate::error::{KernelError, NotFound};

/// A process, and all below it.
pub(crate) struct ProcessTree {
    /// The root process of the tree.
    pub(crate) root: Pid,
    /// By rising pid, which is parents first.
    pub(crate) rows: Vec<ProcessRow>,
    /// The highest pid that was given so far.
    pub(crate) last: Pid,
}

/// Where the members of a process tree go.
pub(crate) type ProcessTreeReply = oneshot::Sender<Result<ProcessTree, KernelError>>;

/// What new processes grow from.
pub(crate) struct BranchRequest {
    /// The processes, each after its parent.
    pub(crate) processes: Vec<ImportedProcess>,
    /// Which of them is answered with.
    pub(crate) requested: usize,
    /// The changes of the temporary files of the tree.
    pub(crate) files: Vec<TempFileRecord<Content>>,
    /// A checkpoint that was made for this only.
    pub(crate) drop_checkpoint: Option<CheckpointId>,
    pub(crate) launch: Launch,
    pub(crate) reply: BranchedReply,
}

/// A process as it stood at the cut.
pub(crate) struct ImportedProcess {
    /// Its row there. It keeps its name where nobody here has it.
    pub(crate) row: ProcessRow,
    pub(crate) restored: Restored,
    pub(crate) program: Program,
    pub(crate) image: Box<Image>,
}

/// What new processes do once they are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launch {
    /// They run.
    Run,
    /// They are held: only their journals, until somebody runs them or speaks to them.
    Hold,
}

/// What grew.
pub(crate) struct Branched {
    /// A place at the process that was asked for.
    pub(crate) handle: HandleParts,
    /// The new processes, in the order of what they grew from.
    pub(crate) pids: Vec<Pid>,
}

/// Where it goes.
pub(crate) type BranchedReply = oneshot::Sender<Result<Branched, KernelError>>;

/// New processes whose births are on their way to the disk.
pub(crate) struct PendingBranch {
    pending: Vec<PendingProcess>,
    requested: usize,
    launch: Launch,
    reply: BranchedReply,
}

impl Supervisor {
    /// Appends a checkpoint behind all births so far: a process whose birth comes later is not in
    /// it, and nothing that stands before it knows of that process.
    pub(super) fn make_checkpoint(
        &self,
        of: Pid,
        scope: Scope,
        label: Arc<str>,
        reply: NewCheckpointReply,
    ) {
        if self.table.get(of).is_none() {
            // The requester has dropped its receiver if it no longer waits.
            return drop(reply.send(Err(
                self.or_lost_record(KernelError::NotFound(NotFound::Process(of))),
            )));
        }
        let members = match scope {
            Scope::Process => vec![of],
            Scope::Tree => self.tree_pids(of),
        };
        let checkpoint = NewCheckpoint {
            label,
            of,
            root: self.table.root(of),
            scope,
            members,
        };
        // If the actor has stopped, the reply channel is dropped with the message.
        let _ = self
            .context
            .checkpoint
            .cast(CheckpointMessage::MakeCheckpoint {
                new_checkpoint: checkpoint,
                checkpoints_in_use: self.context.checkpoints_in_use.clone(),
                reply,
            });
    }

    pub(super) fn list_tree(&self, of: Pid, reply: ProcessTreeReply) {
        let rows = self
            .tree_pids(of)
            .into_iter()
            .filter_map(|pid| self.table.row(pid));
        let process_tree = ProcessTree {
            root: self.table.root(of),
            rows: rows.collect(),
            last: self.table.last_pid(),
        };
        // The requester has dropped its receiver if it no longer waits.
        let is_unknown = process_tree.rows.is_empty();
        let _ = reply.send(if is_unknown {
            Err(self.or_lost_record(KernelError::NotFound(NotFound::Process(of))))
        } else {
            Ok(process_tree)
        });
    }

    /// A process and all below it, living or not, by rising pid.
    fn tree_pids(&self, of: Pid) -> Vec<Pid> {
        let mut process_tree = vec![of];
        let mut next = 0;
        while let Some(parent) = process_tree.get(next).copied() {
            process_tree.extend(self.table.children_of(parent).map(|(child, _)| child));
            next += 1;
        }
        process_tree.sort_unstable();
        process_tree
    }

    /// Makes births durable, all together; what becomes of the processes then is said by how they
    /// are launched.
    pub(super) fn branch(&mut self, branching: BranchRequest) {
        let BranchRequest {
            processes,
            requested,
            files,
            drop_checkpoint,
            launch,
            reply,
        } = branching;
        let pending = self.assign_pids(processes);
        let Some(root) = pending.first().map(|process| process.row.pid) else {
            return;
        };
        let mut entries = Vec::new();
        for process in &pending {
            entries.push(LogRecord::Born {
                row: process.row.clone(),
                image: process.image.clone(),
            });
            entries.extend(process.ended().map(|exit| LogRecord::Ended {
                pid: process.row.pid,
                exit,
            }));
        }
        entries.extend(
            files
                .into_iter()
                .map(|record| LogRecord::TempFile { root, record }),
        );
        entries.extend(drop_checkpoint.map(|id| LogRecord::CheckpointDropped { id }));
        for process in &pending {
            self.table.reserve(process.row.clone());
            self.local_ids.insert(root, &process.row);
        }
        let branch = PendingBranch {
            pending,
            requested,
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
        self.context.append(entries, acknowledge);
    }

    /// New processes in place of those of the cut: parents come before their children. Their pids
    /// are greater than any number that stands in a conversation of theirs.
    fn assign_pids(&mut self, processes: Vec<ImportedProcess>) -> Vec<PendingProcess> {
        let mut new_pids: BTreeMap<Pid, Pid> = BTreeMap::new();
        let foreign = processes
            .iter()
            .filter_map(|process| process.restored.foreign);
        foreign.for_each(|foreign| self.table.raise_next_pid_above(foreign.last));
        let process = |ImportedProcess {
                           row,
                           restored,
                           program,
                           image,
                       }| {
            let pid = self.table.next_pid();
            new_pids.insert(row.pid, pid);
            let parent = row.parent.and_then(|parent| new_pids.get(&parent).copied());
            let name = row.name.filter(|name| self.table.named(name).is_none());
            let row = ProcessRow {
                pid,
                parent,
                restored: Some(restored),
                name,
                exit: None,
                ..row
            };
            PendingProcess {
                row,
                program,
                image,
            }
        };
        processes.into_iter().map(process).collect()
    }

    pub(super) async fn on_branch_committed(
        &mut self,
        branch: PendingBranch,
        result: Result<(), CommitError>,
    ) {
        let PendingBranch {
            pending,
            requested,
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
                self.table.remove(&process.row);
            }
            // The requester has dropped its receiver if it no longer waits.
            return drop(reply.send(Err(error.into())));
        }
        let requested = pids.get(requested).copied().unwrap_or(root);
        let (ended, living): (Vec<_>, Vec<_>) = pending
            .into_iter()
            .partition(|process| process.ended().is_some());
        for process in &ended {
            process
                .ended()
                .iter()
                .for_each(|exit| drop(self.table.end(process.row.pid, exit, FinalState::Journal)));
        }
        for process in living {
            self.kill_with_parent(&process.row);
            match launch {
                Launch::Run => self.run_new(process, None).await,
                Launch::Hold => self.leave_unloaded(process.row.pid),
            }
        }
        let _ = reply.send(
            self.handle_parts(requested)
                .map(|handle| Branched { handle, pids }),
        );
    }

    /// A process that is not to run by itself. Somebody may have spoken to it by its name.
    fn leave_unloaded(&mut self, pid: Pid) {
        self.table.set_run(pid, Run::Held);
        if self.table.has_pending_input(pid) {
            self.wake(pid);
        }
    }

    /// A child that outlived the end of its parent at the cut goes where it went.
    fn kill_with_parent(&mut self, row: &ProcessRow) {
        let parent = row.parent.and_then(|parent| self.table.get(parent));
        let is_orphan = parent.is_some_and(|parent| parent.exit().is_some());
        if let Some(entry) = self.table.get_mut(row.pid) {
            entry.kill_pending |= is_orphan;
        }
    }
}

impl PendingProcess {
    /// How the process had ended when the branch was cut, if it had.
    fn ended(&self) -> Option<Exit> {
        match &self.image.phase {
            Phase::Ended { exit } => Some(exit.clone()),
            Phase::Idle | Phase::Thinking { .. } | Phase::Acting { .. } | Phase::Ready { .. } => {
                None
            }
        }
    }
}
