//! What is durable: journals, contents, the process table (section 7 of the design).

use bytes::Bytes;
use dormouse_proto::id::{ContentHash, FactNumber, Pid};
use dormouse_proto::process::{Exit, ProcessRow};

/// A store. Synchronous and object-safe; the checkpoint actor calls it from a thread where blocking is allowed.
///
/// Payloads are opaque here: the store keeps bytes and finds them again, checked. It never decodes a fact.
pub trait Store: Send + Sync + 'static {
    /// Makes the caller the one writer. Tokens that were handed out before are stale from here on.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn claim(&self) -> Result<OwnerToken, StoreError>;

    /// Appends `entries` in order, all or nothing, and returns when they are durable. Costs one append and one
    /// fdatasync, however many entries there are. A content that the store holds already is not written again.
    ///
    /// # Errors
    /// [`StoreError::Stale`] where `owner` is not the latest token, and nothing is written. [`StoreError::Io`] where the
    /// disk fails: nothing is acknowledged; after a failed sync the store takes no more commits.
    fn commit(&self, owner: OwnerToken, entries: &[Entry]) -> Result<(), StoreError>;

    /// The process table, by rising pid.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Damaged`].
    fn processes(&self) -> Result<Vec<ProcessRow>, StoreError>;

    /// The journal of a process up to and with fact `upto` (none: its end), from the latest usable snapshot on.
    ///
    /// # Errors
    /// [`StoreError::UnknownProcess`], [`StoreError::UnknownFact`], [`StoreError::Damaged`], [`StoreError::Io`].
    fn journal(&self, pid: Pid, upto: Option<FactNumber>) -> Result<Journal, StoreError>;

    /// The bytes of a content, checked against its hash.
    ///
    /// # Errors
    /// [`StoreError::UnknownContent`], [`StoreError::Damaged`], [`StoreError::Io`].
    fn content(&self, hash: ContentHash) -> Result<Bytes, StoreError>;

    /// The encoded changes of the temporary files of the tree that begins with process `root`, by rising number from 1;
    /// none where it never had a file.
    ///
    /// # Errors
    /// [`StoreError::UnknownProcess`], [`StoreError::Damaged`], [`StoreError::Io`].
    fn temp_files(&self, root: Pid) -> Result<Vec<Vec<u8>>, StoreError>;
}

/// Says who may write. Each [`Store::claim`] makes a greater one; a commit with an older one is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerToken(pub u64);

/// One thing to be made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A content, by hash. It stands before the first entry that refers to it (DUR-3).
    Content {
        /// Its name.
        hash: ContentHash,
        /// Its bytes.
        bytes: Bytes,
    },
    /// A process begins: its line in the table and its image (fact number 0).
    Born {
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
    Ended {
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

/// What can go wrong in a store.
#[derive(Debug, thiserror::Error)]
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
    /// Something read back is not what was written.
    #[error("the store is damaged: {what}")]
    Damaged {
        /// What, where, and what follows from it.
        what: String,
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
    #[error("the store takes no more commits since a sync failed: {0}. Reopen it; what was acknowledged is there")]
    Failed(String),
}
