//! The blocks that were read last, in memory: pages of one block cost one request, even without a
//! cache on disk.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::object::{BLOCK_BYTES, Hash};

/// How many blocks of at most 1 MiB are kept.
const KEPT: usize = 16;

/// The last blocks, the one that was used most recently first.
#[derive(Debug, Default)]
pub(crate) struct RecentBlocks(Mutex<VecDeque<(Hash, Bytes)>>);

impl RecentBlocks {
    pub(crate) fn get(&self, hash: &Hash) -> Option<Bytes> {
        let mut blocks = self.lock();
        let at = blocks.iter().position(|(kept, _)| kept == hash)?;
        let block = blocks.remove(at)?;
        blocks.push_front(block.clone());
        Some(block.1)
    }

    /// Keeps a copy, because the block can be a part of much longer bytes. What is longer than a
    /// block is not kept.
    pub(crate) fn insert(&self, hash: Hash, bytes: &[u8]) {
        if bytes.len() as u64 > BLOCK_BYTES {
            return;
        }
        let copy = Bytes::copy_from_slice(bytes);
        let mut blocks = self.lock();
        blocks.retain(|(kept, _)| *kept != hash);
        blocks.push_front((hash, copy));
        blocks.truncate(KEPT);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Hash, Bytes)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_that_were_used_last_are_kept() {
        let recent = RecentBlocks::default();
        let block = |number: usize| [number as u8; 32];
        for number in 0..KEPT {
            recent.insert(block(number), &[number as u8]);
        }
        assert_eq!(recent.get(&block(0)).unwrap(), [0][..]);
        recent.insert(block(100), b"");
        assert!(recent.get(&block(0)).is_some());
        assert_eq!(recent.get(&block(1)), None);
        assert_eq!(recent.lock().len(), KEPT);
    }
}
