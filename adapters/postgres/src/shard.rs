//! The shards of a database, and what is known of each.

use std::fmt;
use std::time::Duration;

use dormouse_actors::ports::{OwnerToken, StoreError};
use dormouse_proto::id::CommitNumber;

use crate::connections::parameters;
use crate::database::Database;
use crate::error::other_error;

/// The number of a shard. A shard is one log, with one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u32);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}", self.0)
    }
}

impl ShardId {
    /// The number in the database. One that is too large is that of no shard.
    pub(crate) fn to_sql(self) -> i32 {
        i32::try_from(self.0).unwrap_or(-1)
    }

    pub(crate) fn from_sql(id: i32) -> Self {
        Self(id.unsigned_abs())
    }
}

/// What the database knows of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardStatus {
    /// The shard.
    pub shard: ShardId,
    /// The token of its latest owner; 0 if it never had one.
    pub owner: OwnerToken,
    /// Its last commit; 0 if there is none.
    pub last_commit: CommitNumber,
    /// The node that has a lease, and how much is left of it; `None` if nobody has, or it has
    /// ended.
    pub lease: Option<(String, Duration)>,
}

impl Database {
    /// Creates the shards 0 to `count - 1` where they do not exist. One round trip.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn create_shards(&self, count: u32) -> Result<(), StoreError> {
        let doing = "create shards";
        let count = i32::try_from(count);
        let count = count.map_err(|_| other_error(doing, "there are at most 2147483647"))?;
        let sql = "INSERT INTO {schema}.shard (id) SELECT generate_series(0, $1::integer - 1) ON CONFLICT DO NOTHING";
        self.query(doing, sql, parameters![count])?;
        Ok(())
    }

    /// All shards, by ascending number. One round trip.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn shards(&self) -> Result<Vec<ShardStatus>, StoreError> {
        let sql = "SELECT s.id, s.epoch, s.last_commit, l.node,
                (extract(epoch FROM l.until - clock_timestamp()) * 1000)::bigint
            FROM {schema}.shard AS s
            LEFT JOIN {schema}.lease AS l ON l.shard = s.id AND l.epoch = s.epoch
            ORDER BY s.id";
        let rows = self.query("list its shards", sql, parameters![])?;
        let status = |row: tokio_postgres::Row| {
            let node: Option<String> = row.get(3);
            let left_ms: Option<i64> = row.get(4);
            let left_ms = left_ms.and_then(|left| u64::try_from(left).ok());
            ShardStatus {
                shard: ShardId::from_sql(row.get(0)),
                owner: OwnerToken(row.get::<_, i64>(1) as u64),
                last_commit: CommitNumber(row.get::<_, i64>(2) as u64),
                lease: node.zip(left_ms.filter(|left| *left > 0).map(Duration::from_millis)),
            }
        };
        Ok(rows.into_iter().map(status).collect())
    }
}

/// The error of a shard that does not exist.
pub(crate) fn unknown_shard(doing: &str, shard: ShardId) -> StoreError {
    let why = format!("the database has no {shard}: create it first (`Database::create_shards`)");
    other_error(doing, why)
}
