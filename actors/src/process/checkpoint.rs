//! The checkpoint tools of a process, which create, list and read checkpoints. They run in a task,
//! so that abandoning the call cancels them.

use dormouse_kernel::process::{
    CheckpointError, CheckpointInfo, CheckpointOp, CheckpointReply, Completion, Input,
};
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CallId, CheckpointId};
use futures_util::future::FutureExt;
use tokio::sync::oneshot;

use super::{Delivery, RunningProcess};
use crate::checkpoint::NewCheckpointReply;
use crate::consistent_cut;
use crate::error::{KernelError, StoreFailure};
use crate::in_use::HistoryGuard;
use crate::ports::StoreError;
use crate::supervisor::{Lineage, LookupMessage, TreeMessage};

impl RunningProcess {
    /// Starts a checkpoint operation. The facts that a new checkpoint must cover are durable
    /// already, because effects wait for the facts before them. The lineage tells which checkpoints
    /// are the process's own: it names the processes that this one was copied or restored from.
    pub(super) fn start_checkpoint_op(&mut self, call: CallId, op: CheckpointOp) {
        let pid = self.pid();
        let context = self.context.clone();
        let (reply, lineage) = oneshot::channel();
        self.cast_to_supervisor(LookupMessage::Lineage { pid, reply });
        let new_guard = match &op {
            CheckpointOp::Make { label } => {
                let (reply, new_guard): (NewCheckpointReply, _) = oneshot::channel();
                let scope = Scope::Process;
                let label = label.clone();
                self.cast_to_supervisor(TreeMessage::MakeCheckpoint {
                    pid,
                    scope,
                    label,
                    reply,
                });
                Some(new_guard)
            }
            CheckpointOp::List | CheckpointOp::Read { .. } => None,
        };
        let work = async move {
            let lineage: Lineage = lineage
                .await
                .map_err(|_| to_checkpoint_error(KernelError::Closed))?;
            let new_guard = match new_guard {
                Some(new_guard) => Some(
                    new_guard
                        .await
                        .unwrap_or(Err(KernelError::Closed))
                        .map_err(to_checkpoint_error)?,
                ),
                None => None,
            };
            let query = move |store: &dyn crate::ports::Store,
                              context: &crate::context::KernelContext| {
                match (op, new_guard) {
                    (CheckpointOp::Read { id }, _) => {
                        let state =
                            consistent_cut::state_at_checkpoint(store, context, id, &lineage)?;
                        let (state, history) = state.ok_or(StoreError::UnknownCheckpoint(id))?;
                        Ok((CheckpointReply::Read(Box::new(state)), Some(history)))
                    }
                    (_, new_guard) => {
                        let checkpoints = consistent_cut::restorable_checkpoints(store, &lineage)?;
                        let reply = match new_guard {
                            Some(guard) => {
                                CheckpointReply::Made(find_checkpoint_info(checkpoints, guard.id)?)
                            }
                            None => CheckpointReply::Listed(checkpoints),
                        };
                        Ok((reply, None))
                    }
                }
            };
            context
                .query_store(query)
                .await
                .map_err(to_checkpoint_error)
        };
        // The guard of the history that was read goes along with the state.
        let delivery = move |read: Result<(CheckpointReply, Option<HistoryGuard>), _>| {
            let (reply, history) = match read {
                Ok((reply, history)) => (Ok(reply), history),
                Err(error) => (Err(error), None),
            };
            Delivery {
                history,
                ..Delivery::internal(Input::Completed {
                    call,
                    result: Completion::Checkpoint(reply),
                })
            }
        };
        self.spawn_for_delivery(work.boxed(), call, delivery, |why| {
            Err(CheckpointError::Unavailable(why))
        });
    }
}

fn find_checkpoint_info(
    checkpoints: Vec<CheckpointInfo>,
    id: CheckpointId,
) -> Result<CheckpointInfo, StoreError> {
    checkpoints
        .into_iter()
        .find(|checkpoint| checkpoint.id == id)
        .ok_or(StoreError::UnknownCheckpoint(id))
}

fn to_checkpoint_error(error: KernelError) -> CheckpointError {
    match error {
        KernelError::Store(StoreFailure::Store(StoreError::UnknownCheckpoint(id))) => {
            CheckpointError::Unknown(id)
        }
        error => CheckpointError::Unavailable(error.to_string()),
    }
}
