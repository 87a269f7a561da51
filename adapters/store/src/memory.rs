//! A store that forgets everything when it is dropped: for tests, and for embedders who want no
//! files.
//!
//! It keeps the same rules as the durable one, and never touches a disk.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dormouse_actors::garbage::Piece;
use dormouse_actors::ports::inventory::{Inventory, Need, ShortName};
use dormouse_actors::ports::{
    Backing, Batch, Contents, Entry, History, Journal, Listing, MarkToken, OwnerToken, Purpose,
    StockTaken, StockTaking, Store, StoreError, Sweep, Swept, TempFileChange, Unreadable, Written,
};
use dormouse_proto::checkpoint::{Checkpoint, Member};
use dormouse_proto::id::{CheckpointId, CommitNumber, ContentHash, FactNumber, Pid};
use dormouse_proto::process::ProcessRow;

use crate::chunks::Chunks;
use crate::rules::{
    Checkpoints, Life, Stand, check_entries, check_kept, check_name, check_owner, clip, needed,
    no_image,
};
use crate::spared::Spared;

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    held: Mutex<Held>,
    spared: Spared,
}

#[derive(Debug, Default)]
struct Held {
    epoch: u64,
    commit: u64,
    processes: BTreeMap<Pid, Process>,
    contents: HashMap<ContentHash, InMemory>,
    checkpoints: BTreeMap<CheckpointId, Checkpoint>,
    last_checkpoint: u64,
    /// Processes that were given up.
    forgotten: BTreeSet<Pid>,
}

/// A content that nothing can happen to.
#[derive(Clone, Debug)]
struct InMemory {
    bytes: Bytes,
    index: Bytes,
}

impl Backing for InMemory {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn index(&self) -> Option<Bytes> {
        (!self.index.is_empty()).then(|| self.index.clone())
    }

    fn slice(&self, bytes: Range<u64>) -> Result<Bytes, Unreadable> {
        let (start, end) = (bytes.start as usize, bytes.end as usize);
        let there = start <= end && end <= self.bytes.len();
        there
            .then(|| self.bytes.slice(start..end))
            .ok_or_else(|| Unreadable::new("the content is shorter than that"))
    }
}

#[derive(Debug)]
struct Process {
    row: ProcessRow,
    since: FactNumber,
    images: BTreeMap<FactNumber, Vec<u8>>,
    facts: Vec<Vec<u8>>,
    history: Vec<Written>,
    temp_files: Vec<TempFileChange>,
    ended_ms: Option<u64>,
}

impl Process {
    fn last(&self) -> FactNumber {
        FactNumber(0).plus(self.facts.len())
    }

    fn stand(&self) -> Stand {
        Stand {
            last: self.last(),
            temp_files: self.temp_files.len() as u64,
            life: Life::Kept,
        }
    }

    fn journal(&self, upto: FactNumber) -> Journal {
        let (base, image) = self
            .images
            .range(..=upto)
            .next_back()
            .expect("a process is born with an image at 0");
        let facts = self.facts[base.0 as usize..upto.0 as usize].to_vec();
        Journal {
            row: self.row.clone(),
            base: *base,
            image: image.clone(),
            facts,
        }
    }
}

impl Held {
    fn stand(&self, pid: Pid) -> Option<Stand> {
        let gone = Stand {
            last: FactNumber(0),
            temp_files: 0,
            life: Life::Forgotten,
        };
        self.processes
            .get(&pid)
            .map(Process::stand)
            .or_else(|| self.forgotten.contains(&pid).then_some(gone))
    }

    fn check(&self, entries: &[Entry]) -> Result<Vec<Vec<Member>>, StoreError> {
        let is_held = |id: CheckpointId| self.checkpoints.contains_key(&id);
        let needs = |pid: Pid| needed(self.checkpoints.values(), pid);
        let checkpoints = Checkpoints {
            last: self.last_checkpoint,
            is_held: &is_held,
            needs: &needs,
        };
        let members = check_entries(entries, checkpoints, |pid| self.stand(pid))?;
        entries.iter().try_for_each(|entry| match entry {
            Entry::Content { hash, bytes, .. } if !self.contents.contains_key(hash) => {
                check_name(*hash, &Chunks::of(bytes))
            }
            Entry::Held { hash }
                if !self.contents.contains_key(hash) && !brings(entries, *hash) =>
            {
                Err(StoreError::UnknownContent(*hash))
            }
            Entry::Shortened { pid, below } => match self.processes.get(pid) {
                Some(process) if *below < process.since => Err(StoreError::ForgottenFact {
                    pid: *pid,
                    asked: *below,
                    since: process.since,
                }),
                Some(process) if process.images.contains_key(below) => Ok(()),
                _ => Err(no_image(*pid, *below)),
            },
            _ => Ok(()),
        })?;
        Ok(members)
    }

    fn take(&mut self, entry: &Entry, at_ms: u64, members: &mut impl Iterator<Item = Vec<Member>>) {
        let commit = CommitNumber(self.commit);
        let mut process = |pid: &Pid, change: &dyn Fn(&mut Process)| {
            self.processes.get_mut(pid).map_or((), change)
        };
        match entry {
            Entry::Content { hash, bytes, index } => {
                self.contents.insert(
                    *hash,
                    InMemory {
                        bytes: bytes.clone(),
                        index: index.clone(),
                    },
                );
            }
            Entry::Held { .. } => {}
            Entry::Born { row, image } => {
                let images = BTreeMap::from([(FactNumber(0), image.clone())]);
                let history = vec![Written {
                    commit,
                    at_ms,
                    first: FactNumber(0),
                    count: 1,
                }];
                let (row, since, facts, temp_files) =
                    (row.clone(), FactNumber(0), Vec::new(), Vec::new());
                let process = Process {
                    row,
                    since,
                    images,
                    facts,
                    history,
                    temp_files,
                    ended_ms: None,
                };
                self.processes.insert(process.row.pid, process);
            }
            Entry::Facts { facts, .. } if facts.is_empty() => {}
            Entry::Facts { pid, first, facts } => process(pid, &|it| {
                it.facts.extend_from_slice(facts);
                it.history.push(Written {
                    commit,
                    at_ms,
                    first: *first,
                    count: facts.len() as u64,
                });
            }),
            Entry::Snapshot { pid, at, image } => {
                process(pid, &|it| drop(it.images.insert(*at, image.clone())))
            }
            Entry::TempFile { root, record, .. } => {
                process(root, &|it| {
                    it.temp_files.push(TempFileChange {
                        commit,
                        record: record.clone(),
                    })
                });
            }
            Entry::Ended { pid, exit } => process(pid, &|it| {
                it.row.exit = Some(exit.clone());
                it.ended_ms = Some(at_ms);
            }),
            Entry::Checkpoint {
                id,
                label,
                of,
                root,
                scope,
                ..
            } => {
                let (id, of, root, scope, label) = (*id, *of, *root, *scope, label.clone());
                let members = members.next().unwrap_or_default();
                self.checkpoints.insert(
                    id,
                    Checkpoint {
                        id,
                        label,
                        of,
                        root,
                        scope,
                        members,
                        commit,
                        at_ms,
                    },
                );
                self.last_checkpoint = id.0;
            }
            Entry::CheckpointDropped { id } => drop(self.checkpoints.remove(id)),
            Entry::Forgotten { pid } => {
                self.processes.remove(pid);
                self.forgotten.insert(*pid);
            }
            Entry::Shortened { pid, below } => process(pid, &|it| {
                it.since = *below;
                it.history.retain(|written| written.last() > *below);
                it.history
                    .iter_mut()
                    .take(1)
                    .for_each(|first| clip(first, *below));
            }),
        }
    }
}

fn brings(entries: &[Entry], wanted: ContentHash) -> bool {
    entries
        .iter()
        .any(|entry| matches!(entry, Entry::Content { hash, .. } if *hash == wanted))
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn claim(&self) -> Result<OwnerToken, StoreError> {
        let mut held = self.held();
        held.epoch += 1;
        Ok(OwnerToken(held.epoch))
    }

    fn commit(&self, owner: OwnerToken, batch: Batch<'_>) -> Result<(), StoreError> {
        let mut held = self.held();
        check_owner(owner, OwnerToken(held.epoch))?;
        let mut members = held.check(batch.entries)?.into_iter();
        held.commit += u64::from(!batch.entries.is_empty());
        for entry in batch.entries {
            if let Entry::Content { hash, .. } | Entry::Held { hash } = entry {
                self.spared.note(hash.0);
            }
        }
        batch
            .entries
            .iter()
            .for_each(|entry| held.take(entry, batch.at_ms, &mut members));
        Ok(())
    }

    fn processes(&self) -> Result<Listing, StoreError> {
        let held = self.held();
        let rows = held
            .processes
            .values()
            .map(|process| process.row.clone())
            .collect();
        let last = held
            .processes
            .keys()
            .next_back()
            .max(held.forgotten.last())
            .map_or(0, |pid| pid.0);
        Ok(Listing {
            rows,
            last,
            ..Listing::default()
        })
    }

    fn journal(&self, pid: Pid, upto: Option<FactNumber>) -> Result<Journal, StoreError> {
        let held = self.held();
        let process = held
            .processes
            .get(&pid)
            .ok_or(StoreError::UnknownProcess(pid))?;
        match upto.unwrap_or(process.last()) {
            asked if asked < process.since => Err(StoreError::ForgottenFact {
                pid,
                asked,
                since: process.since,
            }),
            asked if asked <= process.last() => Ok(process.journal(asked)),
            asked => Err(StoreError::UnknownFact {
                pid,
                asked,
                last: process.last(),
            }),
        }
    }

    fn facts(
        &self,
        pid: Pid,
        first: FactNumber,
        upto: FactNumber,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let held = self.held();
        let process = held
            .processes
            .get(&pid)
            .ok_or(StoreError::UnknownProcess(pid))?;
        let (last, since) = (process.last(), process.since);
        if upto < since {
            return Err(StoreError::ForgottenFact {
                pid,
                asked: upto,
                since,
            });
        }
        if upto > last {
            return Err(StoreError::UnknownFact {
                pid,
                asked: upto,
                last,
            });
        }
        check_kept(pid, first.max(FactNumber(1)), since)?;
        let facts = process
            .facts
            .iter()
            .take(upto.0 as usize)
            .skip(first.0.saturating_sub(1) as usize);
        Ok(facts.cloned().collect())
    }

    fn history(&self, pid: Pid) -> Result<History, StoreError> {
        let held = self.held();
        let process = held
            .processes
            .get(&pid)
            .ok_or(StoreError::UnknownProcess(pid))?;
        Ok(History::whole(pid, process.history.clone()))
    }

    fn checkpoints(&self) -> Result<Vec<Checkpoint>, StoreError> {
        Ok(self.held().checkpoints.values().cloned().collect())
    }

    fn last_checkpoint(&self) -> Result<u64, StoreError> {
        Ok(self.held().last_checkpoint)
    }

    fn content(&self, hash: ContentHash) -> Result<Arc<dyn Backing>, StoreError> {
        let content = self.held().contents.get(&hash).cloned();
        content
            .map(|content| Arc::new(content) as _)
            .ok_or(StoreError::UnknownContent(hash))
    }

    fn temp_files(&self, root: Pid) -> Result<Vec<TempFileChange>, StoreError> {
        let held = self.held();
        held.processes
            .get(&root)
            .map(|process| process.temp_files.clone())
            .ok_or(StoreError::UnknownProcess(root))
    }

    fn temp_files_by(
        &self,
        root: Pid,
        commit: CommitNumber,
    ) -> Result<Vec<TempFileChange>, StoreError> {
        let mut changes = self.temp_files(root)?;
        changes.retain(|change| change.commit <= commit);
        Ok(changes)
    }

    fn begin_mark(&self, owner: OwnerToken) -> Result<MarkToken, StoreError> {
        check_owner(owner, OwnerToken(self.held().epoch))?;
        Ok(self.spared.begin())
    }

    fn end_mark(&self, mark: MarkToken) {
        self.spared.end(mark);
    }

    /// Looks at everything each time: there is no log in which what is new stands behind what is
    /// known.
    fn take_stock(
        &self,
        StockTaking {
            inventory,
            references,
            ..
        }: StockTaking<'_>,
    ) -> Result<StockTaken, StoreError> {
        *inventory = Inventory::default();
        let mut records = 0;
        let mut refer = |inventory: &mut Inventory, pid, need, piece: Piece<'_>| {
            records += 1;
            match references(piece) {
                Ok(contents) => inventory.refers(
                    pid,
                    need,
                    contents.iter().map(|hash| ShortName::of(&hash.0)),
                ),
                Err(error) => inventory.note_unreadable(Some(pid), error.to_string()),
            }
        };
        for (pid, process) in &self.held().processes {
            for (at, image) in process.images.range(process.since..) {
                refer(inventory, *pid, Need::image(*at), Piece::Image(image));
                inventory.image(*pid, *at);
            }
            for (number, fact) in (1..).zip(&process.facts).skip(process.since.0 as usize) {
                refer(
                    inventory,
                    *pid,
                    Need::fact(FactNumber(number)),
                    Piece::Fact(fact),
                );
            }
            for change in &process.temp_files {
                refer(
                    inventory,
                    *pid,
                    Need::ALWAYS,
                    Piece::TempFile(&change.record),
                );
            }
            if let Some(ended_ms) = process.ended_ms {
                inventory.ended(*pid, ended_ms);
            }
        }
        inventory.settle();
        Ok(StockTaken {
            records,
            ..StockTaken::default()
        })
    }

    fn sweep(&self, owner: OwnerToken, sweep: Sweep<'_>) -> Result<Swept, StoreError> {
        let mut held = self.held();
        if sweep.purpose == Purpose::Free {
            check_owner(owner, OwnerToken(held.epoch))?;
        }
        let bytes = |held: &Held| held.contents.values().map(|content| content.length()).sum();
        let losses = sweep.inventory.losses(sweep.forgotten);
        let is_kept = |hash: &ContentHash| {
            sweep.contents == Contents::All
                || sweep
                    .inventory
                    .is_referred_to(ShortName::of(&hash.0), &losses)
                || self.spared.contain(hash.0)
        };
        let mut swept = Swept {
            bytes_before: bytes(&held),
            parts: 1,
            ..Swept::default()
        };
        for (_, content) in held.contents.iter().filter(|(hash, _)| !is_kept(hash)) {
            swept.dropped_contents += 1;
            swept.dropped_content_bytes += content.length();
        }
        swept.live_bytes = swept.bytes_before - swept.dropped_content_bytes;
        swept.bytes_after = swept.live_bytes;
        if sweep.purpose == Purpose::Free {
            self.spared.check(sweep.mark)?;
            held.contents.retain(|hash, _| is_kept(hash));
            self.spared.end(sweep.mark);
        }
        Ok(swept)
    }
}
