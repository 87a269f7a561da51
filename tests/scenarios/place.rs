//! Where a world's kernels keep what they have: in memory or in a folder, and cut off from it at times.

use std::sync::Arc;

use dormouse::id::{ContentHash, FactNumber, Pid};
use dormouse::ports::{Entry, Journal, OwnerToken, Store, StoreError};
use dormouse::process::ProcessRow;
use dormouse::store::{LogStore, MemoryStore};

/// What outlives a kernel.
pub(crate) enum Place {
    Memory(Arc<MemoryStore>),
    Folder(tempfile::TempDir),
}

impl Place {
    pub(crate) fn open(&self) -> Opened {
        match self {
            Self::Memory(store) => Opened(store.clone()),
            Self::Folder(folder) => Opened(Arc::new(LogStore::open(folder.path()).unwrap())),
        }
    }
}

/// A store of either kind.
pub(crate) struct Opened(Arc<dyn Store>);

impl Store for Opened {
    fn claim(&self) -> Result<OwnerToken, StoreError> {
        self.0.claim()
    }

    fn commit(&self, owner: OwnerToken, entries: &[Entry]) -> Result<(), StoreError> {
        self.0.commit(owner, entries)
    }

    fn processes(&self) -> Result<Vec<ProcessRow>, StoreError> {
        self.0.processes()
    }

    fn journal(&self, pid: Pid, upto: Option<FactNumber>) -> Result<Journal, StoreError> {
        self.0.journal(pid, upto)
    }

    fn content(&self, hash: ContentHash) -> Result<bytes::Bytes, StoreError> {
        self.0.content(hash)
    }

    fn temp_files(&self, root: Pid) -> Result<Vec<Vec<u8>>, StoreError> {
        self.0.temp_files(root)
    }
}
