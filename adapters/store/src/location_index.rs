//! Maps keys to the locations of records in the log.
//!
//! The key-value database, sled, may silently lose keys or change values. Therefore the index
//! contains only data that the log contains as well (INDEX-1), and every value is verified:
//! locations and the position carry keyed hashes, the process table a digest. A missing key proves
//! that a record is missing only in an index that was built since the store was opened.
//!
//! A key is one letter and numbers in big-endian order:
//!
//! | key | value |
//! |---|---|
//! | `f` pid first-fact | location and count of a record of facts |
//! | `s` pid fact | location of a snapshot, or of the creation (fact 0) |
//! | `t` pid number | location of a change of temporary files, by the tree's root |
//! | `c` hash | location of a content |
//! | `b` pid / 16 | entries of the process table, of 16 processes |
//! | `p` pid | entry of the process table that is too large for `b` |
//! | `k` number | entry of a checkpoint |
//! | `n` number | entry of a label |
//! | `l` commit | acknowledged losses |
//! | `m` | version, the position up to which the log is indexed, and the table's digest |
//!
//! In an encrypted store, entries are encrypted and bound to their keys, and a content's key is the
//! log's name of the content.

mod changes;

use std::fs;
use std::io;
use std::path::Path;

use dormouse_proto::id::{FactNumber, Pid};
use dormouse_proto::record::codec;

use crate::kv::{Batch, KvStore};
use crate::log_position::{Hash, Location, LogPosition, MAX_NUMBER};
use crate::log_walk::LostRange;
use crate::process_table::{Digest, ProcessTable};
use dormouse_records::secret::Keys;
use dormouse_records::secret::StoreKey;

pub(crate) use self::changes::{
    IndexChanges, RecordKey, block_key, checkpoint_key, label_key, losses_key, process_key,
};
use self::changes::{number_key, pid_key};

const POSITION_KEY: &[u8] = b"m";

/// The version of the keys and values above. An index of another version is built again. Raise it
/// with each change of them, or of what the process table encodes.
const VERSION: u8 = 2;

/// The index cannot answer, or its answer is wrong. It has to be rebuilt.
#[derive(Debug, thiserror::Error)]
#[error("the index {0}")]
pub(crate) struct IndexFault(pub(crate) String);

/// The position up to which the log is indexed, and hashes that detect an index that does not match
/// the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexPosition {
    /// The log is indexed up to here.
    pub(crate) position: LogPosition,
    /// The digest of the process table at that position.
    pub(crate) digest: Digest,
    /// The lengths of the segments before the position's
    /// ([`Log::hash_lengths_before`](crate::log::Log::hash_lengths_before)).
    pub(crate) lengths_hash: Hash,
    /// The latest damage in the log before that position.
    pub(crate) lost: Option<LostRange>,
}

/// The value of a key that points to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// The record's location.
    pub(crate) at: Location,
    /// How many items the record holds; 0 if it declares a content lost.
    pub(crate) count: u64,
}

/// A record of consecutive facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FactRun {
    /// The number of the first fact.
    pub(crate) first: FactNumber,
    /// How many facts the record holds.
    pub(crate) count: usize,
    /// The record's location.
    pub(crate) at: Location,
}

impl FactRun {
    /// Whether the record holds this fact.
    pub(crate) fn covers(&self, number: FactNumber) -> bool {
        self.first <= number && number < self.first.plus(self.count)
    }
}

/// An open index.
#[derive(Debug)]
pub(crate) struct LocationIndex {
    kv: KvStore,
    keys: Keys,
}

impl LocationIndex {
    /// Opens or creates the index in `folder`.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn open(folder: &Path, keys: Keys) -> Result<Self, IndexFault> {
        Ok(Self {
            kv: KvStore::open(folder)?,
            keys,
        })
    }

    /// An index without a backend: it answers from pending changes only.
    pub(crate) fn in_memory(keys: Keys) -> Self {
        Self {
            kv: KvStore::NoBackend,
            keys,
        }
    }

    /// Deletes the index in `folder`, which must not be open.
    ///
    /// # Errors
    /// As the operating system's.
    pub(crate) fn remove(folder: &Path) -> io::Result<()> {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The position up to which the log is indexed; `None` if the index is new, has another
    /// version, or belongs to another store.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn indexed_position(&self) -> Result<Option<IndexPosition>, IndexFault> {
        let value = self.kv.get(POSITION_KEY, &Batch::default())?;
        Ok(value.and_then(|bytes| IndexPosition::from_bytes(&bytes, self.keys.headers())))
    }

    /// Loads the process table, and verifies its digest.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn load_processes(
        &self,
        index_position: &IndexPosition,
    ) -> Result<ProcessTable, IndexFault> {
        let mut table = ProcessTable::load(*self.keys.headers(), index_position);
        for kind in *b"bpknl" {
            // An entry that cannot be decrypted becomes empty, so that the loader rejects the
            // table.
            self.kv.for_each(
                &number_key(kind, 0),
                &number_key(kind, u64::MAX),
                &mut |index_key, entry| {
                    table.add(
                        index_key,
                        &self
                            .keys
                            .decrypt_entry(entry, index_key)
                            .unwrap_or_default(),
                    );
                },
            )?;
        }
        table
            .finish()
            .ok_or_else(|| IndexFault("has a process table that is not whole".to_owned()))
    }

    /// Applies `changes` together with the position that they lead to, atomically. The changes are
    /// not durable, and need not be: the index can be rebuilt from the log.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn apply(
        &mut self,
        mut changes: IndexChanges,
        index_position: &IndexPosition,
    ) -> Result<(), IndexFault> {
        for (index_key, entry) in changes.entries {
            let encrypted = self.keys.encrypt_entry(entry, &index_key);
            changes.batch.insert(
                &index_key,
                encrypted.map_err(|error| IndexFault(format!("cannot be encrypted: {error}")))?,
            );
        }
        changes
            .batch
            .insert(POSITION_KEY, index_position.to_bytes(self.keys.headers()));
        self.kv.apply(changes.batch)
    }

    /// The entry of a key, including `pending` changes.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn get(
        &self,
        index_key: &RecordKey,
        pending: &IndexChanges,
    ) -> Result<Option<IndexEntry>, IndexFault> {
        let index_key = index_key.to_bytes();
        let value = self.kv.get(&index_key, &pending.batch)?;
        value
            .map(|value| {
                self.decode_location(&index_key, &value)
                    .map(|(at, count)| IndexEntry { at, count })
            })
            .transpose()
    }

    /// The latest image of a process at or before fact `up_to`, including `pending` changes.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn image(
        &self,
        pid: Pid,
        up_to: FactNumber,
        pending: &IndexChanges,
    ) -> Result<Option<(FactNumber, Location)>, IndexFault> {
        let index_key = |number| pid_key(b's', pid, number);
        let entry = self
            .kv
            .last(&index_key(FactNumber(0)), &index_key(up_to), &pending.batch)?;
        entry
            .map(|(index_key, value)| {
                Ok((
                    number_in_key(&index_key)?,
                    self.decode_location(&index_key, &value)?.0,
                ))
            })
            .transpose()
    }

    /// The records of facts that overlap `first..=up_to`, by rising number, including `pending`
    /// changes. The first record may begin earlier.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn facts(
        &self,
        pid: Pid,
        first: FactNumber,
        up_to: FactNumber,
        pending: &IndexChanges,
    ) -> Result<Vec<FactRun>, IndexFault> {
        let index_key = |number| pid_key(b'f', pid, number);
        let run_before =
            self.kv
                .last(&index_key(FactNumber(0)), &index_key(first), &pending.batch)?;
        let start = run_before.map_or(Ok(first), |(index_key, _)| number_in_key(&index_key))?;
        let entries = self
            .kv
            .range(&index_key(start), &index_key(up_to), &pending.batch)?;
        entries
            .iter()
            .map(|(index_key, value)| self.decode_fact_run(index_key, value))
            .collect()
    }

    /// The locations of the changes `1..=last` of a tree's temporary files, including `pending`
    /// changes; `None` if some are missing.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn temp_files(
        &self,
        root: Pid,
        last: u64,
        pending: &IndexChanges,
    ) -> Result<Option<Vec<Location>>, IndexFault> {
        let index_key = |number| pid_key(b't', root, FactNumber(number));
        let entries = self
            .kv
            .range(&index_key(1), &index_key(last), &pending.batch)?;
        // Keys are unique, so `last` many keys between 1 and `last` leave no gap.
        if entries.len() as u64 != last {
            return Ok(None);
        }
        entries
            .iter()
            .map(|(index_key, value)| Ok(self.decode_location(index_key, value)?.0))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// Changes or removes the last key of a kind, as damage to sled's file can.
    #[cfg(test)]
    pub(crate) fn damage_last(&mut self, kind: u8, damage: fn(Vec<u8>) -> Option<Vec<u8>>) {
        let last = self.kv.last(&[kind], &[kind + 1], &Batch::default());
        let (key, value) = last.expect("it can be read").expect("there is such a key");
        let mut batch = Batch::default();
        match damage(value) {
            Some(value) => batch.insert(&key, value),
            None => batch.remove(&key),
        }
        self.kv.apply(batch).expect("it can be changed");
    }

    /// Decodes the key and value of a record of facts.
    fn decode_fact_run(&self, index_key: &[u8], value: &[u8]) -> Result<FactRun, IndexFault> {
        let (at, count) = self.decode_location(index_key, value)?;
        let first = number_in_key(index_key)?;
        let count = usize::try_from(count)
            .ok()
            .filter(|_| count <= MAX_NUMBER && first.0 <= MAX_NUMBER);
        let count = count.ok_or_else(|| IndexFault("holds an impossible count".to_owned()))?;
        Ok(FactRun { first, count, at })
    }

    /// Decodes a value: location (12), count (8), and the first 8 bytes of a keyed hash over the
    /// key and both.
    fn decode_location(
        &self,
        index_key: &[u8],
        value: &[u8],
    ) -> Result<(Location, u64), IndexFault> {
        let decode = || {
            let (body, check) = value.split_last_chunk::<8>()?;
            let (at, count) = body.split_last_chunk::<8>()?;
            let is_whole = keyed_check(index_key, body, self.keys.headers()) == *check;
            Location::from_bytes(at)
                .filter(|_| is_whole)
                .map(|at| (at, u64::from_le_bytes(*count)))
        };
        decode().ok_or_else(|| IndexFault("holds a value that does not match its hash".to_owned()))
    }
}

impl IndexPosition {
    /// Versions of the index and of the codec of records (2), position (60), digest (32), lengths
    /// (32), the lost range's start, end and last commit (32, if there is one), and the keyed hash
    /// of all that (32).
    fn to_bytes(self, key: &StoreKey) -> Vec<u8> {
        let mut bytes = vec![VERSION, codec::VERSION];
        bytes.extend(self.position.to_bytes());
        self.digest
            .0
            .iter()
            .for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(self.lengths_hash);
        if let Some(lost) = self.lost {
            bytes.extend(lost.start.to_bytes());
            bytes.extend(lost.end.to_bytes());
            bytes.extend(lost.last_commit.to_le_bytes());
        }
        let hash = blake3::keyed_hash(&key.0, &bytes);
        bytes.extend(hash.as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8], key: &StoreKey) -> Option<Self> {
        let (body, hash) = bytes.split_last_chunk::<32>()?;
        if blake3::keyed_hash(&key.0, body) != *hash {
            return None;
        }
        let ([version, codec_version], rest) = body.split_first_chunk()?;
        if *version != VERSION || *codec_version > codec::VERSION {
            return None;
        }
        let (position, rest) = rest.split_at_checked(LogPosition::BYTES)?;
        let (digest, rest) = rest.split_at_checked(32)?;
        let (lengths_hash, lost) = rest.split_first_chunk::<32>()?;
        let mut words = [0; 4];
        words
            .iter_mut()
            .zip(digest.as_chunks().0)
            .for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
        let decode_lost_range = || {
            let (start, rest) = lost.split_at_checked(Location::BYTES)?;
            let (end, last_commit) = rest.split_at_checked(Location::BYTES)?;
            Some(LostRange {
                start: Location::from_bytes(start)?,
                end: Location::from_bytes(end)?,
                first_commit: 0,
                last_commit: u64::from_le_bytes(last_commit.try_into().ok()?),
            })
        };
        let lost = decode_lost_range();
        Some(Self {
            position: LogPosition::from_bytes(position)?,
            digest: Digest(words),
            lengths_hash: *lengths_hash,
            lost,
        })
    }
}

fn number_in_key(key: &[u8]) -> Result<FactNumber, IndexFault> {
    let number = key
        .split_last_chunk::<8>()
        .map(|(_, bytes)| FactNumber(u64::from_be_bytes(*bytes)));
    number.ok_or_else(|| IndexFault("holds a key of the wrong length".to_owned()))
}

/// The first 8 bytes of a keyed hash over a key and its value.
fn keyed_check(index_key: &[u8], value: &[u8], key: &StoreKey) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new_keyed(&key.0);
    let hash = hasher.update(index_key).update(value).finalize();
    *hash.as_bytes().first_chunk().expect("a hash has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_of_an_index_of_another_version_is_refused() {
        let key = StoreKey([7; 32]);
        let index_position = IndexPosition {
            position: LogPosition::EMPTY,
            digest: Digest::default(),
            lengths_hash: [1; 32],
            lost: None,
        };
        let bytes = index_position.to_bytes(&key);
        assert_eq!(
            IndexPosition::from_bytes(&bytes, &key),
            Some(index_position)
        );
        let (body, _) = bytes.split_last_chunk::<32>().unwrap();
        for (place, version, is_refused) in [
            (0, VERSION - 1, true),
            (0, VERSION + 1, true),
            (1, codec::VERSION - 1, false),
            (1, codec::VERSION + 1, true),
        ] {
            let mut body = body.to_vec();
            body[place] = version;
            let hash = blake3::keyed_hash(&key.0, &body);
            let bytes = [&body[..], hash.as_bytes()].concat();
            let read = IndexPosition::from_bytes(&bytes, &key);
            assert_eq!(read.is_none(), is_refused, "byte {place} is {version}");
        }
    }
}
