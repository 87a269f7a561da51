//! Moves the live records of a segment to the log's end before the segment is replaced, and the
//! contents that were pinned since it was inspected.

use std::collections::BTreeSet;
use std::io;

use bytes::Bytes;
use dormouse_actors::ports::{StoreError, SweepStep, SyncLevel};
use dormouse_records::validator::check_owner;

use super::inspection::{Liveness, SegmentContents};
use super::{Abort, Compaction, io_abort};
use crate::error::io as io_error;
use crate::log_position::Location;
use crate::payload::number_range;
use crate::record_builder::RecordBuilder;
use crate::record_header::{HEADER_BYTES, RecordHeader, RecordKind};
use crate::writer::Writer;

impl Compaction<'_, '_> {
    /// Appends the records at these offsets again at the log's end, `step_bytes` at a time. Commits
    /// wait for one step at most.
    pub(super) fn move_in_steps(&mut self, number: u32, offsets: &[u64]) -> Result<(), Abort> {
        let mut locations = offsets
            .iter()
            .map(|offset| Location {
                segment: number,
                offset: *offset,
            })
            .peekable();
        while locations.peek().is_some() {
            self.report_step(SweepStep::Move(number))?;
            let mut records = Vec::new();
            let mut bytes = 0;
            while bytes < self.request.limits.step_bytes
                && let Some(at) = locations.next()
            {
                let record = self.read_record(at)?;
                bytes += HEADER_BYTES as u64 + record.1.length;
                records.push(record);
            }
            let mut writer = self.store.writer();
            self.move_to_end(&mut writer, &records)?;
        }
        Ok(())
    }

    /// Moves the contents that looked unreferenced at the inspection and were pinned by a commit
    /// since, until there are none. Those that are pinned from then on are moved when the segment is
    /// replaced, under the writer's lock.
    pub(super) fn move_pinned(
        &mut self,
        number: u32,
        contents: &mut SegmentContents,
    ) -> Result<(), Abort> {
        loop {
            let offsets = self.take_pinned(contents);
            if offsets.is_empty() {
                return Ok(());
            }
            self.move_in_steps(number, &offsets)?;
        }
    }

    /// Moves the contents that were pinned since [`move_pinned`](Self::move_pinned).
    pub(super) fn copy_pinned(
        &mut self,
        writer: &mut Writer,
        number: u32,
        contents: &mut SegmentContents,
    ) -> Result<(), Abort> {
        let at = |offset| Location {
            segment: number,
            offset,
        };
        let records = self
            .take_pinned(contents)
            .into_iter()
            .map(|offset| self.read_record(at(offset)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(self.move_to_end(writer, &records)?)
    }

    /// Removes the contents that are pinned by now from the unreferenced ones. Returns the offsets
    /// of their records.
    fn take_pinned(&self, contents: &mut SegmentContents) -> Vec<u64> {
        let gc_pins = &self.store.gc_pins;
        contents
            .unreferenced
            .extract_if(|name, _| gc_pins.is_pinned(*name))
            .map(|(_, (offset, _))| offset)
            .collect()
    }

    /// Appends those of the records that are still live.
    fn move_to_end(
        &mut self,
        writer: &mut Writer,
        records: &[(Location, RecordHeader, Bytes)],
    ) -> Result<(), StoreError> {
        check_owner(self.owner, writer.owner())?;
        self.flush_index(writer)?;
        // A commit may have superseded a record since the segment was inspected.
        let mut live = Vec::new();
        {
            let index = self.store.index();
            for record in records {
                let (at, header, _) = record;
                let liveness = self.liveness(&index, *at, header);
                let liveness = liveness
                    .map_err(|fault| io_error("query its index")(io::Error::other(fault)))?;
                if matches!(liveness, Liveness::Live) {
                    live.push(record);
                }
            }
        }
        let at_ms = records.first().map_or(0, |(_, header, _)| header.at_ms);
        let builders = self.builders_for(live.into_iter());
        if builders.is_empty() {
            return Ok(());
        }
        let encoded = writer.encode(builders, at_ms)?;
        self.report.moved_bytes += encoded.length();
        let written = writer.append(encoded, SyncLevel::Written)?;
        self.store.apply_commit(writer, &written);
        Ok(())
    }

    /// Builders for the moved records. Records that only list deleted numbers are merged: they stay
    /// live for ever, and would otherwise add up with each compaction.
    fn builders_for<'r>(
        &self,
        records: impl Iterator<Item = &'r (Location, RecordHeader, Bytes)>,
    ) -> Vec<RecordBuilder> {
        let mut builders = Vec::new();
        let mut pids = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for (_, header, payload) in records {
            match header.kind {
                RecordKind::ProcessDeleted => pids.extend([header.subject]),
                RecordKind::CheckpointDropped => ids.extend([header.subject]),
                RecordKind::DeletedPids => pids.extend(number_range(header)),
                RecordKind::DroppedCheckpoints => ids.extend(number_range(header)),
                _ => builders.push(RecordBuilder::moved(header, payload.clone())),
            }
        }
        builders.extend(RecordBuilder::deleted_numbers(
            RecordKind::DeletedPids,
            &pids,
        ));
        builders.extend(RecordBuilder::deleted_numbers(
            RecordKind::DroppedCheckpoints,
            &ids,
        ));
        builders
    }

    /// Reads a record and its payload, checked.
    fn read_record(&self, at: Location) -> Result<(Location, RecordHeader, Bytes), Abort> {
        let log = &self.store.log;
        let header = log.header(at)?.ok_or(Abort::Damaged)?.header;
        if !log.is_whole(at, &header)? {
            return Err(Abort::Damaged);
        }
        let start = at.offset + HEADER_BYTES as u64;
        let segment = log.require_segment(at)?;
        let payload = segment
            .slice(start..start + header.length)
            .map_err(|error| io_abort(error, "map a segment"))?;
        Ok((at, header, payload))
    }
}
