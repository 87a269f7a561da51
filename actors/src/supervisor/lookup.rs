//! Queries of the process table, and handles of processes.

use std::sync::Arc;

use dormouse_proto::id::{FactNumber, Pid};
use ractor::ActorRef;
use tokio::sync::{Semaphore, oneshot, watch};

use super::branch::ProcessTreeReply;
use super::entry::Watched;
use super::mail::ReachableProcesses;
use super::table::{HandleChannels, HeldPage, ListFilter, ListedProcess};
use super::{HibernationMessage, Supervisor, SupervisorMessage};
use crate::error::{KernelError, NotFound};

/// A query of the process table, or the removal of deleted processes from it.
pub(crate) enum LookupMessage {
    /// The handle of a process, loaded or not.
    Find { pid: Pid, reply: HandleReply },
    /// The handle of the living process with a name.
    FindNamed { name: Arc<str>, reply: HandleReply },
    /// Rows of the process table.
    List {
        filter: ListFilter,
        reply: oneshot::Sender<Vec<ListedProcess>>,
    },
    /// The held calls of the processes after a pid.
    ListHeld {
        after: Option<Pid>,
        reply: oneshot::Sender<HeldPage>,
    },
    /// The processes that a process can write to.
    ListReachable {
        pid: Pid,
        reply: oneshot::Sender<ReachableProcesses>,
    },
    /// A process and its descendants, including those that have ended.
    ListTree { pid: Pid, reply: ProcessTreeReply },
    /// The processes that a process was copied or restored from.
    Lineage {
        pid: Pid,
        reply: oneshot::Sender<Lineage>,
    },
    /// A garbage collection deleted these ended processes.
    RemoveDeleted { pids: Vec<Pid> },
}

/// A process, then the process that it was copied or restored from, and so on, each with the last
/// fact that was taken from it.
pub(crate) type Lineage = Vec<(Pid, Option<FactNumber>)>;

/// The parts of a process handle.
pub(crate) struct HandleParts {
    pub(crate) pid: Pid,
    pub(crate) watched: watch::Receiver<Watched>,
    pub(crate) inbox_slots: Arc<Semaphore>,
    pub(crate) guard: Arc<HandleGuard>,
}

/// Notifies the supervisor on drop that no handle of the process is left.
pub(crate) struct HandleGuard {
    pid: Pid,
    supervisor: ActorRef<SupervisorMessage>,
}

impl Drop for HandleGuard {
    fn drop(&mut self) {
        // If the supervisor has stopped, the kernel is shutting down.
        let _ = self
            .supervisor
            .cast(HibernationMessage::HandlesDropped { pid: self.pid }.into());
    }
}

/// Receives the handle of a process.
pub(crate) type HandleReply = oneshot::Sender<Result<HandleParts, KernelError>>;

impl Supervisor {
    pub(super) fn handle_lookup(&mut self, message: LookupMessage) {
        // A requester that no longer waits has dropped its side of the reply.
        match message {
            LookupMessage::Find { pid, reply } => {
                let _ = reply.send(self.handle_parts(pid));
            }
            LookupMessage::FindNamed { name, reply } => {
                let _ = reply.send(self.find_named(&name));
            }
            LookupMessage::List { filter, reply } => {
                let _ = reply.send(self.table.list(filter));
            }
            LookupMessage::ListHeld { after, reply } => {
                let _ = reply.send(self.table.list_held(after));
            }
            LookupMessage::ListReachable { pid, reply } => self.list_reachable(pid, reply),
            LookupMessage::ListTree { pid, reply } => self.list_tree(pid, reply),
            LookupMessage::Lineage { pid, reply } => {
                let _ = reply.send(self.lineage(pid));
            }
            LookupMessage::RemoveDeleted { pids } => self.remove_deleted(&pids),
        }
    }

    fn find_named(&mut self, name: &str) -> Result<HandleParts, KernelError> {
        let pid = self.table.find_by_name(name).ok_or_else(|| {
            self.or_lost_record(KernelError::NotFound(NotFound::Name(name.to_owned())))
        })?;
        self.handle_parts(pid)
    }

    /// Subscribes a new handle to a process.
    pub(super) fn handle_parts(&mut self, pid: Pid) -> Result<HandleParts, KernelError> {
        let HandleChannels {
            watched,
            inbox_slots,
        } = self
            .table
            .handle_channels(pid)
            .map_err(|unknown| self.or_lost_record(unknown))?;
        let guard = Arc::new(HandleGuard {
            pid,
            supervisor: self.myself.clone(),
        });
        Ok(HandleParts {
            pid,
            watched,
            inbox_slots,
            guard,
        })
    }

    /// Turns `unknown` into an error that says that the process may be lost, if the store could not
    /// list all processes: absence from the table is then not authoritative (LOST-1).
    pub(super) fn or_lost_record(&self, unknown: KernelError) -> KernelError {
        match self.context.describe_losses() {
            None => unknown,
            Some(lost) => KernelError::NotFound(NotFound::MayBeLost {
                unknown: unknown.to_string(),
                lost,
            }),
        }
    }

    /// Removes ended processes. A collection deletes whole trees only.
    fn remove_deleted(&mut self, pids: &[Pid]) {
        for row in pids.iter().filter_map(|pid| self.table.row(*pid)) {
            self.local_ids.remove(self.table.root(row.pid), &row);
        }
        pids.iter().for_each(|pid| self.table.remove_ended(*pid));
    }
}
