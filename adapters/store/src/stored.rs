//! A content where it lies in the log: checked chunk by chunk as it is read.
//!
//! A read costs the chunks that it touches. What is no longer than two chunks is answered from the bytes that were checked;
//! more is lent from the segment's map, after a pass over the file that would have met a disk error as an error and not as
//! a signal.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use dormouse_actors::ports::{Backing, StoreError, Unreadable};
use dormouse_proto::id::ContentHash;

use crate::chunks::{CHUNK_BYTES, Chunks, list_length};
use crate::envelope::{HEADER_BYTES, Header};
use crate::error::damaged;
use crate::log::{Log, cannot_read, unlike_its_hash};
use crate::mark::{Hash, Location};
use crate::segment::Segment;

const CHUNK: u64 = CHUNK_BYTES as u64;

/// Contents that were found damaged: when they are committed again, they are written again.
#[derive(Debug, Default)]
pub(crate) struct Suspects(Mutex<HashSet<ContentHash>>);

impl Suspects {
    /// The set, for as long as the guard lives.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashSet<ContentHash>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the payload of a content's record is divided: bytes from the start of the segment.
#[derive(Clone, Copy, Debug)]
struct Layout {
    list: u64,
    index: u64,
    bytes: u64,
    end: u64,
}

impl Layout {
    /// None where the lengths in the header do not add up.
    fn of(at: Location, header: &Header) -> Option<Self> {
        let list = at.offset + HEADER_BYTES as u64;
        let index = list.checked_add(32 * list_length(header.count))?;
        let index_bytes = if header.first == 0 { 0 } else { header.first.checked_add(32)? };
        let bytes = index.checked_add(index_bytes)?;
        let end = bytes.checked_add(header.count)?;
        (end.checked_sub(list) == Some(header.length)).then_some(Self { list, index, bytes, end })
    }
}

/// A content in the log.
#[derive(Debug)]
pub(crate) struct Stored {
    segment: Arc<Segment>,
    at: Location,
    layout: Layout,
    name: Hash,
    /// Of more than one chunk; empty otherwise.
    chunks: Chunks,
    suspects: Arc<Suspects>,
}

impl Stored {
    /// The content whose record stands at `at`. Costs a read of its list of chunks; a pass over the content where that list
    /// is damaged.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where neither list nor content match the name, [`StoreError::Io`].
    pub(crate) fn open(log: &Log, at: Location, header: &Header, suspects: Arc<Suspects>) -> Result<Self, StoreError> {
        let segment = log.known_segment(at)?;
        let layout = Layout::of(at, header).ok_or_else(|| unlike_its_hash(at))?;
        let name = header.payload;
        let mut stored = Self { segment, at, layout, name, chunks: Chunks::default(), suspects };
        if stored.layout.index > stored.layout.list {
            stored.chunks = stored.listed().or_else(|_| stored.recounted())?;
        }
        Ok(stored)
    }

    /// Whether the whole of it is as it was written, its list of chunks included. Costs a pass.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(crate) fn is_whole(log: &Log, at: Location, header: &Header) -> Result<bool, StoreError> {
        let whole = || {
            let stored = Self::open(log, at, header, Arc::default())?;
            let listed = stored.chunks.is_empty() || stored.listed().is_ok();
            Ok(listed && stored.recounted().is_ok() && (header.first == 0 || stored.index_bytes()?.is_some()))
        };
        match whole() {
            Err(StoreError::Damaged { .. }) => Ok(false),
            other => other,
        }
    }

    fn len(&self) -> u64 {
        self.layout.end - self.layout.bytes
    }

    /// The list of chunks as it stands in the record.
    fn listed(&self) -> Result<Chunks, StoreError> {
        let mut list = vec![0; (self.layout.index - self.layout.list) as usize];
        self.segment.read(self.layout.list, &mut list).map_err(cannot_read(self.at))?;
        let chunks = Chunks::from_list(&list, self.len());
        if chunks.name() == self.name { Ok(chunks) } else { Err(self.damaged()) }
    }

    /// The list of chunks as the content gives it.
    fn recounted(&self) -> Result<Chunks, StoreError> {
        let mut chunks = Chunks::default();
        let mut buffer = vec![0; CHUNK_BYTES];
        for chunk in 0..self.len().div_ceil(CHUNK) {
            let bytes = self.read_chunk(chunk, &mut buffer)?;
            chunks.push(bytes);
        }
        if chunks.name() == self.name { Ok(chunks) } else { Err(self.damaged()) }
    }

    fn read_chunk<'b>(&self, chunk: u64, buffer: &'b mut [u8]) -> Result<&'b [u8], StoreError> {
        let start = chunk * CHUNK;
        let bytes = &mut buffer[..CHUNK.min(self.len() - start) as usize];
        self.segment.read(self.layout.bytes + start, bytes).map_err(cannot_read(self.at))?;
        Ok(bytes)
    }

    /// A chunk that is what it was when it was written.
    fn checked_chunk<'b>(&self, chunk: u64, buffer: &'b mut [u8]) -> Result<&'b [u8], StoreError> {
        let bytes = self.read_chunk(chunk, buffer)?;
        let whole = if self.chunks.is_empty() {
            *blake3::hash(bytes).as_bytes() == self.name
        } else {
            self.chunks.fits(chunk, bytes)
        };
        if whole { Ok(bytes) } else { Err(self.damaged_chunk(chunk)) }
    }

    /// The bytes of the range, each chunk of them checked.
    fn read(&self, range: Range<u64>) -> Result<Bytes, StoreError> {
        if range.start > range.end || range.end > self.len() {
            return Err(damaged(format!(
                "of the content {} the bytes {} to {} were asked for, but it has {}",
                ContentHash(self.name),
                range.start,
                range.end,
                self.len()
            )));
        }
        let chunks = range.start / CHUNK..range.end.div_ceil(CHUNK).max(range.start / CHUNK);
        let mut buffer = vec![0; CHUNK.min(self.len()) as usize];
        if chunks.end - chunks.start > 2 {
            for chunk in chunks {
                self.checked_chunk(chunk, &mut buffer)?;
            }
            let place = self.layout.bytes + range.start..self.layout.bytes + range.end;
            return self.segment.slice(place).map_err(cannot_read(self.at));
        }
        let mut read = BytesMut::with_capacity((range.end - range.start) as usize);
        for chunk in chunks {
            let bytes = self.checked_chunk(chunk, &mut buffer)?;
            let first = range.start.saturating_sub(chunk * CHUNK) as usize;
            let last = (range.end - chunk * CHUNK).min(bytes.len() as u64) as usize;
            read.extend_from_slice(&bytes[first..last]);
        }
        Ok(read.freeze())
    }

    fn index_bytes(&self) -> Result<Option<Bytes>, StoreError> {
        let Some(length) = (self.layout.bytes - self.layout.index).checked_sub(32) else { return Ok(None) };
        let mut bytes = vec![0; 32 + length as usize];
        self.segment.read(self.layout.index, &mut bytes).map_err(cannot_read(self.at))?;
        let index = Bytes::from(bytes);
        let whole = index[..32] == *blake3::hash(&index[32..]).as_bytes();
        Ok(whole.then(|| index.slice(32..)))
    }

    fn damaged(&self) -> StoreError {
        damaged(format!(
            "the content {} at {} does not match its hash. Everything else can still be read",
            ContentHash(self.name),
            self.at
        ))
    }

    fn damaged_chunk(&self, chunk: u64) -> StoreError {
        let last = (chunk * CHUNK + CHUNK).min(self.len());
        damaged(format!(
            "bytes {} to {last} of the content {} are damaged on disk. Its other bytes can still be read",
            chunk * CHUNK,
            ContentHash(self.name)
        ))
    }

    fn tell(&self, error: StoreError) -> Unreadable {
        if matches!(error, StoreError::Damaged { .. }) {
            self.suspects.lock().insert(ContentHash(self.name));
        }
        Unreadable::new(error.to_string())
    }
}

impl Backing for Stored {
    fn length(&self) -> u64 {
        self.len()
    }

    fn index(&self) -> Option<Bytes> {
        self.index_bytes().ok().flatten()
    }

    fn slice(&self, bytes: Range<u64>) -> Result<Bytes, Unreadable> {
        self.read(bytes).map_err(|error| self.tell(error))
    }
}
