//! The settings of a node, and of a program that only calls nodes.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dormouse_postgres::{DatabaseOptions, LargeContents, PostgresLog};
use dormouse_records::RecordStore;

use crate::permit_sharing::SharedLimits;
use crate::placement::Labels;

/// Changes the store of a shard, such as by a key.
pub(crate) type StoreSettings =
    dyn Fn(RecordStore<PostgresLog>) -> RecordStore<PostgresLog> + Send + Sync;

/// The settings of a [`Cluster`](crate::Cluster).
///
/// | setting | default |
/// |---|---|
/// | [`shards`](Self::shards) | 64, if the database has none yet |
/// | [`lease`](Self::lease) | 10 s |
/// | [`listen`](Self::listen) | a free port of 127.0.0.1 |
/// | [`drain_deadline`](Self::drain_deadline) | 30 s |
/// | [`failover_limit`](Self::failover_limit) | 60 s |
/// | [`model_calls`](Self::model_calls) | 16 |
/// | [`shared_model_calls`](Self::shared_model_calls), [`shared_tokens`](Self::shared_tokens) | each node has limits of its own |
#[derive(Clone)]
pub struct ClusterOptions {
    pub(crate) database: DatabaseOptions,
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) shards: Option<u32>,
    pub(crate) lease: Duration,
    pub(crate) listen: SocketAddr,
    pub(crate) advertised: Option<String>,
    pub(crate) drain_deadline: Duration,
    pub(crate) failover_limit: Duration,
    pub(crate) model_calls: usize,
    pub(crate) shared_limits: SharedLimits,
    pub(crate) large_contents: Option<(Arc<dyn LargeContents>, usize)>,
    pub(crate) store: Option<Arc<StoreSettings>>,
}

impl ClusterOptions {
    /// The settings of the node `name`, whose shards are in this database. No two nodes that run at
    /// the same time have the same name; a node that starts again under its name gets its shards
    /// back.
    #[must_use]
    pub fn new(database: DatabaseOptions, name: impl Into<String>) -> Self {
        Self {
            database,
            name: name.into(),
            labels: Labels::default(),
            shards: None,
            lease: Duration::from_secs(10),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            advertised: None,
            drain_deadline: Duration::from_secs(30),
            failover_limit: Duration::from_secs(60),
            model_calls: 16,
            shared_limits: SharedLimits::default(),
            large_contents: None,
            store: None,
        }
    }

    /// Labels of the node, such as `gpu` or `repo:main`, which programs can need.
    #[must_use]
    pub fn labels(mut self, labels: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.labels = labels.into_iter().map(Into::into).collect();
        self
    }

    /// How many shards for programs without needs the database has at least; at most
    /// [`MAX_SHARDS`](crate::MAX_SHARDS). There can be more later, and never fewer. A node that names
    /// no number takes those that there are.
    #[must_use]
    pub fn shards(mut self, shards: u32) -> Self {
        self.shards = Some(shards);
        self
    }

    /// How long a node may be silent before others take its shards. It is renewed every third of
    /// that. At least 300 ms.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_millis(300));
        self
    }

    /// The address to listen on for other nodes. What travels there is not encrypted: the token of
    /// the cluster, programs, inputs and messages. Other addresses than those of this machine are
    /// for networks that only nodes and their clients can read.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// The host and port by which others reach the node, if they are not those that it listens on.
    #[must_use]
    pub fn advertised(mut self, host_and_port: impl Into<String>) -> Self {
        self.advertised = Some(host_and_port.into());
        self
    }

    /// How long calls in flight may take to come to their end before a shard goes to another node.
    #[must_use]
    pub fn drain_deadline(mut self, deadline: Duration) -> Self {
        self.drain_deadline = deadline;
        self
    }

    /// How long a call is tried again while no node answers for its shard: longer than the lease.
    /// Also how long the node waits for a database that it does not reach when it joins.
    #[must_use]
    pub fn failover_limit(mut self, limit: Duration) -> Self {
        self.failover_limit = limit;
        self
    }

    /// The number of concurrent model calls of the node at each provider, for all shards together.
    #[must_use]
    pub fn model_calls(mut self, max_concurrent: usize) -> Self {
        self.model_calls = max_concurrent;
        self
    }

    /// The number of concurrent model calls of all nodes together at each provider, and at each
    /// server and with each key that programs name instead; at least one. It is in place of
    /// [`model_calls`](Self::model_calls), and the same for all nodes; of different numbers the
    /// smallest holds.
    ///
    /// Each node has a share, in proportion to the calls that run and wait there; what is not
    /// needed is shared equally. Shares change each second, and go to another node once no call
    /// uses them. A node that cannot reach the database goes on with its share for as long as the
    /// [lease](Self::lease), and then begins no call; the share goes to others after that time.
    /// What can exceed the limit are calls that still run at a provider for a node that was lost,
    /// paused or cut off for longer than its lease: at most its share.
    #[must_use]
    pub fn shared_model_calls(mut self, max_concurrent: usize) -> Self {
        self.shared_limits.calls = Some(max_concurrent);
        self
    }

    /// Like [`shared_model_calls`](Self::shared_model_calls), for one provider, by the word in
    /// `[model] provider = "…"`. Other providers keep [`model_calls`](Self::model_calls) of each
    /// node, unless `shared_model_calls` is set too.
    #[must_use]
    pub fn shared_provider_calls(
        mut self,
        provider: impl Into<String>,
        max_concurrent: usize,
    ) -> Self {
        let calls = &mut self.shared_limits.calls_of;
        calls.insert(provider.into(), max_concurrent);
        self
    }

    /// The `tokens_per_minute` of programs hold for the calls of all nodes together, in place of
    /// each node's. Tokens are shared as [calls](Self::shared_model_calls) are; they go to another
    /// node once they count no more. If calls with different limits to one server wait, the
    /// smallest holds for all of them. What can exceed the limit is what calls use beyond their
    /// estimates, as at one node, and what a node used in the minute before it was lost: at most
    /// its share.
    #[must_use]
    pub fn shared_tokens(mut self) -> Self {
        self.shared_limits.has_tokens = true;
        self
    }

    /// Keeps contents from a length in bytes on in an object store, the same for all nodes, and of
    /// no other cluster: a [garbage collection](crate::Cluster::collect_garbage) deletes what no
    /// shard of this one refers to. 64 KiB is a good choice.
    #[must_use]
    pub fn large_contents(mut self, objects: Arc<dyn LargeContents>, from_bytes: usize) -> Self {
        self.large_contents = Some((objects, from_bytes));
        self
    }

    /// Sets a key or compression for the stores of all shards.
    #[must_use]
    pub fn store(
        mut self,
        settings: impl Fn(RecordStore<PostgresLog>) -> RecordStore<PostgresLog> + Send + Sync + 'static,
    ) -> Self {
        self.store = Some(Arc::new(settings));
        self
    }
}

impl fmt::Debug for ClusterOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterOptions")
            .field("name", &self.name)
            .field("labels", &self.labels)
            .field("lease", &self.lease)
            .field("listen", &self.listen)
            .finish_non_exhaustive()
    }
}
