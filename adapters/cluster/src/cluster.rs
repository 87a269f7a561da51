//! A program's part in a cluster.

use std::sync::Arc;
use std::time::Duration;

use dormouse::KernelBuilder;
use dormouse::id::Pid;
use dormouse_postgres::{Database, DatabaseOptions, LargeContents, ShardId};
use tokio::net::TcpListener;

use crate::call::{Call, ClusterProcessInfo, Reply};
use crate::caller::Caller;
use crate::database::on_database;
use crate::error::ClusterError;
use crate::node::Node;
use crate::options::ClusterOptions;
use crate::process::{ClusterProcess, unexpected};
use crate::random;
use crate::server;
use crate::shard::shard_of;
use crate::shards::Shard;
use crate::start::{ClusterStart, ProgramFiles};
use crate::tables::Tables;

/// A cluster, as this program takes part in it: as a [node](Self::join) that runs shards, or as a
/// [program](Self::connect) that only uses them. Clones are the same part.
#[derive(Clone)]
pub struct Cluster {
    caller: Arc<Caller>,
    node: Option<Arc<Node>>,
}

/// A live node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its name.
    pub name: String,
    /// Host and port by which others reach it.
    pub address: String,
    /// Its labels.
    pub labels: Vec<String>,
    /// How many shards it has leases of.
    pub shards: usize,
    /// Whether it gives up its shards and leaves.
    pub is_draining: bool,
    /// The version of the calls that it understands; 0 for a node that does not say so yet. Nodes
    /// of different versions run side by side only while they are upgraded.
    pub protocol: u32,
}

impl Cluster {
    /// Joins as a node: from now on this program claims its part of the shards and runs their
    /// kernels, until it [leaves](Self::drain). `kernel` makes the builder of the kernel of a
    /// shard, with models, tools and permissions; the node adds the store, the pids, the lease, the
    /// other shards, the permits for model calls and the recovery.
    ///
    /// A database that cannot be reached is tried for the
    /// [`failover_limit`](ClusterOptions::failover_limit): a node may be started before its
    /// database.
    ///
    /// # Errors
    /// [`ClusterError::Database`]; [`ClusterError::Options`] if the address cannot be listened on.
    pub async fn join(
        options: ClusterOptions,
        kernel: impl Fn(Shard) -> KernelBuilder + Send + Sync + 'static,
    ) -> Result<Self, ClusterError> {
        let objects = options.large_contents.clone().map(|(objects, _)| objects);
        let limit = options.failover_limit;
        let caller = connect(&options.database, IfAbsent::Wait, limit, objects).await?;
        let (tables, shards) = (caller.tables.clone(), options.shards);
        on_database(move || tables.create_shards(shards)).await?;
        let listen = options.listen;
        let cannot_listen = |error: std::io::Error| {
            ClusterError::Options(format!("the node cannot listen on {listen}: {error}"))
        };
        let listener = TcpListener::bind(listen).await.map_err(cannot_listen)?;
        let bound = listener.local_addr().map_err(cannot_listen)?;
        if !bound.ip().is_loopback() {
            tracing::warn!(
                address = %bound,
                "nodes speak to each other without encryption: whoever can read this network can \
                 read programs, inputs and the token of the cluster"
            );
        }
        let address = options.advertised.clone();
        let address = address.unwrap_or_else(|| bound.to_string());
        let id = format!("{}#{}", options.name, random::id()?);
        let node = Node::new(id, caller.clone(), options, address, Box::new(kernel));
        let node = Arc::new(node);
        // Before the first shard is open: a budget that was set holds from its beginning.
        node.read_label_budgets().await?;
        node.heartbeat().await?;
        node.compare_protocols().await?;
        tokio::spawn(node.clone().renew_leases());
        tokio::spawn(node.clone().place_shards());
        tokio::spawn(node.clone().read_inbox());
        tokio::spawn(node.clone().share_labels());
        tokio::spawn(node.clone().move_trees());
        if node.options.shared_limits.is_any() {
            tokio::spawn(node.clone().share_permits());
        }
        tokio::spawn(server::serve(listener, node.clone()));
        Ok(Self {
            caller,
            node: Some(node),
        })
    }

    /// Connects a program that is no node. It needs the database, to find nodes and for the token,
    /// and a way to the nodes.
    ///
    /// # Errors
    /// [`ClusterError::Database`].
    pub async fn connect(database: DatabaseOptions) -> Result<Self, ClusterError> {
        const FAILOVER_LIMIT: Duration = Duration::from_secs(60);
        let caller = connect(&database, IfAbsent::Fail, FAILOVER_LIMIT, None).await?;
        Ok(Self { caller, node: None })
    }

    /// Begins to start a process: a root, in a shard whose owner has the labels that the program
    /// needs.
    pub fn start(&self, program: impl Into<ProgramFiles>) -> ClusterStart {
        ClusterStart::new(self.caller.clone(), program.into())
    }

    /// A handle on a process. Asks nobody: whether the process exists shows with the first call.
    #[must_use]
    pub fn process(&self, pid: Pid) -> ClusterProcess {
        ClusterProcess::new(self.caller.clone(), pid)
    }

    /// A page of the processes of all shards: up to `limit` rows with pids after `after`, sorted by
    /// pid. An empty page is the last. Each page is as of some moment during the call.
    ///
    /// # Errors
    /// [`ClusterError::NoOwner`] if a shard has no owner: no page leaves processes out.
    pub async fn processes(
        &self,
        after: Option<Pid>,
        limit: usize,
    ) -> Result<Vec<ClusterProcessInfo>, ClusterError> {
        let tables = self.caller.tables.clone();
        let shards = on_database(move || tables.0.shards()).await?;
        let first = after.map(shard_of);
        let mut page = Vec::new();
        for status in shards {
            let shard = status.shard;
            let is_over = first.is_some_and(|first| shard < first);
            // A shard that no kernel was ever opened for has no processes.
            if is_over || status.owner.0 == 0 {
                continue;
            }
            let mut after = after.filter(|after| shard_of(*after) == shard);
            while page.len() < limit {
                let rows = self.processes_of(shard, after, limit - page.len()).await?;
                let Some(last) = rows.last() else {
                    break;
                };
                after = Some(last.row.pid);
                page.extend(rows);
            }
        }
        Ok(page)
    }

    /// A page of the processes of one shard, as [`processes`](Self::processes) of all.
    ///
    /// # Errors
    /// [`ClusterError::NoOwner`].
    pub async fn processes_of(
        &self,
        shard: ShardId,
        after: Option<Pid>,
        limit: usize,
    ) -> Result<Vec<ClusterProcessInfo>, ClusterError> {
        let call = Call::Processes { after, limit };
        match self.caller.call(shard, call).await? {
            Reply::Processes(rows) => Ok(rows),
            other => Err(unexpected(&other)),
        }
    }

    /// The live nodes.
    ///
    /// # Errors
    /// [`ClusterError::Database`].
    pub async fn nodes(&self) -> Result<Vec<NodeInfo>, ClusterError> {
        let tables = self.caller.tables.clone();
        let read = move || Ok((tables.live_nodes()?, tables.0.shards()?));
        let (nodes, shards) = on_database(read).await?;
        let holds = |id: &str| {
            let owners = shards.iter().filter_map(|status| status.lease.as_ref());
            owners.filter(|(owner, _)| owner == id).count()
        };
        let nodes = nodes.into_iter().map(|node| NodeInfo {
            shards: holds(&node.candidate.id),
            name: node.candidate.name,
            address: node.address,
            labels: node.candidate.labels.into_iter().collect(),
            is_draining: node.is_draining,
            protocol: node.protocol,
        });
        Ok(nodes.collect())
    }

    /// Asks a node to give up its shards and to leave. It begins within a third of its lease.
    ///
    /// # Errors
    /// [`ClusterError::NoNode`], [`ClusterError::Database`].
    pub async fn drain_node(&self, name: &str) -> Result<(), ClusterError> {
        let (tables, marked) = (self.caller.tables.clone(), name.to_owned());
        if on_database(move || tables.mark_draining(&marked)).await? > 0 {
            return Ok(());
        }
        let nodes = self.nodes().await?.into_iter().map(|node| node.name);
        Err(ClusterError::NoNode {
            name: name.to_owned(),
            nodes: nodes.collect(),
        })
    }

    /// Gives up all shards of this node and leaves: calls in flight come to their end, processes
    /// hibernate, and other nodes take over. Returns when the node has left; at once for a program
    /// that is no node.
    pub async fn drain(&self) {
        if let Some(node) = &self.node {
            node.drain();
            node.left().await;
        }
    }

    /// Resolves when the node has left, since somebody [drained](Self::drain_node) it.
    pub async fn left(&self) {
        if let Some(node) = &self.node {
            node.left().await;
        }
    }

    /// Host and port by which others reach this node; `None` for a program that is no node.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        self.node.as_deref().map(|node| &*node.address)
    }

    pub(crate) fn tables(&self) -> Tables {
        self.caller.tables.clone()
    }

    pub(crate) fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Whether this node holds all shards that are its own, and renews their leases.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.is_ready())
    }
}

/// What to do if the database cannot be reached.
#[derive(Clone, Copy)]
enum IfAbsent {
    /// Try again until the limit for a failover.
    Wait,
    Fail,
}

async fn connect(
    options: &DatabaseOptions,
    if_absent: IfAbsent,
    failover_limit: Duration,
    objects: Option<Arc<dyn LargeContents>>,
) -> Result<Arc<Caller>, ClusterError> {
    let (options, token) = (options.clone(), random::id()?);
    let opened = tokio::task::spawn_blocking(move || -> Result<_, ClusterError> {
        let database = match if_absent {
            IfAbsent::Wait => Database::connect_within(failover_limit, &options)?,
            IfAbsent::Fail => Database::connect(&options)?,
        };
        let tables = Tables(database);
        tables.create(&token)?;
        let token = tables.token()?;
        Ok((tables, token))
    });
    let opened = opened.await;
    let (tables, token) = opened.map_err(|error| ClusterError::Options(error.to_string()))??;
    Ok(Arc::new(Caller::new(
        tables,
        token,
        failover_limit,
        objects,
    )?))
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.node.as_ref().map(|node| &node.options.name);
        f.debug_struct("Cluster")
            .field("node", &name)
            .finish_non_exhaustive()
    }
}
