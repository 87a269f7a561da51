//! What is durable: journals, contents, the process table.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
pub use dormouse_kernel::content::{Backing, Unreadable};
use dormouse_proto::checkpoint::{Checkpoint, Scope};
use dormouse_proto::id::{CheckpointId, CommitNumber, ContentHash, FactNumber, Pid};
use dormouse_proto::process::{Exit, ProcessRow};

use super::history::History;
use super::sweep::{MarkToken, StockTaken, StockTaking, Sweep, Swept};

/// A store. Synchronous and object-safe; the checkpoint actor calls it from a thread where blocking
/// is allowed.
///
/// Payloads are opaque here: the store keeps bytes and finds them again, checked. It never decodes
/// a fact.
pub trait Store: Send + Sync + 'static {
    /// The folder that it is kept in, as an absolute path, if it is kept in one of this machine:
    /// the kernel closes that to its processes.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// Makes the caller the one writer. Tokens that were handed out before are stale from here on.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn claim(&self) -> Result<OwnerToken, StoreError>;

    /// Writes the operations of `batch` in order, all or nothing. When it returns, they are as
    /// durable as the batch asks for. Costs one append and at most one fdatasync, however many
    /// operations there are. A content that the store holds already is not written again. A batch
    /// without operations that asks for the disk makes durable what was written before it.
    ///
    /// # Errors
    /// [`StoreError::Stale`] where `owner` is not the latest token, and nothing is written.
    /// [`StoreError::Io`] where the disk fails: nothing is acknowledged; after a failed sync the
    /// store takes no more commits.
    fn commit(&self, owner: OwnerToken, batch: Batch<'_>) -> Result<(), StoreError>;

    /// The process table. Damage to it is part of the answer: what can be read is listed all the
    /// same.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn processes(&self) -> Result<Listing, StoreError>;

    /// The journal of a process up to and with fact `upto` (none: its end), from the latest usable
    /// snapshot on.
    ///
    /// # Errors
    /// [`StoreError::UnknownProcess`], [`StoreError::UnknownFact`], [`StoreError::ForgottenFact`],
    /// [`StoreError::Damaged`], [`StoreError::Io`].
    fn journal(&self, pid: Pid, upto: Option<FactNumber>) -> Result<Journal, StoreError>;

    /// The encoded facts of a process from `first` up to and with `upto`, those that a snapshot
    /// stands for too. Empty where there is none between them.
    ///
    /// # Errors
    /// [`StoreError::UnknownProcess`], [`StoreError::UnknownFact`]; [`StoreError::ForgottenFact`]
    /// where one of them was given up; [`StoreError::Damaged`], [`StoreError::Io`].
    fn facts(
        &self,
        pid: Pid,
        first: FactNumber,
        upto: FactNumber,
    ) -> Result<Vec<Vec<u8>>, StoreError>;

    /// In which commits the facts of a process were written, and when; its birth first, where its
    /// history is whole. What is lost of it is part of the answer. Costs a read for each commit.
    ///
    /// # Errors
    /// [`StoreError::UnknownProcess`], [`StoreError::Damaged`], [`StoreError::Lost`],
    /// [`StoreError::Io`].
    fn history(&self, pid: Pid) -> Result<History, StoreError>;

    /// The checkpoints, by rising number.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Damaged`].
    fn checkpoints(&self) -> Result<Vec<Checkpoint>, StoreError>;

    /// The highest number that a checkpoint ever had, whatever became of it; 0 where there was
    /// none. The next has a greater one.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Damaged`].
    fn last_checkpoint(&self) -> Result<u64, StoreError>;

    /// A content, to be read from where it lies. Costs no pass over its bytes; what is read of it
    /// is checked then.
    ///
    /// # Errors
    /// [`StoreError::UnknownContent`], [`StoreError::Damaged`], [`StoreError::Io`].
    fn content(&self, hash: ContentHash) -> Result<Arc<dyn Backing>, StoreError>;

    /// The changes of the temporary files of the tree that begins with process `root`, by rising
    /// number from 1; none where it never had a file.
    ///
    /// # Errors
    /// [`StoreError::UnknownProcess`], [`StoreError::Damaged`], [`StoreError::Lost`],
    /// [`StoreError::Io`].
    fn temp_files(&self, root: Pid) -> Result<Vec<TempFileChange>, StoreError>;

    /// The same up to and with a commit. What is lost behind that does not matter.
    ///
    /// # Errors
    /// As [`Store::temp_files`].
    fn temp_files_by(
        &self,
        root: Pid,
        commit: CommitNumber,
    ) -> Result<Vec<TempFileChange>, StoreError>;

    /// From here on the store notes every content that a commit brings, or would have brought had
    /// it not been held: those survive the [`Store::sweep`] that shows this mark, whatever it is
    /// told. Whoever then reads journals to find what is referred to misses nothing. A mark that
    /// was begun before is over: what it spared is not known any more.
    ///
    /// # Errors
    /// [`StoreError::Stale`].
    fn begin_mark(&self, owner: OwnerToken) -> Result<MarkToken, StoreError>;

    /// Notes nothing more: no sweep will follow this mark. A sweep does so itself.
    fn end_mark(&self, mark: MarkToken);

    /// Brings an inventory up to what is kept: what came to the store since the last time is read,
    /// and nothing else. For an empty inventory that is everything. What cannot be read is part of
    /// the inventory. A collection that frees takes stock after its mark began, so that whatever is
    /// committed later is noted by the mark.
    ///
    /// # Errors
    /// [`StoreError::Io`]. The inventory is of no use then.
    fn take_stock(&self, order: StockTaking<'_>) -> Result<StockTaken, StoreError>;

    /// Gives back the room of what was given up, and of contents that nothing refers to. It changes
    /// no answer but that of [`Store::content`]. Commits and reads go on meanwhile; a crash at any
    /// moment loses nothing. To count needs no owner.
    ///
    /// # Errors
    /// [`StoreError::Stale`], [`StoreError::Damaged`], [`StoreError::Io`];
    /// [`StoreError::MarkSuperseded`] where the mark was never begun, or another since. What was
    /// freed before stays freed.
    fn sweep(&self, owner: OwnerToken, sweep: Sweep<'_>) -> Result<Swept, StoreError>;
}

/// What is committed together.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// In this order.
    pub ops: &'a [WriteOp],
    /// The time: milliseconds since the epoch, UTC.
    pub at_ms: u64,
    /// What it must survive.
    pub until: SyncLevel,
}

impl<'a> Batch<'a> {
    /// Operations that survive a loss of power.
    #[must_use]
    pub fn durable(ops: &'a [WriteOp], at_ms: u64) -> Self {
        Self {
            ops,
            at_ms,
            until: SyncLevel::Synced,
        }
    }
}

/// How far a commit has come when it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncLevel {
    /// The operating system has it: it survives the end of this program, and not that of the
    /// machine.
    Written,
    /// The disk has it: it survives the loss of power.
    Synced,
}

/// Says who may write. Each [`Store::claim`] makes a greater one; a commit with an older one is
/// refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerToken(pub u64);

/// One thing to be made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOp {
    /// A content, by hash. It stands before the first entry that refers to it (DUR-3).
    Content {
        /// Its name.
        hash: ContentHash,
        /// Its bytes.
        bytes: Bytes,
        /// What serves reads of it without a pass over its bytes; opaque here, may be empty.
        index: Bytes,
    },
    /// A content that the store holds, and that a later entry refers to: a mark that runs meanwhile
    /// knows it by this. Refused as [`StoreError::UnknownContent`] where it is not held.
    ContentReferenced {
        /// Its name.
        hash: ContentHash,
    },
    /// A process begins: its line in the table and its image (fact number 0).
    ProcessCreated {
        /// The line.
        row: ProcessRow,
        /// The encoded image.
        image: Vec<u8>,
    },
    /// Facts of a process, numbered without a gap.
    Facts {
        /// The process.
        pid: Pid,
        /// The number of the first.
        first: FactNumber,
        /// The encoded facts.
        facts: Vec<Vec<u8>>,
    },
    /// The image of a process after fact `at`: recovery starts here instead of at its birth.
    Snapshot {
        /// The process.
        pid: Pid,
        /// The last fact in it.
        at: FactNumber,
        /// The encoded image.
        image: Vec<u8>,
    },
    /// A process ended: its line in the table says how.
    ProcessEnded {
        /// The process.
        pid: Pid,
        /// How.
        exit: Exit,
    },
    /// A change of the temporary files of a tree of processes, numbered without a gap.
    TempFile {
        /// The process that the tree begins with.
        root: Pid,
        /// The number of the change, from 1.
        number: u64,
        /// The encoded change.
        record: Vec<u8>,
    },
    /// A point that processes can go back to: each as it stands where this entry does. A process
    /// that was not born by then is not in it.
    Checkpoint {
        /// Its number, greater than that of any before it.
        id: CheckpointId,
        /// What whoever made it calls it.
        label: Arc<str>,
        /// The process that it is of.
        of: Pid,
        /// The process that its tree begins with.
        root: Pid,
        /// What it covers.
        scope: Scope,
        /// The processes in it.
        members: Vec<Pid>,
    },
    /// A checkpoint is given up.
    CheckpointDropped {
        /// Which.
        id: CheckpointId,
    },
    /// A process is given up: its journal, its line in the table, and the temporary files of the
    /// tree that begins with it. Its number is never given again.
    ProcessDeleted {
        /// Which.
        pid: Pid,
    },
    /// The history of a process before a snapshot is given up.
    HistoryTruncated {
        /// The process.
        pid: Pid,
        /// The fact that the snapshot stands at: the first that can still be asked for.
        below: FactNumber,
    },
}

/// The process table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The processes, by rising pid.
    pub rows: Vec<ProcessRow>,
    /// No process has a number above this one, nor had one that is lost or given up; 0 where there
    /// never was one.
    pub last: u64,
    /// What is missing above, and why. Empty where all is well.
    pub lost: Vec<String>,
    /// What is missing too, and was acknowledged by a repair: it need not be reported again, but it
    /// is lost like the rest.
    pub acknowledged: Vec<String>,
}

impl Listing {
    /// Everything that is missing, acknowledged or not.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        self.lost
            .iter()
            .chain(&self.acknowledged)
            .map(String::as_str)
    }
}

/// What a process is rebuilt from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Its line in the table.
    pub row: ProcessRow,
    /// The fact number that `image` stands at.
    pub base: FactNumber,
    /// The encoded image.
    pub image: Vec<u8>,
    /// The encoded facts after `base`.
    pub facts: Vec<Vec<u8>>,
}

/// A change of temporary files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TempFileChange {
    /// The commit that it was written in.
    pub commit: CommitNumber,
    /// The encoded change.
    pub record: Vec<u8>,
}

/// What can go wrong in a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No such process.
    #[error("the store holds no process {0}")]
    UnknownProcess(Pid),
    /// No such fact.
    #[error("process {pid} has no fact {asked}: its facts are 0-{last}")]
    UnknownFact {
        /// The process.
        pid: Pid,
        /// What was asked.
        asked: FactNumber,
        /// The last there is.
        last: FactNumber,
    },
    /// A fact from before what is kept of the process.
    #[error("fact {asked} of process {pid} was given up: its history is kept from fact {since} on")]
    ForgottenFact {
        /// The process.
        pid: Pid,
        /// What was asked.
        asked: FactNumber,
        /// The first there is.
        since: FactNumber,
    },
    /// No such checkpoint.
    #[error("the store holds no checkpoint {0}")]
    UnknownCheckpoint(CheckpointId),
    /// No such content.
    #[error("the store holds no content {0}")]
    UnknownContent(ContentHash),
    /// Someone else has claimed the store since.
    #[error("the store was claimed by a newer owner ({newest:?}); {stale:?} may no longer write")]
    Stale {
        /// The token that was shown.
        stale: OwnerToken,
        /// The token that is valid.
        newest: OwnerToken,
    },
    /// Another program has the store open.
    #[error("the store {path} is in use by {holder}. Stop it, or name another folder with --store")]
    InUse {
        /// The store's folder.
        path: String,
        /// Who holds it.
        holder: String,
    },
    /// The key that was given is not the one that the store is encrypted with. Nothing was read or
    /// changed.
    #[error("the store {path} {fault}")]
    Key {
        /// The store's folder.
        path: String,
        /// What is wrong with the key.
        fault: KeyFault,
    },
    /// The store is open for reading only.
    #[error(
        "the store {path} is open for reading only, and takes no owner and no commit. Open it for \
         writing, once nobody else has it open"
    )]
    ReadOnly {
        /// The store's folder.
        path: String,
    },
    /// The store holds something that this version does not know. Nothing was changed.
    #[error("the store holds {what}, as a later version writes it. Open it with that version")]
    Newer {
        /// What, and where.
        what: String,
    },
    /// Something read back is not what was written.
    #[error("the store is damaged: {what}")]
    Damaged {
        /// What, where, and what follows from it.
        what: String,
    },
    /// What is asked for is lost, which was acknowledged when the store was repaired.
    #[error("the store has lost what is asked for, as was acknowledged: {what}")]
    Lost {
        /// What, where, and what follows from it.
        what: String,
    },
    /// The commit breaks a rule of this port, or removes something that is still needed. Nothing of
    /// it is written.
    #[error("the store refuses this commit: {why}")]
    Refused {
        /// The rule, and what was given.
        why: String,
    },
    /// A sweep was asked to free what another mark than the last one found. Nothing was freed.
    #[error(
        "a sweep frees only what the last mark found, and {why}. Collect garbage once at a time"
    )]
    MarkSuperseded {
        /// What became of the mark.
        why: &'static str,
    },
    /// The commit does not fit into the quota. Nothing of it is written.
    #[error(
        "the store is full: it holds {used} bytes of the {quota} that it may, and this commit \
         brings {needed}. Collect garbage (`dormouse gc`), or raise the quota"
    )]
    Full {
        /// Bytes in the log.
        used: u64,
        /// The most there may be.
        quota: u64,
        /// Bytes of the commit.
        needed: u64,
    },
    /// The disk failed, or is full.
    #[error("the store cannot {doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A sync failed earlier: what the disk holds since is unknown.
    #[error(
        "the store takes no more commits since a sync failed: {0}. Reopen it; what was \
         acknowledged is there"
    )]
    Failed(String),
}

/// What is wrong with the key of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// None was given, and the store is encrypted.
    #[error("is encrypted, and no key was given. Give the key that it was made with")]
    Missing,
    /// The store is encrypted with another.
    #[error(
        "is encrypted with another key than the one that was given. Give the key that it was made \
         with"
    )]
    Wrong,
    /// One was given, and the store is not encrypted.
    #[error(
        "is not encrypted, and a key was given. Open it without one, or name a new folder for an \
         encrypted store"
    )]
    Needless,
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn folder(&self) -> Option<&Path> {
        (**self).folder()
    }

    fn claim(&self) -> Result<OwnerToken, StoreError> {
        (**self).claim()
    }

    fn commit(&self, owner: OwnerToken, batch: Batch<'_>) -> Result<(), StoreError> {
        (**self).commit(owner, batch)
    }

    fn processes(&self) -> Result<Listing, StoreError> {
        (**self).processes()
    }

    fn journal(&self, pid: Pid, upto: Option<FactNumber>) -> Result<Journal, StoreError> {
        (**self).journal(pid, upto)
    }

    fn facts(
        &self,
        pid: Pid,
        first: FactNumber,
        upto: FactNumber,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        (**self).facts(pid, first, upto)
    }

    fn history(&self, pid: Pid) -> Result<History, StoreError> {
        (**self).history(pid)
    }

    fn checkpoints(&self) -> Result<Vec<Checkpoint>, StoreError> {
        (**self).checkpoints()
    }

    fn last_checkpoint(&self) -> Result<u64, StoreError> {
        (**self).last_checkpoint()
    }

    fn content(&self, hash: ContentHash) -> Result<Arc<dyn Backing>, StoreError> {
        (**self).content(hash)
    }

    fn temp_files(&self, root: Pid) -> Result<Vec<TempFileChange>, StoreError> {
        (**self).temp_files(root)
    }

    fn temp_files_by(
        &self,
        root: Pid,
        commit: CommitNumber,
    ) -> Result<Vec<TempFileChange>, StoreError> {
        (**self).temp_files_by(root, commit)
    }

    fn begin_mark(&self, owner: OwnerToken) -> Result<MarkToken, StoreError> {
        (**self).begin_mark(owner)
    }

    fn end_mark(&self, mark: MarkToken) {
        (**self).end_mark(mark);
    }

    fn take_stock(&self, order: StockTaking<'_>) -> Result<StockTaken, StoreError> {
        (**self).take_stock(order)
    }

    fn sweep(&self, owner: OwnerToken, sweep: Sweep<'_>) -> Result<Swept, StoreError> {
        (**self).sweep(owner, sweep)
    }
}
