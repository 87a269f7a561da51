//! Why a store cannot serve a request.

use dormouse_proto::id::{CheckpointId, ContentHash, FactNumber, Pid};

use super::OwnerToken;

/// Why a store cannot serve a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No such process.
    #[error("the store holds no process {0}")]
    UnknownProcess(Pid),
    /// No such fact.
    #[error("process {pid} has no fact {requested}: its facts are 0-{last}")]
    UnknownFact {
        /// The process.
        pid: Pid,
        /// The requested fact.
        requested: FactNumber,
        /// The last fact of the process.
        last: FactNumber,
    },
    /// The fact is older than the retained history of the process.
    #[error(
        "fact {requested} of process {pid} was deleted: its history is kept from fact {first_kept} on"
    )]
    DeletedFact {
        /// The process.
        pid: Pid,
        /// The requested fact.
        requested: FactNumber,
        /// The first retained fact.
        first_kept: FactNumber,
    },
    /// No such checkpoint.
    #[error("the store holds no checkpoint {0}")]
    UnknownCheckpoint(CheckpointId),
    /// No such content.
    #[error("the store holds no content {0}")]
    UnknownContent(ContentHash),
    /// Another owner has claimed the store since.
    #[error("the store was claimed by a newer owner ({newest:?}); {stale:?} may no longer write")]
    Stale {
        /// The token of the caller.
        stale: OwnerToken,
        /// The valid token.
        newest: OwnerToken,
    },
    /// Another program has the store open.
    #[error("the store {path} is in use by {holder}. Stop it, or name another folder with --store")]
    InUse {
        /// The store's folder.
        path: String,
        /// The program that has the store open.
        holder: String,
    },
    /// The given key is not the key of the store. Nothing was read or changed.
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
    /// The store contains a record that this version cannot read. Nothing was changed.
    #[error("the store holds {what}, as a later version writes it. Open it with that version")]
    Newer {
        /// The record, and where it is.
        what: String,
    },
    /// Data that was read differs from the data that was written.
    #[error("the store is damaged: {what}")]
    Damaged {
        /// The data, where it is, and the consequences.
        what: String,
    },
    /// The requested data is lost, which was acknowledged when the store was repaired.
    #[error("the store has lost what is asked for, as was acknowledged: {what}")]
    Lost {
        /// The data, where it is, and the consequences.
        what: String,
    },
    /// The commit breaks a rule of this port, or deletes something that is still needed. Nothing
    /// was written.
    #[error("the store refuses this commit: {why}")]
    Refused {
        /// The rule, and how the commit breaks it.
        why: String,
    },
    /// The mark was never begun, has ended, or was superseded. What was freed before stays freed.
    #[error(
        "a sweep frees only what the last mark found, and {why}. Collect garbage once at a time"
    )]
    MarkSuperseded {
        /// What happened to the mark.
        why: &'static str,
    },
    /// The commit exceeds the quota. Nothing was written.
    #[error(
        "the store is full: it holds {used} bytes of the {quota} that it may, and this commit \
         brings {needed}. Collect garbage (`dormouse gc`), or raise the quota"
    )]
    Full {
        /// Bytes in the log.
        used: u64,
        /// The largest permitted size of the log, in bytes.
        quota: u64,
        /// Bytes of the commit.
        needed: u64,
    },
    /// The disk failed or is full.
    #[error("the store cannot {doing}: {source}")]
    Io {
        /// The failed operation.
        doing: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A commit or a sync failed, or one did earlier, so it is unknown what is stored since then.
    #[error(
        "the store takes no more commits, since one failed: {0}. Open it again: what was \
         acknowledged is there"
    )]
    Failed(String),
}

/// What is wrong with the key of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// The store is encrypted, and no key was given.
    #[error("is encrypted, and no key was given. Give the key that it was made with")]
    Missing,
    /// The store is encrypted with another key.
    #[error(
        "is encrypted with another key than the one that was given. Give the key that it was made \
         with"
    )]
    Wrong,
    /// A key was given, and the store is not encrypted.
    #[error(
        "is not encrypted, and a key was given. Open it without one, or name a new folder for an \
         encrypted store"
    )]
    NotEncrypted,
}
