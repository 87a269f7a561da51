//! All that stands in a log, record by record, and which of it is damaged.
//!
//! It trusts no index. It holds numbers and names in memory, and no payload.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_actors::garbage::Piece;
use dormouse_actors::ports::StoreError;
use dormouse_proto::id::{CheckpointId, ContentHash, FactNumber, Pid};

use crate::draft::{read_born, read_facts};
use crate::envelope::{Header, Kind};
use crate::log::Log;
use crate::mark::{Hash, Location, Mark};
use crate::scan::{Found, Lost, walk};
use crate::stored::Stored;

/// Whether a record is as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Whole,
    Damaged,
}

/// What stands in a log.
#[derive(Debug, Default)]
pub(crate) struct Census {
    pub(crate) records: u64,
    pub(crate) processes: BTreeMap<Pid, Records>,
    /// By the names that the log has for them.
    pub(crate) contents: BTreeMap<Hash, Content>,
    pub(crate) checkpoints: BTreeMap<CheckpointId, Health>,
    pub(crate) lost: Vec<Lost>,
    /// Segments whose first record is damaged.
    pub(crate) openings: Vec<u32>,
    pub(crate) end_ms: u64,
}

/// The record of a content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    /// None: given up as lost.
    pub(crate) health: Option<Health>,
    /// Its hash; where the store is encrypted and the record does not tell, the name that the log has for it.
    pub(crate) hash: ContentHash,
}

/// The records of a process.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// Of its birth, or of what took its place; of its end.
    pub(crate) row: Option<Health>,
    pub(crate) end: Option<Health>,
    pub(crate) since: FactNumber,
    /// A fact that was, by the record of the end.
    pub(crate) reach: FactNumber,
    pub(crate) images: BTreeMap<FactNumber, Health>,
    /// By the first fact: how many, and how they are.
    pub(crate) facts: BTreeMap<FactNumber, (u64, Health)>,
    pub(crate) temp_files: BTreeMap<u64, Health>,
}

/// Told of every piece of a journal that can be read.
pub(crate) type Reader<'a> = &'a mut dyn FnMut(Pid, Piece<'_>);

impl Census {
    /// Reads the whole log, payloads included. Answers with the mark of its last commit as well.
    ///
    /// # Errors
    /// As [`walk`].
    pub(crate) fn take(log: &Log, head: Mark, reader: Reader<'_>) -> Result<(Self, Mark), StoreError> {
        let (mut census, mut forgotten) = (Self::default(), BTreeSet::new());
        let end = walk::<StoreError>(log, Mark::EMPTY, head, &mut |found| {
            match found {
                Found::Record(at, header) => census.note(log, at, &header, &mut forgotten, reader)?,
                Found::Lost(lost) => census.lost.push(lost),
                Found::Commit(_) => {}
            }
            Ok(())
        })?;
        census.processes.retain(|pid, _| !forgotten.contains(pid));
        Ok((census, end))
    }

    fn note(
        &mut self,
        log: &Log,
        at: Location,
        header: &Header,
        forgotten: &mut BTreeSet<Pid>,
        reader: Reader<'_>,
    ) -> Result<(), StoreError> {
        self.records += 1;
        self.end_ms = self.end_ms.max(header.at_ms);
        let health = if log.is_whole(at, header)? { Health::Whole } else { Health::Damaged };
        let (pid, first) = (Pid(header.subject), FactNumber(header.first));
        let mut read = |kind: Kind| -> Result<(), StoreError> {
            if health == Health::Whole {
                read_aloud(pid, kind, &log.payload(at, header)?, reader)?;
            }
            Ok(())
        };
        match header.kind {
            Kind::Opened if health == Health::Damaged => self.openings.push(at.segment),
            Kind::Opened | Kind::Swept => {}
            Kind::Content => {
                let hash = match Stored::open(log, at, header, Arc::default()) {
                    Ok(stored) => stored.hash(),
                    Err(_) => ContentHash(header.payload),
                };
                self.contents.insert(header.payload, Content { health: Some(health), hash });
            }
            Kind::ContentLost => {
                let lost = Content { health: None, hash: ContentHash(header.payload) };
                self.contents.insert(header.payload, lost);
            }
            Kind::Checkpoint => drop(self.checkpoints.insert(CheckpointId(header.subject), health)),
            Kind::CheckpointDropped => drop(self.checkpoints.remove(&CheckpointId(header.subject))),
            Kind::Forgotten => drop(forgotten.insert(pid)),
            Kind::Born | Kind::Facts | Kind::Snapshot | Kind::TempFile => {
                read(header.kind)?;
                let records = self.processes.entry(pid).or_default();
                match header.kind {
                    Kind::Facts => drop(records.facts.insert(first, (header.count, health))),
                    Kind::TempFile => drop(records.temp_files.insert(header.first, health)),
                    Kind::Snapshot => drop(records.images.insert(first, health)),
                    _ => {
                        if records.since == FactNumber(0) {
                            records.row = Some(health);
                        }
                        records.images.insert(FactNumber(0), health);
                    }
                }
            }
            Kind::SnapshotDropped => drop(self.processes.entry(pid).or_default().images.remove(&first)),
            Kind::Ended => {
                let records = self.processes.entry(pid).or_default();
                (records.end, records.reach) = (Some(health), records.reach.max(first));
            }
            Kind::Shortened => {
                let records = self.processes.entry(pid).or_default();
                (records.row, records.since) = (Some(health), records.since.max(first));
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
        Kind::Facts => read_facts(payload)?.iter().for_each(|fact| reader(pid, Piece::Fact(fact))),
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
        // A snapshot stands at a fact that was, and an end behind the last.
        let last = self.images.last_key_value().map_or(self.reach, |(at, _)| self.reach.max(*at));
        if last >= next {
            note(next, last);
        }
        lost
    }

    /// The images that are damaged, and can be given up since the journal can be read without them.
    pub(crate) fn damaged_images(&self) -> Vec<FactNumber> {
        let first = self.images.range(self.since..).find(|(_, health)| **health == Health::Whole);
        let Some((first, _)) = first else { return Vec::new() };
        let damaged = self.images.range(*first..).filter(|(_, health)| **health == Health::Damaged);
        damaged.map(|(at, _)| *at).collect()
    }

    /// The first image behind a fact that can be read.
    pub(crate) fn image_from(&self, fact: FactNumber) -> Option<FactNumber> {
        self.images.range(fact..).find(|(_, health)| **health == Health::Whole).map(|(at, _)| *at)
    }
}
