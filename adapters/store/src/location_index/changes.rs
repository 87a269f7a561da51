//! Keys of the index, and batches of changes to it.

use std::collections::BTreeMap;

use dormouse_proto::id::{CheckpointId, FactNumber, Pid};

use super::keyed_check;
use crate::kv::Batch;
use crate::log_position::{Hash, Location};
use dormouse_records::secret::StoreKey;

/// Changes that are applied together.
#[derive(Debug, Default)]
pub(crate) struct IndexChanges {
    pub(super) batch: Batch,
    /// The latest version of each entry, which is encrypted when the changes are applied.
    pub(super) entries: BTreeMap<[u8; 9], Vec<u8>>,
    records: usize,
}

impl IndexChanges {
    /// How many records the changes come from.
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// Whether the index can be queried before these changes are applied: they remove nothing.
    pub(crate) fn can_stay_pending(&self) -> bool {
        !self.batch.has_removals()
    }

    /// Adds a record of facts.
    pub(crate) fn put_facts(
        &mut self,
        pid: Pid,
        first: FactNumber,
        at: Location,
        count: u64,
        key: &StoreKey,
    ) {
        self.put_location(&pid_key(b'f', pid, first), at, count, key);
    }

    /// Adds an image of a process.
    pub(crate) fn put_image(&mut self, pid: Pid, after: FactNumber, at: Location, key: &StoreKey) {
        self.put_location(&pid_key(b's', pid, after), at, 1, key);
    }

    /// Adds a change of a tree's temporary files.
    pub(crate) fn put_temp_file(&mut self, root: Pid, number: u64, at: Location, key: &StoreKey) {
        self.put_location(&pid_key(b't', root, FactNumber(number)), at, 1, key);
    }

    /// Adds a content.
    pub(crate) fn put_content(&mut self, hash: Hash, at: Location, key: &StoreKey) {
        self.put_location(&content_key(hash), at, 1, key);
    }

    /// Adds the record that declares a content lost.
    pub(crate) fn put_lost_content(&mut self, hash: Hash, at: Location, key: &StoreKey) {
        self.put_location(&content_key(hash), at, 0, key);
    }

    /// Removes an image of a process.
    pub(crate) fn remove_image(&mut self, pid: Pid, after: FactNumber) {
        self.remove(&pid_key(b's', pid, after));
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, index_key: &[u8]) {
        self.batch.remove(index_key);
        self.records += 1;
    }

    /// Sets a value of the process table, as [`ProcessTable::encode_changed`] encoded it.
    pub(crate) fn put_table_value(&mut self, index_key: [u8; 9], value: Vec<u8>) {
        self.entries.insert(index_key, value);
        self.records += 1;
    }

    /// Sets the entry of a checkpoint, as [`ProcessTable::put_checkpoint`] encoded it.
    pub(crate) fn put_checkpoint(&mut self, id: CheckpointId, entry: Vec<u8>) {
        self.entries.insert(checkpoint_key(id), entry);
        self.records += 1;
    }

    /// Sets the entry of a label, as [`ProcessTable::put_label`] encoded it.
    pub(crate) fn put_label(&mut self, number: u64, entry: Vec<u8>) {
        self.entries.insert(label_key(number), entry);
        self.records += 1;
    }

    /// Sets acknowledged losses, as [`ProcessTable::put_losses`] encoded them.
    pub(crate) fn put_losses(&mut self, commit: u64, losses: Vec<u8>) {
        self.entries.insert(losses_key(commit), losses);
        self.records += 1;
    }

    fn put_location(&mut self, index_key: &[u8], at: Location, count: u64, key: &StoreKey) {
        let mut value = Vec::with_capacity(Location::BYTES + 16);
        value.extend(at.to_bytes());
        value.extend(count.to_le_bytes());
        let check = keyed_check(index_key, &value, key);
        value.extend(check);
        self.batch.insert(index_key, value);
        self.records += 1;
    }
}

/// The key of a record in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKey {
    /// A content, or the record that declares it lost.
    Content(Hash),
    /// Facts, by the first one in the record.
    Facts(Pid, FactNumber),
    /// An image, by the last fact in it.
    Image(Pid, FactNumber),
    /// A change of temporary files.
    TempFile(Pid, u64),
}

impl RecordKey {
    /// The bytes of the key.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Content(hash) => content_key(hash).to_vec(),
            Self::Facts(pid, first) => pid_key(b'f', pid, first).to_vec(),
            Self::Image(pid, after) => pid_key(b's', pid, after).to_vec(),
            Self::TempFile(root, number) => pid_key(b't', root, FactNumber(number)).to_vec(),
        }
    }
}

pub(super) fn pid_key(kind: u8, pid: Pid, number: FactNumber) -> [u8; 17] {
    let mut key = [kind; 17];
    key[1..9].copy_from_slice(&pid.0.to_be_bytes());
    key[9..].copy_from_slice(&number.0.to_be_bytes());
    key
}

/// The key of a block of entries of processes.
pub(crate) fn block_key(number: u64) -> [u8; 9] {
    number_key(b'b', number)
}

/// The key of the entry of a process that is too large for its block.
pub(crate) fn process_key(pid: Pid) -> [u8; 9] {
    number_key(b'p', pid.0)
}

/// The key of a checkpoint's entry.
pub(crate) fn checkpoint_key(id: CheckpointId) -> [u8; 9] {
    number_key(b'k', id.0)
}

/// The key of a label's entry.
pub(crate) fn label_key(number: u64) -> [u8; 9] {
    number_key(b'n', number)
}

/// The key of the losses that one commit acknowledged.
pub(crate) fn losses_key(commit: u64) -> [u8; 9] {
    number_key(b'l', commit)
}

pub(super) fn number_key(kind: u8, number: u64) -> [u8; 9] {
    let mut key = [kind; 9];
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

pub(super) fn content_key(hash: Hash) -> [u8; 33] {
    let mut key = [b'c'; 33];
    key[1..].copy_from_slice(&hash);
    key
}
