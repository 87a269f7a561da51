//! Reads a content in blocks, through the cache.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use dormouse_actors::ports::{BlobReader, StoreError, Unreadable};
use dormouse_proto::id::ContentHash;

use crate::contents::Objects;
use crate::error::damaged;
use crate::object::{BLOCK_BYTES, Directory, Head, hash};

/// How many blocks one request reads at most.
const BLOCKS_AT_ONCE: u64 = 8;

/// A content that was opened.
pub(crate) struct ObjectReader {
    objects: Arc<Objects>,
    name: ContentHash,
    index: Bytes,
    length: u64,
    /// The object as it was when it was opened, or when a block had changed.
    object: Mutex<Opened>,
}

/// The head and the directory of an object.
#[derive(Clone)]
struct Opened {
    head: Head,
    directory: Arc<Directory>,
}

impl ObjectReader {
    /// Opens the object of a content; `None` if there is none.
    pub(crate) fn open(
        objects: &Arc<Objects>,
        name: ContentHash,
    ) -> Result<Option<Self>, StoreError> {
        let opened = Opened::read(objects, name)?;
        Ok(opened.map(|opened| Self {
            objects: objects.clone(),
            name,
            index: opened.directory.index.clone(),
            length: opened.head.length,
            object: Mutex::new(opened),
        }))
    }

    fn opened(&self) -> Opened {
        let opened = self.object.lock().unwrap_or_else(PoisonError::into_inner);
        opened.clone()
    }

    /// Reads the object's directory again: another writer of the same content may have replaced the
    /// object by one that is encrypted anew.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the object is the same, or is no longer what was opened.
    fn reopen(&self, before: &Opened) -> Result<Opened, StoreError> {
        let name = self.name;
        let opened = Opened::read(&self.objects, name)?.ok_or_else(|| {
            damaged(format!(
                "the object of the content {name} was deleted while it was read"
            ))
        })?;
        if opened.head == before.head {
            return Err(damaged(format!(
                "bytes of the object of the content {name} changed. Its other bytes can still be \
                 read, and writing the content again after deleting it replaces the object"
            )));
        }
        if opened.head.length != self.length || opened.head.index_bytes != before.head.index_bytes {
            return Err(damaged(format!(
                "the object of the content {name} was replaced by one that is stored differently. \
                 Open the content again"
            )));
        }
        *self.object.lock().unwrap_or_else(PoisonError::into_inner) = opened.clone();
        Ok(opened)
    }

    /// The blocks, one after another.
    fn read_blocks(&self, blocks: Range<u64>) -> Result<Bytes, StoreError> {
        let opened = self.opened();
        match opened.read_blocks(&self.objects, self.name, blocks.clone())? {
            Some(read) => Ok(read),
            None => {
                let opened = self.reopen(&opened)?;
                let read = opened.read_blocks(&self.objects, self.name, blocks)?;
                read.ok_or_else(|| {
                    damaged(format!(
                        "bytes of the object of the content {} changed",
                        self.name
                    ))
                })
            }
        }
    }
}

impl Opened {
    /// Reads the head and the directory of an object, the latter from the cache if it is long.
    fn read(objects: &Arc<Objects>, name: ContentHash) -> Result<Option<Self>, StoreError> {
        let shared = objects.clone();
        let read = async move { shared.read_head(name).await };
        let Some((head, start)) = objects.worker.wait_for(read)? else {
            return Ok(None);
        };
        let range = head.directory_range();
        let length = (range.end - range.start) as usize;
        let stored = if length <= start.len() {
            // A copy, because the rest of what was read is not needed any more.
            Bytes::copy_from_slice(&start[..length])
        } else if let Some(cached) = objects.cache.get(&head.directory_hash) {
            cached
        } else {
            let shared = objects.clone();
            let read = async move { shared.read_range(name, range).await };
            let stored = objects.worker.wait_for(read)?;
            if hash(&stored) == head.directory_hash {
                objects.cache.insert(head.directory_hash, &stored);
            }
            stored
        };
        let directory = head.read_directory(stored).ok_or_else(|| {
            damaged(format!(
                "the index of the content {name} changed. Writing the content again after deleting \
                 it replaces the object; everything else can still be read"
            ))
        })?;
        let directory = Arc::new(directory);
        Ok(Some(Self { head, directory }))
    }

    /// The blocks, one after another; `None` if the store has other bytes than the directory says.
    /// Makes at most one request for all of them.
    fn read_blocks(
        &self,
        objects: &Arc<Objects>,
        name: ContentHash,
        blocks: Range<u64>,
    ) -> Result<Option<Bytes>, StoreError> {
        let hash_of = |block| self.directory.block_hash(block);
        let mut read: Vec<_> = blocks
            .clone()
            .map(|block| objects.cache.get(&hash_of(block)))
            .collect();
        let missing = |block: &Option<Bytes>| block.is_none();
        if let Some(first) = read.iter().position(missing) {
            let last = read.iter().rposition(missing).unwrap_or(first);
            let requested = blocks.start + first as u64..blocks.start + last as u64 + 1;
            let range = self.head.block_range(requested.start).start
                ..self.head.block_range(requested.end - 1).end;
            let object_range = self.head.bytes_range(&range);
            let shared = objects.clone();
            let fetch = async move { shared.read_range(name, object_range).await };
            let fetched = objects.worker.wait_for(fetch)?;
            if fetched.len() as u64 != range.end - range.start {
                return Ok(None);
            }
            for block in requested {
                let place = self.head.block_range(block);
                let bytes = fetched.slice(
                    (place.start - range.start) as usize..(place.end - range.start) as usize,
                );
                if hash(&bytes) != hash_of(block) {
                    return Ok(None);
                }
                let slot = &mut read[(block - blocks.start) as usize];
                if slot.is_none() {
                    objects.cache.insert(hash_of(block), &bytes);
                    *slot = Some(bytes);
                }
            }
        }
        Ok(Some(join(read.into_iter().flatten())))
    }
}

/// Joins blocks. One block is not copied.
fn join(mut blocks: impl Iterator<Item = Bytes>) -> Bytes {
    let first = blocks.next().unwrap_or_default();
    let Some(second) = blocks.next() else {
        return first;
    };
    let mut joined = BytesMut::from(first);
    joined.extend_from_slice(&second);
    blocks.for_each(|block| joined.extend_from_slice(&block));
    joined.freeze()
}

impl BlobReader for ObjectReader {
    fn length(&self) -> u64 {
        self.length
    }

    fn index(&self) -> Option<Bytes> {
        Some(self.index.clone())
    }

    fn slice(&self, range: Range<u64>) -> Result<Bytes, Unreadable> {
        if range.start > range.end || range.end > self.length {
            return Err(Unreadable::new(format!(
                "bytes {} to {} of the content {} were requested, but it has {}",
                range.start, range.end, self.name, self.length
            )));
        }
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        let groups = blocks
            .clone()
            .step_by(BLOCKS_AT_ONCE as usize)
            .map(|first| {
                let group = first..blocks.end.min(first + BLOCKS_AT_ONCE);
                let start = group.start * BLOCK_BYTES;
                let read = self
                    .read_blocks(group)
                    .map_err(|error| Unreadable::new(error.to_string()))?;
                let end = range.end.min(start + read.len() as u64);
                let wanted = range.start.max(start) - start..end - start;
                Ok(read.slice(wanted.start as usize..wanted.end as usize))
            });
        let groups = groups.collect::<Result<Vec<_>, Unreadable>>()?;
        Ok(join(groups.into_iter()))
    }
}
