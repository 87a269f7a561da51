//! Updates an inventory by a pass over the log: adds the size of each record, the process that
//! needs it, and the contents that it references.
//!
//! The inventory says which process references which content, and how much of each segment is live.
//! Garbage collection uses it. A `Need` says how long a record or a reference counts: as long as a
//! fact or an image is part of its process's history, or as long as the process exists. This crate
//! decodes no fact and no image: the caller's function `references` names the contents in them.
//!
//! The pass reads the log in order, from where the last pass ended. Of several copies of a record,
//! only the one that the index points to is counted. A payload is decoded when a pass first reads
//! its record, and not again after a compaction has moved the record.
//!
//! A missing record never counts as a record without references. At the end, every process of which
//! a record was read must be complete from its first image to its last fact; otherwise its
//! references are unknown. Only records first written after the end of the pass may be missing: the
//! collection's mark began earlier, so the contents that these records reference are pinned, that
//! is, kept by this collection (`gc_pins.rs` of `adapters/records`).

use std::sync::atomic::{AtomicU64, Ordering};

use dormouse_actors::garbage::EncodedRecord;
use dormouse_actors::ports::inventory::{Need, ScanPosition, ShortName};
use dormouse_actors::ports::{
    Deletions, InventoryReport, InventoryUpdate, StoreError, SweepOutcome,
};
use dormouse_proto::id::{CheckpointId, FactNumber, Pid};

use crate::compaction::RECORDS_PER_QUERY;
use crate::liveness::is_live;
use crate::log::record_end;
use crate::log_position::{Location, LogPosition};
use crate::log_store::LogStore;
use crate::payload::{decode_created, decode_facts};
use crate::process_table::ProcessEntry;
use crate::record_header::{HEADER_BYTES, RecordHeader, RecordKind};
use crate::record_read::read_header;
use crate::search;

/// A number that identifies an open store within this program, from 1.
pub(crate) fn next_store_instance() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A pass in progress.
pub(crate) struct InventoryPass<'s, 'a> {
    store: &'s LogStore,
    update: InventoryUpdate<'a>,
    /// Where the pass ends.
    end: LogPosition,
    /// Records first written up to this commit were decoded by an earlier pass.
    decoded_upto: u64,
    at: Location,
    report: InventoryReport,
}

impl<'s, 'a> InventoryPass<'s, 'a> {
    /// Prepares a pass from where the inventory ends to the end of the log.
    pub(crate) fn new(store: &'s LogStore, update: InventoryUpdate<'a>) -> Self {
        let end = store.writer().position();
        update.inventory.attach_to(store.instance);
        let ScanPosition {
            segment,
            offset,
            commit,
        } = update.inventory.scan_position();
        let at = Location { segment, offset }.max(Location::START);
        Self {
            store,
            update,
            end,
            decoded_upto: commit,
            at,
            report: InventoryReport::default(),
        }
    }

    /// Runs the pass to its end.
    ///
    /// # Errors
    /// As [`dormouse_actors::ports::Store::update_inventory`].
    pub(crate) fn run(mut self) -> Result<InventoryReport, StoreError> {
        while self.at < self.end.end {
            if (self.update.watch)().is_break() {
                return Ok(InventoryReport {
                    outcome: SweepOutcome::Interrupted,
                    ..self.report
                });
            }
            self.read_records()?;
            let Location { segment, offset } = self.at;
            self.update.inventory.set_scan_position(ScanPosition {
                segment,
                offset,
                commit: self.decoded_upto,
            });
        }
        let changed_processes = self.update.inventory.count_reports();
        let is_first = self.decoded_upto == 0;
        let pids = if is_first {
            self.all_pids()
        } else {
            changed_processes.into_iter().collect()
        };
        for pid in pids {
            self.check_complete(pid)?;
        }
        let Location { segment, offset } = self.at;
        self.update.inventory.set_scan_position(ScanPosition {
            segment,
            offset,
            commit: self.end.commit,
        });
        Ok(self.report)
    }

    fn all_pids(&self) -> Vec<Pid> {
        self.store
            .index()
            .processes()
            .listing()
            .rows
            .into_iter()
            .map(|row| row.pid)
            .collect()
    }

    /// Reads a bounded number of records of one segment.
    fn read_records(&mut self) -> Result<(), StoreError> {
        let log = &self.store.log;
        let number = self.at.segment;
        let limit = if number == self.end.end.segment {
            self.end.end.offset
        } else {
            log.segment(number).map_or(0, |segment| segment.end())
        };
        let mut records = Vec::new();
        while self.at.offset < limit && records.len() < RECORDS_PER_QUERY {
            let Some(checked) = log.header(self.at)? else {
                self.skip_damage(limit)?;
                break;
            };
            let at = self.at;
            self.at = record_end(at, &checked.header);
            records.push((at, checked.header));
        }
        if self.at.offset >= limit && number < self.end.end.segment {
            self.at = Location::start_of(number + 1);
        }
        self.report.records += records.len() as u64;
        let no_deletions = Deletions::default();
        let live = self.store.query_index(|index| {
            let is_live = |(at, header): &_| is_live(index, &no_deletions, *at, header);
            records.iter().map(is_live).collect::<Result<Vec<_>, _>>()
        })?;
        for ((at, header), is_live) in records.into_iter().zip(live) {
            self.update
                .inventory
                .add_scanned_bytes(at.segment, record_bytes(&header));
            if is_live {
                self.add_record(at, &header)?;
            } else {
                self.apply_deletion(&header);
            }
        }
        Ok(())
    }

    /// Continues at the next record after damage in a segment.
    fn skip_damage(&mut self, limit: u64) -> Result<(), StoreError> {
        let from = self.at;
        let next = search::find_next_header(&self.store.log, self.at)?;
        let next_in_segment =
            next.filter(|next| next.segment == from.segment && next.offset < limit);
        self.at = next_in_segment.unwrap_or(Location {
            offset: limit,
            ..from
        });
        self.update.inventory.note_unreadable(
            None,
            format!("no record is recognisable from {from} to {}", self.at),
        );
        Ok(())
    }

    /// Applies the deletions that a record declares, whether or not the record itself is still
    /// live.
    fn apply_deletion(&mut self, header: &RecordHeader) {
        let pid = Pid(header.subject);
        let first = FactNumber(header.first);
        let inventory = &mut self.update.inventory;
        match header.kind {
            RecordKind::ProcessDeleted => inventory.delete_process(pid),
            RecordKind::HistoryTruncated => inventory.truncate_history(pid, first),
            RecordKind::CheckpointDropped => {
                inventory.drop_checkpoint(CheckpointId(header.subject))
            }
            RecordKind::SnapshotDropped => inventory.remove_image(pid, first),
            _ => {}
        }
    }

    /// Adds a live record to the inventory.
    fn add_record(&mut self, at: Location, header: &RecordHeader) -> Result<(), StoreError> {
        self.apply_deletion(header);
        let pid = Pid(header.subject);
        let first = FactNumber(header.first);
        let bytes = record_bytes(header);
        let inventory = &mut self.update.inventory;
        let need = match header.kind {
            RecordKind::SegmentOpened | RecordKind::SegmentCompacted => return Ok(()),
            RecordKind::Content => {
                inventory.add_content(ShortName::of(&header.payload_hash), at.segment, bytes);
                return Ok(());
            }
            RecordKind::Checkpoint => {
                inventory.add_checkpoint(CheckpointId(header.subject), at.segment, bytes);
                return Ok(());
            }
            RecordKind::ContentLost
            | RecordKind::CheckpointDropped
            | RecordKind::ProcessDeleted
            | RecordKind::DeletedPids
            | RecordKind::DroppedCheckpoints
            | RecordKind::Label
            | RecordKind::LossAcknowledged => {
                inventory.add_live_bytes(at.segment, bytes);
                return Ok(());
            }
            RecordKind::ProcessCreated => Need::image(FactNumber(0)),
            RecordKind::Facts => {
                Need::fact(FactNumber((header.first + header.count).saturating_sub(1)))
            }
            RecordKind::Snapshot | RecordKind::SnapshotDropped | RecordKind::HistoryTruncated => {
                Need::image(first)
            }
            RecordKind::TempFile | RecordKind::Waiting => Need::ALWAYS,
            RecordKind::ProcessReopened => {
                // A compaction may have moved the record behind that of the next end.
                let processes = self.store.index();
                let entry = processes.processes().entry(pid);
                if entry.is_some_and(|entry| entry.end.is_none()) {
                    inventory.clear_ended(pid);
                }
                Need::ALWAYS
            }
            RecordKind::ProcessEnded => {
                inventory.set_ended(pid, header.at_ms);
                Need::ALWAYS
            }
        };
        inventory.add_record(pid, need, at.segment, bytes);
        if header.first_commit > self.decoded_upto || self.decoded_upto == 0 {
            self.decode_references(at, header)?;
        }
        Ok(())
    }

    /// Decodes what a record references.
    fn decode_references(&mut self, at: Location, header: &RecordHeader) -> Result<(), StoreError> {
        if !matches!(
            header.kind,
            RecordKind::ProcessCreated
                | RecordKind::Facts
                | RecordKind::Snapshot
                | RecordKind::TempFile
        ) {
            return Ok(());
        }
        let pid = Pid(header.subject);
        match self
            .store
            .log
            .payload(at, header)
            .and_then(|payload| self.add_payload(pid, header, &payload))
        {
            // Without this snapshot, the journal is replayed from an earlier one and references the
            // same contents.
            Err(StoreError::Damaged { what }) if header.kind == RecordKind::Snapshot => {
                tracing::warn!(%pid, what, "an image cannot be read");
                Ok(())
            }
            Err(StoreError::Damaged { what }) => {
                self.update.inventory.note_unreadable(Some(pid), what);
                Ok(())
            }
            other => other,
        }
    }

    fn add_payload(
        &mut self,
        pid: Pid,
        header: &RecordHeader,
        payload: &[u8],
    ) -> Result<(), StoreError> {
        let first = FactNumber(header.first);
        match header.kind {
            RecordKind::ProcessCreated => {
                self.add_references(
                    pid,
                    Need::image(FactNumber(0)),
                    EncodedRecord::Image(decode_created(payload)?.1),
                );
                self.update.inventory.add_image(pid, FactNumber(0));
            }
            RecordKind::Snapshot => {
                self.add_references(pid, Need::image(first), EncodedRecord::Image(payload));
                self.update.inventory.add_image(pid, first);
            }
            RecordKind::TempFile => {
                self.add_references(pid, Need::ALWAYS, EncodedRecord::TempFile(payload));
                self.update.inventory.add_temp_file(pid, header.first);
            }
            _ => {
                let facts = decode_facts(payload)?;
                for (number, fact) in (header.first..).zip(&facts) {
                    self.add_references(
                        pid,
                        Need::fact(FactNumber(number)),
                        EncodedRecord::Fact(fact),
                    );
                }
                if facts.len() as u64 == header.count {
                    self.update.inventory.add_facts(pid, first, header.count);
                }
            }
        }
        Ok(())
    }

    fn add_references(&mut self, pid: Pid, need: Need, record: EncodedRecord<'_>) {
        let keys = self.store.log.keys();
        match (self.update.references)(record) {
            Ok(contents) => {
                let names = contents
                    .into_iter()
                    .map(|hash| ShortName::of(&keys.content_name(hash)));
                self.update.inventory.add_references(pid, need, names);
            }
            Err(error) => self
                .update
                .inventory
                .note_unreadable(Some(pid), error.to_string()),
        }
    }

    /// Checks that every record of a process was read, from its first image to its last fact.
    /// Otherwise marks its references as unknown.
    fn check_complete(&mut self, pid: Pid) -> Result<(), StoreError> {
        let entry = self.store.index().processes().entry(pid);
        let Some(entry) = entry.filter(|entry| !entry.is_deleted()) else {
            return Ok(());
        };
        let missing = match self
            .update
            .inventory
            .covers(pid, entry.oldest_image_at(), entry.last)
        {
            Ok(()) => None,
            Err(None) if self.history_began_after_pass(pid, &entry)? => return Ok(()),
            Err(None) => Some(format!(
                "its image after fact {} is missing",
                entry.oldest_image_at()
            )),
            Err(Some(up_to)) => {
                let locations = self
                    .store
                    .query_index(|index| index.facts(pid, up_to.plus(1), entry.last))?;
                let locations = locations.map(|runs| runs.into_iter().map(|run| run.at).collect());
                let is_after_pass = self.were_written_after_pass(locations)?;
                (!is_after_pass).then(|| format!("facts after fact {up_to} are missing"))
            }
        };
        missing
            .into_iter()
            .for_each(|what| self.update.inventory.note_unreadable(Some(pid), what));
        let recorded_changes = self.update.inventory.temp_files(pid);
        let last = entry.temp_files.last;
        if recorded_changes < last {
            let locations = self
                .store
                .query_index(|index| index.temp_files(pid, last))?;
            let locations = locations.map(|locations| {
                locations
                    .into_iter()
                    .skip(recorded_changes as usize)
                    .collect()
            });
            if !self.were_written_after_pass(locations)? {
                let what =
                    format!("changes of its temporary files after {recorded_changes} are missing");
                self.update.inventory.note_unreadable(Some(pid), what);
            }
        }
        Ok(())
    }

    /// Whether the history of a process began after the end of the pass: by its creation, or by a
    /// truncation.
    fn history_began_after_pass(&self, pid: Pid, entry: &ProcessEntry) -> Result<bool, StoreError> {
        let image = self
            .store
            .query_index(|index| index.image(pid, entry.oldest_image_at()))?;
        let location = image
            .filter(|(at, _)| *at == entry.oldest_image_at())
            .map(|(_, location)| vec![location]);
        self.were_written_after_pass(location)
    }

    /// Whether all of these records were first written after the end of the pass.
    fn were_written_after_pass(
        &self,
        locations: Option<Vec<Location>>,
    ) -> Result<bool, StoreError> {
        let Some(locations) = locations else {
            return Ok(false);
        };
        for at in locations {
            match read_header(&self.store.log, at) {
                Ok(header) if header.first_commit > self.end.commit => {}
                Err(error) if !matches!(error, StoreError::Damaged { .. }) => return Err(error),
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

fn record_bytes(header: &RecordHeader) -> u64 {
    HEADER_BYTES as u64 + header.length
}
