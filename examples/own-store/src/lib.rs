//! Your own store: keeps the kernel's processes in a SQLite file.
//!
//! [`SqliteLog`] stores records by stream and number, and contents by name. [`RecordStore`] adds
//! the rules that every store keeps, encryption ([`RecordStore::key`]) and compression
//! ([`RecordStore::compression`]). `tests/store.rs` runs the conformance suite, and kills a program
//! that uses the store.

use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dormouse::id::{CommitNumber, ContentHash};
use dormouse::ports::{BlobReader, OwnerToken, StoreError, SyncLevel, Unreadable};
use dormouse::records::validator::check_owner;
use dormouse::records::{
    Record, RecordBatch, RecordLog, RecordOp, RecordStore, Stream, StreamKind,
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS log (owner INTEGER NOT NULL, commits INTEGER NOT NULL);
    INSERT INTO log SELECT 0, 0 WHERE NOT EXISTS (SELECT * FROM log);
    CREATE TABLE IF NOT EXISTS record (
        kind INTEGER, id INTEGER, number INTEGER,
        in_commit INTEGER NOT NULL, at_ms INTEGER NOT NULL, bytes BLOB NOT NULL,
        PRIMARY KEY (kind, id, number)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS content (
        hash BLOB PRIMARY KEY, bytes BLOB NOT NULL, chunks BLOB NOT NULL
    );
";

/// A log of records in a SQLite file.
pub struct SqliteLog(Arc<Mutex<Connection>>);

impl SqliteLog {
    /// A store in the file at `path`, which is created if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn open(path: &Path) -> Result<RecordStore<Self>, StoreError> {
        let connection = Connection::open(path).map_err(store_error("open its file"))?;
        connection
            .execute_batch(SCHEMA)
            .map_err(store_error("make its tables"))?;
        Ok(RecordStore::new_on(Self(Arc::new(Mutex::new(connection)))))
    }

    /// Runs a transaction, which is rolled back if it fails. Refuses any owner but the newest.
    fn write<T>(
        &self,
        owner: OwnerToken,
        sync_level: SyncLevel,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let mut connection = lock(&self.0);
        let synchronous = match sync_level {
            SyncLevel::Written => "NORMAL",
            SyncLevel::Synced => "FULL",
        };
        connection
            .pragma_update(None, "synchronous", synchronous)
            .map_err(store_error("choose how durable a commit is"))?;
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(store_error("begin a commit"))?;
        let newest = transaction.query_row("SELECT owner FROM log", [], |row| row.get::<_, i64>(0));
        let newest = newest.map_err(store_error("read its owner"))?;
        check_owner(owner, OwnerToken(newest as u64))?;
        let value = change(&transaction).map_err(store_error("write a commit"))?;
        transaction.commit().map_err(store_error("end a commit"))?;
        Ok(value)
    }

    fn query<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = || {
            let connection = lock(&self.0);
            let mut query = connection.prepare_cached(sql)?;
            query.query_map(params, read)?.collect()
        };
        let rows: rusqlite::Result<Vec<T>> = rows();
        rows.map_err(store_error("read"))
    }
}

impl RecordLog for SqliteLog {
    fn claim(&self) -> Result<OwnerToken, StoreError> {
        let sql = "UPDATE log SET owner = owner + 1 RETURNING owner";
        let owners = self.query(sql, [], |row| row.get::<_, i64>(0))?;
        Ok(OwnerToken(owners[0] as u64))
    }

    fn append(
        &self,
        owner: OwnerToken,
        batch: &RecordBatch<'_>,
    ) -> Result<CommitNumber, StoreError> {
        let commit = self.write(owner, batch.sync_level, |transaction| {
            let step = i64::from(!batch.is_empty());
            let sql = "UPDATE log SET commits = commits + ?1 RETURNING commits";
            let commit: i64 = transaction.query_row(sql, [step], |row| row.get(0))?;
            for content in batch.contents {
                let sql = "INSERT OR IGNORE INTO content VALUES (?1, ?2, ?3)";
                let (bytes, chunks) = (&content.bytes[..], &content.index[..]);
                transaction.execute(sql, params![content.name.0, bytes, chunks])?;
            }
            for op in batch.ops {
                apply(transaction, op, commit, batch.at_ms)?;
            }
            Ok(commit)
        })?;
        if batch.is_empty() && batch.sync_level == SyncLevel::Synced {
            self.query("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(()))?;
        }
        Ok(CommitNumber(commit as u64))
    }

    fn read(
        &self,
        stream: Stream,
        numbers: RangeInclusive<u64>,
    ) -> Result<Vec<Record>, StoreError> {
        let sql = "SELECT number, in_commit, at_ms, bytes FROM record
                   WHERE kind = ?1 AND id = ?2 AND number BETWEEN ?3 AND ?4 ORDER BY number";
        let (first, last) = (
            to_sql_number(*numbers.start()),
            to_sql_number(*numbers.end()),
        );
        let parameters = params![stream.kind as u8, to_sql_number(stream.id), first, last];
        self.query(sql, parameters, |row| read_record(row, 0))
    }

    fn latest(&self, stream: Stream, up_to: u64) -> Result<Option<Record>, StoreError> {
        let sql = "SELECT number, in_commit, at_ms, bytes FROM record
                   WHERE kind = ?1 AND id = ?2 AND number <= ?3 ORDER BY number DESC LIMIT 1";
        let parameters = params![
            stream.kind as u8,
            to_sql_number(stream.id),
            to_sql_number(up_to)
        ];
        Ok(self
            .query(sql, parameters, |row| read_record(row, 0))?
            .pop())
    }

    fn read_kind(&self, kind: StreamKind) -> Result<Vec<(u64, Record)>, StoreError> {
        let sql = "SELECT id, number, in_commit, at_ms, bytes FROM record
                   WHERE kind = ?1 ORDER BY id, number";
        self.query(sql, [kind as u8], |row| {
            Ok((from_sql_number(row, 0)?, read_record(row, 1)?))
        })
    }

    fn content(&self, hash: ContentHash) -> Result<Option<Arc<dyn BlobReader>>, StoreError> {
        let sql = "SELECT length(bytes), chunks FROM content WHERE hash = ?1";
        let found = self.query(sql, [hash.0], |row| {
            Ok(SqliteContent {
                connection: Arc::clone(&self.0),
                hash,
                length: row.get::<_, i64>(0)? as u64,
                chunks: row.get::<_, Vec<u8>>(1)?.into(),
            })
        })?;
        Ok(found
            .into_iter()
            .next()
            .map(|content| Arc::new(content) as _))
    }

    fn contents(&self) -> Result<Vec<(ContentHash, u64)>, StoreError> {
        let sql = "SELECT hash, length(bytes) FROM content";
        self.query(sql, [], |row| {
            Ok((ContentHash(row.get(0)?), row.get::<_, i64>(1)? as u64))
        })
    }

    fn delete_contents(&self, owner: OwnerToken, hashes: &[ContentHash]) -> Result<(), StoreError> {
        self.write(owner, SyncLevel::Written, |transaction| {
            for hash in hashes {
                transaction.execute("DELETE FROM content WHERE hash = ?1", [hash.0])?;
            }
            Ok(())
        })
    }
}

/// Performs an operation on a record.
fn apply(
    transaction: &Transaction<'_>,
    op: &RecordOp,
    commit: i64,
    at_ms: u64,
) -> rusqlite::Result<usize> {
    match op {
        RecordOp::Put {
            stream,
            number,
            bytes,
        } => {
            let (kind, id) = (stream.kind as u8, to_sql_number(stream.id));
            let sql = "INSERT OR REPLACE INTO record VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let bytes = &bytes[..];
            transaction.execute(
                sql,
                params![
                    kind,
                    id,
                    to_sql_number(*number),
                    commit,
                    at_ms as i64,
                    bytes
                ],
            )
        }
        RecordOp::Delete { stream, up_to } => {
            let (kind, id) = (stream.kind as u8, to_sql_number(stream.id));
            let sql = "DELETE FROM record WHERE kind = ?1 AND id = ?2 AND number <= ?3";
            transaction.execute(sql, params![kind, id, to_sql_number(*up_to)])
        }
    }
}

/// Reads a record from the columns of a row that start at `first`.
fn read_record(row: &Row<'_>, first: usize) -> rusqlite::Result<Record> {
    Ok(Record {
        number: from_sql_number(row, first)?,
        commit: CommitNumber(row.get::<_, i64>(first + 1)? as u64),
        at_ms: row.get::<_, i64>(first + 2)? as u64,
        bytes: row.get::<_, Vec<u8>>(first + 3)?.into(),
    })
}

/// Maps unsigned to signed numbers in the same order, because SQLite has no unsigned numbers.
fn to_sql_number(number: u64) -> i64 {
    (number ^ (1 << 63)) as i64
}

fn from_sql_number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)? as u64 ^ (1 << 63))
}

/// Reads ranges of a content.
struct SqliteContent {
    connection: Arc<Mutex<Connection>>,
    hash: ContentHash,
    length: u64,
    chunks: Bytes,
}

impl BlobReader for SqliteContent {
    fn length(&self) -> u64 {
        self.length
    }

    fn index(&self) -> Option<Bytes> {
        Some(self.chunks.clone())
    }

    fn slice(&self, range: Range<u64>) -> Result<Bytes, Unreadable> {
        let sql = "SELECT substr(bytes, ?2, ?3) FROM content WHERE hash = ?1";
        let part = params![
            self.hash.0,
            range.start as i64 + 1,
            range.end.saturating_sub(range.start) as i64
        ];
        let found = lock(&self.connection)
            .query_row(sql, part, |row| row.get::<_, Vec<u8>>(0))
            .optional();
        match found {
            Ok(Some(bytes)) => Ok(bytes.into()),
            Ok(None) => Err(Unreadable::new("the content was deleted")),
            Err(error) => Err(Unreadable::new(error.to_string())),
        }
    }
}

fn lock(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts an error of SQLite. `doing` names the failed operation as a verb with its object.
fn store_error(doing: &str) -> impl FnOnce(rusqlite::Error) -> StoreError {
    move |error| StoreError::Io {
        doing: doing.to_owned(),
        source: std::io::Error::other(error),
    }
}
