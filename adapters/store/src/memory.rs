//! A store that forgets everything when it is dropped: for tests, and for embedders who want no files.
//!
//! It keeps the same rules as the durable one, and never touches a disk.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dormouse_actors::ports::{Entry, Journal, OwnerToken, Store, StoreError};
use dormouse_proto::id::{ContentHash, FactNumber, Pid};
use dormouse_proto::process::ProcessRow;

use crate::chunks::Chunks;
use crate::rules::{Stand, check_entries, check_name, check_owner};

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    epoch: u64,
    processes: BTreeMap<Pid, Process>,
    contents: HashMap<ContentHash, Bytes>,
}

#[derive(Debug)]
struct Process {
    row: ProcessRow,
    images: BTreeMap<FactNumber, Vec<u8>>,
    facts: Vec<Vec<u8>>,
    temp_files: Vec<Vec<u8>>,
}

impl Process {
    fn last(&self) -> FactNumber {
        FactNumber(0).plus(self.facts.len())
    }

    fn stand(&self) -> Stand {
        Stand { last: self.last(), temp_files: self.temp_files.len() as u64 }
    }

    fn journal(&self, upto: FactNumber) -> Journal {
        let (base, image) = self.images.range(..=upto).next_back().expect("a process is born with an image at 0");
        let facts = self.facts[base.0 as usize..upto.0 as usize].to_vec();
        Journal { row: self.row.clone(), base: *base, image: image.clone(), facts }
    }
}

impl Held {
    fn check(&self, entries: &[Entry]) -> Result<(), StoreError> {
        check_entries(entries, |pid| self.processes.get(&pid).map(Process::stand))?;
        entries.iter().try_for_each(|entry| match entry {
            Entry::Content { hash, bytes } if !self.contents.contains_key(hash) => {
                check_name(*hash, &Chunks::of(bytes))
            }
            _ => Ok(()),
        })
    }

    fn take(&mut self, entry: &Entry) {
        let mut process = |pid: &Pid, change: &dyn Fn(&mut Process)| self.processes.get_mut(pid).map_or((), change);
        match entry {
            Entry::Content { hash, bytes } => drop(self.contents.insert(*hash, bytes.clone())),
            Entry::Born { row, image } => {
                let images = BTreeMap::from([(FactNumber(0), image.clone())]);
                let (row, facts, temp_files) = (row.clone(), Vec::new(), Vec::new());
                self.processes.insert(row.pid, Process { row, images, facts, temp_files });
            }
            Entry::Facts { pid, facts, .. } => process(pid, &|it| it.facts.extend_from_slice(facts)),
            Entry::Snapshot { pid, at, image } => process(pid, &|it| drop(it.images.insert(*at, image.clone()))),
            Entry::TempFile { root, record, .. } => process(root, &|it| it.temp_files.push(record.clone())),
            Entry::Ended { pid, exit } => process(pid, &|it| it.row.exit = Some(exit.clone())),
        }
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn claim(&self) -> Result<OwnerToken, StoreError> {
        let mut held = self.held();
        held.epoch += 1;
        Ok(OwnerToken(held.epoch))
    }

    fn commit(&self, owner: OwnerToken, entries: &[Entry]) -> Result<(), StoreError> {
        let mut held = self.held();
        check_owner(owner, OwnerToken(held.epoch))?;
        held.check(entries)?;
        entries.iter().for_each(|entry| held.take(entry));
        Ok(())
    }

    fn processes(&self) -> Result<Vec<ProcessRow>, StoreError> {
        Ok(self.held().processes.values().map(|process| process.row.clone()).collect())
    }

    fn journal(&self, pid: Pid, upto: Option<FactNumber>) -> Result<Journal, StoreError> {
        let held = self.held();
        let process = held.processes.get(&pid).ok_or(StoreError::UnknownProcess(pid))?;
        match upto.unwrap_or(process.last()) {
            asked if asked <= process.last() => Ok(process.journal(asked)),
            asked => Err(StoreError::UnknownFact { pid, asked, last: process.last() }),
        }
    }

    fn content(&self, hash: ContentHash) -> Result<Bytes, StoreError> {
        self.held().contents.get(&hash).cloned().ok_or(StoreError::UnknownContent(hash))
    }

    fn temp_files(&self, root: Pid) -> Result<Vec<Vec<u8>>, StoreError> {
        let held = self.held();
        held.processes.get(&root).map(|process| process.temp_files.clone()).ok_or(StoreError::UnknownProcess(root))
    }
}
