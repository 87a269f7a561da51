//! All that stands in a log, record by record, and which of it is damaged.
//!
//! It trusts no index. It holds numbers and names in memory, and no payload.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_actors::garbage::Piece;
use dormouse_actors::ports::StoreError;
use dormouse_proto::id::{ContentHash, FactNumber, Pid};

use crate::catalog::Catalog;
use crate::draft::{read_born, read_facts};
use crate::envelope::{Header, Kind};
use crate::log::Log;
use crate::mark::{Hash, Location, Mark};
use crate::scan::{Found, Reached, walk_all};
use crate::stored::Stored;

/// Whether a record is as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Whole,
    Damaged,
}

/// What stands in a log.
#[derive(Debug)]
pub(crate) struct Census {
    pub(crate) records: u64,
    /// What headers, births, ends and checkpoints say: the same as to who opens the store.
    pub(crate) catalog: Catalog,
    pub(crate) processes: BTreeMap<Pid, Records>,
    /// By the names that the log has for them.
    pub(crate) contents: BTreeMap<Hash, Content>,
    /// Segments whose first record is damaged.
    pub(crate) openings: Vec<u32>,
    /// The last commit of which all records are there.
    pub(crate) last_whole: Mark,
    pub(crate) end_ms: u64,
}

/// The record of a content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    /// None: given up as lost.
    pub(crate) health: Option<Health>,
    /// Its hash; where the store is encrypted and the record does not tell, the name that the log
    /// has for it.
    pub(crate) hash: ContentHash,
}

/// The records of a process.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) since: FactNumber,
    /// The last fact, by the record of the end.
    pub(crate) reach: FactNumber,
    pub(crate) images: BTreeMap<FactNumber, Health>,
    /// By the first fact: how many, and how they are.
    pub(crate) facts: BTreeMap<FactNumber, (u64, Health)>,
    pub(crate) temp_files: BTreeMap<u64, Health>,
}

/// Told of every piece of a journal that can be read.
pub(crate) type Reader<'a> = &'a mut dyn FnMut(Pid, Piece<'_>);

impl Census {
    /// Reads the whole log, payloads included. Answers with where it ends as well.
    ///
    /// # Errors
    /// As [`walk_all`].
    pub(crate) fn take(
        log: &Log,
        head: Mark,
        reader: Reader<'_>,
    ) -> Result<(Self, Reached), StoreError> {
        let mut census = Self {
            records: 0,
            catalog: Catalog::table_only(log),
            processes: BTreeMap::new(),
            contents: BTreeMap::new(),
            openings: Vec::new(),
            last_whole: Mark::EMPTY,
            end_ms: 0,
        };
        let reached = walk_all::<StoreError>(log, head, &mut |found| {
            match found {
                Found::Record(at, header) => census.note(log, at, &header, reader)?,
                Found::Lost(lost) => census.catalog.note_lost(lost),
                // HEAD's mark is reached in any case: whether by its records, the log says.
                Found::Commit(mark) if mark == head && !log.holds(&mark)? => {}
                Found::Commit(mark) => census.last_whole = mark,
            }
            Ok(())
        })?;
        let table = census.catalog.table();
        census
            .processes
            .retain(|pid, _| !table.line(*pid).is_some_and(|line| line.is_forgotten()));
        Ok((census, reached))
    }

    fn note(
        &mut self,
        log: &Log,
        at: Location,
        header: &Header,
        reader: Reader<'_>,
    ) -> Result<(), StoreError> {
        self.catalog
            .note_for_table(at, header, &|| log.payload(at, header).map(Bytes::from))?;
        self.records += 1;
        self.end_ms = self.end_ms.max(header.at_ms);
        let health = if log.is_whole(at, header)? {
            Health::Whole
        } else {
            Health::Damaged
        };
        let (pid, first) = (Pid(header.subject), FactNumber(header.first));
        let mut read = |kind: Kind| -> Result<(), StoreError> {
            if health == Health::Whole {
                read_aloud(pid, kind, &log.payload(at, header)?, reader)?;
            }
            Ok(())
        };
        match header.kind {
            Kind::Opened if health == Health::Damaged => self.openings.push(at.segment),
            Kind::Opened
            | Kind::Swept
            | Kind::Checkpoint
            | Kind::CheckpointDropped
            | Kind::Forgotten
            | Kind::Pids
            | Kind::CheckpointIds
            | Kind::LossNoted => {}
            Kind::Content => {
                let hash = match Stored::open(log, at, header, Arc::default()) {
                    Ok(stored) => stored.hash(),
                    Err(_) => ContentHash(header.payload),
                };
                self.contents.insert(
                    header.payload,
                    Content {
                        health: Some(health),
                        hash,
                    },
                );
            }
            Kind::ContentLost => {
                let lost = Content {
                    health: None,
                    hash: ContentHash(header.payload),
                };
                self.contents.insert(header.payload, lost);
            }
            Kind::Born | Kind::Facts | Kind::Snapshot | Kind::TempFile => {
                read(header.kind)?;
                let records = self.processes.entry(pid).or_default();
                match header.kind {
                    Kind::Facts => drop(records.facts.insert(first, (header.count, health))),
                    Kind::TempFile => drop(records.temp_files.insert(header.first, health)),
                    Kind::Snapshot => drop(records.images.insert(first, health)),
                    _ => drop(records.images.insert(FactNumber(0), health)),
                }
            }
            Kind::SnapshotDropped => {
                self.processes.entry(pid).or_default().images.remove(&first);
            }
            Kind::Ended => {
                let records = self.processes.entry(pid).or_default();
                records.reach = records.reach.max(first);
            }
            Kind::Shortened => {
                let records = self.processes.entry(pid).or_default();
                records.since = records.since.max(first);
            }
        }
        Ok(())
    }
}

fn read_aloud(pid: Pid, kind: Kind, payload: &[u8], reader: Reader<'_>) -> Result<(), StoreError> {
    match kind {
        Kind::Born => reader(pid, Piece::Image(read_born(payload)?.1)),
        Kind::Snapshot => reader(pid, Piece::Image(payload)),
        Kind::TempFile => reader(pid, Piece::TempFile(payload)),
        Kind::Facts => read_facts(payload)?
            .iter()
            .for_each(|fact| reader(pid, Piece::Fact(fact))),
        _ => {}
    }
    Ok(())
}

impl Records {
    /// The facts that cannot be read, in ranges.
    pub(crate) fn lost_facts(&self) -> Vec<(FactNumber, FactNumber)> {
        let mut lost: Vec<(FactNumber, FactNumber)> = Vec::new();
        let mut next = self.since.plus(1);
        let mut note = |from: FactNumber, to: FactNumber| match lost.last_mut() {
            Some(last) if last.1.plus(1) == from => last.1 = to,
            _ => lost.push((from, to)),
        };
        for (first, (count, health)) in &self.facts {
            let after = FactNumber(first.0 + count);
            if after <= next {
                continue;
            }
            if *first > next {
                note(next, FactNumber(first.0 - 1));
            }
            if *health == Health::Damaged {
                note((*first).max(next), FactNumber(after.0 - 1));
            }
            next = after;
        }
        // The fact that a snapshot follows existed, and an end names the last fact.
        let last = self
            .images
            .last_key_value()
            .map_or(self.reach, |(at, _)| self.reach.max(*at));
        if last >= next {
            note(next, last);
        }
        lost
    }

    /// The images that are damaged, and can be given up since the journal can be read without them.
    pub(crate) fn damaged_images(&self) -> Vec<FactNumber> {
        let first = self
            .images
            .range(self.since..)
            .find(|(_, health)| **health == Health::Whole);
        let Some((first, _)) = first else {
            return Vec::new();
        };
        let damaged = self
            .images
            .range(*first..)
            .filter(|(_, health)| **health == Health::Damaged);
        damaged.map(|(at, _)| *at).collect()
    }

    /// The first image behind a fact that can be read.
    pub(crate) fn image_from(&self, fact: FactNumber) -> Option<FactNumber> {
        self.images
            .range(fact..)
            .find(|(_, health)| **health == Health::Whole)
            .map(|(at, _)| *at)
    }
}
