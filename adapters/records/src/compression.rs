//! Compression by zstd: of contents chunk by chunk, and of records as a whole.
//!
//! Bytes are stored compressed only if that saves at least an eighth of them. A chunk whose stored
//! length is less than its uncompressed length is compressed.
//!
//! Without the feature `compression`, nothing is compressed when it is written, and a read of
//! compressed bytes fails with an error that names the feature.

use std::io;
#[cfg(feature = "compression")]
use std::io::Read as _;
#[cfg(feature = "compression")]
use std::ops::RangeInclusive;

use bytes::Bytes;
use dormouse_actors::ports::StoreError;
#[cfg(feature = "compression")]
use dormouse_proto::record::codec::MAX_PAYLOAD_BYTES;

use crate::chunks::CHUNK_BYTES;

/// Whether this program can read compressed bytes.
pub(crate) const IS_BUILT_IN: bool = cfg!(feature = "compression");

/// The lengths of records that are compressed. Compressing a shorter one hardly ever saves an
/// eighth.
#[cfg(feature = "compression")]
const RECORD_BYTES: RangeInclusive<usize> = 128..=MAX_PAYLOAD_BYTES;

/// Whether bytes are compressed when they are written. Both forms can always be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Bytes are stored as they are.
    #[default]
    None,
    /// zstd at this level, from 1 (fast) to 22 (small), for each 64 KiB of a content on its own. A
    /// content is stored compressed only if that saves at least an eighth of it. Costs a pass of
    /// zstd when the content is written, and one over each part that is read. A
    /// [`RecordStore`](crate::RecordStore) compresses records in the same way, each as a whole.
    #[cfg(feature = "compression")]
    Zstd(i32),
}

impl Compression {
    /// The compressed chunks of a content, each no longer than the chunk itself; `None` if they do
    /// not save an eighth of the content. Stops as soon as they cannot save it any more.
    ///
    /// # Errors
    /// As zstd's.
    #[cfg_attr(
        not(feature = "compression"),
        expect(unused_variables, reason = "nothing is compressed")
    )]
    pub fn chunks(self, content: &Bytes) -> io::Result<Option<Vec<Bytes>>> {
        match self {
            Self::None => Ok(None),
            #[cfg(feature = "compression")]
            Self::Zstd(_) if content.is_empty() => Ok(None),
            #[cfg(feature = "compression")]
            Self::Zstd(level) => compress_chunks(level, content),
        }
    }

    /// Compresses a record as a whole; `None` if that does not save an eighth of it.
    ///
    /// # Errors
    /// As zstd's.
    #[cfg_attr(
        not(feature = "compression"),
        expect(unused_variables, reason = "nothing is compressed")
    )]
    pub(crate) fn record(self, bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match self {
            #[cfg(feature = "compression")]
            Self::Zstd(level) if RECORD_BYTES.contains(&bytes.len()) => {
                let packed = zstd::bulk::compress(bytes, level)?;
                Ok((packed.len() <= max_compressed_bytes(bytes.len())).then_some(packed))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(feature = "compression")]
fn compress_chunks(level: i32, content: &Bytes) -> io::Result<Option<Vec<Bytes>>> {
    let max_compressed_bytes = max_compressed_bytes(content.len());
    let mut chunks = Vec::new();
    let mut length = 0;
    let mut zstd = zstd::bulk::Compressor::new(level)?;
    for chunk in split(content) {
        let packed = Bytes::from(zstd.compress(&chunk)?);
        let packed = if packed.len() < chunk.len() {
            packed
        } else {
            chunk
        };
        length += packed.len() + 4;
        if length > max_compressed_bytes {
            return Ok(None);
        }
        chunks.push(packed);
    }
    Ok(Some(chunks))
}

/// The error of reading compressed bytes without the feature `compression`.
pub(crate) fn not_built_in(what: &str) -> StoreError {
    StoreError::Io {
        doing: format!("read {what}"),
        source: io::Error::new(
            io::ErrorKind::Unsupported,
            "it is compressed. Build the program with the feature `compression`",
        ),
    }
}

/// The most bytes that may be left of `length` after compression.
#[cfg(feature = "compression")]
fn max_compressed_bytes(length: usize) -> usize {
    length - length.div_ceil(8)
}

/// The chunks of a content. Shares its bytes.
pub fn split(content: &Bytes) -> impl Iterator<Item = Bytes> {
    let starts = (0..content.len()).step_by(CHUNK_BYTES);
    starts.map(|start| content.slice(start..content.len().min(start + CHUNK_BYTES)))
}

/// Reverses [`Compression::chunks`] for one chunk, which has `length` bytes when it is unpacked;
/// `None` if `packed` is no such chunk. Uses no more memory than `length`, whatever length the zstd
/// frame claims.
pub fn unpack_chunk(packed: Vec<u8>, length: usize) -> Option<Vec<u8>> {
    if packed.len() == length {
        return Some(packed);
    }
    decompress(&packed, length)
}

#[cfg(feature = "compression")]
fn decompress(packed: &[u8], length: usize) -> Option<Vec<u8>> {
    zstd::bulk::decompress(packed, length).ok()
}

#[cfg(not(feature = "compression"))]
fn decompress(_packed: &[u8], _length: usize) -> Option<Vec<u8>> {
    None
}

/// Reverses [`Compression::record`]; `None` if the result is longer than a record may be, or if the
/// bytes are not a zstd frame.
#[cfg(feature = "compression")]
pub(crate) fn unpack_record(packed: &[u8]) -> Option<Vec<u8>> {
    let limit = MAX_PAYLOAD_BYTES as u64 + 1;
    let decoder = zstd::stream::read::Decoder::with_buffer(packed).ok()?;
    let mut bytes = Vec::new();
    decoder.take(limit).read_to_end(&mut bytes).ok()?;
    (bytes.len() <= MAX_PAYLOAD_BYTES).then_some(bytes)
}

#[cfg(not(feature = "compression"))]
pub(crate) fn unpack_record(_packed: &[u8]) -> Option<Vec<u8>> {
    None
}
