//! What is lost as far as the table shows it, and what of that was acknowledged. `fsck` judges by
//! this as whoever opens the store does.

use std::collections::BTreeSet;

use dormouse_proto::id::{CommitNumber, Pid};
use dormouse_proto::record::codec;
use serde::{Deserialize, Serialize};

use super::{CheckpointState, Digest, Encoded, ProcessEntry, ProcessTable};
use crate::issue::Issue;
use crate::location_index::losses_key;
use crate::log_position::Location;
use crate::log_walk::LostRange;

/// Losses that were acknowledged together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AcknowledgedLosses {
    /// The record that says so.
    pub(crate) at: Location,
    /// What is lost.
    pub(crate) losses: Vec<Issue>,
}

impl ProcessTable {
    /// All notes of losses as [`ProcessTable::put_note`] encoded them.
    pub(crate) fn encoded_losses(&self) -> impl Iterator<Item = (u64, Encoded)> {
        self.acknowledged
            .iter()
            .map(|(number, noted)| (*number, codec::encode(noted)))
    }

    /// The note that was first written in this commit.
    pub(crate) fn acknowledged_in(&self, number: u64) -> Option<&AcknowledgedLosses> {
        self.acknowledged.get(&number)
    }

    /// Sets a note of losses; answers with its bytes, for the index.
    ///
    /// # Errors
    /// Where it cannot be encoded.
    pub(crate) fn put_losses(&mut self, number: u64, noted: AcknowledgedLosses) -> Encoded {
        let (name, bytes) = (losses_key(number), codec::encode(&noted)?);
        if let Some(old) = self.acknowledged.insert(number, noted) {
            self.digest.combine(
                Digest::of(&self.key, &name, &codec::encode(&old)?),
                u64::wrapping_sub,
            );
        }
        self.digest
            .combine(Digest::of(&self.key, &name, &bytes), u64::wrapping_add);
        Ok(bytes)
    }

    /// What was acknowledged as lost.
    pub(crate) fn acknowledged(&self) -> BTreeSet<Issue> {
        self.acknowledged
            .values()
            .flat_map(|noted| noted.losses.iter().cloned())
            .collect()
    }

    /// Whether something of a process was acknowledged as lost.
    pub(crate) fn has_acknowledged_loss(&self, pid: Pid) -> bool {
        let is_of = |loss: &Issue| match loss {
            Issue::Row { pid: of }
            | Issue::Facts { pid: of, .. }
            | Issue::Image { pid: of, .. }
            | Issue::Beginning { pid: of, .. }
            | Issue::TempFile { root: of, .. }
            | Issue::End { pid: of, .. } => *of == pid,
            Issue::Head { .. }
            | Issue::Part { .. }
            | Issue::Stray { .. }
            | Issue::Opening { .. }
            | Issue::Content { .. }
            | Issue::Checkpoint { .. }
            | Issue::Short { .. }
            | Issue::Unvouched { .. } => false,
        };
        self.acknowledged
            .values()
            .any(|noted| noted.losses.iter().any(is_of))
    }

    /// Whether something is lost from there on.
    pub(crate) fn is_lost_behind(&self, place: Location) -> bool {
        self.lost.iter().any(|lost| lost.from >= place)
    }

    /// The parts of the log in which records of any process may have been, by rising place.
    pub(crate) fn lost_ranges(&self) -> &[LostRange] {
        &self.lost
    }

    /// The parts that are lost, in which a process may go on as far as is known.
    pub(crate) fn may_continue_in(&self, entry: &ProcessEntry) -> impl Iterator<Item = &LostRange> {
        let last_record = entry.last_record;
        let lost = if entry.is_complete() {
            &[]
        } else {
            &self.lost[..]
        };
        lost.iter()
            .filter(move |lost| last_record.may_continue_in(lost))
    }

    /// The commit by which all of a tree have ended, who alone change its temporary files; none
    /// where one of them has not, as far as is known. Costs a pass over the lines.
    pub(crate) fn end_of_tree(&self, root: Pid) -> Option<CommitNumber> {
        let (mut tree, mut ended) = (BTreeSet::from([root]), 0);
        // A child is younger than its parent, so the parent comes first.
        for (pid, entry) in self.entries() {
            let entry = entry?;
            let parent = match &entry.birth {
                Some(birth) => birth.parent,
                None => return None,
            };
            if pid == root || parent.is_some_and(|parent| tree.contains(&parent)) {
                tree.insert(pid);
                ended = ended.max(entry.end.as_ref().filter(|_| entry.is_complete())?.since);
            }
        }
        Some(CommitNumber(ended))
    }

    /// What is lost as far as headers, births, ends and checkpoints show it, by place, process and
    /// checkpoint.
    pub(crate) fn losses(&self) -> Vec<Issue> {
        let entries = self
            .entries()
            .filter(|(_, entry)| entry.as_ref().is_none_or(|entry| entry.row().is_none()));
        self.losses_with(&entries.map(|(pid, _)| pid).collect::<Vec<_>>())
    }

    /// The same for who has gone through the lines, and found these to give no row.
    pub(super) fn losses_with(&self, unlisted: &[Pid]) -> Vec<Issue> {
        let mut losses: Vec<_> = self
            .lost
            .iter()
            .map(|lost| Issue::Part {
                from: lost.from,
                to: lost.to,
            })
            .collect();
        losses.extend(unlisted.iter().map(|pid| Issue::Row { pid: *pid }));
        let damaged = self
            .checkpoints
            .iter()
            .filter(|(_, entry)| entry.state == CheckpointState::Damaged);
        losses.extend(damaged.map(|(id, _)| Issue::Checkpoint { id: *id }));
        losses
    }

    /// The processes that may go on in what is lost.
    pub(crate) fn open_ends(&self) -> Vec<Issue> {
        let entries = self
            .entries()
            .filter_map(|(pid, entry)| Some((pid, entry?)));
        let open = entries.filter(|(_, entry)| {
            entry.row().is_some() && self.may_continue_in(entry).next().is_some()
        });
        open.map(|(pid, entry)| Issue::End {
            pid,
            last: entry.last,
        })
        .collect()
    }

    /// Whether something that stood in the log could not be read when this was built from it. Costs
    /// a pass over the lines.
    pub(crate) fn lacks_something(&self) -> bool {
        !self.losses().is_empty()
    }

    /// Notes damage.
    pub(crate) fn add_lost_range(&mut self, lost: LostRange) {
        self.lost.push(lost);
    }
}
