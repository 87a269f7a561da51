//! Where a world's kernels keep what they have: in memory or in a folder, and cut off from it at
//! times.

use std::sync::Arc;

use dormouse::ports::Store;
use dormouse::store::{LogStore, MemoryStore};

/// What outlives a kernel.
pub(crate) enum Place {
    Memory(Arc<MemoryStore>),
    Folder(tempfile::TempDir),
}

impl Place {
    pub(crate) fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => store.clone(),
            Self::Folder(folder) => Arc::new(LogStore::open(folder.path()).unwrap()),
        }
    }
}
