//! Loads the process table from an index, and verifies it against its digest. The first letter of a
//! key says what its value is (`location_index.rs`).

use dormouse_proto::id::{CheckpointId, Pid};
use dormouse_proto::record::codec;

use super::{CheckpointEntry, Digest, ProcessTable};

/// A process table that is being loaded value by value. [`TableLoader::finish`] returns the table.
#[derive(Debug)]
pub(crate) struct TableLoader {
    table: ProcessTable,
    /// The digest of the complete table.
    digest: Digest,
    is_whole: bool,
}

impl TableLoader {
    /// Starts with an empty table.
    pub(super) fn new(table: ProcessTable, digest: Digest) -> Self {
        Self {
            table,
            digest,
            is_whole: true,
        }
    }

    /// Adds a value of the index, by its key.
    pub(crate) fn add(&mut self, index_key: &[u8], value: &[u8]) {
        let added = self.try_add(index_key, value);
        self.is_whole &= added.is_some();
    }

    fn try_add(&mut self, index_key: &[u8], value: &[u8]) -> Option<()> {
        let index_key: &[u8; 9] = index_key.try_into().ok()?;
        self.table
            .digest
            .replace(&self.table.key, index_key, None, Some(value));
        let number = u64::from_be_bytes(*index_key.last_chunk()?);
        match index_key[0] {
            b'k' => drop(
                self.table
                    .checkpoints
                    .insert(CheckpointId(number), CheckpointEntry::from_bytes(value)?),
            ),
            b'n' => drop(self.table.labels.insert(number, codec::decode(value).ok()?)),
            b'l' => drop(
                self.table
                    .acknowledged
                    .insert(number, codec::decode(value).ok()?),
            ),
            b'b' => self.table.entries.load_block(number, value),
            _ => self.table.entries.load_large(Pid(number), value),
        }
        Some(())
    }

    /// The loaded table; `None` if the values do not match the digest, or one is unreadable. The
    /// entries of processes are not decoded here: the digest shows that they are what this version
    /// encoded.
    pub(crate) fn finish(self) -> Option<ProcessTable> {
        let is_whole = self.is_whole && self.table.digest == self.digest;
        is_whole.then_some(self.table)
    }
}
