//! The process table, in memory: one line a process, with what its journal reaches to.
//!
//! A line is kept as its bytes, some fifty of them, and read when it is asked for: there are as many as processes ever were,
//! and most of those sleep or have ended.
//!
//! The index keeps a copy on disk. Its digest, a sum over all lines that does not depend on their order, tells whether
//! that copy is whole: a line that is missing or out of date changes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_actors::ports::StoreError;
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::id::{CheckpointId, FactNumber, Pid};
use dormouse_proto::pid_map::PidMap;
use dormouse_proto::process::{Exit, ProcessRow};
use dormouse_proto::record::codec;

use crate::envelope::StoreKey;
use crate::error::damaged;
use crate::index::{Applied, checkpoint_key, line_key};
use crate::mark::Location;
use crate::rules::Stand;
use crate::scan::Lost;

/// A location as it stands in a line.
type Place = [u8; Location::BYTES];

/// What is known of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// As it was born, with its end if it has ended; none where the record of either is damaged.
    pub(crate) row: Option<ProcessRow>,
    /// Its last fact.
    pub(crate) last: FactNumber,
    /// Where its latest record stands, those of temporary files apart.
    pub(crate) touched: Location,
    /// How far the temporary files of the tree go that begins with it.
    pub(crate) temp_files: Reach,
}

/// How far numbered records go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The number of the last; 0 where there is none.
    pub(crate) last: u64,
    /// Where it stands; where there is none, the place from which on there could be one.
    pub(crate) touched: Location,
}

impl Line {
    /// The bytes of it, for the index.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, codec::CodecError> {
        let temp_files = (self.temp_files.last, self.temp_files.touched.to_bytes());
        codec::encode(&(&self.row, self.last, self.touched.to_bytes(), temp_files))
    }

    /// The reverse of [`Line::to_bytes`], for bytes that were checked.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (row, last, touched, temp_files): (_, _, Place, (_, Place)) = codec::decode(bytes).ok()?;
        let reach = Reach { last: temp_files.0, touched: Location::from_bytes(&temp_files.1)? };
        Some(Self { row, last, touched: Location::from_bytes(&touched)?, temp_files: reach })
    }

    /// How far its journal and its tree's temporary files go.
    pub(crate) fn stand(&self) -> Stand {
        Stand { last: self.last, temp_files: self.temp_files.last }
    }
}

/// A sum of hashes: equal sets of lines have equal digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest(pub(crate) [u64; 4]);

impl Digest {
    fn of(key: &StoreKey, name: &[u8; 9], line: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(&key.0);
        let hash = hasher.update(name).update(line).finalize();
        let mut sum = [0; 4];
        for (word, bytes) in sum.iter_mut().zip(hash.as_bytes().as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(sum)
    }

    fn combine(&mut self, other: Self, step: fn(u64, u64) -> u64) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word = step(*word, other);
        }
    }
}

/// A line as the index keeps it.
type Encoded = Result<Vec<u8>, codec::CodecError>;

/// All lines, by pid.
#[derive(Debug)]
pub(crate) struct Table {
    key: StoreKey,
    /// As [`Line::to_bytes`] makes them.
    lines: PidMap<Box<[u8]>>,
    /// None: given up, or its record is damaged.
    checkpoints: BTreeMap<CheckpointId, Option<Checkpoint>>,
    digest: Digest,
    lost: Option<Lost>,
}

impl Table {
    /// Without a line.
    pub(crate) fn new(key: StoreKey) -> Self {
        Self { key, lines: PidMap::default(), checkpoints: BTreeMap::new(), digest: Digest::default(), lost: None }
    }

    /// From the lines of an index: [`take`](Loading::take) each, then [`finish`](Loading::finish).
    pub(crate) fn load(key: StoreKey, applied: &Applied) -> Loading {
        Loading { table: Self { lost: applied.lost, ..Self::new(key) }, digest: applied.digest, is_whole: true }
    }

    /// The key of the store that it belongs to.
    pub(crate) fn key(&self) -> &StoreKey {
        &self.key
    }

    /// All lines as [`Table::put`] encoded them.
    pub(crate) fn encoded(&self) -> impl Iterator<Item = (Pid, Vec<u8>)> {
        self.lines.iter().map(|(pid, line)| (pid, line.to_vec()))
    }

    /// All lines of checkpoints as [`Table::put_checkpoint`] encoded them.
    pub(crate) fn encoded_checkpoints(&self) -> impl Iterator<Item = (CheckpointId, Encoded)> {
        self.checkpoints.iter().map(|(id, checkpoint)| (*id, codec::encode(checkpoint)))
    }

    /// The checkpoints that there are, by rising number.
    pub(crate) fn checkpoints(&self) -> impl Iterator<Item = &Checkpoint> {
        self.checkpoints.values().flatten()
    }

    /// The checkpoint of this number.
    pub(crate) fn checkpoint(&self, id: CheckpointId) -> Option<&Checkpoint> {
        self.checkpoints.get(&id)?.as_ref()
    }

    /// The highest number that a checkpoint ever had; 0 where there was none.
    pub(crate) fn last_checkpoint(&self) -> u64 {
        self.checkpoints.keys().next_back().map_or(0, |id| id.0)
    }

    /// Sets the line of a checkpoint, none for one that is given up or lost; answers with its bytes, for the index.
    ///
    /// # Errors
    /// Where it cannot be encoded.
    pub(crate) fn put_checkpoint(&mut self, id: CheckpointId, checkpoint: Option<Checkpoint>) -> Encoded {
        let (name, bytes) = (checkpoint_key(id), codec::encode(&checkpoint)?);
        if let Some(old) = self.checkpoints.insert(id, checkpoint) {
            self.digest.combine(Digest::of(&self.key, &name, &codec::encode(&old)?), u64::wrapping_sub);
        }
        self.digest.combine(Digest::of(&self.key, &name, &bytes), u64::wrapping_add);
        Ok(bytes)
    }

    /// The line of a process.
    pub(crate) fn line(&self, pid: Pid) -> Option<Line> {
        Line::from_bytes(self.lines.get(pid)?)
    }

    /// The digest over all lines.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// The latest damage that records of any process may have been in.
    pub(crate) fn lost(&self) -> Option<Lost> {
        self.lost
    }

    /// Notes damage.
    pub(crate) fn note_lost(&mut self, lost: Lost) {
        self.lost = Some(lost);
    }

    /// Sets a line; answers with its bytes, for the index.
    ///
    /// # Errors
    /// Where the line cannot be encoded.
    pub(crate) fn put(&mut self, pid: Pid, line: &Line) -> Encoded {
        let (name, bytes) = (line_key(pid), line.to_bytes()?);
        if let Some(old) = self.lines.insert(pid, bytes.as_slice().into()) {
            self.digest.combine(Digest::of(&self.key, &name, &old), u64::wrapping_sub);
        }
        self.digest.combine(Digest::of(&self.key, &name, &bytes), u64::wrapping_add);
        Ok(bytes)
    }

    /// The rows, by rising pid.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where one may be missing.
    pub(crate) fn rows(&self) -> Result<Vec<ProcessRow>, StoreError> {
        if let Some(lost) = self.lost {
            return Err(damaged(format!(
                "records are lost from {} to {}, and the births of processes may be among them. The processes that are \
                 known can be read by their pids",
                lost.from, lost.to
            )));
        }
        let mut programs = BTreeSet::new();
        let rows = self.lines.iter().map(|(pid, line)| {
            let mut row = Line::from_bytes(line).and_then(|line| line.row).ok_or_else(|| row_is_lost(pid))?;
            row.program = shared(&mut programs, row.program);
            Ok(row)
        });
        rows.collect()
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

/// A table whose lines come in one by one. Nothing of it is believed before all have.
#[derive(Debug)]
pub(crate) struct Loading {
    table: Table,
    /// The digest that the lines were made over.
    digest: Digest,
    is_whole: bool,
}

impl Loading {
    /// A line, by its name in the index.
    pub(crate) fn take(&mut self, name: &[u8], line: &[u8]) {
        let taken = self.try_take(name, line);
        self.is_whole &= taken.is_some();
    }

    fn try_take(&mut self, name: &[u8], line: &[u8]) -> Option<()> {
        let name: &[u8; 9] = name.try_into().ok()?;
        self.table.digest.combine(Digest::of(&self.table.key, name, line), u64::wrapping_add);
        let number = u64::from_be_bytes(*name.last_chunk()?);
        if name[0] == b'k' {
            self.table.checkpoints.insert(CheckpointId(number), codec::decode(line).ok()?);
        } else {
            self.table.lines.insert(Pid(number), line.into());
        }
        Some(())
    }

    /// The table; none where its lines are not those that the digest was made over, or one cannot be read.
    pub(crate) fn finish(self) -> Option<Table> {
        let is_whole = self.is_whole && self.table.digest == self.digest;
        let is_readable = || self.table.lines.iter().all(|(_, line)| Line::from_bytes(line).is_some());
        (is_whole && is_readable()).then_some(self.table)
    }
}

/// How a row is after its process ended.
pub(crate) fn ended(row: Option<ProcessRow>, exit: Option<Exit>) -> Option<ProcessRow> {
    row.zip(exit).map(|(row, exit)| ProcessRow { exit: Some(exit), ..row })
}

/// The error of a process whose row is gone.
pub(crate) fn row_is_lost(pid: Pid) -> StoreError {
    damaged(format!("the record of process {pid}'s birth or end does not match its hash"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(last: u64) -> Line {
        let temp_files = Reach { last: last * 2, touched: Location { segment: 7, offset: last } };
        Line { row: None, last: FactNumber(last), touched: Location::START, temp_files }
    }

    fn digest(lines: &[(u64, u64)]) -> Digest {
        let mut table = Table::new(StoreKey([1; 32]));
        lines.iter().for_each(|(pid, last)| drop(table.put(Pid(*pid), &line(*last)).unwrap()));
        table.digest()
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
        let line = line(9);
        assert_eq!(Line::from_bytes(&line.to_bytes().unwrap()), Some(line));
        assert_eq!(Line::from_bytes(b"\x00\x01"), None);
    }
}
