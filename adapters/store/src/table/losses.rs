//! What is lost as far as the table shows it, and what of that was acknowledged. `fsck` judges by
//! this as whoever opens the store does.

use std::collections::BTreeSet;

use dormouse_proto::id::{CommitNumber, Pid};
use dormouse_proto::record::codec;
use serde::{Deserialize, Serialize};

use super::{CheckpointState, Digest, Encoded, Line, Table};
use crate::finding::Finding;
use crate::index::note_key;
use crate::mark::Location;
use crate::scan::Lost;

/// Losses that were acknowledged together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LossNote {
    /// The record that says so.
    pub(crate) at: Location,
    /// What is lost.
    pub(crate) losses: Vec<Finding>,
}

impl Table {
    /// All notes of losses as [`Table::put_note`] encoded them.
    pub(crate) fn encoded_notes(&self) -> impl Iterator<Item = (u64, Encoded)> {
        self.notes
            .iter()
            .map(|(number, note)| (*number, codec::encode(note)))
    }

    /// The note that was first written in this commit.
    pub(crate) fn note(&self, number: u64) -> Option<&LossNote> {
        self.notes.get(&number)
    }

    /// Sets a note of losses; answers with its bytes, for the index.
    ///
    /// # Errors
    /// Where it cannot be encoded.
    pub(crate) fn put_note(&mut self, number: u64, note: LossNote) -> Encoded {
        let (name, bytes) = (note_key(number), codec::encode(&note)?);
        if let Some(old) = self.notes.insert(number, note) {
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
    pub(crate) fn acknowledged(&self) -> BTreeSet<Finding> {
        self.notes
            .values()
            .flat_map(|note| note.losses.iter().cloned())
            .collect()
    }

    /// Whether something of a process was acknowledged as lost.
    pub(crate) fn is_noted(&self, pid: Pid) -> bool {
        let is_of = |loss: &Finding| match loss {
            Finding::Row { pid: of }
            | Finding::Facts { pid: of, .. }
            | Finding::Image { pid: of, .. }
            | Finding::Beginning { pid: of, .. }
            | Finding::TempFile { root: of, .. }
            | Finding::End { pid: of, .. } => *of == pid,
            Finding::Head { .. }
            | Finding::Part { .. }
            | Finding::Stray { .. }
            | Finding::Opening { .. }
            | Finding::Content { .. }
            | Finding::Checkpoint { .. }
            | Finding::Short { .. }
            | Finding::Unvouched { .. } => false,
        };
        self.notes
            .values()
            .any(|note| note.losses.iter().any(is_of))
    }

    /// Whether something is lost from there on.
    pub(crate) fn is_lost_behind(&self, place: Location) -> bool {
        self.lost.iter().any(|lost| lost.from >= place)
    }

    /// The parts of the log in which records of any process may have been, by rising place.
    pub(crate) fn lost(&self) -> &[Lost] {
        &self.lost
    }

    /// The parts that are lost, in which a process may go on as far as is known.
    pub(crate) fn goes_on_in(&self, line: &Line) -> impl Iterator<Item = &Lost> {
        let touched = line.touched;
        let lost = if line.is_complete() {
            &[]
        } else {
            &self.lost[..]
        };
        lost.iter().filter(move |lost| touched.may_go_on_in(lost))
    }

    /// The commit by which all of a tree have ended, who alone change its temporary files; none
    /// where one of them has not, as far as is known. Costs a pass over the lines.
    pub(crate) fn end_of_tree(&self, root: Pid) -> Option<CommitNumber> {
        let (mut tree, mut ended) = (BTreeSet::from([root]), 0);
        // A child is younger than its parent, so the parent comes first.
        for (pid, line) in self.lines() {
            let line = line?;
            let parent = match &line.birth {
                Some(birth) => birth.parent,
                None => return None,
            };
            if pid == root || parent.is_some_and(|parent| tree.contains(&parent)) {
                tree.insert(pid);
                ended = ended.max(line.end.as_ref().filter(|_| line.is_complete())?.since);
            }
        }
        Some(CommitNumber(ended))
    }

    /// What is lost as far as headers, births, ends and checkpoints show it, by place, process and
    /// checkpoint.
    pub(crate) fn losses(&self) -> Vec<Finding> {
        let lines = self
            .lines()
            .filter(|(_, line)| line.as_ref().is_none_or(|line| line.row().is_none()));
        self.losses_with(&lines.map(|(pid, _)| pid).collect::<Vec<_>>())
    }

    /// The same for who has gone through the lines, and found these to give no row.
    pub(super) fn losses_with(&self, unlisted: &[Pid]) -> Vec<Finding> {
        let mut losses: Vec<_> = self
            .lost
            .iter()
            .map(|lost| Finding::Part {
                from: lost.from,
                to: lost.to,
            })
            .collect();
        losses.extend(unlisted.iter().map(|pid| Finding::Row { pid: *pid }));
        let damaged = self
            .checkpoints
            .iter()
            .filter(|(_, line)| line.state == CheckpointState::Damaged);
        losses.extend(damaged.map(|(id, _)| Finding::Checkpoint { id: *id }));
        losses
    }

    /// The processes that may go on in what is lost.
    pub(crate) fn open_ends(&self) -> Vec<Finding> {
        let lines = self.lines().filter_map(|(pid, line)| Some((pid, line?)));
        let open = lines
            .filter(|(_, line)| line.row().is_some() && self.goes_on_in(line).next().is_some());
        open.map(|(pid, line)| Finding::End {
            pid,
            last: line.last,
        })
        .collect()
    }

    /// Whether something that stood in the log could not be read when this was built from it. Costs
    /// a pass over the lines.
    pub(crate) fn lacks_something(&self) -> bool {
        !self.losses().is_empty()
    }

    /// Notes damage.
    pub(crate) fn note_lost(&mut self, lost: Lost) {
        self.lost.push(lost);
    }
}
