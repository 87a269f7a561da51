//! [`PostgresLog`]: the port of a log of records, on one shard.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dormouse_actors::ports::{BlobReader, OwnerToken, StoreError};
use dormouse_proto::id::{CommitNumber, ContentHash};
use dormouse_records::validator::check_owner;
use dormouse_records::{Record, RecordBatch, RecordLog, Stream, StreamKind};
use tokio_postgres::Row;

use crate::claim::Claim;
use crate::connections::parameters;
use crate::content;
use crate::database::Database;
use crate::number::{from_ordered, to_ordered};
use crate::objects::LargeContents;
use crate::shard::ShardId;
use crate::write::{Large, Writer};

/// The log of one shard. Give it to [`RecordStore`](dormouse_records::RecordStore::new_on), and use
/// one handle for each owner: the writes of a second one with the same token are refused, since
/// each write has to follow the last one that its handle knows of.
#[derive(Debug)]
pub struct PostgresLog {
    database: Database,
    shard: ShardId,
    ownership: Ownership,
    large: Option<Large>,
    /// Locked during a write.
    writer: Mutex<Writer>,
}

/// Who owns the shard for this handle.
#[derive(Debug)]
enum Ownership {
    /// Who claims the log.
    Unleased,
    Claimed(Claim),
    /// Nobody: the log is read only.
    None,
}

impl PostgresLog {
    /// The log of a shard without a lease: a [`claim`](RecordLog::claim) takes the shard from its
    /// owner, whoever that is. For programs that are alone, and for tools. Costs nothing.
    #[must_use]
    pub fn unleased(database: &Database, shard: ShardId) -> Self {
        Self {
            database: database.clone(),
            shard,
            ownership: Ownership::Unleased,
            large: None,
            writer: Mutex::new(Writer::new(database.clone(), shard, None)),
        }
    }

    /// The log of a shard that this node has claimed. Its [`claim`](RecordLog::claim) returns the
    /// token of that claim. A write that fails is [`StoreError::Failed`], which closes the kernel:
    /// open the shard again. Costs nothing.
    #[must_use]
    pub fn claimed(database: &Database, claim: &Claim) -> Self {
        Self {
            ownership: Ownership::Claimed(claim.clone()),
            ..Self::unleased(database, claim.shard())
        }
    }

    /// The log of a shard for reading, whoever owns it meanwhile. A kernel on it is read-only. Best
    /// on a database that is read [as of one moment](Database::connect_snapshot). Costs nothing.
    #[must_use]
    pub fn read_only(database: &Database, shard: ShardId) -> Self {
        Self {
            ownership: Ownership::None,
            ..Self::unleased(database, shard)
        }
    }

    fn read_only_error(&self) -> StoreError {
        StoreError::ReadOnly {
            path: format!("of {} in the database", self.shard),
        }
    }

    /// Keeps contents whose stored bytes are at least `from_bytes` long in an object store; 64 KiB
    /// is a good choice. Contents that are stored already stay where they are. All shards of the
    /// database use the same store.
    #[must_use]
    pub fn large_contents(self, objects: Arc<dyn LargeContents>, from_bytes: usize) -> Self {
        let large = Large {
            objects,
            from_bytes,
        };
        let writer = Writer::new(self.database.clone(), self.shard, Some(large.clone()));
        Self {
            large: Some(large),
            writer: Mutex::new(writer),
            ..self
        }
    }

    /// The shard.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordLog for PostgresLog {
    /// # Errors
    /// In addition, [`StoreError::Stale`] for the log of a [`Claim`] that was lost, and
    /// [`StoreError::ReadOnly`].
    fn claim(&self) -> Result<OwnerToken, StoreError> {
        match &self.ownership {
            Ownership::Unleased => self.database.claim_unleased(self.shard),
            Ownership::Claimed(claim) => {
                check_owner(claim.owner(), self.database.epoch(self.shard)?)?;
                Ok(claim.owner())
            }
            Ownership::None => Err(self.read_only_error()),
        }
    }

    fn append(
        &self,
        owner: OwnerToken,
        batch: &RecordBatch<'_>,
    ) -> Result<CommitNumber, StoreError> {
        if let Ownership::None = self.ownership {
            return Err(self.read_only_error());
        }
        let written = self.writer().append(owner, batch);
        match written {
            // The processes whose facts were not written have stopped, and nothing in a node
            // resumes them: the kernel closes, and the shard is opened again from what is written.
            Err(error @ StoreError::Io { .. })
                if matches!(self.ownership, Ownership::Claimed(_)) =>
            {
                Err(StoreError::Failed(error.to_string()))
            }
            written => written,
        }
    }

    fn read(
        &self,
        stream: Stream,
        numbers: RangeInclusive<u64>,
    ) -> Result<Vec<Record>, StoreError> {
        let sql = "SELECT number, in_commit, at_ms, bytes FROM {schema}.record
            WHERE shard = $1 AND kind = $2 AND id = $3 AND number BETWEEN $4 AND $5 ORDER BY number";
        let parameters = parameters![
            self.shard.to_sql(),
            i16::from(stream.kind as u8),
            to_ordered(stream.id),
            to_ordered(*numbers.start()),
            to_ordered(*numbers.end()),
        ];
        let rows = self.database.query("read records", sql, parameters)?;
        Ok(rows.iter().map(|row| record(row, 0)).collect())
    }

    fn latest(&self, stream: Stream, up_to: u64) -> Result<Option<Record>, StoreError> {
        let sql = "SELECT number, in_commit, at_ms, bytes FROM {schema}.record
            WHERE shard = $1 AND kind = $2 AND id = $3 AND number <= $4
            ORDER BY number DESC LIMIT 1";
        let parameters = parameters![
            self.shard.to_sql(),
            i16::from(stream.kind as u8),
            to_ordered(stream.id),
            to_ordered(up_to),
        ];
        let rows = self.database.query("read a record", sql, parameters)?;
        Ok(rows.first().map(|row| record(row, 0)))
    }

    fn read_kind(&self, kind: StreamKind) -> Result<Vec<(u64, Record)>, StoreError> {
        let sql = "SELECT id, number, in_commit, at_ms, bytes FROM {schema}.record
            WHERE shard = $1 AND kind = $2 ORDER BY id, number";
        let parameters = parameters![self.shard.to_sql(), i16::from(kind as u8)];
        let rows = self.database.query("read records", sql, parameters)?;
        let id = |row: &Row| from_ordered(row.get(0));
        Ok(rows.iter().map(|row| (id(row), record(row, 1))).collect())
    }

    fn content(&self, name: ContentHash) -> Result<Option<Arc<dyn BlobReader>>, StoreError> {
        let objects = self.large.as_ref().map(|large| &*large.objects);
        content::open(&self.database, self.shard, objects, name)
    }

    fn contents(&self) -> Result<Vec<(ContentHash, u64)>, StoreError> {
        content::list(&self.database, self.shard)
    }

    fn delete_contents(&self, owner: OwnerToken, names: &[ContentHash]) -> Result<(), StoreError> {
        match self.ownership {
            Ownership::None => Err(self.read_only_error()),
            _ => self.writer().delete_contents(owner, names),
        }
    }
}

/// Reads a record from the columns of a row that start at `first`.
fn record(row: &Row, first: usize) -> Record {
    Record {
        number: from_ordered(row.get(first)),
        commit: CommitNumber(row.get::<_, i64>(first + 1) as u64),
        at_ms: row.get::<_, i64>(first + 2) as u64,
        bytes: Bytes::copy_from_slice(row.get(first + 3)),
    }
}
