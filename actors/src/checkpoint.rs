//! The checkpoint actor: everything durable passes through it, and what waits together is committed together.
//!
//! While one commit is on its way to the disk, appends collect; the next commit takes them all (group commit). The store
//! is called from a thread where blocking is allowed, never from a handler. After a failure of the store every append is
//! refused: nothing is acknowledged that is not durable (DUR-1).

use std::sync::Arc;

use dormouse_kernel::content::Content;
use dormouse_kernel::process::{Fact, Image};
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_proto::process::{Exit, ProcessRow};
use dormouse_proto::record::ContentRef;
use dormouse_proto::record::codec::{self, CodecError};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinHandle;

use crate::ports::{Entry, OwnerToken, Store, StoreError};

/// Something to be made durable.
pub(crate) enum Durable {
    Born { row: ProcessRow, image: Box<Image> },
    Facts { pid: Pid, first: FactNumber, facts: Arc<[Fact]> },
    Snapshot { pid: Pid, at: FactNumber, image: Box<Image> },
    Ended { pid: Pid, exit: Exit },
}

/// Why something was not made durable.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CommitError {
    #[error("{0}")]
    Store(Arc<StoreError>),
    #[error("{0}")]
    Codec(Arc<CodecError>),
    #[error("the kernel is shutting down")]
    Closed,
}

/// Told once what came of an append.
pub(crate) type Acknowledge = Box<dyn FnOnce(Result<(), CommitError>) + Send>;

pub(crate) enum CheckpointMessage {
    Append { entries: Vec<Durable>, acknowledge: Acknowledge },
    Committed { waiting: Vec<Acknowledge>, result: Result<(), CommitError> },
}

pub(crate) struct CheckpointActor;

pub(crate) struct CheckpointState {
    store: Option<(Arc<dyn Store>, OwnerToken)>,
    queue: Vec<(Vec<Durable>, Acknowledge)>,
    committing: bool,
    /// The latest commit, which may still be on its way.
    commit: Option<JoinHandle<()>>,
    failed: Option<CommitError>,
}

impl Actor for CheckpointActor {
    type Msg = CheckpointMessage;
    type State = CheckpointState;
    type Arguments = Option<(Arc<dyn Store>, OwnerToken)>;

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        store: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(CheckpointState { store, queue: Vec::new(), committing: false, commit: None, failed: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            CheckpointMessage::Append { entries, acknowledge } => state.append(entries, acknowledge),
            CheckpointMessage::Committed { waiting, result } => state.committed(waiting, result),
        }
        state.commit_next(&myself);
        Ok(())
    }

    /// What was appended before the end is made durable; then the store is let go of.
    async fn post_stop(&self, myself: ActorRef<Self::Msg>, state: &mut Self::State) -> Result<(), ActorProcessingErr> {
        state.finish_commit().await;
        state.committing = false;
        state.commit_next(&myself);
        state.finish_commit().await;
        Ok(())
    }
}

impl CheckpointState {
    fn append(&mut self, entries: Vec<Durable>, acknowledge: Acknowledge) {
        match (&self.store, &self.failed) {
            (None, _) => acknowledge(Ok(())),
            (Some(_), Some(error)) => acknowledge(Err(error.clone())),
            (Some(_), None) => self.queue.push((entries, acknowledge)),
        }
    }

    fn committed(&mut self, waiting: Vec<Acknowledge>, result: Result<(), CommitError>) {
        self.committing = false;
        if let Err(error) = &result {
            tracing::error!(%error, "the store failed: nothing more is acknowledged");
            self.failed = Some(error.clone());
            let queued = std::mem::take(&mut self.queue).into_iter();
            queued.for_each(|(_, acknowledge)| acknowledge(Err(error.clone())));
        }
        waiting.into_iter().for_each(|acknowledge| acknowledge(result.clone()));
    }

    async fn finish_commit(&mut self) {
        if let Some(commit) = self.commit.take() {
            // One that panicked has acknowledged nothing.
            let _ = commit.await;
        }
    }

    fn commit_next(&mut self, myself: &ActorRef<CheckpointMessage>) {
        let Some((store, owner)) = self.store.clone().filter(|_| !self.committing && !self.queue.is_empty()) else {
            return;
        };
        let (batch, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.queue).into_iter().unzip();
        let myself = myself.clone();
        self.committing = true;
        self.commit = Some(tokio::task::spawn_blocking(move || {
            let result = commit(&*store, owner, batch.into_iter().flatten());
            // Before anyone hears of it: who closes the kernel then finds the store free.
            drop(store);
            // Where the actor is gone, so is everyone who waits.
            let _ = myself.cast(CheckpointMessage::Committed { waiting, result });
        }));
    }
}

fn commit(store: &dyn Store, owner: OwnerToken, batch: impl Iterator<Item = Durable>) -> Result<(), CommitError> {
    let mut entries = Vec::new();
    for durable in batch {
        encode(durable, &mut entries).map_err(|error| CommitError::Codec(Arc::new(error)))?;
    }
    store.commit(owner, &entries).map_err(|error| CommitError::Store(Arc::new(error)))
}

/// Encodes one thing; the contents that it refers to stand before it (DUR-3).
fn encode(durable: Durable, entries: &mut Vec<Entry>) -> Result<(), CodecError> {
    let mut refer = |content: Content| {
        entries.push(Entry::Content { hash: content.hash(), bytes: content.bytes().clone() });
        Ok::<ContentRef, CodecError>(content.reference())
    };
    let entry = match durable {
        Durable::Born { row, image } => Entry::Born { row, image: codec::encode(&image.try_map(&mut refer)?)? },
        Durable::Snapshot { pid, at, image } => {
            Entry::Snapshot { pid, at, image: codec::encode(&image.try_map(&mut refer)?)? }
        }
        Durable::Facts { pid, first, facts } => {
            let encoded = facts.iter().map(|fact| codec::encode(&fact.clone().try_map(&mut refer)?));
            Entry::Facts { pid, first, facts: encoded.collect::<Result<_, _>>()? }
        }
        Durable::Ended { pid, exit } => Entry::Ended { pid, exit },
    };
    entries.push(entry);
    Ok(())
}
