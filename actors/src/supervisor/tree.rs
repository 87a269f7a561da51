//! Operations on several processes of a tree: signals, checkpoints, and the children of a call.

use std::sync::Arc;

use dormouse_kernel::process::{Input, Signal};
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CallId, Pid};
use ractor::ActorRef;
use tokio::sync::oneshot;

use super::branch::ProcessTree;
use super::entry::RunState;
use super::{LookupMessage, Supervisor, SupervisorMessage};
use crate::checkpoint::NewCheckpointReply;
use crate::error::{KernelError, NotFound, ProcessError};
use crate::process::{Delivery, DurableReply};

/// Operations on several processes of a tree.
pub(crate) enum TreeMessage {
    /// Send a signal to a process and its descendants.
    SignalTree {
        root: Pid,
        signal: Signal,
        durable_reply: DurableReply,
    },
    /// Create a checkpoint of a process, or of a process and its descendants.
    MakeCheckpoint {
        pid: Pid,
        scope: Scope,
        label: Arc<str>,
        reply: NewCheckpointReply,
    },
    /// Look for a child that a call created, and report the result to its parent.
    FindChild {
        parent: Pid,
        call: CallId,
        index: u32,
        /// How often the child was opened again, as far as its parent knows.
        reopenings: u32,
    },
    /// Kill the children of these calls.
    KillChildren { parent: Pid, calls: Vec<CallId> },
    /// Kill the children of all calls except these.
    KillChildrenExcept { parent: Pid, calls: Vec<CallId> },
    /// A process is paused at a limit, durably, or goes on.
    SetPaused { pid: Pid, is_paused: bool },
    /// Isolate the trees with these roots: messages from other trees are refused.
    Isolate { roots: Vec<Pid> },
}

impl Supervisor {
    pub(super) fn handle_tree(&mut self, message: TreeMessage) {
        match message {
            TreeMessage::SignalTree {
                root,
                signal,
                durable_reply,
            } => self.signal_tree(root, signal, durable_reply),
            TreeMessage::MakeCheckpoint {
                pid,
                scope,
                label,
                reply,
            } => self.make_checkpoint(pid, scope, label, reply),
            TreeMessage::FindChild {
                parent,
                call,
                index,
                reopenings,
            } => self.find_child(parent, call, index, reopenings),
            TreeMessage::KillChildren { parent, calls } => {
                self.kill_children_of_calls(parent, &calls)
            }
            TreeMessage::KillChildrenExcept { parent, calls } => {
                self.kill_children_of_other_calls(parent, &calls)
            }
            TreeMessage::SetPaused { pid, is_paused } => self.set_paused(pid, is_paused),
            TreeMessage::Isolate { roots } => self.isolated_trees.extend(roots),
        }
    }

    /// Signals a process and its descendants, parents first. `durable_reply` is answered when the
    /// signal is durable in all of them, or with the error of the first process that failed; a
    /// process that ends in the meantime counts as signalled. Children that are being created while
    /// their tree is stopped start stopped.
    fn signal_tree(&mut self, root: Pid, signal: Signal, durable_reply: DurableReply) {
        let deliverable = match self.table.run_state(root) {
            None => Err(self.or_lost_record(KernelError::NotFound(NotFound::Process(root)))),
            Some(RunState::Ended) => Err(ProcessError::Ended(root).into()),
            Some(_) => Ok(()),
        };
        if let Err(error) = deliverable {
            // The requester has dropped its receiver if it no longer waits.
            return drop(durable_reply.send(Err(error)));
        }
        let mut pending = Vec::new();
        for pid in self.table.living_tree(root) {
            if let Signal::Stop | Signal::Continue = signal {
                self.table.set_stop_inherited(pid, signal == Signal::Stop);
            }
            let (durable_reply, durable_result) = oneshot::channel();
            pending.push((pid, durable_result));
            self.deliver(
                pid,
                Delivery {
                    durable_reply: Some(durable_reply),
                    ..Delivery::internal(Input::Signal(signal))
                },
            );
        }
        let supervisor = self.myself.clone();
        tokio::spawn(async move {
            let mut result = Ok(());
            for (pid, durable_result) in pending {
                let signal_result = match durable_result.await {
                    Ok(Err(KernelError::Process(ProcessError::Ended(_)))) => Ok(()),
                    Ok(signal_result) => signal_result,
                    Err(_) => check_ended(&supervisor, pid).await,
                };
                result = result.and(signal_result);
            }
            let _ = durable_reply.send(result);
        });
    }
}

/// Checks whether a process that did not answer has ended. Otherwise it stopped without making the
/// signal durable. The supervisor knows which, because a process reports its end before it stops.
async fn check_ended(
    supervisor: &ActorRef<SupervisorMessage>,
    pid: Pid,
) -> Result<(), KernelError> {
    let (reply, process_tree) = oneshot::channel();
    supervisor
        .cast(LookupMessage::ListTree { pid, reply }.into())
        .map_err(|_| KernelError::Closed)?;
    let is_alive = match process_tree.await.map_err(|_| KernelError::Closed)? {
        Ok(ProcessTree { rows, .. }) => rows.iter().any(|row| row.pid == pid && row.exit.is_none()),
        // A garbage collection deletes ended processes only.
        Err(_) => false,
    };
    if is_alive {
        return Err(ProcessError::Unanswered(pid).into());
    }
    Ok(())
}
