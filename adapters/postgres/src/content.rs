//! Contents: in the database, or large ones in an object store (`objects.rs`).
//!
//! In the database a content is stored in chunks of 256 KiB, of which a read fetches only the bytes
//! it needs.
//!
//! The contents of a batch are sent with it, up to 4 MiB together. Larger ones are uploaded before
//! it, some chunks at a time, under a random number (their *body*), and the batch then names the
//! body.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_actors::ports::{BlobReader, OwnerToken, StoreError, Unreadable};
use dormouse_proto::id::ContentHash;
use dormouse_records::NewContent;

use crate::batch::{Blob, name_blob};
use crate::connections::parameters;
use crate::database::Database;
use crate::error::other_error;
use crate::number::nonce;
use crate::objects::LargeContents;
use crate::shard::ShardId;

/// The length of each chunk of a content but the last.
const CHUNK_BYTES: u64 = 256 * 1024;

/// The most bytes of contents that one statement carries.
const STATEMENT_BYTES: u64 = 4 * 1024 * 1024;

/// New contents, a column for each field, and those of their chunks that were not uploaded before.
#[derive(Debug, Default)]
pub(crate) struct ContentColumns {
    pub(crate) names: Vec<Blob>,
    pub(crate) bodies: Vec<i64>,
    pub(crate) lengths: Vec<i64>,
    pub(crate) indexes: Vec<Blob>,
    pub(crate) chunk_bodies: Vec<i64>,
    pub(crate) chunk_numbers: Vec<i32>,
    pub(crate) chunks: Vec<Blob>,
}

/// Uploads the contents that are too large for the statement of their batch. Returns what the batch
/// has to say of all contents. One round trip for each 4 MiB.
///
/// # Errors
/// [`StoreError::Stale`], [`StoreError::Io`].
pub(crate) fn upload_contents(
    database: &Database,
    shard: ShardId,
    owner: OwnerToken,
    contents: &[&NewContent],
) -> Result<ContentColumns, StoreError> {
    let mut columns = ContentColumns::default();
    let mut left = STATEMENT_BYTES;
    for content in contents {
        let body = nonce()?;
        let length = content.bytes.len() as u64;
        columns.names.push(name_blob(content.name));
        columns.bodies.push(body);
        columns.lengths.push(length as i64);
        columns.indexes.push(Blob(content.index.clone()));
        let chunks = split(&content.bytes);
        if let Some(rest) = left.checked_sub(length) {
            left = rest;
            for (chunk, number) in chunks.into_iter().zip(0..) {
                columns.chunk_bodies.push(body);
                columns.chunk_numbers.push(number);
                columns.chunks.push(chunk);
            }
        } else {
            upload(database, shard, owner, body, &chunks)?;
        }
    }
    Ok(columns)
}

fn split(bytes: &Bytes) -> Vec<Blob> {
    let starts = (0..bytes.len()).step_by(CHUNK_BYTES as usize);
    let chunk = |start| bytes.slice(start..bytes.len().min(start + CHUNK_BYTES as usize));
    starts.map(|start| Blob(chunk(start))).collect()
}

fn upload(
    database: &Database,
    shard: ShardId,
    owner: OwnerToken,
    body: i64,
    chunks: &[Blob],
) -> Result<(), StoreError> {
    let sql = "SELECT {schema}.upload_chunks($1, $2, $3, $4, $5)";
    let chunks_per_statement = (STATEMENT_BYTES / CHUNK_BYTES) as usize;
    for (part, number) in chunks.chunks(chunks_per_statement).zip(0..) {
        let first = number * chunks_per_statement as i32;
        let (shard_id, owner_id) = (shard.to_sql(), owner.0 as i64);
        let parameters = parameters![shard_id, owner_id, body, first, part.to_vec()];
        let row = database.query_one("write a content", sql, parameters)?;
        if !row.get::<_, bool>(0) {
            return Err(StoreError::Stale {
                stale: owner,
                newest: database.epoch(shard)?,
            });
        }
    }
    Ok(())
}

/// Opens a content. One round trip, and for a large one what its object store needs.
pub(crate) fn open(
    database: &Database,
    shard: ShardId,
    objects: Option<&dyn LargeContents>,
    name: ContentHash,
) -> Result<Option<Arc<dyn BlobReader>>, StoreError> {
    let doing = "open a content";
    let sql = "SELECT body, length, index FROM {schema}.content WHERE shard = $1 AND name = $2
        UNION ALL
        SELECT NULL, length, ''::bytea FROM {schema}.content_ref WHERE shard = $1 AND name = $2
        ORDER BY body NULLS LAST";
    let rows = database.query(doing, sql, parameters![shard.to_sql(), name_blob(name)])?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let Some(body) = row.get(0) else {
        let objects = objects.ok_or_else(|| {
            let why = format!(
                "{name} is in an object store, and this log was opened without one: open it with \
                 the object store that it was written with"
            );
            other_error(doing, why)
        })?;
        return objects.open(name);
    };
    Ok(Some(Arc::new(ContentReader {
        database: database.clone(),
        shard,
        body,
        length: row.get::<_, i64>(1) as u64,
        index: Bytes::copy_from_slice(row.get(2)),
    })))
}

/// The names of all contents of a shard, with their lengths. One round trip.
pub(crate) fn list(
    database: &Database,
    shard: ShardId,
) -> Result<Vec<(ContentHash, u64)>, StoreError> {
    let doing = "list its contents";
    let sql = "SELECT name, length FROM {schema}.content WHERE shard = $1
        UNION ALL
        SELECT name, length FROM {schema}.content_ref AS r WHERE shard = $1
            AND NOT EXISTS (SELECT FROM {schema}.content AS c WHERE c.shard = $1 AND c.name = r.name)";
    let rows = database.query(doing, sql, parameters![shard.to_sql()])?;
    let content = |row: &tokio_postgres::Row| {
        Ok((read_name(doing, row.get(0))?, row.get::<_, i64>(1) as u64))
    };
    rows.iter().map(content).collect()
}

/// Reads the name of a content.
pub(crate) fn read_name(doing: &str, name: &[u8]) -> Result<ContentHash, StoreError> {
    let name = name.try_into();
    let name =
        name.map_err(|_| other_error(doing, "the name of a content is not 32 bytes long"))?;
    Ok(ContentHash(name))
}

/// Reads ranges of a content in the database. One round trip for each 4 MiB of a range.
pub(crate) struct ContentReader {
    database: Database,
    shard: ShardId,
    body: i64,
    length: u64,
    index: Bytes,
}

impl BlobReader for ContentReader {
    fn length(&self) -> u64 {
        self.length
    }

    fn index(&self) -> Option<Bytes> {
        Some(self.index.clone())
    }

    fn slice(&self, range: Range<u64>) -> Result<Bytes, Unreadable> {
        if range.start > range.end || range.end > self.length {
            return Err(Unreadable::new("the content is shorter than that"));
        }
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let mut start = range.start;
        while start < range.end {
            // Up to the end of a chunk, so that each chunk is read once.
            let end = (start - start % CHUNK_BYTES + STATEMENT_BYTES).min(range.end);
            self.read_into(&mut bytes, start..end)?;
            start = end;
        }
        Ok(bytes.into())
    }
}

impl ContentReader {
    /// Appends a range that is not empty to `bytes`.
    fn read_into(&self, bytes: &mut Vec<u8>, range: Range<u64>) -> Result<(), Unreadable> {
        let chunk = |offset: u64| (offset / CHUNK_BYTES) as i32;
        let within = |offset: u64| (offset % CHUNK_BYTES) as i32;
        let (first, last) = (chunk(range.start), chunk(range.end - 1));
        // Positions of substr begin at 1. Of a chunk that is stored outside of its row, only the
        // needed part is read.
        let sql = "SELECT CASE
                WHEN number = $3 AND number = $4 THEN substr(bytes, $5 + 1, $6 - $5)
                WHEN number = $3 THEN substr(bytes, $5 + 1)
                WHEN number = $4 THEN substr(bytes, 1, $6)
                ELSE bytes END
            FROM {schema}.content_chunk
            WHERE shard = $1 AND body = $2 AND number BETWEEN $3 AND $4 ORDER BY number";
        let parameters = parameters![
            self.shard.to_sql(),
            self.body,
            first,
            last,
            within(range.start),
            within(range.end - 1) + 1,
        ];
        let rows = self.database.query("read a content", sql, parameters);
        let rows = rows.map_err(|error| Unreadable::new(error.to_string()))?;
        let expected = bytes.len() + (range.end - range.start) as usize;
        for row in &rows {
            bytes.extend_from_slice(row.get(0));
        }
        if bytes.len() == expected {
            Ok(())
        } else {
            Err(Unreadable::new(
                "the content was deleted, or chunks of it are lost",
            ))
        }
    }
}

impl fmt::Debug for ContentReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentReader")
            .field("shard", &self.shard)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}
