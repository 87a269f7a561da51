//! A log of records whose large contents are in an object store.

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use dormouse_actors::ports::{BlobReader, OwnerToken, StoreError};
use dormouse_proto::id::{CommitNumber, ContentHash};
use dormouse_records::{NewContent, Record, RecordBatch, RecordLog, Stream, StreamKind};

use crate::contents::ObjectContents;
use crate::recent::Recent;

/// From which stored length on a content goes to the object store.
const LARGE_BYTES: usize = 64 << 10;
/// How many opened contents are kept. Each has its index in memory.
const OPENED: usize = 64;

/// A log with large contents in an object store, and records and other contents in the log `L`.
///
/// The log needs the bucket and prefix for itself: every content below it is one of this log, and is
/// deleted by a collection of garbage if no record of the log refers to it.
///
/// A content is written before the records that refer to it, so it is in the store once the commit
/// is acknowledged. A commit that fails, or a crash, leaves contents behind that the next collection
/// deletes. An owner that was superseded can still add contents, which its commit then does not name.
pub struct WithObjects<L> {
    log: L,
    objects: ObjectContents,
    large_bytes: usize,
    /// The contents that were opened last: a commit looks for each content that it refers to.
    opened: Recent<Arc<dyn BlobReader>>,
}

impl<L> WithObjects<L> {
    /// Contents whose stored bytes are 64 KiB or longer go to `objects`.
    pub fn new(log: L, objects: ObjectContents) -> Self {
        Self {
            log,
            objects,
            large_bytes: LARGE_BYTES,
            opened: Recent::new(OPENED),
        }
    }

    /// From which stored length in bytes on contents go to the object store. May differ from one
    /// opening to the next.
    #[must_use]
    pub fn large_bytes(mut self, bytes: usize) -> Self {
        self.large_bytes = bytes;
        self
    }

    /// Divides the contents of a batch: those for the object store, and those for the log.
    fn divide(&self, batch: &RecordBatch<'_>) -> (Vec<NewContent>, Vec<NewContent>) {
        let (mut large, mut small): (Vec<_>, Vec<_>) = batch
            .contents
            .iter()
            .cloned()
            .partition(|content| content.bytes.len() >= self.large_bytes);
        if batch.ops.is_empty() && small.is_empty() {
            // A commit needs something to write in the log, or it would get no number.
            large.sort_unstable_by_key(|content| content.bytes.len());
            small.extend(large.drain(..large.len().min(1)));
        }
        (large, small)
    }

    /// Opens a content of the object store.
    fn object(&self, name: ContentHash) -> Result<Option<Arc<dyn BlobReader>>, StoreError> {
        if let Some(opened) = self.opened.get(&name.0) {
            return Ok(Some(opened));
        }
        let opened = self.objects.open_content(name)?;
        if let Some(opened) = &opened {
            self.opened.insert(name.0, opened.clone());
        }
        Ok(opened)
    }
}

impl<L: fmt::Debug> fmt::Debug for WithObjects<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithObjects")
            .field("log", &self.log)
            .field("objects", &self.objects)
            .field("large_bytes", &self.large_bytes)
            .finish_non_exhaustive()
    }
}

impl<L: RecordLog> RecordLog for WithObjects<L> {
    fn folder(&self) -> Option<&Path> {
        self.log.folder().or_else(|| self.objects.folder())
    }

    fn claim(&self) -> Result<OwnerToken, StoreError> {
        self.log.claim()
    }

    fn append(
        &self,
        owner: OwnerToken,
        batch: &RecordBatch<'_>,
    ) -> Result<CommitNumber, StoreError> {
        let (large, small) = self.divide(batch);
        for content in large {
            self.objects
                .put_if_absent(content.name, content.bytes, content.index)?;
        }
        let contents = &small;
        self.log.append(owner, &RecordBatch { contents, ..*batch })
    }

    fn read(
        &self,
        stream: Stream,
        numbers: RangeInclusive<u64>,
    ) -> Result<Vec<Record>, StoreError> {
        self.log.read(stream, numbers)
    }

    fn latest(&self, stream: Stream, up_to: u64) -> Result<Option<Record>, StoreError> {
        self.log.latest(stream, up_to)
    }

    fn read_kind(&self, kind: StreamKind) -> Result<Vec<(u64, Record)>, StoreError> {
        self.log.read_kind(kind)
    }

    fn content(&self, name: ContentHash) -> Result<Option<Arc<dyn BlobReader>>, StoreError> {
        match self.log.content(name)? {
            Some(content) => Ok(Some(content)),
            None => self.object(name),
        }
    }

    fn contents(&self) -> Result<Vec<(ContentHash, u64)>, StoreError> {
        let mut contents: HashMap<_, _> = self.log.contents()?.into_iter().collect();
        for object in self.objects.list() {
            let object = object?;
            // With another limit before, a content can be in both.
            *contents.entry(object.name).or_default() += object.bytes;
        }
        Ok(contents.into_iter().collect())
    }

    fn delete_contents(&self, owner: OwnerToken, names: &[ContentHash]) -> Result<(), StoreError> {
        // The log checks the owner.
        self.log.delete_contents(owner, names)?;
        names.iter().for_each(|name| self.opened.remove(&name.0));
        self.objects.delete(names)
    }
}
