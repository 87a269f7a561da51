//! The database of a cluster, as `--store` names it, and the object store of its large contents.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use dormouse_cluster::Cluster;
use dormouse_objects::{ObjectContents, ObjectOptions};
use dormouse_postgres::{DatabaseError, DatabaseOptions};

use crate::failure::Failure;

/// Contents of at least this length go to the object store.
pub(super) const LARGE_BYTES: usize = 64 << 10;

/// The database of a cluster.
#[derive(Debug, Args)]
pub(crate) struct DatabaseUrl {
    /// The database of the cluster: postgres://USER@HOST/DATABASE, with ?schema=NAME if the tables
    /// are not in the schema `dormouse`. The password is that of the file which
    /// DORMOUSE_DATABASE_PASSWORD_FILE names, of PGPASSWORD, or of ~/.pgpass.
    #[arg(long = "store", value_name = "URL")]
    pub(super) url: PathBuf,
}

impl DatabaseUrl {
    pub(super) fn options(&self) -> Result<DatabaseOptions, Failure> {
        database_options(&self.url)
    }

    /// Connects as a program that is no node.
    pub(super) async fn connect(&self) -> Result<Cluster, Failure> {
        connect(&self.url).await
    }
}

/// The database that `--store` names.
pub(super) fn database_options(store: &Path) -> Result<DatabaseOptions, Failure> {
    let address = store.to_str().unwrap_or_default();
    Ok(DatabaseOptions::without_password(address)?)
}

/// Connects to the cluster that `--store` names, as a program that is no node.
pub(super) async fn connect(store: &Path) -> Result<Cluster, Failure> {
    Ok(Cluster::connect(database_options(store)?).await?)
}

/// Runs an operation that waits for the database.
pub(super) async fn on_database<T: Send + 'static>(
    operation: impl FnOnce() -> Result<T, DatabaseError> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(operation).await;
    Ok(done.map_err(|error| Failure::Run(error.to_string()))??)
}

/// The variable that says where large contents are, if no flag does.
const OBJECTS_VARIABLE: &str = "DORMOUSE_OBJECTS";

/// Opens the object store at this address, or else at the one that the environment names; `None` if
/// there is neither.
pub(super) async fn open_objects(
    url: Option<String>,
) -> Result<Option<Arc<ObjectContents>>, Failure> {
    let variable = || std::env::var(OBJECTS_VARIABLE).ok();
    let Some(url) = url.or_else(variable).filter(|url| !url.is_empty()) else {
        return Ok(None);
    };
    let open = move || ObjectContents::open(ObjectOptions::new(url));
    let opened = tokio::task::spawn_blocking(open).await;
    let opened = opened.map_err(|error| Failure::Run(error.to_string()))?;
    let objects = opened.map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(Some(Arc::new(objects)))
}
