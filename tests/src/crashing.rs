//! A store that dies at a chosen moment.

use std::sync::atomic::{AtomicUsize, Ordering};

use dormouse::id::{ContentHash, FactNumber, Pid};
use dormouse::ports::{Entry, Journal, OwnerToken, Store, StoreError};
use dormouse::process::ProcessRow;

/// A store that is cut off from its disk after so many commits, as its kernel's death would.
pub struct Crashing<S> {
    inner: S,
    room: AtomicUsize,
}

impl<S: Store> Crashing<S> {
    /// `inner`, for so many commits.
    #[must_use]
    pub fn after(commits: usize, inner: S) -> Self {
        Self { inner, room: AtomicUsize::new(commits) }
    }
}

impl<S: Store> Store for Crashing<S> {
    fn claim(&self) -> Result<OwnerToken, StoreError> {
        self.inner.claim()
    }

    fn commit(&self, owner: OwnerToken, entries: &[Entry]) -> Result<(), StoreError> {
        match self.room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |room| room.checked_sub(1)) {
            Ok(_) => self.inner.commit(owner, entries),
            Err(_) => Err(StoreError::Failed("the power is gone".to_owned())),
        }
    }

    fn processes(&self) -> Result<Vec<ProcessRow>, StoreError> {
        self.inner.processes()
    }

    fn journal(&self, pid: Pid, upto: Option<FactNumber>) -> Result<Journal, StoreError> {
        self.inner.journal(pid, upto)
    }

    fn content(&self, hash: ContentHash) -> Result<bytes::Bytes, StoreError> {
        self.inner.content(hash)
    }

    fn temp_files(&self, root: Pid) -> Result<Vec<Vec<u8>>, StoreError> {
        self.inner.temp_files(root)
    }
}
