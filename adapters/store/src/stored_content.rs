//! A content in the log, checked chunk by chunk as it is read. `packed.rs` unpacks those that are
//! compressed or encrypted; `chunks.rs` of `adapters/records` has the hashes of the chunks.
//!
//! A read costs the chunks that it touches. A range of at most two chunks is copied from the
//! checked bytes. A longer one is a slice of the segment's map, after a pass over the file: that
//! pass reports a disk error as an error, where the map would raise SIGBUS. Compressed and
//! encrypted contents, and all contents of a read-only store, are unpacked into memory at each
//! read, which takes as much memory as the answer has bytes.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use dormouse_actors::ports::{BlobReader, StoreError, Unreadable};
use dormouse_proto::id::ContentHash;

use crate::error::damaged;
use crate::log::{Log, cannot_read, hash_mismatch};
use crate::log_position::{Hash, Location};
use crate::packed::PackedContent;
use crate::record_header::Encoding;
use crate::record_header::{HEADER_BYTES, RecordHeader};
use crate::segment::Segment;
use dormouse_records::chunks::{CHUNK_BYTES, Chunks, list_length};

const CHUNK: u64 = CHUNK_BYTES as u64;

/// Contents that were found damaged, by the log's names of them. The next commit that contains such
/// a content stores it again.
#[derive(Debug, Default)]
pub(crate) struct CorruptContents(Mutex<HashSet<Hash>>);

impl CorruptContents {
    /// Locks the set.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashSet<Hash>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the payload of a plain content is divided, in bytes from the start of the segment.
#[derive(Clone, Copy, Debug)]
struct Layout {
    list: u64,
    index: u64,
    bytes: u64,
}

impl Layout {
    /// `None` if the lengths in the header do not add up.
    fn from_header(at: Location, header: &RecordHeader) -> Option<Self> {
        let list = at.offset + HEADER_BYTES as u64;
        let index = list.checked_add(32 * list_length(header.content_bytes()))?;
        let index_bytes = if header.index_bytes() == 0 {
            0
        } else {
            header.index_bytes().checked_add(32)?
        };
        let bytes = index.checked_add(index_bytes)?;
        let end = bytes.checked_add(header.content_bytes())?;
        (end.checked_sub(list) == Some(header.length)).then_some(Self { list, index, bytes })
    }
}

/// How a content is stored in its record.
#[derive(Debug)]
enum Form {
    Plain(Layout),
    Packed(PackedContent),
}

/// A content in the log.
#[derive(Debug)]
pub(crate) struct StoredContent {
    segment: Arc<Segment>,
    at: Location,
    form: Form,
    length: u64,
    /// The content's hash.
    hash: Hash,
    /// The log's name of the content.
    log_name: Hash,
    /// The hashes of the chunks; empty for a content of one chunk.
    chunks: Chunks,
    corrupt_contents: Arc<CorruptContents>,
}

impl StoredContent {
    /// Opens the content whose record is at `at`. Costs a read of its list of chunks; a pass over
    /// the content if that list is damaged.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if neither list nor content match the hash, [`StoreError::Io`].
    pub(crate) fn open(
        log: &Log,
        at: Location,
        header: &RecordHeader,
        corrupt_contents: Arc<CorruptContents>,
    ) -> Result<Self, StoreError> {
        let segment = log.require_segment(at)?;
        let length = header.content_bytes();
        let log_name = header.payload_hash;
        if header.encoding != Encoding::PLAIN {
            let (packed, hash, chunks) = PackedContent::open(log, &segment, at, header)?;
            return Ok(Self {
                segment,
                at,
                form: Form::Packed(packed),
                length,
                hash: hash.0,
                log_name,
                chunks,
                corrupt_contents,
            });
        }
        let layout = Layout::from_header(at, header).ok_or_else(|| hash_mismatch(at))?;
        let form = Form::Plain(layout);
        let chunks = Chunks::default();
        let mut stored = Self {
            segment,
            at,
            form,
            length,
            hash: log_name,
            log_name,
            chunks,
            corrupt_contents,
        };
        if layout.index > layout.list {
            stored.chunks = stored
                .stored_chunks(&layout)
                .or_else(|_| stored.computed_chunks())?;
        }
        Ok(stored)
    }

    /// The content's hash.
    pub(crate) fn hash(&self) -> ContentHash {
        ContentHash(self.hash)
    }

    /// Whether the whole payload is undamaged, including its list of chunks. Costs a pass over it.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(crate) fn is_whole(
        log: &Log,
        at: Location,
        header: &RecordHeader,
    ) -> Result<bool, StoreError> {
        let check = || {
            let stored = Self::open(log, at, header, Arc::default())?;
            let is_list_whole = match &stored.form {
                Form::Plain(layout) => {
                    stored.chunks.is_empty() || stored.stored_chunks(layout).is_ok()
                }
                // A damaged directory would have failed the opening.
                Form::Packed(_) => true,
            };
            Ok(is_list_whole
                && stored.computed_chunks().is_ok()
                && (header.index_bytes() == 0 || stored.index_bytes()?.is_some()))
        };
        match check() {
            Err(StoreError::Damaged { .. }) => Ok(false),
            other => other,
        }
    }

    /// The list of chunks in the record.
    fn stored_chunks(&self, layout: &Layout) -> Result<Chunks, StoreError> {
        let mut list = vec![0; (layout.index - layout.list) as usize];
        self.segment
            .read(layout.list, &mut list)
            .map_err(cannot_read(self.at))?;
        let chunks = Chunks::from_list(&list, self.length);
        if chunks.content_hash() == self.hash {
            Ok(chunks)
        } else {
            Err(self.content_damaged_error())
        }
    }

    /// The list of chunks computed from the content.
    fn computed_chunks(&self) -> Result<Chunks, StoreError> {
        let mut chunks = Chunks::default();
        let mut buffer = Vec::new();
        for chunk in 0..self.length.div_ceil(CHUNK) {
            self.read_chunk(chunk, &mut buffer)?;
            chunks.push(&buffer);
        }
        if chunks.content_hash() == self.hash {
            Ok(chunks)
        } else {
            Err(self.content_damaged_error())
        }
    }

    /// Reads a chunk into `buffer`, and replaces its previous bytes.
    fn read_chunk(&self, chunk: u64, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        match &self.form {
            Form::Packed(packed) => *buffer = packed.chunk(&self.segment, chunk)?,
            Form::Plain(layout) => {
                let start = chunk * CHUNK;
                buffer.resize(CHUNK.min(self.length - start) as usize, 0);
                self.segment
                    .read(layout.bytes + start, buffer)
                    .map_err(cannot_read(self.at))?;
            }
        }
        Ok(())
    }

    /// Reads a chunk into `buffer`, and checks it.
    fn check_chunk(&self, chunk: u64, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        match self.read_chunk(chunk, buffer) {
            // The error of a packed chunk that cannot be unpacked does not name the chunk.
            Err(StoreError::Damaged { .. }) if matches!(self.form, Form::Packed(_)) => {
                return Err(self.chunk_damaged_error(chunk));
            }
            other => other?,
        }
        let is_whole = if self.chunks.is_empty() {
            *blake3::hash(buffer).as_bytes() == self.hash
        } else {
            self.chunks.fits(chunk, buffer)
        };
        if is_whole {
            Ok(())
        } else {
            Err(self.chunk_damaged_error(chunk))
        }
    }

    /// The bytes of a range, each chunk of it checked.
    fn read(&self, range: Range<u64>) -> Result<Bytes, StoreError> {
        if range.start > range.end || range.end > self.length {
            return Err(damaged(format!(
                "bytes {1} to {2} of the content {0} were requested, but it has {3}",
                ContentHash(self.hash),
                range.start,
                range.end,
                self.length
            )));
        }
        let chunks = range.start / CHUNK..range.end.div_ceil(CHUNK).max(range.start / CHUNK);
        let mut buffer = Vec::new();
        if let Form::Plain(layout) = &self.form
            && chunks.end - chunks.start > 2
            && self.segment.is_mappable()
        {
            for chunk in chunks {
                self.check_chunk(chunk, &mut buffer)?;
            }
            let mapped_range = layout.bytes + range.start..layout.bytes + range.end;
            return self
                .segment
                .slice(mapped_range)
                .map_err(cannot_read(self.at));
        }
        let mut read = BytesMut::with_capacity((range.end - range.start) as usize);
        for chunk in chunks {
            self.check_chunk(chunk, &mut buffer)?;
            let first = range.start.saturating_sub(chunk * CHUNK) as usize;
            let last = (range.end - chunk * CHUNK).min(buffer.len() as u64) as usize;
            read.extend_from_slice(&buffer[first..last]);
        }
        Ok(read.freeze())
    }

    fn index_bytes(&self) -> Result<Option<Bytes>, StoreError> {
        let bytes = match &self.form {
            Form::Packed(packed) => packed.index(&self.segment)?.unwrap_or_default(),
            Form::Plain(layout) => {
                let mut bytes = vec![0; (layout.bytes - layout.index) as usize];
                self.segment
                    .read(layout.index, &mut bytes)
                    .map_err(cannot_read(self.at))?;
                bytes
            }
        };
        if bytes.is_empty() {
            return Ok(None);
        }
        let index = Bytes::from(bytes);
        let is_whole = index[..32] == *blake3::hash(&index[32..]).as_bytes();
        Ok(is_whole.then(|| index.slice(32..)))
    }

    fn content_damaged_error(&self) -> StoreError {
        damaged(format!(
            "the content {} at {} does not match its hash. Everything else can still be read",
            ContentHash(self.hash),
            self.at
        ))
    }

    fn chunk_damaged_error(&self, chunk: u64) -> StoreError {
        let last = (chunk * CHUNK + CHUNK).min(self.length);
        damaged(format!(
            "bytes {} to {last} of the content {} are damaged on disk. Its other bytes can still \
             be read",
            chunk * CHUNK,
            ContentHash(self.hash)
        ))
    }

    fn record_damage(&self, error: StoreError) -> Unreadable {
        if matches!(error, StoreError::Damaged { .. }) {
            self.corrupt_contents.lock().insert(self.log_name);
        }
        Unreadable::new(error.to_string())
    }
}

impl BlobReader for StoredContent {
    fn length(&self) -> u64 {
        self.length
    }

    fn index(&self) -> Option<Bytes> {
        self.index_bytes().ok().flatten()
    }

    fn slice(&self, bytes: Range<u64>) -> Result<Bytes, Unreadable> {
        self.read(bytes).map_err(|error| self.record_damage(error))
    }
}
