//! Checkpoints: made, listed and deleted, and a process returned to one in place.

use std::sync::Arc;

use dormouse_kernel::process::HostRequest;
use dormouse_proto::checkpoint::{Checkpoint, Scope};
use dormouse_proto::id::{CheckpointId, Pid};
use dormouse_proto::tool::Answer;
use tokio::sync::oneshot;

use super::kernel::Kernel;
use super::process::Process;
use super::tree::Tree;
use crate::checkpoint::LogRecord;
use crate::consistent_cut;
use crate::error::{KernelError, NotFound};
use crate::in_use::CheckpointGuard;
use crate::supervisor::{LookupMessage, TreeMessage};

impl Kernel {
    /// The checkpoints, sorted by number.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`StoreFailure::Store`](crate::StoreFailure::Store).
    pub async fn checkpoints(&self) -> Result<Vec<Checkpoint>, KernelError> {
        self.context
            .query_store(|store, _| Ok(store.checkpoints()?))
            .await
    }

    /// The checkpoint with this number.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`StoreFailure::Store`](crate::StoreFailure::Store) if there is none.
    pub async fn checkpoint(&self, id: CheckpointId) -> Result<Checkpoint, KernelError> {
        self.context
            .query_store(move |store, _| Ok(consistent_cut::find_checkpoint(store, id)?))
            .await
    }

    /// Deletes a checkpoint. Its number is not reused; the facts that it refers to stay.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`StoreFailure::Store`](crate::StoreFailure::Store) if there is none,
    /// [`StoreFailure::NotDurable`](crate::StoreFailure::NotDurable).
    pub async fn drop_checkpoint(&self, id: CheckpointId) -> Result<(), KernelError> {
        self.checkpoint(id).await?;
        let (reply, drop_result) = oneshot::channel();
        let acknowledge = Box::new(move |result: Result<_, _>| drop(reply.send(result.map(drop))));
        self.context
            .append_records(vec![LogRecord::CheckpointDropped { id }], acknowledge);
        Ok(drop_result.await.map_err(|_| KernelError::Closed)??)
    }

    /// Creates a checkpoint. No garbage collection deletes it before the guard is dropped.
    pub(super) async fn make_checkpoint(
        &self,
        pid: Pid,
        scope: Scope,
        label: Arc<str>,
    ) -> Result<(Checkpoint, CheckpointGuard), KernelError> {
        let (reply, guard) = oneshot::channel();
        self.cast(TreeMessage::MakeCheckpoint {
            pid,
            scope,
            label,
            reply,
        })?;
        let guard = guard.await.map_err(|_| KernelError::Closed)??;
        Ok((self.checkpoint(guard.id).await?, guard))
    }
}

impl Process {
    /// Creates a checkpoint of this process, after everything it has queued for the store. The
    /// process can return to it ([`restore`](Self::restore)), and another process can continue from
    /// it ([`Kernel::restore`]). The checkpoint is durable when this returns. Costs one small
    /// record, whatever the size of the process.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`StoreFailure::NotDurable`](crate::StoreFailure::NotDurable).
    pub async fn checkpoint(&self, label: impl Into<Arc<str>>) -> Result<Checkpoint, KernelError> {
        Ok(self
            .kernel
            .make_checkpoint(self.pid(), Scope::Process, label.into())
            .await?
            .0)
    }

    /// Returns the process to a checkpoint, in place: its conversation, descriptors and phase
    /// become those of the checkpoint, and a message in the conversation says so. Calls in flight
    /// are abandoned, and children created since are killed. Usage, received messages, waiting
    /// messages, and effects outside of the kernel stay. If the process was idle at the checkpoint
    /// it is idle now; otherwise it calls its model. A branch or a copy can also return to the
    /// checkpoints of the processes that it continues. With the tool `restore_process`, the model
    /// does the same, as often as its program permits.
    ///
    /// Returns the text that the model reads.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`NotFound::InCheckpoint`](crate::NotFound::InCheckpoint),
    /// [`StoreFailure::Load`](crate::StoreFailure::Load),
    /// [`ProcessError::Busy`](crate::ProcessError::Busy),
    /// [`ProcessError::Ended`](crate::ProcessError::Ended).
    pub async fn restore(&self, checkpoint: CheckpointId) -> Result<Answer, KernelError> {
        let (reply, lineage) = oneshot::channel();
        self.kernel.cast(LookupMessage::Lineage {
            pid: self.pid(),
            reply,
        })?;
        let lineage = lineage.await.map_err(|_| KernelError::Closed)?;
        let pid = self.pid();
        let read = self.kernel.context.query_store(move |store, context| {
            let state = consistent_cut::state_at_checkpoint(store, context, checkpoint, &lineage)?;
            state.ok_or(KernelError::NotFound(NotFound::InCheckpoint {
                pid,
                checkpoint,
            }))
        });
        let (state, history) = read.await?;
        self.request_of_history(HostRequest::Restore(Box::new(state)), history)
            .await
    }
}

impl Tree {
    /// Creates a checkpoint of the process and its descendants, including those that have ended:
    /// one consistent state, with the messages in flight between them. The checkpoint is durable
    /// when this returns. Costs one record, with a number for each process.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`StoreFailure::NotDurable`](crate::StoreFailure::NotDurable).
    pub async fn checkpoint(&self, label: impl Into<Arc<str>>) -> Result<Checkpoint, KernelError> {
        Ok(self
            .0
            .kernel
            .make_checkpoint(self.0.pid(), Scope::Tree, label.into())
            .await?
            .0)
    }
}
