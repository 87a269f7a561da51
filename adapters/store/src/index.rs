//! Where in the log things are.
//!
//! It stands on a shelf that may lose keys or change values without a word. So it holds only what
//! can be found again in the log (INDEX-1), and nothing that it says is taken on trust: locations
//! and the mark carry keyed hashes, the process table a digest. What it does not know is believed
//! only of an index that was built in this session.
//!
//! Keys, numbers big-endian: `f` pid first-fact, `s` pid fact (snapshots and births), `t` pid
//! number (temporary files of the tree that begins with it), `c` hash: to a location and a count.
//! `p` pid: to a line of the process table. `k` number: to a line of the checkpoints. `l` commit:
//! to a note of losses. `m`: to the mark up to which the log is indexed, and the table's digest.
//! Where the store is encrypted, lines are sealed under their keys, and a content goes by the name
//! that the log has for it.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;

use dormouse_proto::id::{CheckpointId, FactNumber, Pid};

use crate::envelope::StoreKey;
use crate::mark::{Hash, Location, MOST, Mark};
use crate::scan::Lost;
use crate::secret::Keys;
use crate::shelf::{Batch, Shelf};
use crate::table::{Digest, Table};

const APPLIED: &[u8] = b"m";

/// The index cannot answer, or its answer cannot be right. The cure is to build it again.
#[derive(Debug, thiserror::Error)]
#[error("the index {0}")]
pub(crate) struct Fault(pub(crate) String);

/// How far the index is, and what was found on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    /// The log is indexed up to here.
    pub(crate) mark: Mark,
    /// The digest of the process table there.
    pub(crate) digest: Digest,
    /// What the segments before the mark's were like
    /// ([`Log::lengths_before`](crate::log::Log::lengths_before)).
    pub(crate) lengths: Hash,
    /// The latest damage in the log up to here.
    pub(crate) lost: Option<Lost>,
}

/// Changes that are applied together.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    batch: Batch,
    /// To be sealed when they are applied, the latest of each.
    lines: BTreeMap<[u8; 9], Vec<u8>>,
    contents: HashSet<Hash>,
    records: usize,
}

impl Changes {
    /// How many records they tell of.
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// Whether the index can be asked before it is told: they take nothing out of it.
    pub(crate) fn can_wait(&self) -> bool {
        !self.batch.removes()
    }

    /// Whether they tell of this content.
    pub(crate) fn tell_of(&self, hash: Hash) -> bool {
        self.contents.contains(&hash)
    }

    /// Facts of a process stand at a place.
    pub(crate) fn facts(
        &mut self,
        pid: Pid,
        first: FactNumber,
        at: Location,
        count: u64,
        key: &StoreKey,
    ) {
        self.place(&numbered(b'f', pid, first), at, count, key);
    }

    /// An image of a process stands at a place.
    pub(crate) fn image(&mut self, pid: Pid, after: FactNumber, at: Location, key: &StoreKey) {
        self.place(&numbered(b's', pid, after), at, 1, key);
    }

    /// A change of the temporary files of a tree stands at a place.
    pub(crate) fn temp_file(&mut self, root: Pid, number: u64, at: Location, key: &StoreKey) {
        self.place(&numbered(b't', root, FactNumber(number)), at, 1, key);
    }

    /// A content stands at a place.
    pub(crate) fn content(&mut self, hash: Hash, at: Location, key: &StoreKey) {
        self.place(&content_key(hash), at, 1, key);
        self.contents.insert(hash);
    }

    /// A content is lost, which the record at a place says.
    pub(crate) fn content_lost(&mut self, hash: Hash, at: Location, key: &StoreKey) {
        self.place(&content_key(hash), at, 0, key);
        self.contents.remove(&hash);
    }

    /// An image of a process is given up.
    pub(crate) fn no_image(&mut self, pid: Pid, after: FactNumber) {
        self.remove(&numbered(b's', pid, after));
    }

    /// What a name stands for is gone.
    pub(crate) fn remove(&mut self, name: &[u8]) {
        self.batch.remove(name);
        self.records += 1;
    }

    /// The line of a process, as [`Table::encode_changed`] encoded it.
    pub(crate) fn line(&mut self, pid: Pid, line: Vec<u8>) {
        self.lines.insert(line_key(pid), line);
        self.records += 1;
    }

    /// The line of a checkpoint, as [`Table::put_checkpoint`] encoded it.
    pub(crate) fn checkpoint(&mut self, id: CheckpointId, line: Vec<u8>) {
        self.lines.insert(checkpoint_key(id), line);
        self.records += 1;
    }

    /// A note of losses, as [`Table::put_note`] encoded it.
    pub(crate) fn note(&mut self, number: u64, note: Vec<u8>) {
        self.lines.insert(note_key(number), note);
        self.records += 1;
    }

    fn place(&mut self, name: &[u8], at: Location, count: u64, key: &StoreKey) {
        let mut value = Vec::with_capacity(Location::BYTES + 16);
        value.extend(at.to_bytes());
        value.extend(count.to_le_bytes());
        let check = check_of(name, &value, key);
        value.extend(check);
        self.batch.insert(name, value);
        self.records += 1;
    }
}

/// What the index knows a record by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// A content, or the note that it is lost.
    Content(Hash),
    /// Facts, by the first of them.
    Facts(Pid, FactNumber),
    /// An image, by the last fact in it.
    Image(Pid, FactNumber),
    /// A change of temporary files.
    TempFile(Pid, u64),
}

impl Name {
    /// The key that it stands under.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Content(hash) => content_key(hash).to_vec(),
            Self::Facts(pid, first) => numbered(b'f', pid, first).to_vec(),
            Self::Image(pid, after) => numbered(b's', pid, after).to_vec(),
            Self::TempFile(root, number) => numbered(b't', root, FactNumber(number)).to_vec(),
        }
    }
}

/// Where a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The record.
    pub(crate) at: Location,
    /// How many it holds; 0 for the note that a content is lost.
    pub(crate) count: u64,
}

/// A record of facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The number of its first fact.
    pub(crate) first: FactNumber,
    /// How many it holds.
    pub(crate) count: usize,
    /// Where it stands.
    pub(crate) at: Location,
}

impl Run {
    /// Whether it holds this fact.
    pub(crate) fn covers(&self, number: FactNumber) -> bool {
        self.first <= number && number < self.first.plus(self.count)
    }
}

/// The open index.
#[derive(Debug)]
pub(crate) struct Index {
    shelf: Shelf,
    keys: Keys,
}

impl Index {
    /// Opens what is in `folder`, or makes it.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn open(folder: &Path, keys: Keys) -> Result<Self, Fault> {
        Ok(Self {
            shelf: Shelf::open(folder)?,
            keys,
        })
    }

    /// One that nothing is ever told: it answers from what is waiting.
    pub(crate) fn in_memory(keys: Keys) -> Self {
        Self {
            shelf: Shelf::Nothing,
            keys,
        }
    }

    /// Removes everything in `folder`. The index that lies there must not be open.
    ///
    /// # Errors
    /// As the operating system's.
    pub(crate) fn remove(folder: &Path) -> io::Result<()> {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// How far it is; none where it is new, or of another store.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn applied(&self) -> Result<Option<Applied>, Fault> {
        let value = self.shelf.get(APPLIED, &Batch::default())?;
        Ok(value.and_then(|bytes| Applied::from_bytes(&bytes, self.keys.headers())))
    }

    /// The process table, if it is whole.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn table(&self, applied: &Applied) -> Result<Table, Fault> {
        let mut table = Table::load(*self.keys.headers(), applied);
        for kind in [b'p', b'k', b'l'] {
            // What does not open is no line, and the table not whole.
            self.shelf.each(
                &counted(kind, 0),
                &counted(kind, u64::MAX),
                &mut |name, line| {
                    table.take(name, &self.keys.open_line(line, name).unwrap_or_default());
                },
            )?;
        }
        table
            .finish()
            .ok_or_else(|| Fault("has a process table that is not whole".to_owned()))
    }

    /// Applies `changes` with the mark that they lead to, all or nothing. Not durable, and need not
    /// be.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn apply(&mut self, mut changes: Changes, applied: &Applied) -> Result<(), Fault> {
        for (name, line) in changes.lines {
            let sealed = self.keys.seal_line(line, &name);
            changes.batch.insert(
                &name,
                sealed.map_err(|error| Fault(format!("cannot be sealed: {error}")))?,
            );
        }
        changes
            .batch
            .insert(APPLIED, applied.to_bytes(self.keys.headers()));
        self.shelf.apply(changes.batch)
    }

    /// Where a name leads to, with what is `waiting`.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn stands(&self, name: &Name, waiting: &Changes) -> Result<Option<Place>, Fault> {
        let name = name.to_bytes();
        let value = self.shelf.get(&name, &waiting.batch)?;
        value
            .map(|value| {
                self.place(&name, &value)
                    .map(|(at, count)| Place { at, count })
            })
            .transpose()
    }

    /// The latest image of a process that stands at or before fact `upto`, and where. With what is
    /// `waiting`, here and below.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn image(
        &self,
        pid: Pid,
        upto: FactNumber,
        waiting: &Changes,
    ) -> Result<Option<(FactNumber, Location)>, Fault> {
        let name = |number| numbered(b's', pid, number);
        let entry = self
            .shelf
            .last(&name(FactNumber(0)), &name(upto), &waiting.batch)?;
        entry
            .map(|(name, value)| Ok((number_of(&name)?, self.place(&name, &value)?.0)))
            .transpose()
    }

    /// Where the facts of a process from `first` to `upto` stand, by rising number. The first
    /// record may begin earlier.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn facts(
        &self,
        pid: Pid,
        first: FactNumber,
        upto: FactNumber,
        waiting: &Changes,
    ) -> Result<Vec<Run>, Fault> {
        let name = |number| numbered(b'f', pid, number);
        let covering = self
            .shelf
            .last(&name(FactNumber(0)), &name(first), &waiting.batch)?;
        let start = covering.map_or(Ok(first), |(name, _)| number_of(&name))?;
        let found = self
            .shelf
            .range(&name(start), &name(upto), &waiting.batch)?;
        found
            .iter()
            .map(|(name, value)| self.run(name, value))
            .collect()
    }

    /// Where the changes of a tree's temporary files stand, from the first up to number `last`;
    /// none where some are missing.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn temp_files(
        &self,
        root: Pid,
        last: u64,
        waiting: &Changes,
    ) -> Result<Option<Vec<Location>>, Fault> {
        let name = |number| numbered(b't', root, FactNumber(number));
        let found = self.shelf.range(&name(1), &name(last), &waiting.batch)?;
        // So many different numbers from 1 up to it leave no gap.
        if found.len() as u64 != last {
            return Ok(None);
        }
        found
            .iter()
            .map(|(name, value)| Ok(self.place(name, value)?.0))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// Changes the value of the last key of a kind, or loses the key, as damage to sled's file can.
    #[cfg(test)]
    pub(crate) fn damage_last(&mut self, kind: u8, damage: fn(Vec<u8>) -> Option<Vec<u8>>) {
        let last = self.shelf.last(&[kind], &[kind + 1], &Batch::default());
        let (key, value) = last.expect("it can be read").expect("there is such a key");
        let mut batch = Batch::default();
        match damage(value) {
            Some(value) => batch.insert(&key, value),
            None => batch.remove(&key),
        }
        self.shelf.apply(batch).expect("it can be changed");
    }

    fn run(&self, name: &[u8], value: &[u8]) -> Result<Run, Fault> {
        let (at, count) = self.place(name, value)?;
        let first = number_of(name)?;
        let count = usize::try_from(count)
            .ok()
            .filter(|_| count <= MOST && first.0 <= MOST);
        let count = count.ok_or_else(|| Fault("holds an impossible count".to_owned()))?;
        Ok(Run { first, count, at })
    }

    /// A value is location (12), count (8), and the first 8 bytes of a keyed hash over the key and
    /// that.
    fn place(&self, name: &[u8], value: &[u8]) -> Result<(Location, u64), Fault> {
        let read = || {
            let (place, check) = value.split_last_chunk::<8>()?;
            let (at, count) = place.split_last_chunk::<8>()?;
            let whole = check_of(name, place, self.keys.headers()) == *check;
            Location::from_bytes(at)
                .filter(|_| whole)
                .map(|at| (at, u64::from_le_bytes(*count)))
        };
        read().ok_or_else(|| Fault("holds a value that does not match its hash".to_owned()))
    }
}

impl Applied {
    /// Mark (60), digest (32), lengths (32), lost from, to and up to which commit (32, if any), and
    /// the keyed hash of that (32).
    fn to_bytes(self, key: &StoreKey) -> Vec<u8> {
        let mut bytes = self.mark.to_bytes().to_vec();
        self.digest
            .0
            .iter()
            .for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(self.lengths);
        if let Some(lost) = self.lost {
            bytes.extend(lost.from.to_bytes());
            bytes.extend(lost.to.to_bytes());
            bytes.extend(lost.upto.to_le_bytes());
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
        let (mark, rest) = body.split_at_checked(Mark::BYTES)?;
        let (digest, rest) = rest.split_at_checked(32)?;
        let (lengths, lost) = rest.split_first_chunk::<32>()?;
        let mut words = [0; 4];
        words
            .iter_mut()
            .zip(digest.as_chunks().0)
            .for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
        let read_lost = || {
            let (from, rest) = lost.split_at_checked(Location::BYTES)?;
            let (to, upto) = rest.split_at_checked(Location::BYTES)?;
            let upto = u64::from_le_bytes(upto.try_into().ok()?);
            Some(Lost {
                from: Location::from_bytes(from)?,
                to: Location::from_bytes(to)?,
                since: 0,
                upto,
            })
        };
        let lost = read_lost();
        Some(Self {
            mark: Mark::from_bytes(mark)?,
            digest: Digest(words),
            lengths: *lengths,
            lost,
        })
    }
}

fn numbered(kind: u8, pid: Pid, number: FactNumber) -> [u8; 17] {
    let mut key = [kind; 17];
    key[1..9].copy_from_slice(&pid.0.to_be_bytes());
    key[9..].copy_from_slice(&number.0.to_be_bytes());
    key
}

/// The key of a line of the process table.
pub(crate) fn line_key(pid: Pid) -> [u8; 9] {
    counted(b'p', pid.0)
}

/// The key of a line of the checkpoints.
pub(crate) fn checkpoint_key(id: CheckpointId) -> [u8; 9] {
    counted(b'k', id.0)
}

/// The key of a note of losses.
pub(crate) fn note_key(number: u64) -> [u8; 9] {
    counted(b'l', number)
}

fn counted(kind: u8, number: u64) -> [u8; 9] {
    let mut key = [kind; 9];
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

fn content_key(hash: Hash) -> [u8; 33] {
    let mut key = [b'c'; 33];
    key[1..].copy_from_slice(&hash);
    key
}

fn number_of(key: &[u8]) -> Result<FactNumber, Fault> {
    let number = key
        .split_last_chunk::<8>()
        .map(|(_, bytes)| FactNumber(u64::from_be_bytes(*bytes)));
    number.ok_or_else(|| Fault("holds a key of the wrong length".to_owned()))
}

fn check_of(name: &[u8], value: &[u8], key: &StoreKey) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new_keyed(&key.0);
    let hash = hasher.update(name).update(value).finalize();
    *hash.as_bytes().first_chunk().expect("a hash has 32 bytes")
}
