//! The process table, in memory: one entry per process, with its row and the last fact of its
//! journal. The *row* is what is known of a process without its journal: parent, program, exit, and
//! what it waits for. The table also keeps the checkpoints, the lost ranges of the log
//! (`log_walk.rs`), and the losses that a repair acknowledged.
//!
//! The table holds each entry as its encoded bytes (`blocks.rs`), some forty, and decodes it at
//! each query, because there is an entry for every process that ever existed, and most of those
//! hibernate or have ended.
//!
//! The index keeps a copy of the table on disk. A digest, a sum over all its values that does not
//! depend on their order, shows whether that copy is complete: a missing or outdated value changes
//! the digest.

mod blocks;
mod digest;
mod entry;
mod entry_codec;
mod labels;
mod loader;
mod losses;
mod program_names;

use std::collections::BTreeMap;

use dormouse_actors::ports::{ProcessListing, StoreError};
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::id::{CheckpointId, Pid};
use dormouse_proto::record::codec;
use serde::{Deserialize, Serialize};

pub(crate) use self::labels::LabelEntry;
pub(crate) use self::losses::AcknowledgedLosses;
use crate::error::damaged;
use crate::location_index::{IndexPosition, checkpoint_key};
use crate::log_position::Location;
use crate::log_walk::LostRange;
use dormouse_records::secret::StoreKey;

use blocks::EntryBlocks;
pub(crate) use digest::Digest;
pub(crate) use entry::{
    EndEntry, LastRecord, NumberedRecords, ProcessEntry, ReopenedEntry, RetainedHistory,
    WaitingEntry,
};
use entry_codec::LatestEntry;
use loader::TableLoader;
use program_names::ProgramNames;

/// A checkpoint in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointEntry {
    /// The state of the checkpoint.
    pub(crate) state: CheckpointState,
    /// The location of the record that set this state.
    pub(crate) at: Location,
}

/// The state of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CheckpointState {
    /// The checkpoint exists.
    Retained(Checkpoint),
    /// The checkpoint was dropped.
    Dropped,
    /// The checkpoint exists, but its record is damaged: which processes it needs is unknown.
    Damaged,
}

impl CheckpointEntry {
    fn to_bytes(&self) -> EncodeResult {
        codec::encode(&(&self.state, self.at))
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (state, at) = codec::decode(bytes).ok()?;
        Some(Self { state, at })
    }

    fn retained(&self) -> Option<&Checkpoint> {
        match &self.state {
            CheckpointState::Retained(checkpoint) => Some(checkpoint),
            CheckpointState::Dropped | CheckpointState::Damaged => None,
        }
    }

    /// Whether the checkpoint was not dropped, readable or not.
    pub(crate) fn exists(&self) -> bool {
        match self.state {
            CheckpointState::Retained(_) | CheckpointState::Damaged => true,
            CheckpointState::Dropped => false,
        }
    }
}

/// A value of the index that is set, or removed, and its key.
pub(crate) type ValueChange = ([u8; 9], Option<Vec<u8>>);

/// An entry, encoded for the index.
type EncodeResult = Result<Vec<u8>, codec::CodecError>;

/// All entries, by pid.
#[derive(Debug)]
pub(crate) struct ProcessTable {
    key: StoreKey,
    /// Encoded by [`ProcessEntry::to_bytes`].
    entries: EntryBlocks,
    /// Entries that are new, or differ from their encoded bytes. An entry changes with each record
    /// of its process, so encoding it later saves work.
    changed: BTreeMap<Pid, ProcessEntry>,
    /// By the number of the checkpoint.
    checkpoints: BTreeMap<CheckpointId, CheckpointEntry>,
    /// By the number of the label.
    labels: BTreeMap<u64, LabelEntry>,
    /// By the commit in which each was first written.
    acknowledged: BTreeMap<u64, AcknowledgedLosses>,
    digest: Digest,
    /// The lost ranges of the log, in ascending order.
    lost: Vec<LostRange>,
}

impl ProcessTable {
    /// An empty table.
    pub(crate) fn new(key: StoreKey) -> Self {
        let entries = EntryBlocks::default();
        let changed = BTreeMap::new();
        let checkpoints = BTreeMap::new();
        let acknowledged = BTreeMap::new();
        Self {
            key,
            entries,
            changed,
            checkpoints,
            labels: BTreeMap::new(),
            acknowledged,
            digest: Digest::default(),
            lost: Vec::new(),
        }
    }

    /// Loads a table from an index: [`add`](TableLoader::add) each entry, then
    /// [`finish`](TableLoader::finish).
    pub(crate) fn load(key: StoreKey, index_position: &IndexPosition) -> TableLoader {
        TableLoader::new(
            Self {
                lost: index_position.lost.into_iter().collect(),
                ..Self::new(key)
            },
            index_position.digest,
        )
    }

    /// The key of the store.
    pub(crate) fn key(&self) -> &StoreKey {
        &self.key
    }

    /// The values of the index that hold the entries as the last
    /// [`ProcessTable::encode_changed`] encoded them, and their keys.
    pub(crate) fn entry_values(&self) -> impl Iterator<Item = ([u8; 9], &[u8])> {
        self.entries.values()
    }

    /// All checkpoints, encoded as by [`ProcessTable::put_checkpoint`].
    pub(crate) fn encoded_checkpoints(&self) -> impl Iterator<Item = (CheckpointId, EncodeResult)> {
        self.checkpoints
            .iter()
            .map(|(id, entry)| (*id, entry.to_bytes()))
    }

    /// The readable checkpoints, by ascending number.
    pub(crate) fn checkpoints(&self) -> impl Iterator<Item = &Checkpoint> {
        self.checkpoints
            .values()
            .filter_map(CheckpointEntry::retained)
    }

    /// A checkpoint, dropped or not.
    pub(crate) fn checkpoint_entry(&self, id: CheckpointId) -> Option<&CheckpointEntry> {
        self.checkpoints.get(&id)
    }

    /// The highest number that a checkpoint ever had; 0 if there was none.
    pub(crate) fn last_checkpoint(&self) -> u64 {
        self.checkpoints.keys().next_back().map_or(0, |id| id.0)
    }

    /// Sets a checkpoint. Returns its encoded bytes, for the index.
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub(crate) fn put_checkpoint(
        &mut self,
        id: CheckpointId,
        entry: CheckpointEntry,
    ) -> EncodeResult {
        let bytes = entry.to_bytes()?;
        let old = self.checkpoints.insert(id, entry);
        let old = old.map(|old| old.to_bytes()).transpose()?;
        self.digest
            .replace(&self.key, &checkpoint_key(id), old.as_deref(), Some(&bytes));
        Ok(bytes)
    }

    /// The entry of a process.
    pub(crate) fn entry(&self, pid: Pid) -> Option<ProcessEntry> {
        match self.changed.get(&pid) {
            Some(entry) => Some(entry.clone()),
            None => {
                let bytes = self.entries.get(pid)?;
                ProcessEntry::from_bytes(pid, bytes, &mut ProgramNames::default())
            }
        }
    }

    /// All entries except deleted processes, by ascending pid; `None` for an unreadable entry. Each
    /// returned entry is decoded. A deleted process costs only a look at its flags, because their
    /// number never falls.
    fn entries(&self) -> impl Iterator<Item = (Pid, Option<ProcessEntry>)> {
        let mut names = ProgramNames::default();
        self.latest_entries()
            .filter(|(_, entry)| !entry.is_deleted())
            .map(move |(pid, entry)| (pid, entry.decode(pid, &mut names)))
    }

    /// All entries, by ascending pid. Decodes none.
    fn latest_entries(&self) -> impl Iterator<Item = (Pid, LatestEntry<'_>)> {
        let mut encoded = self.entries.iter().peekable();
        let mut changed = self.changed.iter().peekable();
        std::iter::from_fn(move || {
            let next_changed = changed.peek().map(|(pid, _)| **pid);
            let is_before = |pid| next_changed.is_none_or(|changed| pid < changed);
            if let Some((pid, bytes)) = encoded.next_if(|(pid, _)| is_before(*pid)) {
                return Some((pid, LatestEntry::Encoded(bytes)));
            }
            let (pid, entry) = changed.next()?;
            // Skip the encoded entry that was changed since.
            encoded.next_if(|(encoded_pid, _)| encoded_pid == pid);
            Some((*pid, LatestEntry::Changed(entry)))
        })
    }

    /// The entry of a process, to be changed. Creates it with `new_entry` if there is none. The
    /// first change since the last encoding decodes it.
    pub(crate) fn entry_mut(
        &mut self,
        pid: Pid,
        new_entry: impl FnOnce() -> ProcessEntry,
    ) -> &mut ProcessEntry {
        let Self {
            entries, changed, ..
        } = self;
        changed.entry(pid).or_insert_with(|| {
            let mut names = ProgramNames::default();
            let entry = entries
                .get(pid)
                .and_then(|bytes| ProcessEntry::from_bytes(pid, bytes, &mut names));
            entry.unwrap_or_else(new_entry)
        })
    }

    /// How many entries wait for [`ProcessTable::encode_changed`].
    pub(crate) fn changed_entries(&self) -> usize {
        self.changed.len()
    }

    /// Encodes the changed entries, and returns the values of the index that change by that, with
    /// their keys; `None` removes the key. The digest covers them from here on.
    ///
    /// # Errors
    /// If an entry cannot be encoded. All of them stay changed then.
    pub(crate) fn encode_changed(&mut self) -> Result<Vec<ValueChange>, codec::CodecError> {
        let encoded: Vec<_> = self
            .changed
            .iter()
            .map(|(pid, entry)| Ok((*pid, entry.to_bytes()?)))
            .collect::<Result<_, _>>()?;
        let mut values = Vec::new();
        self.entries.set(&encoded, &mut |index_key, old, new| {
            self.digest.replace(&self.key, &index_key, old, new);
            values.push((index_key, new.map(<[u8]>::to_vec)));
        });
        self.changed.clear();
        Ok(values)
    }

    /// The digest of all encoded entries.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// The rows of all processes, by ascending pid, and the losses.
    pub(crate) fn listing(&self) -> ProcessListing {
        let mut listing = ProcessListing::default();
        let mut names = ProgramNames::default();
        let mut unreadable = Vec::new();
        for (pid, entry) in self.latest_entries() {
            listing.last_pid = pid.0;
            if entry.is_deleted() {
                continue;
            }
            let entry = entry.decode(pid, &mut names);
            match entry.and_then(ProcessEntry::into_row) {
                Some(row) => listing.rows.push(row),
                None => unreadable.push(pid),
            }
        }
        let acknowledged = self.acknowledged_losses();
        for loss in self.losses_with(&unreadable) {
            let is_known = acknowledged.contains(&loss);
            if is_known {
                &mut listing.acknowledged_losses
            } else {
                &mut listing.losses
            }
            .push(loss.to_string());
        }
        // Creations of processes may be in a lost range, and no pid may be used twice, so the last
        // pid is estimated upwards.
        let max_lost_records = self.lost.iter().map(LostRange::max_records).sum();
        listing.last_pid = listing.last_pid.saturating_add(max_lost_records);
        listing
    }
}

/// The error of a process whose row is unreadable.
pub(crate) fn row_is_lost(pid: Pid) -> StoreError {
    damaged(format!(
        "the record of process {pid}'s creation or end does not match its hash"
    ))
}

#[cfg(test)]
mod tests {
    use dormouse_proto::id::FactNumber;

    use super::*;
    use dormouse_proto::process::{Exit, ExitStatus, ProcessRow};

    fn entry(last: u64) -> ProcessEntry {
        let last_record = LastRecord {
            first_commit: last + 1,
            at: Location {
                segment: 7,
                offset: last,
            },
        };
        let end = Some(EndEntry {
            first_commit: 3,
            at: Location::START,
            exit: None,
            last: FactNumber(last),
        });
        let retained = RetainedHistory::From(
            FactNumber(2),
            Location {
                segment: 2,
                offset: 5,
            },
        );
        let (last, temp_files) = (
            FactNumber(last),
            NumberedRecords {
                last: last * 2,
                last_record,
            },
        );
        ProcessEntry {
            creation_row: None,
            creation_at: last_record.at,
            end,
            retained,
            last,
            last_record,
            temp_files,
            waiting: None,
            reopened: None,
        }
    }

    fn digest(entries: &[(u64, u64)]) -> Digest {
        let mut table = ProcessTable::new(StoreKey([1; 32]));
        for (pid, last) in entries {
            *table.entry_mut(Pid(*pid), || entry(0)) = entry(*last);
            table.encode_changed().unwrap();
        }
        table.digest()
    }

    #[test]
    fn an_ended_process_is_complete_if_its_end_names_its_last_fact() {
        assert!(entry(4).is_complete());
        let cases = [
            ProcessEntry {
                last: FactNumber(3),
                ..entry(4)
            },
            ProcessEntry {
                end: None,
                ..entry(4)
            },
            entry(0),
        ];
        assert!(cases.iter().all(|entry| !entry.is_complete()), "{cases:?}");
    }

    #[test]
    fn a_reopened_process_is_alive_whatever_its_stored_row_says() {
        // A truncation by an earlier version stored the exit with the row.
        let ended_row = ProcessRow {
            exit: Some(Exit::new(ExitStatus::Done, "done")),
            ..ProcessRow::started(Pid(1), "p")
        };
        let reopened = ProcessEntry {
            creation_row: Some(ended_row.clone()),
            end: None,
            reopened: Some(ReopenedEntry {
                first_commit: 8,
                at: Location::START,
                reopenings: 2,
            }),
            ..entry(9)
        };
        let alive = ProcessRow {
            reopenings: 2,
            ..ProcessRow::started(Pid(1), "p")
        };
        assert_eq!(reopened.row(), Some(alive));
        let ended = ProcessEntry {
            end: Some(EndEntry {
                first_commit: 9,
                at: Location::START,
                exit: ended_row.exit.clone(),
                last: FactNumber(9),
            }),
            ..reopened
        };
        let row = ended.row();
        assert_eq!(row.and_then(|row| row.exit), ended_row.exit);
    }

    #[test]
    fn the_digest_depends_on_the_entries_and_not_on_their_history() {
        assert_eq!(digest(&[(1, 1), (2, 5)]), digest(&[(2, 4), (1, 1), (2, 5)]));
        let others: [&[(u64, u64)]; 4] = [&[], &[(1, 1)], &[(1, 5), (2, 1)], &[(1, 1), (2, 4)]];
        for other in others {
            assert_ne!(digest(&[(1, 1), (2, 5)]), digest(other));
        }
    }
}
