//! The payload of a *packed* content: one that is compressed, encrypted or both.
//!
//! Each chunk of 64 KiB is packed on its own, so that a part can be read without the rest. The
//! payload consists of a directory, the content's index (where its pages and lines begin) if there
//! is one, and the chunks. In an encrypted store, each of these is encrypted on its own, and its
//! kind and its number are authenticated.
//!
//! * Directory: the content's hash (32); for each chunk its stored length (4), which equals the
//!   chunk's own length if it is not compressed; the chaining values (32 each), which are the
//!   hashes of the chunks as inner nodes of BLAKE3, if there is more than one chunk.
//! * Index: the BLAKE3 of the index (32) and the index.
//! * Chunk: one zstd frame, or the chunk as it is if the directory contains its own length.
//!
//! Compression and encryption themselves are those of `dormouse-records`.
//!
//! The caller checks the unpacked bytes against the content's hash, as for any other content.

use std::io;

use bytes::Bytes;
use dormouse_actors::ports::StoreError;
use dormouse_proto::id::ContentHash;

use crate::error::io as io_error;
use crate::log::{Log, cannot_read, hash_mismatch};
use crate::log_position::Location;
use crate::record_header::{HEADER_BYTES, PayloadPart, RecordHeader};
use crate::segment::Segment;
use dormouse_records::chunks::{CHUNK_BYTES, Chunks, list_length};
use dormouse_records::compression::unpack_chunk;
use dormouse_records::secret::{ENCRYPTION_BYTES, Keys};

const CHUNK: u64 = CHUNK_BYTES as u64;

/// A content that is about to be written.
#[derive(Debug)]
pub(crate) struct UnpackedContent {
    /// The content's hash.
    pub(crate) hash: ContentHash,
    /// The chaining values; empty for a content of one chunk.
    pub(crate) list: Bytes,
    /// The content's index; may be empty.
    pub(crate) index: Bytes,
    /// The content.
    pub(crate) bytes: Bytes,
}

impl UnpackedContent {
    /// The payload of a content that is neither compressed nor encrypted. Shares its bytes.
    pub(crate) fn plain_payload(self) -> Vec<Bytes> {
        if self.index.is_empty() {
            return vec![self.list, self.bytes];
        }
        let check = Bytes::copy_from_slice(blake3::hash(&self.index).as_bytes());
        vec![self.list, check, self.index, self.bytes]
    }

    /// The payload in the encoding that `header` names. `chunks` are already compressed if it is a
    /// compressed one.
    ///
    /// # Errors
    /// If the operating system provides no randomness.
    pub(crate) fn pack(
        &self,
        chunks: &[Bytes],
        header: &RecordHeader,
        keys: &Keys,
    ) -> io::Result<Vec<Bytes>> {
        let part = |bytes: Bytes, part, number| -> io::Result<Bytes> {
            let encrypted = header.encoding.is_encrypted();
            if encrypted {
                Ok(keys
                    .encrypt(&bytes, &header.associated_data(part, number))?
                    .into())
            } else {
                Ok(bytes)
            }
        };
        let mut directory = self.hash.0.to_vec();
        // The cast is lossless: a chunk has at most 64 KiB.
        chunks
            .iter()
            .for_each(|chunk| directory.extend((chunk.len() as u32).to_le_bytes()));
        directory.extend_from_slice(&self.list);
        let mut parts = vec![part(directory.into(), PayloadPart::Directory, 0)?];
        if header.index_bytes() > 0 {
            let index = [blake3::hash(&self.index).as_bytes(), &self.index[..]].concat();
            parts.push(part(index.into(), PayloadPart::Index, 0)?);
        }
        for (number, chunk) in (0..).zip(chunks) {
            parts.push(part(chunk.clone(), PayloadPart::Chunk, number)?);
        }
        Ok(parts)
    }
}

/// A packed content in the log.
#[derive(Debug)]
pub(crate) struct PackedContent {
    at: Location,
    header: RecordHeader,
    keys: Keys,
    /// Where the index starts, from the start of the segment.
    index: u64,
    /// Where each chunk starts, and where the last one ends.
    starts: Vec<u64>,
}

impl PackedContent {
    /// Opens the content whose record is at `at`. Also returns its hash and its list of chunks.
    /// Costs a read of the directory.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Io`].
    pub(crate) fn open(
        log: &Log,
        segment: &Segment,
        at: Location,
        header: &RecordHeader,
    ) -> Result<(Self, ContentHash, Chunks), StoreError> {
        let tag_bytes = if header.encoding.is_encrypted() {
            ENCRYPTION_BYTES
        } else {
            0
        };
        let start = at.offset + HEADER_BYTES as u64;
        let chunks = header.content_bytes().div_ceil(CHUNK);
        let list = 32 * list_length(header.content_bytes());
        let length = 32 + 4 * chunks + list + tag_bytes;
        if length > header.length {
            return Err(hash_mismatch(at));
        }
        let index = start + length;
        let mut packed = Self {
            at,
            header: header.clone(),
            keys: log.keys().clone(),
            index,
            starts: Vec::new(),
        };
        let directory = packed.read_part(segment, start..index, PayloadPart::Directory, 0)?;
        let (hash, rest) = directory
            .split_first_chunk::<32>()
            .ok_or_else(|| hash_mismatch(at))?;
        let (lengths, list) = rest
            .split_at_checked(4 * chunks as usize)
            .ok_or_else(|| hash_mismatch(at))?;
        let mut next = index
            + if header.index_bytes() == 0 {
                0
            } else {
                32 + header.index_bytes() + tag_bytes
            };
        packed.starts.push(next);
        for length in lengths.as_chunks().0 {
            next += u64::from(u32::from_le_bytes(*length)) + tag_bytes;
            packed.starts.push(next);
        }
        let hash = ContentHash(*hash);
        let list = Chunks::from_list(list, header.content_bytes());
        let is_consistent =
            next == start + header.length && log.keys().content_name(hash) == header.payload_hash;
        if !is_consistent || (!list.is_empty() && list.content_hash() != hash.0) {
            return Err(hash_mismatch(at));
        }
        Ok((packed, hash, list))
    }

    /// Unpacks a chunk. It is not checked against its hash.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Io`].
    pub(crate) fn chunk(&self, segment: &Segment, chunk: u64) -> Result<Vec<u8>, StoreError> {
        let first = usize::try_from(chunk).unwrap_or(usize::MAX);
        let Some(&[start, end]) = self.starts.get(first..first.saturating_add(2)) else {
            return Err(hash_mismatch(self.at));
        };
        let packed = self.read_part(segment, start..end, PayloadPart::Chunk, chunk)?;
        let length = CHUNK.min(self.header.content_bytes() - chunk * CHUNK) as usize;
        if !self.header.encoding.is_compressed() {
            return Ok(packed);
        }
        unpack_chunk(packed, length).ok_or_else(|| hash_mismatch(self.at))
    }

    /// The hash of the index, followed by the index; `None` if there is no index.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Io`].
    pub(crate) fn index(&self, segment: &Segment) -> Result<Option<Vec<u8>>, StoreError> {
        if self.header.index_bytes() == 0 {
            return Ok(None);
        }
        self.read_part(segment, self.index..self.starts[0], PayloadPart::Index, 0)
            .map(Some)
    }

    /// Reads and decrypts a part of the payload.
    fn read_part(
        &self,
        segment: &Segment,
        range: std::ops::Range<u64>,
        part: PayloadPart,
        number: u64,
    ) -> Result<Vec<u8>, StoreError> {
        if range.start > range.end || range.end > segment.end() {
            return Err(hash_mismatch(self.at));
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        segment
            .read(range.start, &mut bytes)
            .map_err(cannot_read(self.at))?;
        if !self.header.encoding.is_encrypted() {
            return Ok(bytes);
        }
        self.keys
            .decrypt(&bytes, &self.header.associated_data(part, number))
            .ok_or_else(|| hash_mismatch(self.at))
    }
}

/// The error of a content that cannot be packed.
pub(crate) fn cannot_pack(error: io::Error) -> StoreError {
    io_error("compress or encrypt a commit")(error)
}
