//! The checkpoint actor: everything durable passes through it, and what waits together is committed
//! together.
//!
//! While one commit is on its way to the disk, appends collect; the next commit takes them all
//! (group commit). The store is called from a thread where blocking is allowed, never from a
//! handler. What cannot be made durable is refused, and nothing is acknowledged that is not as
//! durable as the kernel was told to make it (DUR-1, [`Durability`]). An append that cannot be
//! encoded, or that the store refuses, fails alone, and with it those that go on from it. What was
//! only written is synced a second later.

use std::sync::Arc;
use std::time::Duration;

use dormouse_kernel::content::Content;
use dormouse_kernel::process::{Fact, Image};
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CheckpointId, FactNumber, Pid};
use dormouse_proto::process::{Exit, ProcessRow};
use dormouse_proto::record::ContentRef;
use dormouse_proto::record::codec::{self, CodecError};
use dormouse_proto::temp_file::TempFileRecord;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;

use crate::clock::now_ms;
use crate::durability::Durability;
use crate::error::{KernelError, StoreFailure};
use crate::in_use::{CheckpointGuard, InUse};
use crate::lease::Lease;
use crate::ports::{Batch, OwnerToken, Store, StoreError, SyncLevel, WriteOp};
use crate::residents::Residents;

/// After so long what was only written is synced.
const SYNC_AFTER: Duration = Duration::from_secs(1);

/// Something to be made durable.
pub(crate) enum Durable {
    Born {
        row: ProcessRow,
        image: Box<Image>,
    },
    Facts {
        pid: Pid,
        first: FactNumber,
        facts: Arc<[Fact]>,
    },
    /// Left out where it has more than so many bytes.
    Snapshot {
        pid: Pid,
        at: FactNumber,
        image: Box<Image>,
        worth: u64,
    },
    Ended {
        pid: Pid,
        exit: Exit,
    },
    TempFile {
        root: Pid,
        record: TempFileRecord<Content>,
    },
    Checkpoint {
        id: CheckpointId,
        mark: Mark,
    },
    CheckpointDropped {
        id: CheckpointId,
    },
    /// A content that nothing refers to yet.
    Content(Content),
}

/// A checkpoint that is to be made of what stands before it.
pub(crate) struct Mark {
    pub(crate) label: Arc<str>,
    pub(crate) of: Pid,
    /// The process that the tree begins with.
    pub(crate) root: Pid,
    pub(crate) scope: Scope,
    pub(crate) members: Vec<Pid>,
}

/// Told of a checkpoint once it is durable, or that it cannot be.
pub(crate) type MarkReply = oneshot::Sender<Result<CheckpointGuard, KernelError>>;

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

impl CommitError {
    /// Whether the store will take nothing more.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Store(error) if matches!(**error, StoreError::Failed(_) | StoreError::Stale { .. }))
    }

    /// Whether it is the store's doing: what it refuses now it may take later.
    pub(crate) fn is_of_the_store(&self) -> bool {
        matches!(self, Self::Store(_))
    }
}

/// Told once what came of an append.
pub(crate) type Acknowledge = Box<dyn FnOnce(Result<Size, CommitError>) + Send>;

/// What an append comes to in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) facts: u64,
    pub(crate) image: Imaged,
}

/// What became of the image of an append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Imaged {
    #[default]
    None,
    /// It is kept, and has so many bytes.
    Kept(u64),
    /// It was not worth keeping.
    TooLong,
}

/// An append on its way: an empty one is acknowledged after those before it.
pub(crate) struct Append {
    pub(crate) entries: Vec<Durable>,
    pub(crate) acknowledge: Acknowledge,
}

pub(crate) enum CheckpointMessage {
    Append(Append),
    Committed {
        waiting: Vec<(Acknowledge, Result<Size, CommitError>)>,
        until: Option<SyncLevel>,
    },
    /// A second has passed since something was only written.
    Sync,
    /// Make a checkpoint, behind what was appended before: it is given its number here.
    Mark {
        mark: Mark,
        in_use: Arc<InUse>,
        reply: MarkReply,
    },
    /// Commit what is queued, let go of the store, then reply.
    Close {
        reply: oneshot::Sender<()>,
    },
}

/// Makes `entries` durable together; `acknowledge` is told when that is done, or that it cannot be.
pub(crate) fn append(
    checkpoint: &ActorRef<CheckpointMessage>,
    entries: Vec<Durable>,
    acknowledge: Acknowledge,
) {
    let message = CheckpointMessage::Append(Append {
        entries,
        acknowledge,
    });
    if let Err(ractor::MessagingErr::SendErr(CheckpointMessage::Append(append))) =
        checkpoint.cast(message)
    {
        (append.acknowledge)(Err(CommitError::Closed));
    }
}

pub(crate) struct CheckpointActor;

pub(crate) struct Checkpoint {
    store: Option<(Lease, OwnerToken)>,
    residents: Arc<Residents>,
    durability: Durability,
    /// The highest number of a checkpoint that was given.
    last_mark: u64,
    queue: Vec<Append>,
    committing: bool,
    /// Whether something was written that is to be synced.
    unsynced: bool,
    /// Whether that is to be done now.
    syncing: bool,
    failed: Option<CommitError>,
    closing: Option<oneshot::Sender<()>>,
}

impl Actor for CheckpointActor {
    type Msg = CheckpointMessage;
    type State = Checkpoint;
    type Arguments = (Option<(Lease, OwnerToken)>, u64, Arc<Residents>, Durability);

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        (store, last_mark, residents, durability): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(Checkpoint {
            store,
            last_mark,
            residents,
            durability,
            queue: Vec::new(),
            committing: false,
            unsynced: false,
            syncing: false,
            failed: None,
            closing: None,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        checkpoint: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            CheckpointMessage::Append(append) => checkpoint.append(append),
            CheckpointMessage::Committed { waiting, until } => {
                checkpoint.committed(waiting, until, &myself)
            }
            CheckpointMessage::Sync => checkpoint.syncing = checkpoint.unsynced,
            CheckpointMessage::Mark {
                mark,
                in_use,
                reply,
            } => checkpoint.mark(mark, &in_use, reply),
            CheckpointMessage::Close { reply } => checkpoint.closing = Some(reply),
        }
        checkpoint.go_on(&myself);
        Ok(())
    }
}

impl Checkpoint {
    fn append(&mut self, append: Append) {
        match (&self.store, &self.failed) {
            (_, Some(error)) => (append.acknowledge)(Err(error.clone())),
            (None, None) => (append.acknowledge)(Ok(Size::default())),
            (Some(_), None) => self.queue.push(append),
        }
    }

    /// A number that is given is not given again, whatever becomes of the commit.
    fn mark(&mut self, mark: Mark, in_use: &Arc<InUse>, reply: MarkReply) {
        if self.store.is_none() {
            // Who no longer waits has dropped its side.
            return drop(reply.send(Err(StoreFailure::NoStore.into())));
        }
        self.last_mark += 1;
        let id = CheckpointId(self.last_mark);
        let marked = in_use.begin(id);
        let acknowledge = Box::new(move |result: Result<Size, CommitError>| {
            let _ = reply.send(result.map(|_| marked).map_err(KernelError::from));
        });
        self.append(Append {
            entries: vec![Durable::Checkpoint { id, mark }],
            acknowledge,
        });
    }

    fn committed(
        &mut self,
        waiting: Vec<(Acknowledge, Result<Size, CommitError>)>,
        until: Option<SyncLevel>,
        myself: &ActorRef<CheckpointMessage>,
    ) {
        self.committing = false;
        match until {
            Some(SyncLevel::Synced) => self.unsynced = false,
            Some(SyncLevel::Written) if !self.unsynced => {
                self.unsynced = true;
                // Where the actor is gone by then, the store was synced when it was closed.
                myself.send_after(SYNC_AFTER, || CheckpointMessage::Sync);
            }
            Some(SyncLevel::Written) | None => {}
        }
        for (acknowledge, result) in waiting {
            if let Err(error) = &result {
                tracing::error!(%error, "not made durable");
                self.failed = self
                    .failed
                    .take()
                    .or_else(|| error.is_final().then(|| error.clone()));
            }
            acknowledge(result);
        }
        if let Some(error) = &self.failed {
            std::mem::take(&mut self.queue)
                .into_iter()
                .for_each(|append| (append.acknowledge)(Err(error.clone())));
        }
    }

    /// Begins the next commit, or closes where there is none.
    fn go_on(&mut self, myself: &ActorRef<CheckpointMessage>) {
        if self.committing {
            return;
        }
        self.syncing |= self.closing.is_some() && self.unsynced;
        if self.queue.is_empty() && !self.syncing {
            self.close();
        } else if let Some((store, owner)) = self.store.clone() {
            self.commit(store, owner, myself.clone());
        }
    }

    fn commit(&mut self, store: Lease, owner: OwnerToken, myself: ActorRef<CheckpointMessage>) {
        let batch = std::mem::take(&mut self.queue);
        let entries = batch.iter().flat_map(|append| &append.entries);
        let until = if self.syncing {
            Some(SyncLevel::Synced)
        } else {
            self.durability.until(entries)
        };
        (self.committing, self.syncing) = (true, false);
        let residents = self.residents.clone();
        tokio::task::spawn_blocking(move || {
            let Committed { waiting, contents } = commit(&*store, owner, batch, until);
            // The store is let go of before anyone hears that this is done.
            drop(store);
            let _ = myself.cast(CheckpointMessage::Committed { waiting, until });
            residents.keep(contents);
        });
    }

    fn close(&mut self) {
        if let Some(reply) = self.closing.take() {
            self.store = None;
            self.failed = Some(CommitError::Closed);
            // Who no longer waits for the end has dropped its side.
            let _ = reply.send(());
        }
    }
}

/// What came of a commit.
struct Committed {
    waiting: Vec<(Acknowledge, Result<Size, CommitError>)>,
    /// Contents that are durable now.
    contents: Vec<Content>,
}

fn commit(
    store: &dyn Store,
    owner: OwnerToken,
    batch: Vec<Append>,
    until: Option<SyncLevel>,
) -> Committed {
    let mut written = Written::default();
    let mut parts = Vec::with_capacity(batch.len());
    for Append {
        entries: durable,
        acknowledge,
    } in batch
    {
        let whole = (written.entries.len(), written.contents.len());
        let mut size = Size::default();
        let encoded = durable
            .into_iter()
            .try_for_each(|durable| encode(durable, &mut written, &mut size));
        if encoded.is_err() {
            written.entries.truncate(whole.0);
            written.contents.truncate(whole.1);
        }
        let (entries, contents) = (
            written.entries.len() - whole.0,
            written.contents.len() - whole.1,
        );
        let outcome = encoded
            .map(|()| size)
            .map_err(|error| CommitError::Codec(Arc::new(error)));
        parts.push(Part {
            acknowledge,
            outcome,
            entries,
            contents,
        });
    }
    let committed = match until {
        Some(until) => written.commit(store, owner, &mut parts, until),
        None => Ok(()),
    };
    let mut contents = written.contents;
    if let (Err(error), []) = (&committed, &parts[..]) {
        // The next commit tells whoever waits for it.
        tracing::error!(%error, "what was written could not be synced");
    }
    let committed = committed.map_err(|error| CommitError::Store(Arc::new(error)));
    if committed.is_err() {
        contents.clear();
    }
    let heard = |part: Part| {
        (
            part.acknowledge,
            part.outcome
                .and_then(|size| committed.clone().map(|()| size)),
        )
    };
    Committed {
        waiting: parts.into_iter().map(heard).collect(),
        contents,
    }
}

/// An append among those that are committed together.
struct Part {
    acknowledge: Acknowledge,
    /// What is known before the commit.
    outcome: Result<Size, CommitError>,
    /// How many entries, and how many contents, are its own.
    entries: usize,
    contents: usize,
}

/// What is to be written, and the contents among it that are in memory.
#[derive(Default)]
struct Written {
    entries: Vec<WriteOp>,
    contents: Vec<Content>,
}

impl Written {
    /// Commits all as one. Where the store refuses that for what one of them asks, each is
    /// committed by itself: nobody is refused for what another brought, nor for what another was
    /// refused.
    fn commit(
        &mut self,
        store: &dyn Store,
        owner: OwnerToken,
        parts: &mut [Part],
        until: SyncLevel,
    ) -> Result<(), StoreError> {
        match store.commit(
            owner,
            Batch {
                ops: &self.entries,
                at_ms: now_ms(),
                until,
            },
        ) {
            Err(error)
                if is_refusal(&error)
                    && parts.iter().filter(|part| part.outcome.is_ok()).count() > 1 =>
            {
                self.commit_each(store, owner, parts);
                // What was taken is as durable as all would have been.
                store.commit(
                    owner,
                    Batch {
                        ops: &[],
                        at_ms: now_ms(),
                        until,
                    },
                )
            }
            committed => committed,
        }
    }

    fn commit_each(&mut self, store: &dyn Store, owner: OwnerToken, parts: &mut [Part]) {
        let mut entries = std::mem::take(&mut self.entries).into_iter();
        let mut contents = std::mem::take(&mut self.contents).into_iter();
        for part in parts {
            let entries: Vec<_> = entries.by_ref().take(part.entries).collect();
            let contents = contents.by_ref().take(part.contents);
            if part.outcome.is_err() {
                continue;
            }
            let batch = Batch {
                ops: &entries,
                at_ms: now_ms(),
                until: SyncLevel::Written,
            };
            match store.commit(owner, batch) {
                Ok(()) => self.contents.extend(contents),
                Err(error) => {
                    contents.for_each(drop);
                    part.outcome = Err(CommitError::Store(Arc::new(error)));
                }
            }
        }
    }
}

/// Whether the store refuses what it was given, and takes the next.
fn is_refusal(error: &StoreError) -> bool {
    match error {
        StoreError::UnknownProcess(_)
        | StoreError::UnknownFact { .. }
        | StoreError::ForgottenFact { .. }
        | StoreError::UnknownCheckpoint(_)
        | StoreError::UnknownContent(_)
        | StoreError::Refused { .. }
        | StoreError::Full { .. } => true,
        StoreError::Stale { .. }
        | StoreError::InUse { .. }
        | StoreError::Key { .. }
        | StoreError::ReadOnly { .. }
        | StoreError::Newer { .. }
        | StoreError::Damaged { .. }
        | StoreError::Lost { .. }
        | StoreError::MarkSuperseded { .. }
        | StoreError::Io { .. }
        | StoreError::Failed(_) => false,
    }
}

/// Encodes one thing; the contents that it refers to stand before it (DUR-3).
fn encode(
    durable: Durable,
    Written { entries, contents }: &mut Written,
    size: &mut Size,
) -> Result<(), CodecError> {
    let whole = (entries.len(), contents.len());
    let mut refer = |content: Content| {
        let reference = content.reference();
        match content.resident() {
            Some(bytes) => {
                entries.push(WriteOp::Content {
                    hash: reference.hash,
                    bytes,
                    index: content.sealed_index(),
                });
                contents.push(content);
            }
            // It came from the store, or was written to it before it left: a collection that runs
            // is not to take it.
            None => entries.push(WriteOp::ContentReferenced {
                hash: reference.hash,
            }),
        }
        Ok::<ContentRef, CodecError>(reference)
    };
    let entry = match durable {
        Durable::Born { row, image } => WriteOp::ProcessCreated {
            row,
            image: codec::encode(&image.try_map(&mut refer)?)?,
        },
        Durable::Snapshot {
            pid,
            at,
            image,
            worth,
        } => {
            // Facts beside it do not fail with an image that is too long even to be encoded.
            let image = image
                .try_map(&mut refer)
                .and_then(|image| codec::encode(&image));
            let Some(image) = image.ok().filter(|image| image.len() as u64 <= worth) else {
                size.image = Imaged::TooLong;
                entries.truncate(whole.0);
                contents.truncate(whole.1);
                return Ok(());
            };
            size.image = Imaged::Kept(image.len() as u64);
            WriteOp::Snapshot { pid, at, image }
        }
        Durable::Facts { pid, first, facts } => {
            let encoded = facts
                .iter()
                .map(|fact| codec::encode(&fact.clone().try_map(&mut refer)?));
            let facts: Vec<_> = encoded.collect::<Result<_, _>>()?;
            size.facts += facts.iter().map(|fact| fact.len() as u64).sum::<u64>();
            WriteOp::Facts { pid, first, facts }
        }
        Durable::Ended { pid, exit } => WriteOp::ProcessEnded { pid, exit },
        Durable::TempFile { root, record } => {
            let number = record.number;
            WriteOp::TempFile {
                root,
                number,
                record: codec::encode(&record.try_map(&mut refer)?)?,
            }
        }
        Durable::Checkpoint {
            id,
            mark:
                Mark {
                    label,
                    of,
                    root,
                    scope,
                    members,
                },
        } => WriteOp::Checkpoint {
            id,
            label,
            of,
            root,
            scope,
            members,
        },
        Durable::CheckpointDropped { id } => WriteOp::CheckpointDropped { id },
        Durable::Content(content) => return refer(content).map(drop),
    };
    entries.push(entry);
    Ok(())
}
