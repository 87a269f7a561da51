//! Lists the contents of a store, page by page.

use std::sync::Arc;
use std::vec;

use dormouse_actors::ports::StoreError;
use dormouse_proto::id::ContentHash;
use futures_util::stream::{BoxStream, StreamExt};
use object_store::{ObjectMeta, ObjectStore};

use crate::contents::Objects;

/// How many objects are asked for at once.
const PAGE: usize = 1_000;

/// A content in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// The name of the content.
    pub name: ContentHash,
    /// The length of its object in bytes: what was written, and some 0.1 %.
    pub bytes: u64,
    /// When it was written, by the clock of the store: milliseconds since the epoch, UTC.
    pub written_ms: u64,
}

/// The contents of a store, from [`ObjectContents::list`](crate::ObjectContents::list). Ends after
/// the first error.
pub struct StoredObjects {
    objects: Arc<Objects>,
    page: vec::IntoIter<StoredObject>,
    /// The pages to come; `None` at the end.
    rest: Option<BoxStream<'static, object_store::Result<ObjectMeta>>>,
}

impl StoredObjects {
    pub(crate) fn of(objects: &Arc<Objects>) -> Self {
        if let Some(folder) = &objects.folder {
            folder.remove_unfinished();
        }
        Self {
            objects: objects.clone(),
            page: Vec::new().into_iter(),
            rest: Some(objects.store.list(objects.prefix())),
        }
    }

    /// Reads the next page.
    fn read_page(
        &mut self,
        mut rest: BoxStream<'static, object_store::Result<ObjectMeta>>,
    ) -> Result<(), StoreError> {
        let objects = self.objects.clone();
        let (page, rest) = self.objects.worker.wait_for(async move {
            let mut page = Vec::new();
            while page.len() < PAGE {
                match rest.next().await {
                    Some(Ok(object)) => page.extend(objects.stored_object(&object)),
                    Some(Err(error)) => return Err(objects.error("list", &error)),
                    None => return Ok((page, None)),
                }
            }
            Ok((page, Some(rest)))
        })?;
        self.page = page.into_iter();
        self.rest = rest;
        Ok(())
    }
}

impl Iterator for StoredObjects {
    type Item = Result<StoredObject, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(object) = self.page.next() {
                return Some(Ok(object));
            }
            let rest = self.rest.take()?;
            if let Err(error) = self.read_page(rest) {
                return Some(Err(error));
            }
        }
    }
}

impl std::fmt::Debug for StoredObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredObjects")
            .field("of", &self.objects)
            .finish_non_exhaustive()
    }
}

impl Objects {
    /// The content of an object; `None` if the object is not one of this store.
    fn stored_object(&self, object: &ObjectMeta) -> Option<StoredObject> {
        let name = read_name(object.location.filename()?)?;
        (self.key(name) == object.location).then(|| StoredObject {
            name,
            bytes: object.size,
            written_ms: object
                .last_modified
                .timestamp_millis()
                .try_into()
                .unwrap_or(0),
        })
    }
}

/// Reads the hexadecimal form of a name.
fn read_name(hex: &str) -> Option<ContentHash> {
    blake3::Hash::from_hex(hex)
        .ok()
        .map(|name| ContentHash(*name.as_bytes()))
}
