//! Read-only kernels on the shards of a cluster. They read the database as of one moment and need
//! no node; only what processes do at present is asked of the nodes.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dormouse::Kernel;
use dormouse::id::Pid;
use dormouse::ports::OwnerToken;
use dormouse::records::{RecordStore, StoreSecret};
use dormouse_cluster::{Cluster, ClusterError, pids_of, shard_of};
use dormouse_objects::ObjectContents;
use dormouse_postgres::{
    Database, DatabaseError, DatabaseOptions, PostgresLog, ShardId, ShardStatus,
};

use super::database::{LARGE_BYTES, database_options, on_database, open_objects};
use crate::failure::Failure;
use crate::store_key::{Key, store_secret};
use crate::terminal::print_stderr;

/// How many rows a node is asked for at once.
const ROWS_AT_ONCE: usize = 4096;

/// How long the node of a shard may take to say what its processes do.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The shards of a cluster that have processes.
pub(crate) struct ShardReaders {
    options: DatabaseOptions,
    database: Database,
    objects: Option<Arc<ObjectContents>>,
    secret: Option<StoreSecret>,
    shards: Vec<ShardStatus>,
    /// The shards that no kernel was opened for yet.
    left: VecDeque<ShardStatus>,
    /// The shard of the last kernel.
    current: Option<ShardStatus>,
    /// Connected when nodes are asked first.
    cluster: Option<Cluster>,
}

impl ShardReaders {
    pub(crate) async fn open(store: &Path, key: &Key) -> Result<Self, Failure> {
        let options = database_options(store)?;
        let connected = options.clone();
        let (database, shards) = on_database(move || {
            let database = Database::connect_snapshot(&connected)?;
            let shards = database.shards().map_err(DatabaseError::from)?;
            Ok((database, shards))
        })
        .await?;
        // A shard that never had an owner has no processes.
        let left = shards
            .iter()
            .filter(|status| status.owner != OwnerToken(0))
            .cloned()
            .collect();
        Ok(Self {
            options,
            database,
            objects: open_objects(None).await?,
            secret: store_secret(key)?,
            shards,
            left,
            current: None,
            cluster: None,
        })
    }

    /// The kernel of the next shard.
    pub(crate) async fn next(&mut self) -> Result<Option<Kernel>, Failure> {
        self.current = self.left.pop_front();
        match &self.current {
            Some(status) => Ok(Some(self.open_shard(status.shard).await?)),
            None => Ok(None),
        }
    }

    /// The kernel of the shard of a process.
    pub(crate) async fn open_shard_of(&self, pid: Pid) -> Result<Kernel, Failure> {
        let shard = shard_of(pid);
        if !self.shards.iter().any(|status| status.shard == shard) {
            return Err(Failure::Usage(format!(
                "the cluster has no process {pid}: it would be in {shard}, and there is none. dormouse \
                 ps lists those it has"
            )));
        }
        self.open_shard(shard).await
    }

    async fn open_shard(&self, shard: ShardId) -> Result<Kernel, Failure> {
        let mut log = PostgresLog::read_only(&self.database, shard);
        if let Some(objects) = &self.objects {
            log = log.large_contents(objects.clone(), LARGE_BYTES);
        }
        let mut store = RecordStore::new_on(log);
        if let Some(secret) = &self.secret {
            store = store.key(secret.clone());
        }
        Ok(Kernel::open(store).pids(pids_of(shard)).build().await?)
    }

    /// The status words of the processes of the last shard, by the node that runs it. If no node
    /// does, there are none, which is said.
    pub(crate) async fn statuses(&mut self) -> Result<BTreeMap<Pid, String>, Failure> {
        let Some(ShardStatus { shard, lease, .. }) = self.current.clone() else {
            return Ok(BTreeMap::new());
        };
        if lease.is_some() {
            let cluster = match self.cluster.take() {
                Some(cluster) => cluster,
                None => Cluster::connect(self.options.clone()).await?,
            };
            // A node that is lost has its leases for a while.
            let asked = tokio::time::timeout(ANSWER_LIMIT, ask_statuses(&cluster, shard)).await;
            self.cluster = Some(cluster);
            if let Ok(statuses) = asked {
                return Ok(statuses?);
            }
        }
        print_stderr(&format!(
            "no node answers for {shard}: its processes wait for one (dormouse nodes)"
        ));
        Ok(BTreeMap::new())
    }
}

async fn ask_statuses(
    cluster: &Cluster,
    shard: ShardId,
) -> Result<BTreeMap<Pid, String>, ClusterError> {
    let (mut statuses, mut after) = (BTreeMap::new(), None);
    loop {
        let page = cluster.processes_of(shard, after, ROWS_AT_ONCE).await?;
        let Some(last) = page.last() else {
            return Ok(statuses);
        };
        after = Some(last.row.pid);
        statuses.extend(page.into_iter().map(|info| (info.row.pid, info.status)));
    }
}
