//! What `--store` names: a folder, or the database of a cluster.

use std::path::Path;

/// Whether the store is a cluster, by the address of its database.
pub(crate) fn is_cluster(store: &Path) -> bool {
    let address = store.to_str().unwrap_or_default();
    ["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| address.starts_with(scheme))
}
