//! Where the index is stored: in its folder, or in memory.

use std::path::PathBuf;

use dormouse_actors::ports::StoreError;

use super::IndexError;
use crate::error::io;
use crate::location_index::{IndexFault, LocationIndex};
use dormouse_records::secret::Keys;

/// Where the index is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    /// On disk.
    Folder(PathBuf),
    /// In memory: all changes stay pending and nothing is written.
    Memory,
}

impl Backend {
    /// Keeps the index in memory from now on, because its folder cannot be written. Logs an error,
    /// because an index in memory costs memory, and a pass over the log at each opening.
    pub(super) fn fall_back_to_memory(&mut self, fault: &IndexFault) {
        if let Self::Folder(folder) = self {
            let folder = folder.display();
            tracing::error!(%folder, %fault, "the index is kept in memory until the store is \
                 opened again; nothing of the store is lost");
        }
        *self = Self::Memory;
    }

    /// Creates an empty index.
    pub(super) fn create_empty(&self, keys: &Keys) -> Result<LocationIndex, IndexFault> {
        match self {
            Self::Folder(folder) => {
                LocationIndex::remove(folder)
                    .map_err(|error| IndexFault(format!("cannot be removed: {error}")))?;
                LocationIndex::open(folder, keys.clone())
            }
            Self::Memory => Ok(LocationIndex::in_memory(keys.clone())),
        }
    }
}

/// The error of an index that could not be built.
pub(super) fn cannot_build(backend: &Backend, error: IndexError) -> StoreError {
    let location = match backend {
        Backend::Folder(folder) => folder.display().to_string(),
        Backend::Memory => "memory".to_owned(),
    };
    match error {
        IndexError::Log(error) => error,
        IndexError::Fault(fault) => {
            io(format!("build its index in {location} from the log"))(std::io::Error::other(fault))
        }
    }
}
