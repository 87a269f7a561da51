//! The index of a damaged log: lost ranges, queries that tolerate gaps, and an index without
//! locations, with which `log_scan.rs` builds the process table alone. A lost range is a part of
//! the log without a recognisable record (`log_walk.rs`).

use dormouse_actors::ports::StoreError;
use dormouse_proto::id::{CommitNumber, FactNumber, Pid};

use super::backend::{Backend, cannot_build};
use super::{Index, MAX_DECODED_ENTRIES, PayloadOf, unencodable};
use crate::location_index::{FactRun, IndexChanges, IndexFault};
use crate::log::Log;
use crate::log_position::{Location, LogPosition};
use crate::log_walk::LostRange;
use crate::process_table::{LastRecord, ProcessTable};
use crate::record_header::RecordHeader;

impl Index {
    /// An index of `log` that has only a process table, still empty, and no locations.
    pub(crate) fn table_only(log: &Log) -> Self {
        let pending = IndexChanges::default();
        let position = LogPosition::EMPTY;
        let compacted = log.compacted().clone();
        Self {
            processes: ProcessTable::new(*log.key()),
            locations: None,
            pending,
            position,
            backend: Backend::Memory,
            is_authoritative: true,
            compacted,
        }
    }

    /// Applies a record to the process table only.
    ///
    /// # Errors
    /// The errors of `payload`, except damage.
    pub(crate) fn apply_to_table(
        &mut self,
        at: Location,
        header: &RecordHeader,
        payload: PayloadOf<'_>,
    ) -> Result<(), StoreError> {
        let mut applied = self.apply_record(at, header, payload);
        self.pending = IndexChanges::default();
        if applied.is_ok() && self.processes.changed_entries() >= MAX_DECODED_ENTRIES {
            applied = self
                .processes
                .encode_changed()
                .map(drop)
                .map_err(|error| unencodable(error).into());
        }
        applied.map_err(|error| cannot_build(&self.backend, error))
    }

    /// Records a damaged range of the log.
    pub(crate) fn add_lost_range(&mut self, lost: LostRange) {
        self.processes.add_lost_range(lost);
    }

    /// As [`Index::facts`], with gaps where facts are lost.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn facts_with_gaps(
        &self,
        pid: Pid,
        first: FactNumber,
        up_to: FactNumber,
    ) -> Result<Vec<FactRun>, IndexFault> {
        let mut runs = self.locations()?.facts(pid, first, up_to, &self.pending)?;
        runs.retain(|run| !self.compacted.contains(run.at.segment));
        self.check_absence(cover_all_facts(&runs, first, up_to))
            .map(|()| runs)
    }

    /// The earliest commit that may have written a record after `last_record` into one of these
    /// lost ranges; `None` if there are no ranges.
    pub(crate) fn first_lost_commit<'a>(
        &self,
        last_record: LastRecord,
        ranges: impl Iterator<Item = &'a LostRange>,
    ) -> Option<CommitNumber> {
        // A record that a compaction moved into the lost range may be of any earlier commit. It
        // came from a segment that is compacted by now.
        let may_be_moved = self.compacted.contains_any_from(last_record.at.segment);
        ranges
            .map(|lost| if may_be_moved { 0 } else { lost.first_commit })
            .min()
            .map(CommitNumber)
    }
}

/// Whether these runs contain all facts from `first` to `up_to`.
pub(super) fn cover_all_facts(runs: &[FactRun], first: FactNumber, up_to: FactNumber) -> bool {
    let covered = runs.iter().try_fold(first, |next, run| {
        run.covers(next).then(|| run.first.plus(run.count))
    });
    covered.is_some_and(|next| next > up_to)
}
