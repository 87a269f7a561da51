//! Garbage collection: finds the contents that journals reference, and deletes the others.
//!
//! The inventory (`kernel/machine/src/inventory.rs`) says which process references which content.
//! Contents that commits name during a collection are pinned, and kept (`gc_pins.rs`).
//!
//! Contents are compared by the names that the log has for them, because an encrypted log lists
//! contents by keyed hashes.
//!
//! A commit that deletes a process or truncates a history deletes the records itself, so that only
//! contents are left to collect.

use std::ops::ControlFlow;

use dormouse_actors::garbage::EncodedRecord;
use dormouse_actors::ports::inventory::{Inventory, Need, ShortName};
use dormouse_actors::ports::{
    InventoryReport, InventoryUpdate, KeptContents, OwnerToken, StoreError, SweepMode,
    SweepOutcome, SweepReport, SweepRequest, SweepStep,
};
use dormouse_proto::id::{ContentHash, FactNumber, Pid};

use crate::frame::Codec;
use crate::log::{Record, RecordLog, StreamKind};
use crate::row::{ExistingRow, StoredRow};
use crate::store::{RecordStore, first_missing, lost_record, stream};

/// How many contents are deleted at once; commits can run in between.
const DELETED_AT_ONCE: usize = 1_000;

/// What a process keeps in the log.
struct ProcessRecords {
    ended_ms: Option<u64>,
    streams: Vec<StreamRecords>,
}

/// The records of a stream of a process.
struct StreamRecords {
    kind: StreamKind,
    records: Vec<Record>,
    /// The first number that is missing between the records.
    missing: Option<u64>,
}

impl<L: RecordLog> RecordStore<L> {
    /// Builds the inventory again by reading all journals.
    pub(crate) fn rebuild_inventory(
        &self,
        mut update: InventoryUpdate<'_>,
    ) -> Result<InventoryReport, StoreError> {
        *update.inventory = Inventory::default();
        let mut report = InventoryReport::default();
        let records = self.log().read_kind(StreamKind::Process)?;
        let codec = self.codec()?;
        for (pid, record) in records {
            if (update.watch)() == ControlFlow::Break(()) {
                report.outcome = SweepOutcome::Interrupted;
                break;
            }
            let pid = Pid(pid);
            match StoredRow::read(&codec, pid, &record) {
                Ok(StoredRow::Existing(_)) => {
                    report.records += self.add_process_to_inventory(&codec, pid, &mut update)?;
                }
                Ok(StoredRow::Deleted) => {}
                Err(error) => update
                    .inventory
                    .note_unreadable(Some(pid), error.to_string()),
            }
        }
        update.inventory.count_reports();
        Ok(report)
    }

    /// Adds the records of a process to the inventory. Returns how many records there are.
    fn add_process_to_inventory(
        &self,
        codec: &Codec,
        pid: Pid,
        update: &mut InventoryUpdate<'_>,
    ) -> Result<u64, StoreError> {
        let process = match self.read_consistently(pid, |row| self.read_streams(pid, row)) {
            // The process was deleted meanwhile.
            Err(StoreError::UnknownProcess(_)) => return Ok(0),
            read => read?,
        };
        let mut count = 0;
        for StreamRecords {
            kind,
            records,
            missing,
        } in process.streams
        {
            if let Some(number) = missing {
                let what = lost_record(stream(kind, pid), number).to_string();
                update.inventory.note_unreadable(Some(pid), what);
            }
            for record in &records {
                add_references(codec, update, pid, kind, record);
                count += 1;
            }
        }
        if let Some(ended_ms) = process.ended_ms {
            update.inventory.set_ended(pid, ended_ms);
        }
        Ok(count)
    }

    /// Reads all records of a process.
    fn read_streams(&self, pid: Pid, row: &ExistingRow) -> Result<ProcessRecords, StoreError> {
        let mut streams = Vec::new();
        for (kind, first) in [
            (StreamKind::Snapshot, row.oldest_snapshot.0),
            (StreamKind::Fact, row.oldest_snapshot.0 + 1),
            (StreamKind::TempFile, 1),
        ] {
            let records = self.log().read(stream(kind, pid), first..=u64::MAX)?;
            let last = match kind {
                // Only the first image has to exist.
                StreamKind::Snapshot => first,
                _ => records.last().map_or(0, |record| record.number),
            };
            let missing = first_missing(&records, first, last);
            streams.push(StreamRecords {
                kind,
                records,
                missing,
            });
        }
        Ok(ProcessRecords {
            ended_ms: row.ended_ms,
            streams,
        })
    }

    /// Deletes unreferenced contents, or counts them.
    pub(crate) fn collect_contents(
        &self,
        owner: OwnerToken,
        sweep: SweepRequest<'_>,
    ) -> Result<SweepReport, StoreError> {
        if sweep.mode == SweepMode::Free {
            self.check_owner(owner)?;
            self.pins().check(sweep.mark)?;
        }
        let removals = sweep.inventory.removals(sweep.deletions);
        let must_keep = |name: &ContentHash| {
            let name = ShortName::of(&name.0);
            sweep.contents == KeptContents::All || sweep.inventory.is_referred_to(name, &removals)
        };
        let mut report = SweepReport {
            segments: 1,
            ..SweepReport::default()
        };
        let mut unreferenced = Vec::new();
        for (name, bytes) in self.log().contents()? {
            report.bytes_before += bytes;
            if !must_keep(&name) && !self.pins().is_pinned(name.0) {
                unreferenced.push((name, bytes));
            }
        }
        for (group, contents) in (0..).zip(unreferenced.chunks(DELETED_AT_ONCE)) {
            if sweep.mode == SweepMode::Free {
                if (sweep.watch)(SweepStep::Replace(group)) == ControlFlow::Break(()) {
                    report.outcome = SweepOutcome::Interrupted;
                    break;
                }
                self.delete_unpinned(owner, &sweep, contents, &mut report)?;
            } else {
                contents
                    .iter()
                    .for_each(|content| count_deleted(&mut report, content));
            }
        }
        report.live_bytes = report.bytes_before - report.freed_content_bytes;
        report.bytes_after = report.live_bytes;
        if sweep.mode == SweepMode::Free {
            self.pins().end(sweep.mark);
        }
        Ok(report)
    }

    /// Deletes contents, except those that a commit has pinned since they were found unreferenced.
    fn delete_unpinned(
        &self,
        owner: OwnerToken,
        sweep: &SweepRequest<'_>,
        contents: &[(ContentHash, u64)],
        report: &mut SweepReport,
    ) -> Result<(), StoreError> {
        // Holding the cache's lock excludes commits, so that none can pin a content between the
        // check and the deletion.
        let _no_commit = self.cache();
        self.pins().check(sweep.mark)?;
        let is_unpinned = |(name, _): &&(ContentHash, u64)| !self.pins().is_pinned(name.0);
        let unreferenced: Vec<_> = contents.iter().filter(is_unpinned).collect();
        let names: Vec<_> = unreferenced.iter().map(|(name, _)| *name).collect();
        self.log().delete_contents(owner, &names)?;
        unreferenced
            .into_iter()
            .for_each(|content| count_deleted(report, content));
        Ok(())
    }
}

fn count_deleted(report: &mut SweepReport, (_, bytes): &(ContentHash, u64)) {
    report.freed_contents += 1;
    report.freed_content_bytes += bytes;
}

/// Adds the references of a record to the inventory, by the names that the log has for the
/// contents.
fn add_references(
    codec: &Codec,
    update: &mut InventoryUpdate<'_>,
    pid: Pid,
    kind: StreamKind,
    record: &Record,
) {
    let payload = match codec.payload(stream(kind, pid), record) {
        Ok(payload) => payload,
        Err(error) => {
            return update
                .inventory
                .note_unreadable(Some(pid), error.to_string());
        }
    };
    let number = FactNumber(record.number);
    let (need, record) = match kind {
        StreamKind::Snapshot => {
            update.inventory.add_image(pid, number);
            (Need::image(number), EncodedRecord::Image(&payload))
        }
        StreamKind::Fact => (Need::fact(number), EncodedRecord::Fact(&payload)),
        _ => (Need::ALWAYS, EncodedRecord::TempFile(&payload)),
    };
    match (update.references)(record) {
        Ok(contents) => {
            let names = contents
                .iter()
                .map(|hash| ShortName::of(&codec.content_name(*hash).0));
            update.inventory.add_references(pid, need, names);
        }
        Err(error) => update
            .inventory
            .note_unreadable(Some(pid), error.to_string()),
    }
}
