//! The losses that can be derived from the process table, and the losses that a repair
//! acknowledged. [`fsck`](crate::fsck()) and the opening of a store share these functions.
//!
//! A lost range is a part of the log without a recognisable record. What was in it is unknown: a
//! process may have later records in each range after its last record, unless its end is recorded
//! and names its last fact.

use std::collections::BTreeSet;

use dormouse_proto::id::{CommitNumber, Pid};
use dormouse_proto::record::codec;
use serde::{Deserialize, Serialize};

use super::{CheckpointState, EncodeResult, ProcessEntry, ProcessTable};
use crate::issue::Issue;
use crate::location_index::losses_key;
use crate::log_position::Location;
use crate::log_walk::LostRange;

/// Losses that were acknowledged together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AcknowledgedLosses {
    /// The location of the record.
    pub(crate) at: Location,
    /// The acknowledged losses.
    pub(crate) losses: Vec<Issue>,
}

impl ProcessTable {
    /// All acknowledged losses, encoded as by [`ProcessTable::put_losses`].
    pub(crate) fn encoded_losses(&self) -> impl Iterator<Item = (u64, EncodeResult)> {
        self.acknowledged
            .iter()
            .map(|(commit, losses)| (*commit, codec::encode(losses)))
    }

    /// The losses that the acknowledgement written in this commit lists. A compaction may have
    /// moved that record since.
    pub(crate) fn acknowledged_in(&self, commit: u64) -> Option<&AcknowledgedLosses> {
        self.acknowledged.get(&commit)
    }

    /// Sets the losses acknowledged by the record first written in this commit, which replace
    /// those of an earlier location of the record. Returns their bytes, for the index.
    ///
    /// # Errors
    /// If they cannot be encoded.
    pub(crate) fn put_losses(&mut self, commit: u64, losses: AcknowledgedLosses) -> EncodeResult {
        let bytes = codec::encode(&losses)?;
        let old = self.acknowledged.insert(commit, losses);
        let old = old.map(|old| codec::encode(&old)).transpose()?;
        self.digest
            .replace(&self.key, &losses_key(commit), old.as_deref(), Some(&bytes));
        Ok(bytes)
    }

    /// All acknowledged losses.
    pub(crate) fn acknowledged_losses(&self) -> BTreeSet<Issue> {
        self.acknowledged
            .values()
            .flat_map(|losses| losses.losses.iter().cloned())
            .collect()
    }

    /// Whether a loss of this process is acknowledged.
    pub(crate) fn has_acknowledged_loss(&self, pid: Pid) -> bool {
        let is_loss_of_process = |loss: &Issue| match loss {
            Issue::Row { pid: loss_pid }
            | Issue::Facts { pid: loss_pid, .. }
            | Issue::Snapshot { pid: loss_pid, .. }
            | Issue::FirstSnapshot { pid: loss_pid, .. }
            | Issue::TempFile { root: loss_pid, .. }
            | Issue::MayContinueInLoss { pid: loss_pid, .. } => *loss_pid == pid,
            Issue::Head { .. }
            | Issue::LostRange { .. }
            | Issue::StraySegment { .. }
            | Issue::SegmentStart { .. }
            | Issue::Content { .. }
            | Issue::Checkpoint { .. }
            | Issue::Label { .. }
            | Issue::LogTooShort { .. }
            | Issue::UnknownEnd { .. } => false,
        };
        self.acknowledged
            .values()
            .any(|losses| losses.losses.iter().any(is_loss_of_process))
    }

    /// Whether a lost range starts at or after a location. Of a range after HEAD's position, a
    /// reader concludes that it may be a commit that another program is writing, and reads again.
    pub(crate) fn has_loss_after(&self, location: Location) -> bool {
        self.lost.iter().any(|lost| lost.start >= location)
    }

    /// The lost ranges of the log, ascending. They may have contained records of any process.
    pub(crate) fn lost_ranges(&self) -> &[LostRange] {
        &self.lost
    }

    /// The lost ranges that may contain later records of a process. A process is complete if it has
    /// ended and the record of its end names its last known fact: nothing of it can be missing.
    pub(crate) fn lost_ranges_after(
        &self,
        entry: &ProcessEntry,
    ) -> impl Iterator<Item = &LostRange> {
        let last_record = entry.last_record;
        let lost = if entry.is_complete() {
            &[]
        } else {
            &self.lost[..]
        };
        lost.iter()
            .filter(move |lost| last_record.may_be_followed_in(lost))
    }

    /// The commit in which the last process of a tree ended, after which the tree's temporary files
    /// no longer change; `None` if a process has not ended, or may be lost. A lost range after that
    /// commit may hold a record that opened a process again. As for a journal, reading does not
    /// fail for that: `check_end` does, before such a process could change a file. Costs a pass
    /// over the table.
    pub(crate) fn end_of_tree(&self, root: Pid) -> Option<CommitNumber> {
        let mut tree = BTreeSet::from([root]);
        let mut last_end = 0;
        // A parent has a lower pid than its children, so it comes first.
        for (pid, entry) in self.entries() {
            let entry = entry?;
            let parent = match &entry.creation_row {
                Some(creation_row) => creation_row.parent,
                None => return None,
            };
            if pid == root || parent.is_some_and(|parent| tree.contains(&parent)) {
                tree.insert(pid);
                last_end = last_end.max(
                    entry
                        .end
                        .as_ref()
                        .filter(|_| entry.is_complete())?
                        .first_commit,
                );
            }
        }
        Some(CommitNumber(last_end))
    }

    /// The losses that this table shows: lost ranges, then processes without a readable row, then
    /// unreadable checkpoints and labels.
    pub(crate) fn losses(&self) -> Vec<Issue> {
        let entries = self.latest_entries();
        let without_row = entries.filter(|(_, entry)| entry.is_row_lost());
        self.losses_with(&without_row.map(|(pid, _)| pid).collect::<Vec<_>>())
    }

    /// As [`ProcessTable::losses`]; the caller passes the processes without a readable row.
    pub(super) fn losses_with(&self, unreadable: &[Pid]) -> Vec<Issue> {
        let mut losses: Vec<_> = self
            .lost
            .iter()
            .map(|lost| Issue::LostRange {
                from: lost.start,
                to: lost.end,
            })
            .collect();
        losses.extend(unreadable.iter().map(|pid| Issue::Row { pid: *pid }));
        let damaged = self
            .checkpoints
            .iter()
            .filter(|(_, entry)| entry.state == CheckpointState::Damaged);
        losses.extend(damaged.map(|(id, _)| Issue::Checkpoint { id: *id }));
        losses.extend(self.damaged_labels());
        losses
    }

    /// Processes without a recorded end that may have gone on in a lost range.
    pub(crate) fn may_continue_in_loss(&self) -> Vec<Issue> {
        let entries = self
            .entries()
            .filter_map(|(pid, entry)| Some((pid, entry?)));
        let unfinished = entries.filter(|(_, entry)| {
            entry.row().is_some() && self.lost_ranges_after(entry).next().is_some()
        });
        unfinished
            .map(|(pid, entry)| Issue::MayContinueInLoss {
                pid,
                last: entry.last,
            })
            .collect()
    }

    /// Whether anything could not be read when this table was built from the log. Costs a pass over
    /// the table, which decodes nothing.
    pub(crate) fn has_losses(&self) -> bool {
        !self.losses().is_empty()
    }

    /// Adds a lost range.
    pub(crate) fn add_lost_range(&mut self, lost: LostRange) {
        self.lost.push(lost);
    }
}
