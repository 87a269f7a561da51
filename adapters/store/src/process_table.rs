//! The process table, in memory: one line a process, with what its journal reaches to.
//!
//! A line is kept as its bytes, some fifty of them, and read when it is asked for: there are as
//! many as processes ever were, and most of those sleep or have ended.
//!
//! The index keeps a copy on disk. Its digest, a sum over all lines that does not depend on their
//! order, tells whether that copy is whole: a line that is missing or out of date changes it.

mod digest;
mod loader;
mod losses;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_actors::ports::{Listing, StoreError};
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::id::{CheckpointId, FactNumber, Pid};
use dormouse_proto::pid_map::PidMap;
use dormouse_proto::process::{Exit, ProcessRow};
use dormouse_proto::record::codec;
use serde::{Deserialize, Serialize};

pub(crate) use self::losses::AcknowledgedLosses;
use crate::error::damaged;
use crate::location_index::{IndexPosition, checkpoint_key, process_key};
use crate::log_position::Location;
use crate::log_walk::LostRange;
use crate::record_header::{RecordHeader, StoreKey};
use dormouse_records::validator::{ProcessProgress, ProcessState};

pub(crate) use digest::Digest;
use loader::TableLoader;

/// What is known of a process. It says the same whether its records stand where they were written
/// or were moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessEntry {
    /// As it was born; none where that record is damaged, or was not yet come by.
    pub(crate) birth: Option<ProcessRow>,
    /// The record of its birth; the log's start where none was come by.
    pub(crate) born_at: Location,
    /// Its end, if it has ended.
    pub(crate) end: Option<EndEntry>,
    /// What is kept of it.
    pub(crate) retained: Retained,
    /// Its last fact.
    pub(crate) last: FactNumber,
    /// The latest record behind which it may go on: of its birth, of facts or of its end.
    pub(crate) last_record: LastRecord,
    /// How far the temporary files of the tree go that begins with it.
    pub(crate) temp_files: NumberedRecords,
}

/// The record of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndEntry {
    /// The commit that it was first written in.
    pub(crate) since: u64,
    /// Where it stands.
    pub(crate) at: Location,
    /// How the process ended; none where the record is damaged.
    pub(crate) exit: Option<Exit>,
    /// The last fact, as the record of the end has it; 0 in older stores, which do not say.
    pub(crate) last: FactNumber,
}

/// What is kept of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retained {
    /// All of its history.
    Whole,
    /// Its history from the image after this fact on; the record that says so stands there.
    From(FactNumber, Location),
    /// Its number; the record that says so stands there.
    Number(Location),
}

/// The latest of several records: by the commit that each was first written in, then by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LastRecord {
    /// The commit.
    pub(crate) since: u64,
    /// The place; the log's start where the record has moved, since its neighbours then are not
    /// those of its commit.
    pub(crate) at: Location,
}

/// How far numbered records go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberedRecords {
    /// The number of the last; 0 where there is none.
    pub(crate) last: u64,
    /// That record; where there is none, the one behind which there could be one.
    pub(crate) last_record: LastRecord,
}

impl LastRecord {
    /// By a record that stands at `at`.
    pub(crate) fn by(at: Location, header: &RecordHeader) -> Self {
        Self {
            since: header.since,
            at: if header.is_moved() {
                Location::START
            } else {
                at
            },
        }
    }

    /// By nothing that is known.
    pub(crate) const NEVER: Self = Self {
        since: 0,
        at: Location::START,
    };

    /// Whether something that came later may be among what is lost.
    pub(crate) fn may_continue_in(self, lost: &LostRange) -> bool {
        self.at < lost.to && self.since <= lost.upto
    }

    fn to_parts(self) -> (u64, Location) {
        (self.since, self.at)
    }

    fn from_parts((since, at): (u64, Location)) -> Self {
        Self { since, at }
    }
}

/// How a line stands in the index: birth and its place, end, kept, last, touched, temp files.
type StoredEntry = (
    (Option<ProcessRow>, Location),
    Option<(u64, Location, Option<Exit>)>,
    Option<(FactNumber, Location)>,
    FactNumber,
    (u64, Location),
    (u64, (u64, Location)),
    // Of the end.
    FactNumber,
);

impl ProcessEntry {
    /// Of a process of which nothing is known before `touched`.
    pub(crate) fn begun(last_record: LastRecord) -> Self {
        let temp_files = NumberedRecords {
            last: 0,
            last_record: LastRecord::NEVER,
        };
        let (born_at, last) = (Location::START, FactNumber(0));
        Self {
            birth: None,
            born_at,
            end: None,
            retained: Retained::Whole,
            last,
            last_record,
            temp_files,
        }
    }

    /// Of a process that is given up, which the record at `at` says.
    pub(crate) fn forgotten(at: Location) -> Self {
        Self {
            retained: Retained::Number(at),
            ..Self::begun(LastRecord::NEVER)
        }
    }

    /// The bytes of it, for the index. Of a process of which nothing but its number is kept they
    /// are few, and known by the first.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, codec::CodecError> {
        if let Retained::Number(at) = self.retained {
            return codec::encode(&(NUMBER, at));
        }
        let end = self
            .end
            .as_ref()
            .map(|end| (end.since, end.at, end.exit.clone()));
        let retained = match self.retained {
            Retained::From(below, at) => Some((below, at)),
            Retained::Whole | Retained::Number(_) => None,
        };
        let temp_files = (self.temp_files.last, self.temp_files.last_record.to_parts());
        let birth = (self.birth.clone(), self.born_at);
        let last = self.end.as_ref().map_or(FactNumber(0), |end| end.last);
        let parts: StoredEntry = (
            birth,
            end,
            retained,
            self.last,
            self.last_record.to_parts(),
            temp_files,
            last,
        );
        codec::encode(&(LINE, parts))
    }

    /// The reverse of [`ProcessEntry::to_bytes`], for bytes that were checked.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if is_number(bytes) {
            let (_, at): (u8, Location) = codec::decode(bytes).ok()?;
            return Some(Self::forgotten(at));
        }
        let parts: (u8, StoredEntry) = codec::decode(bytes).ok()?;
        let ((birth, born_at), end, retained, last, last_record, temp_files, ended) = parts.1;
        if birth
            .as_ref()
            .is_some_and(|row: &ProcessRow| !row.is_younger_than_its_parent())
        {
            return None;
        }
        let end = end.map(|(since, at, exit)| EndEntry {
            since,
            at,
            exit,
            last: ended,
        });
        let retained = retained.map_or(Retained::Whole, |(below, at)| Retained::From(below, at));
        let temp_files = NumberedRecords {
            last: temp_files.0,
            last_record: LastRecord::from_parts(temp_files.1),
        };
        let last_record = LastRecord::from_parts(last_record);
        Some(Self {
            birth,
            born_at,
            end,
            retained,
            last,
            last_record,
            temp_files,
        })
    }

    /// Its row, with its end if it has ended; none where the record of either is damaged.
    pub(crate) fn row(&self) -> Option<ProcessRow> {
        let birth = self.birth.clone()?;
        match &self.end {
            None => Some(birth),
            Some(end) => end.exit.clone().map(|exit| ProcessRow {
                exit: Some(exit),
                ..birth
            }),
        }
    }

    /// How far its journal and its tree's temporary files go.
    pub(crate) fn progress(&self) -> ProcessProgress {
        let state = if matches!(self.retained, Retained::Number(_)) {
            ProcessState::Deleted
        } else {
            ProcessState::Kept
        };
        ProcessProgress {
            last: self.last,
            temp_files: self.temp_files.last,
            state,
        }
    }

    /// The first fact that can be asked for.
    pub(crate) fn since(&self) -> FactNumber {
        match self.retained {
            Retained::From(below, _) => below,
            Retained::Whole | Retained::Number(_) => FactNumber(0),
        }
    }

    /// Whether it has ended, and its last fact is the one that its end names: nothing of it comes
    /// later.
    pub(crate) fn is_complete(&self) -> bool {
        self.end
            .as_ref()
            .is_some_and(|end| end.last == self.last && self.last > FactNumber(0))
    }

    /// Whether nothing but its number is kept.
    pub(crate) fn is_deleted(&self) -> bool {
        matches!(self.retained, Retained::Number(_))
    }
}

/// What the bytes of a line begin with.
const LINE: u8 = 0;
const NUMBER: u8 = 1;

/// Whether the bytes of a line say that nothing but the number is kept.
fn is_number(bytes: &[u8]) -> bool {
    bytes.first() == Some(&NUMBER)
}

/// A checkpoint as the table knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointEntry {
    /// What is known of it.
    pub(crate) state: CheckpointState,
    /// The record that says so.
    pub(crate) at: Location,
}

/// What is known of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CheckpointState {
    /// It is kept.
    Retained(Checkpoint),
    /// It was given up.
    Dropped,
    /// It was not given up, and its record is damaged: which processes it needs is not known.
    Damaged,
}

impl CheckpointEntry {
    fn to_bytes(&self) -> Encoded {
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

    /// Whether it was never given up, whatever can be read of it.
    pub(crate) fn is_held(&self) -> bool {
        match self.state {
            CheckpointState::Retained(_) | CheckpointState::Damaged => true,
            CheckpointState::Dropped => false,
        }
    }
}

/// A line as the index keeps it.
type Encoded = Result<Vec<u8>, codec::CodecError>;

/// All lines, by pid.
#[derive(Debug)]
pub(crate) struct ProcessTable {
    key: StoreKey,
    /// As [`ProcessEntry::to_bytes`] makes them; no bytes for a line that was never encoded.
    entries: PidMap<Box<[u8]>>,
    /// Lines that differ from their bytes: a line changes with each record of its process, and is
    /// encoded once for many.
    changed: BTreeMap<Pid, ProcessEntry>,
    /// Over the bytes.
    checkpoints: BTreeMap<CheckpointId, CheckpointEntry>,
    /// By the commit that each was first written in.
    acknowledged: BTreeMap<u64, AcknowledgedLosses>,
    digest: Digest,
    /// By rising place.
    lost: Vec<LostRange>,
}

impl ProcessTable {
    /// Without a line.
    pub(crate) fn new(key: StoreKey) -> Self {
        let (entries, changed, checkpoints, acknowledged) = (
            PidMap::default(),
            BTreeMap::new(),
            BTreeMap::new(),
            BTreeMap::new(),
        );
        Self {
            key,
            entries,
            changed,
            checkpoints,
            acknowledged,
            digest: Digest::default(),
            lost: Vec::new(),
        }
    }

    /// From the lines of an index: [`take`](TableLoader::take) each, then [`finish`](TableLoader::finish).
    pub(crate) fn load(key: StoreKey, applied: &IndexPosition) -> TableLoader {
        TableLoader::new(
            Self {
                lost: applied.lost.into_iter().collect(),
                ..Self::new(key)
            },
            applied.digest,
        )
    }

    /// The key of the store that it belongs to.
    pub(crate) fn key(&self) -> &StoreKey {
        &self.key
    }

    /// All lines as [`ProcessTable::encode_changed`] left them.
    pub(crate) fn encoded(&self) -> impl Iterator<Item = (Pid, Vec<u8>)> {
        self.entries
            .iter()
            .map(|(pid, entry)| (pid, entry.to_vec()))
    }

    /// All lines of checkpoints as [`ProcessTable::put_checkpoint`] encoded them.
    pub(crate) fn encoded_checkpoints(&self) -> impl Iterator<Item = (CheckpointId, Encoded)> {
        self.checkpoints
            .iter()
            .map(|(id, entry)| (*id, entry.to_bytes()))
    }

    /// The checkpoints that there are, by rising number.
    pub(crate) fn checkpoints(&self) -> impl Iterator<Item = &Checkpoint> {
        self.checkpoints
            .values()
            .filter_map(CheckpointEntry::retained)
    }

    /// The line of the checkpoint of this number, given up or not.
    pub(crate) fn checkpoint_entry(&self, id: CheckpointId) -> Option<&CheckpointEntry> {
        self.checkpoints.get(&id)
    }

    /// The highest number that a checkpoint ever had; 0 where there was none.
    pub(crate) fn last_checkpoint(&self) -> u64 {
        self.checkpoints.keys().next_back().map_or(0, |id| id.0)
    }

    /// Sets the line of a checkpoint; answers with its bytes, for the index.
    ///
    /// # Errors
    /// Where it cannot be encoded.
    pub(crate) fn put_checkpoint(&mut self, id: CheckpointId, entry: CheckpointEntry) -> Encoded {
        let (name, bytes) = (checkpoint_key(id), entry.to_bytes()?);
        if let Some(old) = self.checkpoints.insert(id, entry) {
            self.digest.combine(
                Digest::of(&self.key, &name, &old.to_bytes()?),
                u64::wrapping_sub,
            );
        }
        self.digest
            .combine(Digest::of(&self.key, &name, &bytes), u64::wrapping_add);
        Ok(bytes)
    }

    /// The line of a process.
    pub(crate) fn entry(&self, pid: Pid) -> Option<ProcessEntry> {
        self.decoded(pid, self.entries.get(pid)?)
    }

    fn decoded(&self, pid: Pid, bytes: &[u8]) -> Option<ProcessEntry> {
        self.changed
            .get(&pid)
            .cloned()
            .or_else(|| ProcessEntry::from_bytes(bytes))
    }

    /// All lines but those of which nothing but the number is kept, by rising pid; none for one
    /// that cannot be read. Costs the decoding of these; of the others, of which there are ever
    /// more, a look at a byte.
    fn entries(&self) -> impl Iterator<Item = (Pid, Option<ProcessEntry>)> {
        let retained = self
            .entries
            .iter()
            .filter(|(pid, bytes)| !is_number(bytes) || self.changed.contains_key(pid));
        retained
            .map(|(pid, bytes)| (pid, self.decoded(pid, bytes)))
            .filter(|(_, entry)| !entry.as_ref().is_some_and(ProcessEntry::is_deleted))
    }

    /// The line of a process, to be changed; `begin` makes it where there is none. Costs its
    /// decoding, once until it is encoded.
    pub(crate) fn entry_mut(
        &mut self,
        pid: Pid,
        begin: impl FnOnce() -> ProcessEntry,
    ) -> &mut ProcessEntry {
        let Self {
            entries, changed, ..
        } = self;
        changed.entry(pid).or_insert_with(|| {
            let entry = entries
                .get(pid)
                .and_then(|bytes| ProcessEntry::from_bytes(bytes));
            entry.unwrap_or_else(|| {
                entries.insert(pid, Box::default());
                begin()
            })
        })
    }

    /// How many lines wait for [`ProcessTable::encode_changed`].
    pub(crate) fn changed_entries(&self) -> usize {
        self.changed.len()
    }

    /// Encodes the lines that were changed, for the index. The digest is over these from here on.
    ///
    /// # Errors
    /// Where one cannot be encoded. All of them wait as before then.
    pub(crate) fn encode_changed(&mut self) -> Result<Vec<(Pid, Vec<u8>)>, codec::CodecError> {
        let encoded: Vec<_> = self
            .changed
            .iter()
            .map(|(pid, entry)| Ok((*pid, entry.to_bytes()?)))
            .collect::<Result<_, _>>()?;
        for (pid, bytes) in &encoded {
            let name = process_key(*pid);
            if let Some(old) = self
                .entries
                .insert(*pid, bytes.as_slice().into())
                .filter(|old| !old.is_empty())
            {
                self.digest
                    .combine(Digest::of(&self.key, &name, &old), u64::wrapping_sub);
            }
            self.digest
                .combine(Digest::of(&self.key, &name, bytes), u64::wrapping_add);
        }
        self.changed.clear();
        Ok(encoded)
    }

    /// The digest over all lines, but for changes that are not encoded.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// The rows that there are, by rising pid, and what is missing.
    pub(crate) fn listing(&self) -> Listing {
        let (mut listing, mut programs) = (Listing::default(), BTreeSet::new());
        listing.last = self.entries.iter().last().map_or(0, |(pid, _)| pid.0);
        let mut unlisted = Vec::new();
        for (pid, entry) in self.entries() {
            match entry.and_then(|entry| entry.row()) {
                Some(row) => listing.rows.push(ProcessRow {
                    program: shared(&mut programs, row.program),
                    ..row
                }),
                None => unlisted.push(pid),
            }
        }
        let acknowledged = self.acknowledged();
        for loss in self.losses_with(&unlisted) {
            let is_known = acknowledged.contains(&loss);
            if is_known {
                &mut listing.acknowledged
            } else {
                &mut listing.lost
            }
            .push(loss.to_string());
        }
        // The births of processes may be among what is lost, and no number is given twice.
        let most = self.lost.iter().map(LostRange::most_records).sum();
        listing.last = listing.last.saturating_add(most);
        listing
    }
}

/// The one text that all rows of a program share.
fn shared(known: &mut BTreeSet<Arc<str>>, program: Arc<str>) -> Arc<str> {
    if let Some(known) = known.get(&program) {
        return known.clone();
    }
    known.insert(program.clone());
    program
}

/// The error of a process whose row is gone.
pub(crate) fn row_is_lost(pid: Pid) -> StoreError {
    damaged(format!(
        "the record of process {pid}'s birth or end does not match its hash"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(last: u64) -> ProcessEntry {
        let last_record = LastRecord {
            since: last + 1,
            at: Location {
                segment: 7,
                offset: last,
            },
        };
        let end = Some(EndEntry {
            since: 3,
            at: Location::START,
            exit: None,
            last: FactNumber(last),
        });
        let retained = Retained::From(
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
            birth: None,
            born_at: last_record.at,
            end,
            retained,
            last,
            last_record,
            temp_files,
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
    fn an_ended_process_is_complete_if_its_last_fact_is_the_one_that_its_end_names() {
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
    fn the_digest_knows_the_lines_and_not_their_history() {
        assert_eq!(digest(&[(1, 1), (2, 5)]), digest(&[(2, 4), (1, 1), (2, 5)]));
        let others: [&[(u64, u64)]; 4] = [&[], &[(1, 1)], &[(1, 5), (2, 1)], &[(1, 1), (2, 4)]];
        for other in others {
            assert_ne!(digest(&[(1, 1), (2, 5)]), digest(other));
        }
    }

    #[test]
    fn a_line_survives_its_bytes() {
        let retained = [Retained::Whole, entry(9).retained].map(|retained| ProcessEntry {
            retained,
            ..entry(9)
        });
        let number = ProcessEntry::forgotten(Location {
            segment: 3,
            offset: 300,
        });
        for entry in retained.into_iter().chain([number]) {
            let bytes = entry.to_bytes().unwrap();
            assert_eq!(is_number(&bytes), entry.is_deleted());
            assert_eq!(ProcessEntry::from_bytes(&bytes), Some(entry));
        }
        assert_eq!(ProcessEntry::from_bytes(b"\x00\x01"), None);
    }
}
