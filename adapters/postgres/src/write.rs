//! Guarded writes: one statement for a whole batch.
//!
//! The database accepts a write only from the latest owner, and only as the successor of the last
//! write that this handle knows of. So a statement that was sent twice, or arrives after its sender
//! gave it up, writes at most once, and never after a later write. Each write has a random number,
//! its *nonce*: a program that lost the answer sends the statement again, and the database
//! recognises it.

use std::sync::Arc;

use dormouse_actors::ports::{OwnerToken, StoreError, SyncLevel};
use dormouse_proto::id::{CommitNumber, ContentHash};
use dormouse_records::validator::check_owner;
use dormouse_records::{NewContent, RecordBatch};
use tokio_postgres::Row;

use crate::batch::{DeletionColumns, RecordColumns, distinct_contents, name_blob, reduce};
use crate::connections::{Parameters, parameters};
use crate::content::{ContentColumns, upload_contents};
use crate::database::Database;
use crate::error::other_error;
use crate::group::{GroupAnswer, RecordWrite};
use crate::number::nonce;
use crate::objects::{LargeContents, refer};
use crate::shard::{ShardId, unknown_shard};

/// Writes to one shard, one write at a time.
#[derive(Debug)]
pub(crate) struct Writer {
    database: Database,
    shard: ShardId,
    /// Where contents go from a stored length on.
    large: Option<Large>,
    /// The last write that this handle knows of; `None` before its first one.
    position: Option<Position>,
}

/// The object store of large contents.
#[derive(Clone, Debug)]
pub(crate) struct Large {
    pub(crate) objects: Arc<dyn LargeContents>,
    /// From which stored length in bytes on a content is large.
    pub(crate) from_bytes: usize,
}

/// The number of writes of a shard, when an owner has written or begins to.
#[derive(Clone, Copy, Debug)]
struct Position {
    owner: OwnerToken,
    writes: i64,
}

/// What one write changes.
#[derive(Default)]
struct Changes {
    deletions: DeletionColumns,
    records: RecordColumns,
    contents: ContentColumns,
    deleted_contents: Vec<ContentHash>,
}

/// How a write counts.
struct WriteMode {
    /// 1 for a commit, and 0 for a write that is none.
    commit_step: i32,
    sync_level: SyncLevel,
    at_ms: u64,
}

const DOING: &str = "write a commit";

impl Writer {
    pub(crate) fn new(database: Database, shard: ShardId, large: Option<Large>) -> Self {
        Self {
            database,
            shard,
            large,
            position: None,
        }
    }

    /// See [`RecordLog::append`](dormouse_records::RecordLog::append).
    pub(crate) fn append(
        &mut self,
        owner: OwnerToken,
        batch: &RecordBatch<'_>,
    ) -> Result<CommitNumber, StoreError> {
        if batch.is_empty() && batch.sync_level == SyncLevel::Written {
            return Ok(self.read_shard(owner)?.1);
        }
        let (deletions, records) = reduce(batch.ops);
        let small = self.put_large(distinct_contents(batch.contents))?;
        let contents = upload_contents(&self.database, self.shard, owner, &small)?;
        let changes = Changes {
            deletions,
            records,
            contents,
            ..Changes::default()
        };
        let mode = WriteMode {
            commit_step: i32::from(!batch.is_empty()),
            sync_level: batch.sync_level,
            at_ms: batch.at_ms,
        };
        self.write(owner, changes, &mode)
    }

    /// Puts the large ones of these contents into the object store. Returns the others.
    fn put_large<'a>(
        &self,
        contents: Vec<&'a NewContent>,
    ) -> Result<Vec<&'a NewContent>, StoreError> {
        let Some(Large {
            objects,
            from_bytes,
        }) = &self.large
        else {
            return Ok(contents);
        };
        let (large, mut small): (Vec<_>, Vec<_>) = contents
            .into_iter()
            .partition(|content| content.bytes.len() >= *from_bytes);
        if large.is_empty() {
            return Ok(small);
        }
        let names = large
            .iter()
            .map(|content| (content.name, content.bytes.len() as u64));
        let are_deleted = refer(&self.database, self.shard, &names.collect::<Vec<_>>())?;
        for content in large {
            if are_deleted.contains(&content.name) {
                // The object may vanish at any time.
                small.push(content);
            } else {
                #[cfg(dormouse_planted)]
                if crate::planted::put_later(objects, content) {
                    continue;
                }
                let NewContent { name, bytes, index } = content.clone();
                objects.put_if_absent(name, bytes, index)?;
            }
        }
        Ok(small)
    }

    /// Deletes contents, and what earlier owners uploaded of contents without finishing.
    pub(crate) fn delete_contents(
        &mut self,
        owner: OwnerToken,
        names: &[ContentHash],
    ) -> Result<(), StoreError> {
        let changes = Changes {
            deleted_contents: names.to_vec(),
            ..Changes::default()
        };
        let mode = WriteMode {
            commit_step: 0,
            sync_level: SyncLevel::Written,
            at_ms: 0,
        };
        self.write(owner, changes, &mode)?;
        Ok(())
    }

    fn write(
        &mut self,
        owner: OwnerToken,
        mut changes: Changes,
        mode: &WriteMode,
    ) -> Result<CommitNumber, StoreError> {
        let position = match self.position {
            Some(position) if position.owner == owner => position,
            _ => self.read_shard(owner)?.0,
        };
        // After an error the position stays as it is: if the write has arrived, or does so yet, the
        // next one is refused as moved.
        self.position = Some(position);
        let nonce = nonce()?;
        if changes.has_only_records() {
            let write = RecordWrite {
                shard: self.shard.to_sql(),
                epoch: owner.0 as i64,
                writes: position.writes,
                nonce,
                at_ms: mode.at_ms as i64,
                records: std::mem::take(&mut changes.records),
            };
            match self.database.write_records(mode.sync_level, write)? {
                GroupAnswer::Written { writes, commit } => {
                    self.position = Some(Position { owner, writes });
                    return Ok(CommitNumber(commit as u64));
                }
                // The same write again, with the same nonce: the answer says why.
                GroupAnswer::NotWritten(write) => changes.records = write.records,
            }
        }
        let sql = "SELECT out_outcome, out_epoch, out_writes, out_commit FROM {schema}.write_batch(
            $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)";
        let parameters = batch_parameters(self.shard, position, nonce, changes, mode);
        let row = self.database.query_one(DOING, sql, parameters)?;
        self.read_outcome(position, &row)
    }

    /// The answer of the function that writes a batch.
    fn read_outcome(&mut self, position: Position, row: &Row) -> Result<CommitNumber, StoreError> {
        let outcome: Option<&str> = row.get(0);
        let outcome = outcome.ok_or_else(|| unknown_shard(DOING, self.shard))?;
        let owner = position.owner;
        let writes = row.get(2);
        self.position = Some(Position { owner, writes });
        match outcome {
            "written" => Ok(CommitNumber(row.get::<_, i64>(3) as u64)),
            "stale" => Err(StoreError::Stale {
                stale: owner,
                newest: OwnerToken(row.get::<_, i64>(1) as u64),
            }),
            _ => Err(self.moved(position.writes, writes)),
        }
    }

    /// Refuses any owner but the newest. Returns the position and the last commit of the shard.
    fn read_shard(&self, owner: OwnerToken) -> Result<(Position, CommitNumber), StoreError> {
        let doing = "read the owner of a shard";
        let sql = "SELECT epoch, writes, last_commit FROM {schema}.shard WHERE id = $1";
        let rows = self
            .database
            .query(doing, sql, parameters![self.shard.to_sql()])?;
        let row = rows
            .first()
            .ok_or_else(|| unknown_shard(doing, self.shard))?;
        check_owner(owner, OwnerToken(row.get::<_, i64>(0) as u64))?;
        let writes = row.get(1);
        let last_commit = CommitNumber(row.get::<_, i64>(2) as u64);
        Ok((Position { owner, writes }, last_commit))
    }

    /// The error of a write that does not follow the last one. Nothing of it was written.
    fn moved(&self, known: i64, found: i64) -> StoreError {
        let shard = self.shard;
        let why = if found < known {
            format!(
                "{shard} has {found} writes, and had acknowledged {known}: the database has lost \
                 some, as after a failover to a standby that had not received them. Restart the \
                 kernel, which continues from what is left"
            )
        } else {
            format!(
                "{shard} has {found} writes where this owner knows of {known}: a write whose \
                 answer was lost has arrived after all, or two handles write with one token. \
                 Nothing of this commit was written: read the shard again"
            )
        };
        other_error(DOING, why)
    }
}

impl Changes {
    /// Whether the write can be sent together with those of other shards.
    fn has_only_records(&self) -> bool {
        self.deletions.kinds.is_empty()
            && self.contents.names.is_empty()
            && self.deleted_contents.is_empty()
            && !self.records.kinds.is_empty()
    }
}

fn batch_parameters(
    shard: ShardId,
    position: Position,
    nonce: i64,
    changes: Changes,
    mode: &WriteMode,
) -> Parameters {
    let Changes {
        deletions,
        records,
        contents,
        deleted_contents,
    } = changes;
    let deleted_names = deleted_contents.into_iter().map(name_blob);
    parameters![
        shard.to_sql(),
        position.owner.0 as i64,
        position.writes,
        nonce,
        mode.commit_step,
        mode.sync_level == SyncLevel::Synced,
        mode.at_ms as i64,
        deletions.kinds,
        deletions.ids,
        deletions.up_to,
        records.kinds,
        records.ids,
        records.numbers,
        records.bytes,
        contents.names,
        contents.bodies,
        contents.lengths,
        contents.indexes,
        contents.chunk_bodies,
        contents.chunk_numbers,
        contents.chunks,
        deleted_names.collect::<Vec<_>>(),
    ]
}
