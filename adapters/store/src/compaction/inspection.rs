//! Inspects a segment before a compaction: decides which of its records are live, and which are
//! garbage. Also makes the header of the stub, the one record that replaces the segment.
//!
//! `liveness.rs` decides by the index. A content is kept only if, in addition, something refers to
//! it: a process, according to the inventory, or a commit since the collection began (a pin).
//! `KeptContents::All` keeps all contents.

use std::collections::HashMap;

use dormouse_actors::ports::inventory::{SegmentUsage, ShortName};
use dormouse_actors::ports::{KeptContents, StoreError};

use super::{Abort, Compaction, RECORDS_PER_QUERY};
use crate::index::Index;
use crate::liveness::{is_live, record_key};
use crate::location_index::{IndexFault, RecordKey};
use crate::log::record_end;
use crate::log_position::{Hash, Location};
use crate::record_header::{
    CheckedHeader, Encoding, HEADER_BYTES, PlaceInCommit, RecordHeader, RecordKind,
};

/// The result of the inspection of a segment.
#[derive(Debug, Default)]
pub(super) struct SegmentContents {
    /// Offsets of the live records.
    pub(super) live: Vec<u64>,
    pub(super) live_bytes: u64,
    pub(super) bytes: u64,
    /// Index keys of the garbage records that have one.
    pub(super) garbage_keys: Vec<RecordKey>,
    /// Contents that nothing references: offset and length of the record.
    pub(super) unreferenced: HashMap<Hash, (u64, u64)>,
    /// The header of the stub that replaces the segment; `None` if the segment cannot be read to
    /// its end.
    pub(super) stub: Option<RecordHeader>,
}

/// Whether a record is kept.
pub(super) enum Liveness {
    Live,
    /// A content that nothing references yet. A commit may still pin it.
    Unreferenced,
    Garbage,
}

impl SegmentContents {
    pub(super) fn usage(&self) -> SegmentUsage {
        SegmentUsage::from_scan(self.bytes, self.live_bytes)
    }
}

impl Compaction<'_, '_> {
    /// Reads the headers of a segment, and classifies its records.
    pub(super) fn inspect(&mut self, number: u32) -> Result<SegmentContents, Abort> {
        let segment = self.open_segment(number)?;
        let mut contents = SegmentContents {
            bytes: segment.end(),
            ..SegmentContents::default()
        };
        let mut at = Location::start_of(number);
        let mut first = None;
        let mut last = None::<CheckedHeader>;
        while at.offset < segment.end() {
            let mut records = Vec::new();
            while at.offset < segment.end() && records.len() < RECORDS_PER_QUERY {
                let checked = self.store.log.header(at)?.ok_or(Abort::Damaged)?;
                if last
                    .as_ref()
                    .is_some_and(|last| last.hash != checked.header.previous)
                {
                    return Err(Abort::Damaged);
                }
                first.get_or_insert_with(|| checked.header.clone());
                records.push((at, checked.header.clone()));
                at = record_end(at, &checked.header);
                last = Some(checked);
            }
            self.report.inspected_records += records.len() as u64;
            self.classify(&records, &mut contents)?;
        }
        contents.stub = first.zip(last).map(|(first, last)| RecordHeader {
            kind: RecordKind::SegmentCompacted,
            place: PlaceInCommit::Last,
            encoding: Encoding::PLAIN,
            first_commit: last.header.commit,
            length: 0,
            subject: number.into(),
            first: segment.end(),
            count: 0,
            payload_hash: last.hash,
            previous: first.previous,
            ..last.header
        });
        Ok(contents)
    }

    fn classify(
        &self,
        records: &[(Location, RecordHeader)],
        contents: &mut SegmentContents,
    ) -> Result<(), StoreError> {
        let liveness_of_each = self.store.query_index(|index| {
            records
                .iter()
                .map(|(at, header)| self.liveness(index, *at, header))
                .collect::<Result<Vec<_>, _>>()
        })?;
        for ((at, header), liveness) in records.iter().zip(liveness_of_each) {
            let bytes = HEADER_BYTES as u64 + header.length;
            match liveness {
                Liveness::Live => {
                    contents.live.push(at.offset);
                    contents.live_bytes += bytes;
                    continue;
                }
                Liveness::Unreferenced => {
                    contents
                        .unreferenced
                        .insert(header.payload_hash, (at.offset, bytes));
                }
                Liveness::Garbage => {}
            }
            contents.garbage_keys.extend(record_key(header));
        }
        Ok(())
    }

    pub(super) fn liveness(
        &self,
        index: &Index,
        at: Location,
        header: &RecordHeader,
    ) -> Result<Liveness, IndexFault> {
        Ok(if !is_live(index, self.request.deletions, at, header)? {
            Liveness::Garbage
        } else if header.kind == RecordKind::Content && !self.is_retained(header.payload_hash) {
            Liveness::Unreferenced
        } else {
            Liveness::Live
        })
    }

    /// Whether a content must be kept. `name` is the log's name of the content.
    fn is_retained(&self, name: Hash) -> bool {
        let is_referred_to = || {
            self.request
                .inventory
                .is_referred_to(ShortName::of(&name), &self.removals)
        };
        self.request.contents == KeptContents::All
            || is_referred_to()
            || self.store.gc_pins.is_pinned(name)
    }
}
