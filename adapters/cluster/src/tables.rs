//! The tables of a cluster, beside those of the store: nodes, needs of shards, requests, the inbox.
//!
//! The methods block. Every time is one of the database's clock.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse::ports::StoreError;
use dormouse_postgres::{Database, DatabaseError, Row, ShardId, ShardStatus};

use crate::placement::{Candidate, Labels};
use crate::shard::MAX_SHARDS;

/// The migrations of these tables, which have numbers of their own.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/1.sql"),
    include_str!("migrations/2.sql"),
    include_str!("migrations/3.sql"),
    include_str!("migrations/4.sql"),
    include_str!("migrations/5.sql"),
];

/// The version of the calls that nodes make to each other. Raised with each change by which a node
/// does not understand one of before, or is not understood by it.
pub(crate) const PROTOCOL: u32 = 1;

/// How many shards a database gets whose first node names no number.
const DEFAULT_SHARDS: u32 = 64;

/// How many shards are created for needs that no shard has yet.
const SHARDS_OF_NEEDS: i32 = 4;

/// How long the record of an input is kept, and with it the answer whether the input arrived.
const KEPT_MS: i64 = 3_600_000;

/// Builds the parameters of a statement.
macro_rules! parameters {
    ($($parameter:expr),* $(,)?) => {
        vec![$(Box::new($parameter) as Box<dyn dormouse_postgres::ToSql + Send + Sync>),*]
    };
}
pub(crate) use parameters;

/// The tables.
#[derive(Clone, Debug)]
pub(crate) struct Tables(pub(crate) Database);

/// A node that was seen within its lease.
#[derive(Clone, Debug)]
pub(crate) struct LiveNode {
    pub(crate) candidate: Candidate,
    /// Where it listens.
    pub(crate) address: String,
    pub(crate) is_draining: bool,
    /// The version of the calls that it understands.
    pub(crate) protocol: u32,
}

/// All that placement depends on.
pub(crate) struct Placement {
    /// The number of the last change that this contains, and maybe later ones.
    pub(crate) generation: i64,
    pub(crate) nodes: Vec<LiveNode>,
    pub(crate) needs: BTreeMap<ShardId, Labels>,
    pub(crate) shards: Vec<ShardStatus>,
}

/// What an earlier attempt of an input has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BegunInput {
    /// A commit of the shard before the one that has the input, if it arrived.
    pub(crate) last_commit: u64,
    /// How many inputs to the process were begun at about the same time or later, this one
    /// included.
    pub(crate) inputs: u64,
    /// A commit of the shard before those of all of them.
    pub(crate) first_commit: u64,
}

impl Tables {
    /// Brings the tables up to date, and creates the token.
    pub(crate) fn create(&self, token: &str) -> Result<(), DatabaseError> {
        self.0.migrate("cluster_migration", MIGRATIONS)?;
        let sql = "INSERT INTO {schema}.cluster (token) VALUES ($1) ON CONFLICT DO NOTHING";
        let parameters = parameters![token.to_owned()];
        self.0
            .query("write the token of the cluster", sql, parameters)?;
        Ok(())
    }

    /// Creates the shards that the database lacks of `count`, or else [`DEFAULT_SHARDS`] if it has
    /// none.
    pub(crate) fn create_shards(&self, count: Option<u32>) -> Result<(), StoreError> {
        match count {
            Some(count) => self.0.create_shards(count.clamp(1, MAX_SHARDS)),
            None if self.0.shards()?.is_empty() => self.0.create_shards(DEFAULT_SHARDS),
            None => Ok(()),
        }
    }

    pub(crate) fn token(&self) -> Result<String, StoreError> {
        let sql = "SELECT token FROM {schema}.cluster";
        let rows = self.0.query("read the token of the cluster", sql, vec![])?;
        Ok(rows.first().map(|row| row.get(0)).unwrap_or_default())
    }

    /// Says that a node lives. Returns whether it is to be drained.
    pub(crate) fn heartbeat(&self, node: &LiveNode, lease: Duration) -> Result<bool, StoreError> {
        let sql = "INSERT INTO {schema}.node AS n (id, name, address, labels, lease_ms, seen_at, draining, protocol)
            VALUES ($1, $2, $3, $4, $5, clock_timestamp(), $6, $7)
            ON CONFLICT (id) DO UPDATE SET seen_at = clock_timestamp(), draining = n.draining OR excluded.draining
            RETURNING n.draining";
        let Candidate { id, name, labels } = &node.candidate;
        let parameters = parameters![
            id.clone(),
            name.clone(),
            node.address.clone(),
            sorted(labels),
            millis(lease),
            node.is_draining,
            node.protocol as i32,
        ];
        let rows = self
            .0
            .query_within(lease, "say that this node lives", sql, parameters)?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    /// The nodes that live.
    pub(crate) fn live_nodes(&self) -> Result<Vec<LiveNode>, StoreError> {
        let sql = "SELECT id, name, address, labels, draining, protocol FROM {schema}.node
            WHERE seen_at + lease_ms * interval '1 millisecond' > clock_timestamp()";
        let rows = self.0.query("list the nodes", sql, vec![])?;
        let node = |row: &Row| LiveNode {
            candidate: Candidate {
                id: row.get(0),
                name: row.get(1),
                labels: row.get::<_, Vec<String>>(3).into_iter().collect(),
            },
            address: row.get(2),
            is_draining: row.get(4),
            protocol: row.get::<_, i32>(5).unsigned_abs(),
        };
        Ok(rows.iter().map(node).collect())
    }

    /// Reads all that placement depends on. Four round trips, and a row for each node and shard.
    pub(crate) fn placement(&self) -> Result<Placement, StoreError> {
        // First: what changes from here on has a later number.
        let sql = "SELECT generation FROM {schema}.placement";
        let rows = self.0.query("look for changes", sql, vec![])?;
        Ok(Placement {
            generation: rows.first().map_or(0, |row| row.get(0)),
            nodes: self.live_nodes()?,
            needs: self.needs()?,
            shards: self.0.shards()?,
        })
    }

    /// Whether placement may have changed since `generation`. If the life of the node `watched` has
    /// ended, raises the number, so that all nodes read again. One round trip and two rows, two
    /// round trips for the end of a life.
    pub(crate) fn has_changed(
        &self,
        generation: i64,
        watched: Option<&str>,
    ) -> Result<bool, StoreError> {
        let doing = "look for changes";
        let sql = "SELECT p.generation, n.seen_at + n.lease_ms * interval '1 millisecond' <= clock_timestamp()
            FROM {schema}.placement AS p LEFT JOIN {schema}.node AS n ON n.id = $1";
        let rows = self
            .0
            .query(doing, sql, parameters![watched.map(str::to_owned)])?;
        let Some(row) = rows.first() else {
            return Ok(true);
        };
        if row.get::<_, i64>(0) != generation {
            return Ok(true);
        }
        if row.get::<_, Option<bool>>(1) != Some(true) {
            return Ok(false);
        }
        let sql = "UPDATE {schema}.placement SET generation = generation + 1 WHERE generation = $1";
        self.0.query(doing, sql, parameters![generation])?;
        Ok(true)
    }

    /// Marks the nodes with this name: they give up their shards and leave. Returns how many there
    /// are.
    pub(crate) fn mark_draining(&self, name: &str) -> Result<usize, StoreError> {
        let sql = "UPDATE {schema}.node SET draining = true WHERE name = $1 RETURNING id";
        let parameters = parameters![name.to_owned()];
        Ok(self.0.query("drain a node", sql, parameters)?.len())
    }

    /// Deletes a node that leaves, and those that died long ago.
    pub(crate) fn delete_node(&self, id: &str) -> Result<(), StoreError> {
        let sql = "DELETE FROM {schema}.node
            WHERE id = $1 OR seen_at + lease_ms * interval '10 milliseconds' < clock_timestamp()";
        self.0
            .query("delete a node", sql, parameters![id.to_owned()])?;
        Ok(())
    }

    /// The needs of the shards that have some.
    pub(crate) fn needs(&self) -> Result<BTreeMap<ShardId, Labels>, StoreError> {
        let sql = "SELECT shard, needs FROM {schema}.shard_needs";
        let rows = self.0.query("list the needs of shards", sql, vec![])?;
        let needs = |row: &Row| {
            (
                shard(row),
                row.get::<_, Vec<String>>(1).into_iter().collect(),
            )
        };
        Ok(rows.iter().map(needs).collect())
    }

    /// The shards with exactly these needs, which are created if there are none.
    pub(crate) fn shards_with_needs(&self, needs: &Labels) -> Result<Vec<ShardId>, StoreError> {
        let sql = "SELECT * FROM {schema}.shards_with_needs($1, $2, $3)";
        let parameters = parameters![sorted(needs), SHARDS_OF_NEEDS, MAX_SHARDS as i32];
        let rows = self
            .0
            .query("list the shards with some needs", sql, parameters)?;
        Ok(rows.iter().map(shard).collect())
    }

    /// The address of the node that has the lease of a shard; `None` if no node has.
    pub(crate) fn owner_address(&self, shard: ShardId) -> Result<Option<String>, StoreError> {
        let sql =
            "SELECT n.address FROM {schema}.lease AS l JOIN {schema}.node AS n ON n.id = l.node
            WHERE l.shard = $1 AND l.until > clock_timestamp()";
        let parameters = parameters![shard.0 as i32];
        let rows = self.0.query("find the owner of a shard", sql, parameters)?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    /// The name of the node that has the lease of a shard; `None` if no node has.
    pub(crate) fn owner_name(&self, shard: ShardId) -> Result<Option<String>, StoreError> {
        let sql = "SELECT n.name FROM {schema}.lease AS l JOIN {schema}.node AS n ON n.id = l.node
            WHERE l.shard = $1 AND l.until > clock_timestamp()";
        let parameters = parameters![shard.0 as i32];
        let rows = self.0.query("find the owner of a shard", sql, parameters)?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    /// Records that an input begins. `None` if this is its first attempt.
    pub(crate) fn begin_input(
        &self,
        id: &str,
        shard: ShardId,
        pid: u64,
        nonce: &str,
    ) -> Result<Option<BegunInput>, StoreError> {
        let doing = "record that an input begins";
        let sql = "INSERT INTO {schema}.request (id, pid, last_commit, nonce, begun_at)
            SELECT $1, $2, last_commit, $4, clock_timestamp() FROM {schema}.shard WHERE id = $3
            ON CONFLICT DO NOTHING RETURNING id";
        let parameters = parameters![id.to_owned(), pid as i64, shard.0 as i32, nonce.to_owned()];
        if !self.0.query(doing, sql, parameters)?.is_empty() {
            return Ok(None);
        }
        // No attempt of an input takes ten minutes.
        let sql = "SELECT r.last_commit, count(*), min(o.last_commit)
            FROM {schema}.request AS r JOIN {schema}.request AS o
                ON o.pid = r.pid AND o.begun_at > r.begun_at - interval '10 minutes'
            WHERE r.id = $1 AND r.nonce <> $2 GROUP BY r.id";
        let parameters = parameters![id.to_owned(), nonce.to_owned()];
        let rows = self.0.query(doing, sql, parameters)?;
        let number = |row: &Row, column| row.get::<_, i64>(column) as u64;
        Ok(rows.first().map(|row| BegunInput {
            last_commit: number(row, 0),
            inputs: number(row, 1),
            first_commit: number(row, 2),
        }))
    }

    /// Deletes what is kept for a while only.
    pub(crate) fn delete_old(&self) -> Result<(), StoreError> {
        let doing = "delete old requests";
        let sql = "DELETE FROM {schema}.request
            WHERE begun_at < clock_timestamp() - $1::bigint * interval '1 millisecond'";
        self.0.query(doing, sql, parameters![KEPT_MS])?;
        let sql = "DELETE FROM {schema}.inbox WHERE outcome IS NOT NULL
            AND sent_at < clock_timestamp() - $1::bigint * interval '1 millisecond'";
        self.0.query(doing, sql, parameters![KEPT_MS])?;
        Ok(())
    }
}

/// The shard in the first column.
pub(crate) fn shard(row: &Row) -> ShardId {
    ShardId(row.get::<_, i32>(0).unsigned_abs())
}

fn sorted(labels: &Labels) -> Vec<String> {
    labels.iter().cloned().collect()
}

fn millis(duration: Duration) -> i64 {
    duration.as_millis() as i64
}
