//! Contents in a log of records: compressed and encrypted chunk by chunk, and checked by the
//! hashes of their chunks, so that a part can be read without the rest.
//!
//! The log stores a content under its name: the hash of its bytes, or in an encrypted log the keyed
//! hash of that (`secret`). The stored `bytes` are the chunks, one after another. A chunk is 64 KiB
//! long (the last one is shorter), or one zstd frame, and is encrypted on its own if the log is
//! encrypted. The stored `index` consists of three parts:
//!
//! * the length of the directory (4);
//! * the directory, as the module `frame` encodes a record: whether the chunks are compressed (1),
//!   the length of the content (8), the compressed length of each chunk (4 each) if they are, and
//!   the hashes of the chunks (32 each) if there is more than one;
//! * the text index (where pages and lines of the content begin), encoded in the same way, if there
//!   is one.
//!
//! Each part is authenticated together with its *binding*, so that it cannot be swapped for another
//! part. The binding is a zero, the part (1: directory 1, text index 2, chunk 3), the number of the
//! chunk (8) and the content's name (32). The binding of a record never begins with a zero.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use dormouse_actors::ports::{BlobReader, StoreError, Unreadable};
use dormouse_proto::id::ContentHash;

use crate::chunks::{CHUNK_BYTES, Chunks, list_length};
use crate::compression::{self, split, unpack_chunk};
use crate::error::damaged;
use crate::frame::{Codec, cannot_encode};
use crate::log::NewContent;
use crate::secret::ENCRYPTION_BYTES;
use crate::validator::check_content_hash;

const CHUNK: u64 = CHUNK_BYTES as u64;
const HASH_BYTES: u64 = 32;
/// How many chunks of a packed content are read from the log at once: 4 MiB.
const CHUNKS_AT_ONCE: u64 = 64;

/// A part of a content that is encoded on its own.
#[derive(Clone, Copy)]
enum Part {
    Directory = 1,
    TextIndex = 2,
    Chunk = 3,
}

/// The bytes that a part is authenticated with.
fn binding(name: ContentHash, part: Part, number: u64) -> Vec<u8> {
    [&[0, part as u8], &number.to_le_bytes()[..], &name.0].concat()
}

/// Encodes a content for the log. Costs one pass over the bytes to hash them, one to compress them
/// and one to encrypt them. Copies nothing if the bytes are neither compressed nor encrypted.
///
/// # Errors
/// [`StoreError::Refused`] if the bytes do not have this hash, and [`StoreError::Io`] if the
/// operating system provides no randomness.
pub(crate) fn encode_content(
    codec: &Codec,
    hash: ContentHash,
    bytes: &Bytes,
    index: &Bytes,
) -> Result<NewContent, StoreError> {
    let chunks = Chunks::hash_content(bytes);
    check_content_hash(hash, &chunks)?;
    encode(codec, codec.content_name(hash), &chunks, bytes, index).map_err(cannot_encode)
}

fn encode(
    codec: &Codec,
    name: ContentHash,
    list: &Chunks,
    bytes: &Bytes,
    index: &Bytes,
) -> io::Result<NewContent> {
    let compressed = codec.compression.chunks(bytes)?;
    let mut directory = vec![u8::from(compressed.is_some())];
    directory.extend((bytes.len() as u64).to_le_bytes());
    for chunk in compressed.iter().flatten() {
        // The cast is lossless: a chunk has at most 64 KiB.
        directory.extend((chunk.len() as u32).to_le_bytes());
    }
    directory.extend(list.list_bytes());
    let directory = codec.encode_verbatim(&directory, &binding(name, Part::Directory, 0))?;
    let mut stored = (directory.len() as u32).to_le_bytes().to_vec();
    stored.extend(directory);
    if !index.is_empty() {
        stored.extend(codec.encode(index, &binding(name, Part::TextIndex, 0))?);
    }
    let bytes = match compressed {
        None if !codec.keys.is_encrypting() => bytes.clone(),
        compressed => encrypt_chunks(
            codec,
            name,
            compressed.unwrap_or_else(|| split(bytes).collect()),
        )?,
    };
    Ok(NewContent {
        name,
        bytes,
        index: stored.into(),
    })
}

fn encrypt_chunks(codec: &Codec, name: ContentHash, chunks: Vec<Bytes>) -> io::Result<Bytes> {
    let mut encrypted = Vec::new();
    for (number, chunk) in (0..).zip(chunks) {
        encrypted.extend(
            codec
                .keys
                .encrypt(&chunk, &binding(name, Part::Chunk, number))?,
        );
    }
    Ok(encrypted.into())
}

/// The lengths of the chunks of a content, and the hashes that the chunks are checked by.
struct Directory {
    /// The length of the content.
    length: u64,
    is_compressed: bool,
    form: Form,
    /// Where each chunk starts in the bytes that the log stores, and where the last one ends.
    starts: Vec<u64>,
    /// Empty for a content of one chunk, whose hash is the content's hash.
    chunks: Chunks,
}

/// The form in which the log stores the bytes of a content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The content as it is.
    Verbatim,
    /// Chunks that are compressed, encrypted or both.
    Packed,
}

impl Directory {
    /// Decodes a directory; `None` if it is damaged.
    fn read(codec: &Codec, hash: ContentHash, stored: &Bytes) -> Option<Self> {
        let stored = codec.decode(
            stored,
            &binding(codec.content_name(hash), Part::Directory, 0),
        )?;
        let (is_compressed, rest) = stored.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length = u64::from_le_bytes(*length);
        let is_compressed = *is_compressed != 0;
        let count = if is_compressed {
            length.div_ceil(CHUNK)
        } else {
            0
        };
        let (lengths, list) = rest.split_at_checked(usize::try_from(4 * count).ok()?)?;
        let is_whole = list.len() as u64 == HASH_BYTES * list_length(length);
        let chunks = is_whole.then(|| Chunks::from_list(list, length))?;
        if !chunks.is_empty() && chunks.content_hash() != hash.0 {
            return None;
        }
        let lengths: &[[u8; 4]] = lengths.as_chunks().0;
        let stored_length = |chunk: u64| match lengths.get(chunk as usize) {
            Some(compressed) => u32::from_le_bytes(*compressed).into(),
            None => chunk_length(length, chunk),
        };
        let is_packed = is_compressed || codec.keys.is_encrypting();
        Some(Self {
            length,
            is_compressed,
            form: if is_packed {
                Form::Packed
            } else {
                Form::Verbatim
            },
            starts: chunk_starts(codec, length, stored_length),
            chunks,
        })
    }

    /// Computes the directory of a content that is neither compressed nor encrypted from its bytes.
    /// Costs a pass over them.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if they do not have the hash.
    fn recompute(
        codec: &Codec,
        hash: ContentHash,
        stored: &dyn BlobReader,
    ) -> Result<Self, StoreError> {
        let damage = || {
            damaged(format!(
                "the content {hash} does not match its hash. Everything else can still be read"
            ))
        };
        if codec.keys.is_encrypting() {
            return Err(damage());
        }
        let length = stored.length();
        let mut chunks = Chunks::default();
        for start in (0..length).step_by(CHUNK_BYTES) {
            let chunk = stored.slice(start..length.min(start + CHUNK));
            chunks.push(&chunk.map_err(|error| damaged(error.to_string()))?);
        }
        if chunks.content_hash() != hash.0 {
            return Err(damage());
        }
        Ok(Self {
            length,
            is_compressed: false,
            form: Form::Verbatim,
            starts: chunk_starts(codec, length, |chunk| chunk_length(length, chunk)),
            chunks: Chunks::from_list(&chunks.list_bytes(), length),
        })
    }
}

/// The length of a chunk of a content of `length` bytes.
fn chunk_length(length: u64, chunk: u64) -> u64 {
    CHUNK.min(length - chunk * CHUNK)
}

/// Where each chunk starts, and the last one ends.
fn chunk_starts(codec: &Codec, length: u64, stored_length: impl Fn(u64) -> u64) -> Vec<u64> {
    let tag_bytes = if codec.keys.is_encrypting() {
        ENCRYPTION_BYTES
    } else {
        0
    };
    let ends = (0..length.div_ceil(CHUNK)).scan(0, |end, chunk| {
        *end += stored_length(chunk) + tag_bytes;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

/// A stored content whose chunks are checked when they are read.
///
/// A read costs the chunks that its range touches, and is one read of the log for each 4 MiB, or
/// one in all if the content is neither compressed nor encrypted.
pub(crate) struct StoredContent {
    stored: Arc<dyn BlobReader>,
    codec: Codec,
    hash: ContentHash,
    directory: Directory,
    /// The encoded text index; may be empty.
    text_index: Bytes,
}

impl StoredContent {
    /// Opens a content. Costs no pass over the bytes, unless the directory of a content that is
    /// neither compressed nor encrypted is damaged.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if neither the directory nor the bytes match the hash, and
    /// [`StoreError::Io`] for a compressed content that this program was not built to read.
    pub(crate) fn open(
        codec: Codec,
        hash: ContentHash,
        stored: Arc<dyn BlobReader>,
    ) -> Result<Self, StoreError> {
        let (directory, text_index) =
            split_index(stored.index().unwrap_or_default()).unwrap_or_default();
        let directory = match Directory::read(&codec, hash, &directory) {
            Some(directory) => directory,
            None => Directory::recompute(&codec, hash, &*stored)?,
        };
        if directory.is_compressed && !compression::IS_BUILT_IN {
            return Err(compression::not_built_in(&format!("the content {hash}")));
        }
        Ok(Self {
            stored,
            codec,
            hash,
            directory,
            text_index,
        })
    }

    /// Unpacks a chunk, and checks it; `None` if it is damaged.
    fn unpack(&self, chunk: u64, stored: &[u8]) -> Option<Vec<u8>> {
        let keys = &self.codec.keys;
        let packed = if keys.is_encrypting() {
            let name = self.codec.content_name(self.hash);
            keys.decrypt(stored, &binding(name, Part::Chunk, chunk))?
        } else {
            stored.to_vec()
        };
        let length = chunk_length(self.directory.length, chunk) as usize;
        unpack_chunk(packed, length).filter(|bytes| self.is_whole(chunk, bytes))
    }

    fn is_whole(&self, chunk: u64, bytes: &[u8]) -> bool {
        let chunks = &self.directory.chunks;
        if chunks.is_empty() {
            *blake3::hash(bytes).as_bytes() == self.hash.0
        } else {
            chunks.fits(chunk, bytes)
        }
    }

    /// The stored bytes of these chunks; shorter if the log lost the end of the content.
    fn read_stored_chunks(&self, chunks: Range<u64>) -> Result<Bytes, Unreadable> {
        let start = |chunk: u64| self.directory.starts[chunk as usize];
        let stored = start(chunks.start)..start(chunks.end).min(self.stored.length());
        if stored.is_empty() {
            return Ok(Bytes::new());
        }
        self.stored.slice(stored)
    }

    /// Reads chunks of a content that is stored as it is. Copies nothing.
    fn read_verbatim(&self, chunks: Range<u64>) -> Result<Bytes, Unreadable> {
        let read = self.read_stored_chunks(chunks.clone())?;
        let mut parts = read.chunks(CHUNK_BYTES);
        for chunk in chunks {
            let part = parts.next().unwrap_or_default();
            if !self.is_whole(chunk, part) {
                return Err(self.chunk_damaged_error(chunk));
            }
        }
        Ok(read)
    }

    /// Reads chunks of a packed content.
    fn read_packed(&self, chunks: Range<u64>) -> Result<Bytes, Unreadable> {
        let mut read = BytesMut::new();
        for first in chunks.clone().step_by(CHUNKS_AT_ONCE as usize) {
            let group = first..chunks.end.min(first + CHUNKS_AT_ONCE);
            let mut stored = self.read_stored_chunks(group.clone())?;
            for chunk in group {
                let bounds = &self.directory.starts[chunk as usize..][..2];
                let length = ((bounds[1] - bounds[0]) as usize).min(stored.len());
                let unpacked = self.unpack(chunk, &stored.split_to(length));
                read.extend_from_slice(&unpacked.ok_or_else(|| self.chunk_damaged_error(chunk))?);
            }
        }
        Ok(read.freeze())
    }

    fn chunk_damaged_error(&self, chunk: u64) -> Unreadable {
        let start = chunk * CHUNK;
        Unreadable::new(format!(
            "bytes {start} to {} of the content {} are damaged in the store. Its other bytes can \
             still be read",
            start + chunk_length(self.directory.length, chunk),
            self.hash
        ))
    }
}

/// The directory and the text index in a stored index; `None` if it is too short.
fn split_index(mut stored: Bytes) -> Option<(Bytes, Bytes)> {
    let length = u32::from_le_bytes(*stored.first_chunk()?) as usize;
    let _length = stored.split_to(4);
    (length <= stored.len()).then(|| (stored.split_to(length), stored))
}

impl BlobReader for StoredContent {
    fn length(&self) -> u64 {
        self.directory.length
    }

    fn index(&self) -> Option<Bytes> {
        let name = self.codec.content_name(self.hash);
        self.codec
            .decode(&self.text_index, &binding(name, Part::TextIndex, 0))
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
        let chunks = range.start / CHUNK..range.end.div_ceil(CHUNK);
        let start = chunks.start * CHUNK;
        let read = match self.directory.form {
            Form::Verbatim => self.read_verbatim(chunks)?,
            Form::Packed => self.read_packed(chunks)?,
        };
        Ok(read.slice((range.start - start) as usize..(range.end - start) as usize))
    }
}
