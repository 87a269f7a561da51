//! Compaction frees the space of garbage, one segment at a time. It is the last step of a garbage
//! collection. With `SweepMode::Count` it writes nothing, and reports what would be freed.
//!
//! A collection begins with a *mark*: contents that commits name from then on are pinned, and kept
//! (`gc_pins.rs` of `adapters/records`). `liveness.rs` decides which records are live, and
//! `inspection.rs` sorts the records of one segment by that. HEAD's position (`head.rs`) is the end
//! up to which the log is known to be synced.
//!
//! A segment with few live records is emptied: its live records are appended again at the log's
//! end, synced and covered by HEAD; then the segment's file is replaced by a stub, one record of
//! kind `RecordKind::SegmentCompacted`. The segment that contains HEAD's position, and every later
//! one, is never compacted. If that segment has enough garbage, it is closed first: a new segment
//! is started, and HEAD's position moves into it.
//!
//! * The inventory says which segments gained garbage since the last inspection. Only those are
//!   inspected again.
//! * The index decides which records are garbage, because it knows the location of every live
//!   record; a second copy that an interrupted compaction left behind is garbage as well. The
//!   inventory says which contents are referenced.
//! * A commit may reference a content while its segment is being emptied. Therefore the last check,
//!   and the replacement of the file, happen under the writer's lock.
//! * A segment that contains an unreadable record is not changed, so that the damage can still be
//!   examined.

mod inspection;
mod moving;

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use dormouse_actors::ports::inventory::{Removals, SegmentUsage, ShortName};
use dormouse_actors::ports::{
    KeptContents, OwnerToken, StoreError, SweepMode, SweepOutcome, SweepReport, SweepRequest,
    SweepStep,
};

use crate::error::io as io_error;
use crate::location_index::RecordKey;
use crate::log_position::{Location, LogPosition};
use crate::log_store::LogStore;
use crate::record_header::{HEADER_BYTES, RecordHeader};
use crate::segment::Segment;
use crate::writer::Writer;
use dormouse_records::validator::check_owner;

use inspection::SegmentContents;

/// How many records are looked up under one lock of the index.
pub(crate) const RECORDS_PER_QUERY: usize = 256;

/// If the quota is nearly used up, segments of which at least a tenth is garbage are compacted,
/// whatever the configured bounds say.
const NEARLY_FULL_PERCENT: u8 = 90;

/// A compaction in progress.
pub(crate) struct Compaction<'s, 'a> {
    store: &'s LogStore,
    owner: OwnerToken,
    request: SweepRequest<'a>,
    removals: Removals,
    report: SweepReport,
}

/// Why a compaction stops.
pub(super) enum Abort {
    /// The caller stopped it.
    Interrupted,
    /// The segment is damaged.
    Damaged,
    Error(StoreError),
}

impl From<StoreError> for Abort {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Damaged { .. } => Self::Damaged,
            error => Self::Error(error),
        }
    }
}

impl<'s, 'a> Compaction<'s, 'a> {
    /// Prepares a compaction.
    ///
    /// # Errors
    /// [`StoreError::MarkSuperseded`] if space is to be freed by a mark that ended or was
    /// superseded.
    pub(crate) fn new(
        store: &'s LogStore,
        owner: OwnerToken,
        request: SweepRequest<'a>,
    ) -> Result<Self, StoreError> {
        if request.mode == SweepMode::Free {
            store.gc_pins.check(request.mark)?;
        }
        let removals = request.inventory.removals(request.deletions);
        let bytes = store.log.bytes();
        let report = SweepReport {
            bytes_before: bytes,
            bytes_after: bytes,
            ..SweepReport::default()
        };
        Ok(Self {
            store,
            owner,
            request,
            removals,
            report,
        })
    }

    /// Inspects every segment, and compacts those with enough garbage.
    ///
    /// # Errors
    /// As [`dormouse_actors::ports::Store::sweep`].
    pub(crate) fn run(mut self) -> Result<SweepReport, StoreError> {
        let outcome = self.compact_all();
        if self.request.mode == SweepMode::Free {
            self.report.bytes_after = self.store.log.bytes();
            self.store.gc_pins.end(self.request.mark);
        }
        outcome.map(|()| self.report)
    }

    fn compact_all(&mut self) -> Result<(), StoreError> {
        let end = match self.end_of_compactable() {
            Ok(end) => end,
            Err(Abort::Error(error)) => return Err(error),
            Err(Abort::Interrupted | Abort::Damaged) => {
                self.report.outcome = SweepOutcome::Interrupted;
                return Ok(());
            }
        };
        let log = &self.store.log;
        let compacted = self.store.log.compacted();
        let candidates = log
            .numbers()
            .into_iter()
            .filter(|number| *number < end && !compacted.contains(*number));
        for number in candidates.collect::<Vec<_>>() {
            match self.compact_segment(number) {
                Ok(()) => {}
                Err(Abort::Damaged) => self.report.damaged_segments.push(number),
                Err(Abort::Error(error)) => return Err(error),
                Err(Abort::Interrupted) => {
                    self.report.outcome = SweepOutcome::Interrupted;
                    break;
                }
            }
        }
        Ok(())
    }

    /// The first segment that is not compacted: the one that contains HEAD's position, or the next
    /// one if that segment has enough garbage to be closed.
    fn end_of_compactable(&mut self) -> Result<u32, Abort> {
        let position = match self.request.mode {
            SweepMode::Count => self.store.writer().position(),
            SweepMode::Free => self.synced_head(&mut self.store.writer())?,
        };
        let number = position.end.segment;
        let at_ms = match self.time_if_closable(number) {
            Ok(Some(at_ms)) => at_ms,
            // A damaged segment is not changed.
            Ok(None) | Err(Abort::Damaged) => return Ok(number),
            Err(abort) => return Err(abort),
        };
        if self.request.mode == SweepMode::Count {
            return Ok(number + 1);
        }
        let mut writer = self.store.writer();
        check_owner(self.owner, writer.owner())?;
        // A commit may have closed the segment in the meantime.
        if writer.position().end.segment == number {
            let written = writer.start_segment(at_ms)?;
            self.store.apply_commit(&writer, &written);
        }
        Ok(self.synced_head(&mut writer)?.end.segment)
    }

    /// Writes HEAD at the log's end, and returns its position.
    fn synced_head(&self, writer: &mut Writer) -> Result<LogPosition, Abort> {
        writer
            .sync_head()
            .map_err(|error| io_abort(error, "write HEAD before a compaction"))?;
        Ok(writer.head_position())
    }

    /// The time of the last record in the active segment, if the segment should be closed.
    fn time_if_closable(&mut self, number: u32) -> Result<Option<u64>, Abort> {
        let end = self
            .store
            .log
            .segment(number)
            .map_or(0, |segment| segment.end());
        if end == 0 || end < self.request.limits.close_bytes {
            return Ok(None);
        }
        if let Some(usage) = self.usage_from_inventory(number, end)
            && !self.should_close(usage)
        {
            self.report.kept_garbage_bytes += garbage_bytes(usage);
            return Ok(None);
        }
        self.report_step(SweepStep::Inspect(number))?;
        let contents = self.inspect(number)?;
        self.update_inventory(number, &contents);
        if !self.should_close(contents.usage()) {
            self.report.kept_garbage_bytes += garbage_bytes(contents.usage());
            return Ok(None);
        }
        Ok(contents.stub.map(|stub| stub.at_ms))
    }

    /// Whether the active segment has enough garbage to be closed and compacted.
    fn should_close(&self, usage: SegmentUsage) -> bool {
        self.should_compact(usage) && garbage_bytes(usage) >= self.request.limits.close_bytes
    }

    /// The usage of a segment according to the inventory, without an inspection; `None` if the
    /// inventory is not certain of it. Bytes that were appended since the inventory was updated
    /// count as live.
    fn usage_from_inventory(&self, number: u32, end: u64) -> Option<SegmentUsage> {
        let usage = self.request.inventory.usage(number, &self.removals)?;
        let is_reliable = self.request.contents == KeptContents::Referenced
            && !usage.is_doubtful
            && usage.bytes <= end;
        is_reliable.then(|| SegmentUsage::from_scan(end, usage.live + (end - usage.bytes)))
    }

    /// Stores the result of an inspection in the inventory, unless the inspection assumed deletions
    /// that are not committed.
    fn update_inventory(&mut self, number: u32, contents: &SegmentContents) {
        let usage = self.request.inventory.usage(number, &self.removals);
        let is_up_to_date = usage.is_some_and(|usage| usage.bytes == contents.bytes);
        if self.request.contents == KeptContents::Referenced
            && self.request.deletions.is_empty()
            && is_up_to_date
        {
            self.request.inventory.set_live(number, contents.live_bytes);
        }
    }

    /// Whether the share of live bytes in a segment is small enough for a compaction.
    fn should_compact(&self, usage: SegmentUsage) -> bool {
        let live_percent = self.request.limits.live_percent;
        let is_nearly_full = self.store.quota.is_nearly_full(self.report.bytes_before);
        let percent = if is_nearly_full {
            live_percent.max(NEARLY_FULL_PERCENT)
        } else {
            live_percent
        };
        u128::from(usage.live) * 100 <= u128::from(usage.bytes) * u128::from(percent)
    }

    /// Inspects a segment, and compacts it if it has enough garbage.
    fn compact_segment(&mut self, number: u32) -> Result<(), Abort> {
        let end = self.open_segment(number)?.end();
        if let Some(usage) = self.usage_from_inventory(number, end)
            && !self.should_compact(usage)
        {
            self.count_uncompacted(usage);
            return Ok(());
        }
        self.report_step(SweepStep::Inspect(number))?;
        let start = Location::start_of(number);
        let follows_lost_range = {
            let index = self.store.index();
            let lost = index.processes().lost_ranges();
            lost.iter().any(|lost| lost.end == start)
        };
        if follows_lost_range {
            // The first record of this segment proves that a range before it is lost, so it must be
            // kept.
            return Err(Abort::Damaged);
        }
        let mut contents = self.inspect(number)?;
        let Some(stub) = contents.stub.take() else {
            return Err(Abort::Damaged);
        };
        self.update_inventory(number, &contents);
        if !self.should_compact(contents.usage()) {
            self.count_uncompacted(contents.usage());
            return Ok(());
        }
        self.report.segments += 1;
        self.report.live_bytes += contents.live_bytes;
        if self.request.mode == SweepMode::Free {
            // An interruption from here on leaves copies of records that were moved already.
            self.request.inventory.mark_doubtful(number);
            self.move_in_steps(number, &contents.live)?;
            self.move_pinned(number, &mut contents)?;
            self.replace_by_stub(number, &mut contents, stub)?;
            self.request.inventory.drop_segment(number);
            contents.unreferenced.keys().for_each(|name| {
                self.request
                    .inventory
                    .remove_content(ShortName::of(name), number)
            });
        } else {
            let freed = contents
                .bytes
                .saturating_sub(contents.live_bytes + HEADER_BYTES as u64);
            self.report.bytes_after = self.report.bytes_after.saturating_sub(freed);
            self.report.moved_bytes += contents.live_bytes;
        }
        self.report.freed_segments += 1;
        self.report.freed_contents += contents.unreferenced.len() as u64;
        self.report.freed_content_bytes += contents
            .unreferenced
            .values()
            .map(|(_, bytes)| bytes)
            .sum::<u64>();
        if self.request.mode == SweepMode::Free {
            self.report_step(SweepStep::Clean(number))?;
            self.remove_keys(&contents.garbage_keys);
        }
        Ok(())
    }

    /// Counts a segment that is left as it is.
    fn count_uncompacted(&mut self, usage: SegmentUsage) {
        self.report.segments += 1;
        self.report.live_bytes += usage.live;
        self.report.kept_garbage_bytes += garbage_bytes(usage);
    }

    /// Reports a step to the caller, who may interrupt the compaction.
    fn report_step(&mut self, step: SweepStep) -> Result<(), Abort> {
        match (self.request.watch)(step) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Abort::Interrupted),
        }
    }

    /// Writes all pending changes to the index, so that it can be queried while the caller holds
    /// the writer's lock.
    fn flush_index(&self, writer: &Writer) -> Result<(), StoreError> {
        match self.store.flush_index() {
            Ok(()) => Ok(()),
            Err(_) => self
                .store
                .index_mut()
                .rebuild(&self.store.log, writer.position()),
        }
    }

    /// Replaces a segment by its stub after its live records were moved. Holds the writer's lock,
    /// so that no commit can reference a dropped content.
    fn replace_by_stub(
        &mut self,
        number: u32,
        contents: &mut SegmentContents,
        stub: RecordHeader,
    ) -> Result<(), Abort> {
        let at = Location::start_of(number);
        let log = Arc::clone(&self.store.log);
        let mut writer = self.store.writer();
        check_owner(self.owner, writer.owner())?;
        writer.check_writable()?;
        self.store.gc_pins.check(self.request.mark)?;
        self.copy_pinned(&mut writer, number, contents)?;
        self.report_step(SweepStep::Sync(number))?;
        writer
            .sync_head()
            .map_err(|error| io_abort(error, "sync the records that a compaction moved"))?;
        // Without this flush the index would still point at the old location of a moved record, and
        // the record would be answered as lost.
        self.flush_index(&writer)?;
        self.report_step(SweepStep::Write(number))?;
        let (bytes, _) = stub.sign(log.key(), at);
        log.write_stub(number, &bytes)
            .map_err(|error| io_abort(error, "write the stub of a compacted segment"))?;
        self.report_step(SweepStep::Replace(number))?;
        log.replace_by_stub(number).map_err(|error| {
            // It is unknown whether the segment or the stub has the name now, so the store must not
            // be written until it is opened again.
            writer.poison(format!(
                "segment {number:08} could not be replaced: {error}"
            ));
            io_abort(error, "replace a compacted segment")
        })
    }

    /// Removes the keys of dropped records from the index. A failure is harmless: a key that points
    /// into a compacted segment is ignored.
    fn remove_keys(&self, keys: &[RecordKey]) {
        let log = &self.store.log;
        let removed = keys
            .chunks(RECORDS_PER_QUERY)
            .try_for_each(|keys| self.store.index_mut().remove_compacted(keys, log));
        if let Err(fault) = removed.and_then(|()| self.store.index_mut().flush(log)) {
            tracing::warn!(%fault, "cannot remove the keys of a compacted segment from the index");
        }
    }

    fn open_segment(&self, number: u32) -> Result<Arc<Segment>, StoreError> {
        self.store.log.require_segment(Location::start_of(number))
    }
}

fn garbage_bytes(usage: SegmentUsage) -> u64 {
    usage.bytes.saturating_sub(usage.live)
}

fn io_abort(error: io::Error, doing: &str) -> Abort {
    Abort::Error(io_error(doing)(error))
}
