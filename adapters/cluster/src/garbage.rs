//! Garbage collection of a cluster.
//!
//! Each shard is collected by the node that has it, as a kernel collects its store. That deletes
//! what the shard refers to no more, and its references to objects. Then one node deletes the
//! objects that no shard refers to. A shard that could not be collected keeps its references, so
//! that nothing that it may need goes.

use std::time::Duration;

use dormouse::garbage::CollectionReport;
use dormouse::ports::SweepMode;
use dormouse::retention::Retention;
use dormouse_postgres::{ObjectCollection, ShardId};
use futures_util::StreamExt;
use futures_util::stream;
use serde::{Deserialize, Serialize};

use crate::call::{Call, CollectCall, Reply};
use crate::cluster::Cluster;
use crate::database::on_database;
use crate::error::ClusterError;
use crate::process::unexpected;
use crate::random;

/// How old an object has to be before a collection deletes it, unless the caller has a reason for
/// another age: older than the longest commit, and than what clocks differ by.
pub const OBJECT_GRACE: Duration = Duration::from_secs(3600);

/// How many shards are collected at once.
const SHARDS_AT_ONCE: usize = 8;

/// What a garbage collection of a cluster deleted, or would delete.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ClusterCollection {
    /// What all shards deleted together.
    pub shards: ShardCollection,
    /// What cannot be read. The shard keeps all its contents, since it may refer to any of them.
    pub unreadable: Vec<(ShardId, String)>,
    /// The shards that were not collected, and why; of one without an owner all is kept.
    pub failed: Vec<(ShardId, ClusterError)>,
    /// What was deleted in the object store. `None` if the nodes have none, if no shard has an
    /// owner, and after counting.
    pub objects: Option<ObjectCollection>,
}

/// What the collection of a shard deleted, or would delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShardCollection {
    /// Ended processes.
    pub processes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Processes whose history was shortened.
    pub histories: u64,
    /// Contents that something refers to.
    pub live_contents: u64,
    /// Contents in the database, and references to objects, that nothing referred to any more.
    pub freed_contents: u64,
    /// Their bytes. Those of an object are free once no other shard refers to it.
    pub freed_bytes: u64,
}

impl From<&CollectionReport> for ShardCollection {
    fn from(report: &CollectionReport) -> Self {
        Self {
            processes: report.deletions.processes.len() as u64,
            checkpoints: report.deletions.checkpoints.len() as u64,
            histories: report.deletions.histories.len() as u64,
            live_contents: report.live_contents,
            freed_contents: report.swept.freed_contents,
            freed_bytes: report.swept.freed_content_bytes,
        }
    }
}

impl ShardCollection {
    fn add(&mut self, other: &Self) {
        self.processes += other.processes;
        self.checkpoints += other.checkpoints;
        self.histories += other.histories;
        self.live_contents += other.live_contents;
        self.freed_contents += other.freed_contents;
        self.freed_bytes += other.freed_bytes;
    }
}

impl Cluster {
    /// Deletes what the rules select in all shards, then what nothing refers to any more: contents
    /// in the database, and objects that no shard refers to and that are at least `object_grace`
    /// old ([`OBJECT_GRACE`] is a good choice). Or only counts what would be deleted in the shards;
    /// objects are not looked at then. Processes go on meanwhile.
    ///
    /// A shard that has no owner, or fails, is left out, and all that it refers to is kept: the
    /// report names it. A shard that goes to another node is collected there. May be called again
    /// at any time; one collection of a shard runs at a time. If the future is dropped, or this
    /// program ends, shards that are being collected go on to their end.
    ///
    /// A process that was deleted is found no more, also by the id of the request that started it:
    /// keep ended processes for longer than a start may be repeated. Do not call this while a
    /// backup is made: what the copy of the database refers to may go before the objects are
    /// copied.
    ///
    /// The first collection of a shard by its owner reads all its journals, a later one what was
    /// written since. The objects cost what
    /// [`Database::collect_objects`](dormouse_postgres::Database::collect_objects) costs.
    ///
    /// # Errors
    /// [`ClusterError::Database`] if the shards cannot be listed; that of the object store. What
    /// was deleted before stays deleted.
    pub async fn collect_garbage(
        &self,
        retention: Retention,
        mode: SweepMode,
        object_grace: Duration,
    ) -> Result<ClusterCollection, ClusterError> {
        let tables = self.tables();
        let shards = on_database(move || tables.0.shards()).await?;
        // One that no kernel was ever opened for has nothing.
        let shards = shards.into_iter().filter(|status| status.owner.0 != 0);
        let shards: Vec<ShardId> = shards.map(|status| status.shard).collect();
        let mut collection = ClusterCollection::default();
        let call = CollectCall::Shard { retention, mode };
        let call = &call;
        let collecting = shards
            .into_iter()
            .map(|shard| async move { (shard, self.collect(shard, call).await) });
        let mut collecting = stream::iter(collecting).buffer_unordered(SHARDS_AT_ONCE);
        let mut collected = None;
        while let Some((shard, reply)) = collecting.next().await {
            match reply {
                Ok(Reply::Collected {
                    deleted,
                    unreadable,
                }) => {
                    collected = Some(shard);
                    collection.shards.add(&deleted);
                    let unreadable = unreadable.into_iter().map(|what| (shard, what));
                    collection.unreadable.extend(unreadable);
                }
                Ok(other) => return Err(unexpected(&other)),
                Err(error) => collection.failed.push((shard, error)),
            }
        }
        if let (SweepMode::Free, Some(shard)) = (mode, collected) {
            let call = CollectCall::Objects {
                grace: object_grace,
            };
            match self.collect(shard, &call).await? {
                Reply::CollectedObjects(objects) => collection.objects = objects,
                other => return Err(unexpected(&other)),
            }
        }
        Ok(collection)
    }

    /// Has the node that has a shard make a collection, and waits for its end.
    async fn collect(&self, shard: ShardId, what: &CollectCall) -> Result<Reply, ClusterError> {
        let request = random::id()?;
        loop {
            let call = Call::Collect {
                request: request.as_str().into(),
                what: what.clone(),
            };
            match self.caller().call(shard, call).await? {
                Reply::Collecting => {}
                reply => return Ok(reply),
            }
        }
    }
}
