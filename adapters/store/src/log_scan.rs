//! Reads a whole log, payloads included, and lists the damaged records, for `fsck.rs`.
//!
//! `log_walk.rs` finds the records and the damaged ranges by their headers; this module adds the
//! check of payloads, and notes per process which images and facts are readable.
//!
//! The scan uses no index on disk. It keeps numbers and hashes in memory, but no payload.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_actors::garbage::EncodedRecord;
use dormouse_actors::ports::StoreError;
use dormouse_proto::id::{ContentHash, FactNumber, Pid};

use crate::index::Index;
use crate::log::Log;
use crate::log_position::{Hash, Location, LogPosition};
use crate::log_walk::{LogEnd, WalkItem, walk_all};
use crate::payload::{decode_created, decode_facts};
use crate::record_header::{RecordHeader, RecordKind};
use crate::stored_content::StoredContent;

/// Whether a record is undamaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Whole,
    Damaged,
}

/// The contents of a log, with the health of each record.
#[derive(Debug)]
pub(crate) struct LogScan {
    /// How many records the scan read.
    pub(crate) records: u64,
    /// The process table, built as when the store is opened.
    pub(crate) index: Index,
    pub(crate) processes: BTreeMap<Pid, ProcessRecords>,
    /// By payload hash, which is keyed in an encrypted store.
    pub(crate) contents: BTreeMap<Hash, ScannedContent>,
    /// The numbers of segments whose first record is damaged.
    pub(crate) damaged_starts: Vec<u32>,
    /// The last commit of which no record is missing.
    pub(crate) last_whole: LogPosition,
    /// The latest time of a record: milliseconds since the epoch, UTC.
    pub(crate) end_ms: u64,
}

/// The record of a content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScannedContent {
    /// `None` if the content was declared lost.
    pub(crate) health: Option<Health>,
    /// The content's hash. If the record of an encrypted store does not contain it, this is the
    /// keyed hash by which the log names the content.
    pub(crate) hash: ContentHash,
}

/// The records of a process.
#[derive(Debug, Default)]
pub(crate) struct ProcessRecords {
    /// The fact of the oldest existing image. Facts after it can be queried.
    pub(crate) oldest_image_at: FactNumber,
    /// The last fact, according to the end record of the process; 0 if there is none.
    pub(crate) last_by_end: FactNumber,
    pub(crate) snapshots: BTreeMap<FactNumber, Health>,
    /// By the first fact of each record: how many facts, and their health.
    pub(crate) facts: BTreeMap<FactNumber, (u64, Health)>,
    pub(crate) temp_files: BTreeMap<u64, Health>,
}

/// Receives every readable record of a journal.
pub(crate) type EncodedRecordVisitor<'a> = &'a mut dyn FnMut(Pid, EncodedRecord<'_>);

impl LogScan {
    /// Reads the whole log. Also returns where the log ends.
    ///
    /// # Errors
    /// As [`walk_all`].
    pub(crate) fn read(
        log: &Log,
        head: LogPosition,
        visit: EncodedRecordVisitor<'_>,
    ) -> Result<(Self, LogEnd), StoreError> {
        let mut scan = Self {
            records: 0,
            index: Index::table_only(log),
            processes: BTreeMap::new(),
            contents: BTreeMap::new(),
            damaged_starts: Vec::new(),
            last_whole: LogPosition::EMPTY,
            end_ms: 0,
        };
        let reached = walk_all::<StoreError>(log, head, &mut |found| {
            match found {
                WalkItem::Record(at, header) => scan.add_record(log, at, &header, visit)?,
                WalkItem::LostRange(lost) => scan.index.add_lost_range(lost),
                // The walk reports the position of the file HEAD even if the log does not contain
                // that commit. Such a position is ignored.
                WalkItem::Commit(position)
                    if position == head && !log.contains_commit(&position)? => {}
                WalkItem::Commit(position) => scan.last_whole = position,
            }
            Ok(())
        })?;
        let table = scan.index.processes();
        scan.processes
            .retain(|pid, _| !table.entry(*pid).is_some_and(|entry| entry.is_deleted()));
        Ok((scan, reached))
    }

    fn add_record(
        &mut self,
        log: &Log,
        at: Location,
        header: &RecordHeader,
        visit: EncodedRecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.index
            .apply_to_table(at, header, &|| log.payload(at, header).map(Bytes::from))?;
        self.records += 1;
        self.end_ms = self.end_ms.max(header.at_ms);
        let health = if log.is_whole(at, header)? {
            Health::Whole
        } else {
            Health::Damaged
        };
        let pid = Pid(header.subject);
        let first = FactNumber(header.first);
        let mut visit_payload = |kind: RecordKind| -> Result<(), StoreError> {
            if health == Health::Whole {
                visit_records(pid, kind, &log.payload(at, header)?, visit)?;
            }
            Ok(())
        };
        match header.kind {
            RecordKind::SegmentOpened if health == Health::Damaged => {
                self.damaged_starts.push(at.segment)
            }
            RecordKind::SegmentOpened
            | RecordKind::SegmentCompacted
            | RecordKind::Checkpoint
            | RecordKind::CheckpointDropped
            | RecordKind::ProcessDeleted
            | RecordKind::DeletedPids
            | RecordKind::DroppedCheckpoints
            | RecordKind::Label
            | RecordKind::LossAcknowledged
            // The facts of the process say the same.
            | RecordKind::Waiting
            | RecordKind::ProcessReopened => {}
            RecordKind::Content => {
                let hash = match StoredContent::open(log, at, header, Arc::default()) {
                    Ok(stored) => stored.hash(),
                    Err(_) => ContentHash(header.payload_hash),
                };
                self.contents.insert(
                    header.payload_hash,
                    ScannedContent {
                        health: Some(health),
                        hash,
                    },
                );
            }
            RecordKind::ContentLost => {
                let lost = ScannedContent {
                    health: None,
                    hash: ContentHash(header.payload_hash),
                };
                self.contents.insert(header.payload_hash, lost);
            }
            RecordKind::ProcessCreated
            | RecordKind::Facts
            | RecordKind::Snapshot
            | RecordKind::TempFile => {
                visit_payload(header.kind)?;
                let records = self.processes.entry(pid).or_default();
                match header.kind {
                    RecordKind::Facts => drop(records.facts.insert(first, (header.count, health))),
                    RecordKind::TempFile => drop(records.temp_files.insert(header.first, health)),
                    RecordKind::Snapshot => drop(records.snapshots.insert(first, health)),
                    _ => drop(records.snapshots.insert(FactNumber(0), health)),
                }
            }
            RecordKind::SnapshotDropped => {
                self.processes
                    .entry(pid)
                    .or_default()
                    .snapshots
                    .remove(&first);
            }
            RecordKind::ProcessEnded => {
                let records = self.processes.entry(pid).or_default();
                records.last_by_end = records.last_by_end.max(first);
            }
            RecordKind::HistoryTruncated => {
                let records = self.processes.entry(pid).or_default();
                records.oldest_image_at = records.oldest_image_at.max(first);
            }
        }
        Ok(())
    }
}

fn visit_records(
    pid: Pid,
    kind: RecordKind,
    payload: &[u8],
    visit: EncodedRecordVisitor<'_>,
) -> Result<(), StoreError> {
    match kind {
        RecordKind::ProcessCreated => visit(pid, EncodedRecord::Image(decode_created(payload)?.1)),
        RecordKind::Snapshot => visit(pid, EncodedRecord::Image(payload)),
        RecordKind::TempFile => visit(pid, EncodedRecord::TempFile(payload)),
        RecordKind::Facts => decode_facts(payload)?
            .iter()
            .for_each(|fact| visit(pid, EncodedRecord::Fact(fact))),
        _ => {}
    }
    Ok(())
}

impl ProcessRecords {
    /// The ranges of facts that are unreadable: first and last, both included.
    pub(crate) fn lost_facts(&self) -> Vec<(FactNumber, FactNumber)> {
        let mut lost: Vec<(FactNumber, FactNumber)> = Vec::new();
        let mut next = self.oldest_image_at.plus(1);
        let mut add_lost = |from: FactNumber, to: FactNumber| match lost.last_mut() {
            Some(last) if last.1.plus(1) == from => last.1 = to,
            _ => lost.push((from, to)),
        };
        for (first, (count, health)) in &self.facts {
            let after = FactNumber(first.0 + count);
            if after <= next {
                continue;
            }
            if *first > next {
                add_lost(next, FactNumber(first.0 - 1));
            }
            if *health == Health::Damaged {
                add_lost((*first).max(next), FactNumber(after.0 - 1));
            }
            next = after;
        }
        // A snapshot proves that its fact existed, and an end names the last fact.
        let last = self
            .snapshots
            .last_key_value()
            .map_or(self.last_by_end, |(at, _)| self.last_by_end.max(*at));
        if last >= next {
            add_lost(next, last);
        }
        lost
    }

    /// Damaged images that a repair can drop, because an earlier image and the facts lead to the
    /// same state.
    pub(crate) fn damaged_images(&self) -> Vec<FactNumber> {
        let first = self
            .snapshots
            .range(self.oldest_image_at..)
            .find(|(_, health)| **health == Health::Whole);
        let Some((first, _)) = first else {
            return Vec::new();
        };
        let damaged = self
            .snapshots
            .range(*first..)
            .filter(|(_, health)| **health == Health::Damaged);
        damaged.map(|(at, _)| *at).collect()
    }

    /// The position of the first readable image at or after a fact.
    pub(crate) fn first_image_from(&self, fact: FactNumber) -> Option<FactNumber> {
        self.snapshots
            .range(fact..)
            .find(|(_, health)| **health == Health::Whole)
            .map(|(at, _)| *at)
    }
}
