//! Stores that a command only shows: a folder, or the shards of a cluster.
//!
//! What is shown is the store as it is at one moment, also while other programs write it.

use std::collections::BTreeMap;
use std::path::Path;

use dormouse::id::Pid;
use dormouse::{Kernel, KernelError};

use crate::args::Store;
#[cfg(feature = "cluster")]
use crate::cluster::ShardReaders;
use crate::failure::Failure;
use crate::kernel_setup::require_store;
#[cfg(feature = "cluster")]
use crate::store_address::is_cluster;
use crate::store_key::{Key, store_options};

/// The read-only kernels of a store, one after the other: one for a folder, one for each shard of a
/// cluster.
pub(crate) enum Readers {
    /// The kernel, until it is taken.
    Folder(Option<Kernel>),
    #[cfg(feature = "cluster")]
    Cluster(Box<ShardReaders>),
}

impl Readers {
    /// Opens a store that must exist.
    pub(crate) async fn open(store: &Store) -> Result<Self, Failure> {
        #[cfg(feature = "cluster")]
        if is_cluster(&store.folder) {
            let shards = ShardReaders::open(&store.folder, &store.key).await?;
            return Ok(Self::Cluster(Box::new(shards)));
        }
        let kernel = open_folder(&store.folder, &store.key).await?;
        Ok(Self::Folder(Some(kernel)))
    }

    /// The next kernel; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Kernel>, Failure> {
        match self {
            Self::Folder(kernel) => Ok(kernel.take()),
            #[cfg(feature = "cluster")]
            Self::Cluster(shards) => shards.next().await,
        }
    }

    /// What the processes of the last kernel do, as status words, where they run in another program
    /// that can be asked.
    pub(crate) async fn statuses(&mut self) -> Result<BTreeMap<Pid, String>, Failure> {
        match self {
            Self::Folder(_) => Ok(BTreeMap::new()),
            #[cfg(feature = "cluster")]
            Self::Cluster(shards) => shards.statuses().await,
        }
    }
}

/// A read-only kernel on a store that must exist: of a cluster, on the shard of the process.
pub(crate) async fn open_read_only(store: &Store, pid: Pid) -> Result<Kernel, Failure> {
    open_read_only_at(&store.folder, &store.key, pid).await
}

/// [`open_read_only`] for a command that declares the store and the key separately.
pub(crate) async fn open_read_only_at(
    store: &Path,
    key: &Key,
    pid: Pid,
) -> Result<Kernel, Failure> {
    #[cfg(feature = "cluster")]
    if is_cluster(store) {
        let shards = ShardReaders::open(store, key).await?;
        return shards.open_shard_of(pid).await;
    }
    // A folder has all processes.
    let _ = pid;
    open_folder(store, key).await
}

async fn open_folder(folder: &Path, key: &Key) -> Result<Kernel, Failure> {
    require_store(folder)?;
    let store = store_options(key)?
        .read_only(folder)
        .map_err(KernelError::from)?;
    Ok(Kernel::open(store).build().await?)
}
