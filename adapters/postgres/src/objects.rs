//! Large contents in an object store that all shards share.
//!
//! A writer first refers to an object in the database (`content_ref`), then puts the object, and
//! then commits the records that name it. A collection deletes the objects that no shard refers to,
//! and announces each deletion in the database (`object_deletion`) before it makes it. A reference
//! and an announcement of one object exclude each other by a lock on its name. A writer that finds
//! an announcement keeps its content in the database instead: so no content is lost, whichever of
//! the two loses its connection, and when.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dormouse_actors::ports::{BlobReader, StoreError};
use dormouse_proto::id::ContentHash;
use serde::{Deserialize, Serialize};

use crate::batch::name_blob;
use crate::connections::parameters;
use crate::content::read_name;
use crate::database::Database;
use crate::shard::ShardId;

/// An object store for large contents. All shards of a database share one, and nobody else writes
/// to it.
///
/// With the feature `objects`, the type `ObjectContents` of the crate `dormouse-objects` implements
/// it.
pub trait LargeContents: fmt::Debug + Send + Sync + 'static {
    /// Writes a content, durably, unless the store has one of this name. Contents of equal names
    /// are equal, though their stored bytes may differ.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn put_if_absent(
        &self,
        name: ContentHash,
        bytes: Bytes,
        index: Bytes,
    ) -> Result<(), StoreError>;

    /// Opens a content; `None` if the store does not have it.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Damaged`].
    fn open(&self, name: ContentHash) -> Result<Option<Arc<dyn BlobReader>>, StoreError>;

    /// Deletes contents. Absent ones are ignored.
    ///
    /// # Errors
    /// [`StoreError::Io`]; some of the contents may be deleted, or still be.
    fn delete(&self, names: &[ContentHash]) -> Result<(), StoreError>;

    /// All contents, in no particular order. Ends after the first error.
    fn list(&self) -> Box<dyn Iterator<Item = Result<LargeContent, StoreError>> + '_>;
}

/// A content in an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeContent {
    /// The name of the content.
    pub name: ContentHash,
    /// The length of its object in bytes.
    pub bytes: u64,
    /// When it was written, by the clock of the store: milliseconds since the epoch, UTC.
    pub written_ms: u64,
}

/// What a collection of objects found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectCollection {
    /// The objects in the store before the collection.
    pub objects: u64,
    /// The objects that were deleted.
    pub deleted: u64,
    /// Their bytes.
    pub deleted_bytes: u64,
}

/// How many objects are looked up in the database, and deleted, at once.
const DELETED_AT_ONCE: usize = 100;

/// After this time, a deletion that was announced and did not end is made again.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

impl Database {
    /// Deletes the objects that no shard refers to, and that are older than `grace`. For one
    /// program at a time: the announcement of one that stood still for an hour is taken over by the
    /// next. Costs a listing of the store, and two round trips and one deletion for each 100
    /// objects.
    ///
    /// # Errors
    /// [`StoreError::Io`]. What was deleted before stays deleted; the next collection deletes the
    /// rest.
    pub fn collect_objects(
        &self,
        objects: &dyn LargeContents,
        grace: Duration,
    ) -> Result<ObjectCollection, StoreError> {
        let mut collection = ObjectCollection::default();
        self.finish_deletions(objects)?;
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        let row = self.query_one("read the clock of the database", sql, parameters![])?;
        let now_ms = row.get::<_, i64>(0) as u64;
        let newest_ms = now_ms.saturating_sub(grace.as_millis() as u64);
        let mut old = Vec::with_capacity(DELETED_AT_ONCE);
        for object in objects.list() {
            let object = object?;
            collection.objects += 1;
            if object.written_ms <= newest_ms {
                old.push(object);
            }
            if old.len() == DELETED_AT_ONCE {
                self.delete_unreferenced(objects, &old, &mut collection)?;
                old.clear();
            }
        }
        self.delete_unreferenced(objects, &old, &mut collection)?;
        Ok(collection)
    }

    /// Makes the deletions again that were announced long ago and did not end.
    fn finish_deletions(&self, objects: &dyn LargeContents) -> Result<(), StoreError> {
        let doing = "list deletions of objects";
        let sql = "SELECT name FROM {schema}.object_deletion
            WHERE begun_at < clock_timestamp() - $1::bigint * interval '1 millisecond'";
        let rows = self.query(doing, sql, parameters![abandoned_ms()])?;
        let names = rows.iter().map(|row| read_name(doing, row.get(0)));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        for names in names.chunks(DELETED_AT_ONCE) {
            let announced = self.announce_deletions(names)?;
            objects.delete(&announced)?;
            self.end_deletions(&announced)?;
        }
        Ok(())
    }

    fn delete_unreferenced(
        &self,
        objects: &dyn LargeContents,
        old: &[LargeContent],
        collection: &mut ObjectCollection,
    ) -> Result<(), StoreError> {
        if old.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = old.iter().map(|object| object.name).collect();
        let announced = self.announce_deletions(&names)?;
        if announced.is_empty() {
            return Ok(());
        }
        objects.delete(&announced)?;
        self.end_deletions(&announced)?;
        let deleted = old.iter().filter(|object| announced.contains(&object.name));
        collection.deleted += announced.len() as u64;
        collection.deleted_bytes += deleted.map(|object| object.bytes).sum::<u64>();
        Ok(())
    }

    /// Announces the deletion of those of these objects that no shard refers to, and returns them.
    fn announce_deletions(&self, names: &[ContentHash]) -> Result<Vec<ContentHash>, StoreError> {
        let doing = "announce deletions of objects";
        let sql = "SELECT * FROM {schema}.announce_object_deletions($1, $2)";
        let parameters = parameters![blobs(names), abandoned_ms()];
        let rows = self.query(doing, sql, parameters)?;
        let names = rows.iter().map(|row| read_name(doing, row.get(0)));
        names.collect()
    }

    fn end_deletions(&self, names: &[ContentHash]) -> Result<(), StoreError> {
        let sql = "DELETE FROM {schema}.object_deletion WHERE name = ANY ($1)";
        self.query("end deletions of objects", sql, parameters![blobs(names)])?;
        Ok(())
    }
}

/// Makes a shard refer to objects. Returns those that it must not, since they are being deleted.
/// One round trip. A reference of a superseded owner is deleted by the next collection of its
/// shard.
pub(crate) fn refer(
    database: &Database,
    shard: ShardId,
    contents: &[(ContentHash, u64)],
) -> Result<Vec<ContentHash>, StoreError> {
    let doing = "refer to objects";
    let names: Vec<_> = contents.iter().map(|(name, _)| *name).collect();
    let lengths: Vec<_> = contents.iter().map(|(_, length)| *length as i64).collect();
    let sql = "SELECT * FROM {schema}.refer_to_objects($1, $2, $3)";
    let parameters = parameters![shard.to_sql(), blobs(&names), lengths];
    let rows = database.query(doing, sql, parameters)?;
    let names = rows.iter().map(|row| read_name(doing, row.get(0)));
    names.collect()
}

fn blobs(names: &[ContentHash]) -> Vec<crate::batch::Blob> {
    names.iter().copied().map(name_blob).collect()
}

fn abandoned_ms() -> i64 {
    ABANDONED_AFTER.as_millis() as i64
}

#[cfg(feature = "objects")]
impl LargeContents for dormouse_objects::ObjectContents {
    fn put_if_absent(
        &self,
        name: ContentHash,
        bytes: Bytes,
        index: Bytes,
    ) -> Result<(), StoreError> {
        Self::put_if_absent(self, name, bytes, index)
    }

    fn open(&self, name: ContentHash) -> Result<Option<Arc<dyn BlobReader>>, StoreError> {
        self.open_content(name)
    }

    fn delete(&self, names: &[ContentHash]) -> Result<(), StoreError> {
        Self::delete(self, names)
    }

    fn list(&self) -> Box<dyn Iterator<Item = Result<LargeContent, StoreError>> + '_> {
        let large = |object: dormouse_objects::StoredObject| LargeContent {
            name: object.name,
            bytes: object.bytes,
            written_ms: object.written_ms,
        };
        Box::new(Self::list(self).map(move |object| object.map(large)))
    }
}
