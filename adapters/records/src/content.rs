//! Contents in a log of records: stored with the hashes of their chunks, so that each part is
//! checked as it is read.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_actors::ports::{BlobReader, StoreError, Unreadable};
use dormouse_proto::id::ContentHash;

use crate::chunks::{CHUNK_BYTES, Chunks, list_length};
use crate::error::damaged;
use crate::log::NewContent;
use crate::validator::check_name;

const CHUNK: u64 = CHUNK_BYTES as u64;
const HASH_BYTES: usize = 32;

/// Prepares a content for the log. The stored index consists of the list of chunk hashes, the hash
/// of the index, and the index. Costs one pass over the bytes.
///
/// # Errors
/// [`StoreError::Refused`] if the bytes do not have this hash.
pub(crate) fn to_store(
    hash: ContentHash,
    bytes: &Bytes,
    index: &Bytes,
) -> Result<NewContent, StoreError> {
    let chunks = Chunks::of(bytes);
    check_name(hash, &chunks)?;
    let mut stored = chunks.list_bytes();
    if !index.is_empty() {
        stored.extend_from_slice(blake3::hash(index).as_bytes());
        stored.extend_from_slice(index);
    }
    Ok(NewContent {
        hash,
        bytes: bytes.clone(),
        index: stored.into(),
    })
}

/// A stored content whose chunks are checked when they are read. A read costs the chunks that its
/// range touches.
pub(crate) struct CheckedContent {
    stored: Arc<dyn BlobReader>,
    hash: ContentHash,
    /// Empty for a content of one chunk, whose hash is the content's hash.
    chunks: Chunks,
    index: Option<Bytes>,
}

impl CheckedContent {
    /// Opens a content. Costs no pass over the bytes, unless the list of chunks is damaged.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if neither the list nor the bytes match the hash.
    pub(crate) fn open(hash: ContentHash, stored: Arc<dyn BlobReader>) -> Result<Self, StoreError> {
        let length = stored.length();
        let list_bytes = HASH_BYTES * list_length(length) as usize;
        let mut index = stored.index().unwrap_or_default();
        let list = index.split_to(list_bytes.min(index.len()));
        let listed = Chunks::from_list(&list, length);
        let mut content = Self {
            stored,
            hash,
            chunks: Chunks::default(),
            index: checked_index(index),
        };
        if list_bytes > 0 {
            let is_right = list.len() == list_bytes && listed.name() == hash.0;
            content.chunks = if is_right { listed } else { content.recount()? };
        }
        Ok(content)
    }

    /// The list of chunks computed from the bytes.
    fn recount(&self) -> Result<Chunks, StoreError> {
        let mut chunks = Chunks::default();
        let length = self.stored.length();
        for start in (0..length).step_by(CHUNK_BYTES) {
            let chunk = self.stored.slice(start..length.min(start + CHUNK));
            chunks.push(&chunk.map_err(|error| damaged(error.to_string()))?);
        }
        if chunks.name() == self.hash.0 {
            return Ok(chunks);
        }
        Err(damaged(format!(
            "the content {} does not match its hash. Everything else can still be read",
            self.hash
        )))
    }

    fn is_whole(&self, chunk: u64, bytes: &[u8]) -> bool {
        if self.chunks.is_empty() {
            *blake3::hash(bytes).as_bytes() == self.hash.0
        } else {
            self.chunks.fits(chunk, bytes)
        }
    }
}

/// The index after its hash; `None` if there is none, or it is damaged.
fn checked_index(stored: Bytes) -> Option<Bytes> {
    let (hash, index) = stored.split_at_checked(HASH_BYTES)?;
    (hash == blake3::hash(index).as_bytes()).then(|| stored.slice(HASH_BYTES..))
}

impl BlobReader for CheckedContent {
    fn length(&self) -> u64 {
        self.stored.length()
    }

    fn index(&self) -> Option<Bytes> {
        self.index.clone()
    }

    fn slice(&self, range: Range<u64>) -> Result<Bytes, Unreadable> {
        let length = self.length();
        if range.start > range.end || range.end > length {
            return Err(Unreadable::new(format!(
                "bytes {} to {} of the content {} were requested, but it has {length}",
                range.start, range.end, self.hash
            )));
        }
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let first = range.start / CHUNK;
        let start = first * CHUNK;
        let end = length.min(range.end.div_ceil(CHUNK) * CHUNK);
        let read = self.stored.slice(start..end)?;
        for (chunk, bytes) in (first..).zip(read.chunks(CHUNK_BYTES)) {
            if !self.is_whole(chunk, bytes) {
                return Err(Unreadable::new(format!(
                    "bytes {} to {} of the content {} are damaged in the store. Its other bytes \
                     can still be read",
                    chunk * CHUNK,
                    length.min((chunk + 1) * CHUNK),
                    self.hash
                )));
            }
        }
        let from = (range.start - start) as usize;
        let upto = (range.end - start) as usize;
        if upto > read.len() {
            return Err(Unreadable::new(format!(
                "the content {} is shorter in the store than when it was written",
                self.hash
            )));
        }
        Ok(read.slice(from..upto))
    }
}
