//! The bytes of an object: a head, the hashes of its blocks, the index, and the content's bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `DMOBJ` and the version of the format (0, 0, 1) |
//! | 32 | the name of the content |
//! | 8 | the length of the index, little endian |
//! | 8 | the length of the content's bytes, little endian |
//! | 32 | the BLAKE3 hash of the block hashes and the index |
//! | 32 | the BLAKE3 hash of the head up to here |
//! | 32 each | the BLAKE3 hashes of the blocks: 1 MiB of the content's bytes each, the last one shorter |
//! | | the index |
//! | | the content's bytes |
//!
//! So an object that was cut off, or that is stored under the key of another, is recognised when it
//! is opened, and a changed block when it is read. The hash of a block is also its name in the
//! cache on disk. The content's bytes are what a log of records stores: the layer above verifies
//! them against the hash of the content, chunk by chunk, once they are decrypted.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use dormouse_actors::ports::StoreError;
use dormouse_proto::id::ContentHash;

use crate::error::damaged;

/// The length of a block.
pub(crate) const BLOCK_BYTES: u64 = 1 << 20;
/// The length of the head.
pub(crate) const HEAD_BYTES: u64 = 120;

const MAGIC: &[u8; 5] = b"DMOBJ";
const VERSION: [u8; 3] = [0, 0, 1];
const HASHED: usize = 88;
const HASH_BYTES: u64 = 32;

/// A BLAKE3 hash.
pub(crate) type Hash = [u8; 32];

/// The hash of bytes.
pub(crate) fn hash(bytes: &[u8]) -> Hash {
    *blake3::hash(bytes).as_bytes()
}

/// The head of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The length of the index.
    pub(crate) index_bytes: u64,
    /// The length of the content's bytes.
    pub(crate) length: u64,
    /// The hash of the directory.
    pub(crate) directory_hash: Hash,
}

/// What follows the head: the hashes of the blocks, and the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directory {
    blocks: Bytes,
    pub(crate) index: Bytes,
}

/// Everything of an object that precedes the content's bytes. Costs one pass over them.
pub(crate) fn encode(name: ContentHash, bytes: &[u8], index: &[u8]) -> Bytes {
    let mut directory = Vec::new();
    for block in bytes.chunks(BLOCK_BYTES as usize) {
        directory.extend(hash(block));
    }
    directory.extend(index);
    let mut object = BytesMut::with_capacity(HEAD_BYTES as usize + directory.len());
    object.put_slice(MAGIC);
    object.put_slice(&VERSION);
    object.put_slice(&name.0);
    object.put_u64_le(index.len() as u64);
    object.put_u64_le(bytes.len() as u64);
    object.put_slice(&hash(&directory));
    let head_hash = hash(&object);
    object.put_slice(&head_hash);
    object.put_slice(&directory);
    object.freeze()
}

impl Head {
    /// Reads the head of the object that is stored under the key of `name` and is `size` bytes
    /// long.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], and [`StoreError::Newer`] for a later version of the format.
    pub(crate) fn read(name: ContentHash, size: u64, stored: &[u8]) -> Result<Self, StoreError> {
        let damage = |what: &str| {
            damaged(format!(
                "the object of the content {name} {what}. Writing the content again replaces it; \
                 everything else can still be read"
            ))
        };
        let head: &[u8; HEAD_BYTES as usize] = stored
            .first_chunk()
            .ok_or_else(|| damage("is shorter than the head of an object"))?;
        let (hashed, head_hash) = head.split_at(HASHED);
        if !head.starts_with(MAGIC) {
            return Err(damage("is no object of this store"));
        }
        if head[MAGIC.len()..8] != VERSION {
            return Err(StoreError::Newer {
                what: format!("an object, that of the content {name},"),
            });
        }
        if hash(hashed) != head_hash {
            return Err(damage("has a changed head"));
        }
        if hashed[8..40] != name.0 {
            return Err(damage("is the object of another content"));
        }
        let number = |at: usize| {
            hashed[at..]
                .first_chunk()
                .map_or(0, |n| u64::from_le_bytes(*n))
        };
        let head = Self {
            index_bytes: number(40),
            length: number(48),
            directory_hash: *hashed[56..].first_chunk().expect("a hash ends the head"),
        };
        if head.size() != Some(size) {
            return Err(damage("was cut off, or has bytes that were not written"));
        }
        Ok(head)
    }

    /// The length of the object; `None` if it is more than there can be.
    fn size(&self) -> Option<u64> {
        let hashes = self.length.div_ceil(BLOCK_BYTES).checked_mul(HASH_BYTES)?;
        let directory = hashes.checked_add(self.index_bytes)?;
        HEAD_BYTES.checked_add(directory)?.checked_add(self.length)
    }

    /// Where the directory is.
    pub(crate) fn directory_range(&self) -> Range<u64> {
        let hashes = self.length.div_ceil(BLOCK_BYTES) * HASH_BYTES;
        HEAD_BYTES..HEAD_BYTES + hashes + self.index_bytes
    }

    /// Where the content's bytes of this range are.
    pub(crate) fn bytes_range(&self, range: &Range<u64>) -> Range<u64> {
        let start = self.directory_range().end;
        start + range.start..start + range.end
    }

    /// Reads the directory; `None` if it is damaged.
    pub(crate) fn read_directory(&self, mut stored: Bytes) -> Option<Directory> {
        let hashes = (self.length.div_ceil(BLOCK_BYTES) * HASH_BYTES) as usize;
        let is_whole = hash(&stored) == self.directory_hash && hashes <= stored.len();
        is_whole.then(|| Directory {
            blocks: stored.split_to(hashes),
            index: stored,
        })
    }

    /// Which bytes of the content a block is.
    pub(crate) fn block_range(&self, block: u64) -> Range<u64> {
        let start = block * BLOCK_BYTES;
        start..self.length.min(start + BLOCK_BYTES)
    }
}

impl Directory {
    /// The hash of a block of the content.
    pub(crate) fn block_hash(&self, block: u64) -> Hash {
        let start = (block * HASH_BYTES) as usize;
        *self.blocks[start..]
            .first_chunk()
            .expect("the content has the block")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: ContentHash = ContentHash([7; 32]);

    fn object(bytes: &[u8], index: &[u8]) -> Vec<u8> {
        [&encode(NAME, bytes, index)[..], bytes].concat()
    }

    #[test]
    fn an_object_is_read_as_it_was_written() {
        for length in [0, 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES] {
            let bytes: Vec<u8> = (0..length).map(|i| (i * 31 / 7) as u8).collect();
            let object = Bytes::from(object(&bytes, b"index"));
            let head = Head::read(NAME, object.len() as u64, &object).unwrap();
            assert_eq!((head.length, head.index_bytes), (length, 5));
            let part = |range: Range<u64>| object.slice(range.start as usize..range.end as usize);
            let directory = head.read_directory(part(head.directory_range())).unwrap();
            assert_eq!(directory.index, "index");
            for block in 0..length.div_ceil(BLOCK_BYTES) {
                let stored = part(head.bytes_range(&head.block_range(block)));
                assert_eq!(hash(&stored), directory.block_hash(block));
            }
            assert_eq!(part(head.bytes_range(&(0..length))), bytes);
        }
    }

    #[test]
    fn a_changed_object_is_refused() {
        let whole = object(b"some bytes", b"index");
        let read = |object: &[u8], size| Head::read(NAME, size, object);
        assert!(read(&whole, whole.len() as u64).is_ok());
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut], cut as u64).is_err(), "{cut} bytes");
        }
        for at in 0..HEAD_BYTES as usize {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(read(&changed, whole.len() as u64).is_err(), "byte {at}");
        }
        let other = Head::read(ContentHash([8; 32]), whole.len() as u64, &whole).unwrap_err();
        assert!(other.to_string().contains("of another content"), "{other}");
        let head = read(&whole, whole.len() as u64).unwrap();
        let directory = head.directory_range();
        let mut changed = whole[directory.start as usize..directory.end as usize].to_vec();
        changed[3] ^= 1;
        assert_eq!(head.read_directory(changed.into()), None);
    }

    #[test]
    fn lengths_that_no_object_has_are_refused() {
        let mut head = object(b"", b"");
        head[48..56].copy_from_slice(&u64::MAX.to_le_bytes());
        let head_hash = hash(&head[..HASHED]);
        head[HASHED..].copy_from_slice(&head_hash);
        assert!(Head::read(NAME, head.len() as u64, &head).is_err());
    }
}
