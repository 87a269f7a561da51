//! The 64 KiB chunks of a content: their hashes are inner nodes of the BLAKE3 tree whose root is
//! the content's hash.
//!
//! Therefore one pass computes both the hash and the list, the list is verified by the hash, and a
//! reader can check a single chunk without the others. A content of one chunk needs no list: its
//! hash is the chunk's hash.

use blake3::Hasher;
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};

/// The hash of a content.
type Hash = [u8; 32];

/// The length of a chunk. A power-of-two multiple of BLAKE3's own chunks, so that each is a
/// subtree.
pub const CHUNK_BYTES: usize = 64 << 10;

/// How many hashes the list of a content of `length` bytes has.
pub fn list_length(length: u64) -> u64 {
    if length <= CHUNK_BYTES as u64 {
        0
    } else {
        length.div_ceil(CHUNK_BYTES as u64)
    }
}

/// Hashes a content chunk by chunk.
#[derive(Debug, Default)]
pub struct Chunks {
    list: Vec<ChainingValue>,
    single: Option<Hash>,
    offset: u64,
}

impl Chunks {
    /// Hashes a content in memory. Costs one pass.
    pub fn hash_content(content: &[u8]) -> Self {
        let mut chunks = Self::default();
        content
            .chunks(CHUNK_BYTES)
            .for_each(|chunk| chunks.push(chunk));
        chunks
    }

    /// The chunk hashes in a stored list, for a content of this length. They are not verified: the
    /// caller compares [`Chunks::content_hash`] with the content's hash.
    pub fn from_list(list: &[u8], length: u64) -> Self {
        Self {
            list: list.as_chunks().0.to_vec(),
            single: None,
            offset: length,
        }
    }

    /// Whether the list of chunk hashes is empty.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether `bytes` are chunk number `chunk`, counted from 0, of a content of several chunks.
    pub fn fits(&self, chunk: u64, bytes: &[u8]) -> bool {
        let hash = || {
            Hasher::new()
                .set_input_offset(chunk * CHUNK_BYTES as u64)
                .update(bytes)
                .finalize_non_root()
        };
        // A subtree of BLAKE3 is never empty, and here never longer than a chunk.
        let is_chunk_length = !bytes.is_empty() && bytes.len() <= CHUNK_BYTES;
        let listed = self.list.get(chunk as usize);
        is_chunk_length && listed.is_some_and(|listed| *listed == hash())
    }

    /// Adds the next chunk. All but the last are [`CHUNK_BYTES`] long.
    pub fn push(&mut self, chunk: &[u8]) {
        self.single = (self.offset == 0).then(|| *blake3::hash(chunk).as_bytes());
        self.list.push(
            Hasher::new()
                .set_input_offset(self.offset)
                .update(chunk)
                .finalize_non_root(),
        );
        self.offset += chunk.len() as u64;
    }

    /// The content's hash.
    pub fn content_hash(&self) -> Hash {
        match (self.single, &self.list[..]) {
            (Some(hash), _) => hash,
            (None, []) => *blake3::hash(b"").as_bytes(),
            (None, list) => {
                let (left, right) = halves(list);
                *merge_subtrees_root(&merge(left), &merge(right), Mode::Hash).as_bytes()
            }
        }
    }

    /// The list, as it is stored.
    pub fn list_bytes(&self) -> Vec<u8> {
        if self.list.len() < 2 {
            Vec::new()
        } else {
            self.list.concat()
        }
    }
}

/// Splits the chunks into those of the left and the right subtree. The left subtree of BLAKE3 has
/// the largest power of two of chunks that leaves at least one for the right.
fn halves(list: &[ChainingValue]) -> (&[ChainingValue], &[ChainingValue]) {
    list.split_at(list.len().next_power_of_two() / 2)
}

fn merge(list: &[ChainingValue]) -> ChainingValue {
    match list {
        [one] => *one,
        more => {
            let (left, right) = halves(more);
            merge_subtrees_non_root(&merge(left), &merge(right), Mode::Hash)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bytes_of_a_chunk_match_it() {
        let chunks = Chunks::hash_content(&[7; 2 * CHUNK_BYTES]);
        assert!(chunks.fits(1, &[7; CHUNK_BYTES]));
        assert!(!chunks.fits(1, &[7; CHUNK_BYTES - 1]));
        assert!(!chunks.fits(1, &[]));
        assert!(!chunks.fits(1, &[7; CHUNK_BYTES + 1]));
        assert!(!chunks.fits(2, &[7; CHUNK_BYTES]));
    }

    #[test]
    fn the_chunk_hashes_merge_to_the_hash_of_the_content_at_every_length() {
        let lengths = [
            0,
            1,
            CHUNK_BYTES - 1,
            CHUNK_BYTES,
            CHUNK_BYTES + 1,
            2 * CHUNK_BYTES,
            3 * CHUNK_BYTES - 5,
        ];
        let more = [
            5 * CHUNK_BYTES + 1,
            8 * CHUNK_BYTES,
            13 * CHUNK_BYTES + 1024,
        ];
        for length in lengths.into_iter().chain(more) {
            let content: Vec<u8> = (0..length).map(|i| (i * 31 / 7) as u8).collect();
            let chunks = Chunks::hash_content(&content);
            assert_eq!(
                chunks.content_hash(),
                *blake3::hash(&content).as_bytes(),
                "{length} bytes"
            );
            assert_eq!(
                chunks.list_bytes().len() as u64,
                32 * list_length(length as u64),
                "{length} bytes"
            );
        }
    }
}
