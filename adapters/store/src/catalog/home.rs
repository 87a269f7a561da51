//! Where an index is kept: in its folder, or in memory.

use std::path::PathBuf;

use dormouse_actors::ports::StoreError;

use super::CatalogError;
use crate::error::io;
use crate::index::{Fault, Index};
use crate::secret::Keys;

/// Where the index is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// On disk.
    Folder(PathBuf),
    /// In memory, where all changes go on waiting: nothing is written.
    Memory,
}

impl Home {
    /// From now on the index is in memory, as its folder does not take it. Says so: it costs
    /// memory, and each opening a pass over the log.
    pub(super) fn give_up(&mut self, fault: &Fault) {
        if let Self::Folder(folder) = self {
            let folder = folder.display();
            tracing::error!(%folder, %fault, "the index is kept in memory until the store is \
                 opened again; nothing of the store is lost");
        }
        *self = Self::Memory;
    }

    /// An index with nothing in it.
    pub(super) fn begin(&self, keys: &Keys) -> Result<Index, Fault> {
        match self {
            Self::Folder(folder) => {
                Index::remove(folder)
                    .map_err(|error| Fault(format!("cannot be removed: {error}")))?;
                Index::open(folder, keys.clone())
            }
            Self::Memory => Ok(Index::in_memory(keys.clone())),
        }
    }
}

/// The error of an index that could not be built there.
pub(super) fn cannot_build(home: &Home, error: CatalogError) -> StoreError {
    let place = match home {
        Home::Folder(folder) => folder.display().to_string(),
        Home::Memory => "memory".to_owned(),
    };
    match error {
        CatalogError::Log(error) => error,
        CatalogError::Index(fault) => {
            io(format!("build its index in {place} from the log"))(std::io::Error::other(fault))
        }
    }
}
