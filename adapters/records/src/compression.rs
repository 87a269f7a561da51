//! zstd, for contents chunk by chunk, and for records as a whole.
//!
//! Bytes are stored compressed only if that saves at least an eighth of them. A compressed chunk is
//! recognised by its stored length, which is less than its own.

use std::io::{self, Read as _};
use std::ops::RangeInclusive;

use bytes::Bytes;
use dormouse_proto::record::codec::MAX_PAYLOAD_BYTES;

use crate::chunks::CHUNK_BYTES;

/// The lengths of records that are worth a try. Shorter ones hardly ever save an eighth.
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
    Zstd(i32),
}

impl Compression {
    /// The compressed chunks of a content, each no longer than the chunk itself; `None` if they do
    /// not save an eighth of the content. Stops as soon as that is certain.
    ///
    /// # Errors
    /// As zstd's.
    pub fn chunks(self, content: &Bytes) -> io::Result<Option<Vec<Bytes>>> {
        let Self::Zstd(level) = self else {
            return Ok(None);
        };
        let worth = worth(content.len());
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
            if length > worth {
                return Ok(None);
            }
            chunks.push(packed);
        }
        Ok((!chunks.is_empty()).then_some(chunks))
    }

    /// A record compressed as a whole; `None` if that does not save an eighth of it.
    ///
    /// # Errors
    /// As zstd's.
    pub(crate) fn record(self, bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Zstd(level) if RECORD_BYTES.contains(&bytes.len()) => {
                let packed = zstd::bulk::compress(bytes, level)?;
                Ok((packed.len() <= worth(bytes.len())).then_some(packed))
            }
            Self::Zstd(_) | Self::None => Ok(None),
        }
    }
}

/// The most bytes that may be left of `length` after compression.
fn worth(length: usize) -> usize {
    length - length.div_ceil(8)
}

/// The chunks of a content. Shares its bytes.
pub fn split(content: &Bytes) -> impl Iterator<Item = Bytes> {
    let starts = (0..content.len()).step_by(CHUNK_BYTES);
    starts.map(|start| content.slice(start..content.len().min(start + CHUNK_BYTES)))
}

/// Reverses [`Compression::chunks`] for one chunk, which has `length` bytes when it is unpacked;
/// `None` if it is no such chunk. Takes no more memory than `length`, whatever the frame claims.
pub fn unpack_chunk(packed: Vec<u8>, length: usize) -> Option<Vec<u8>> {
    if packed.len() == length {
        return Some(packed);
    }
    zstd::bulk::decompress(&packed, length).ok()
}

/// Reverses [`Compression::record`]; `None` if that gives more than a record may have, or if the
/// bytes are no frame.
pub(crate) fn unpack_record(packed: &[u8]) -> Option<Vec<u8>> {
    let limit = MAX_PAYLOAD_BYTES as u64 + 1;
    let decoder = zstd::stream::read::Decoder::with_buffer(packed).ok()?;
    let mut bytes = Vec::new();
    decoder.take(limit).read_to_end(&mut bytes).ok()?;
    (bytes.len() <= MAX_PAYLOAD_BYTES).then_some(bytes)
}
