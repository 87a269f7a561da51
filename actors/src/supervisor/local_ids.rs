//! The numbers that processes of a branch know each other by.
//!
//! Their conversations are those of the processes that they were made from, and so are the numbers
//! in them: children that run, senders that were heard, mail, what a model was told. Nothing of
//! that is rewritten. Here, at the door, a number that comes out of a process is turned into the
//! process that it means, and the number of a process into the one that its reader knows.
//!
//! A number means a process of the same branch first. What stands behind it is derived from the
//! rows of the process table, so that it is durable without a state of its own. A process that was
//! made since goes by its pid: it is greater than all that its tree was made from. A stranger whose
//! pid means another within a tree can neither be named there nor write there.

use std::collections::BTreeMap;

use dormouse_kernel::process::Input;
use dormouse_proto::id::Pid;
use dormouse_proto::mail::{Neighbour, Sender};
use dormouse_proto::process::{Origin, ProcessRow};

use super::entry::ProcessEntry;
use super::{Lineage, Supervisor};
use crate::process::Delivery;

/// Nobody has this pid: they count from 1.
const NO_PROCESS: Pid = Pid(0);

/// What numbers mean that are no pids here, by the process that a tree begins with.
#[derive(Debug, Default)]
pub(crate) struct LocalIds {
    /// Who goes by another number than its pid.
    members: BTreeMap<(Pid, Pid), Pid>,
    /// The greatest number of the store that a tree was brought from.
    foreign: BTreeMap<Pid, Pid>,
}

impl LocalIds {
    /// Notes the row of a process whose tree begins with `root`.
    pub(super) fn insert(&mut self, root: Pid, row: &ProcessRow) {
        if let Some(restored) = row.restored {
            self.members.insert((root, restored.known_as), row.pid);
            if let Some(foreign) = restored.foreign {
                let last = self.foreign.entry(root).or_insert(foreign.last);
                *last = foreign.last.max(*last);
            }
        }
    }

    /// Takes out a process that was never born, or is given up, as its whole tree is.
    pub(super) fn remove(&mut self, root: Pid, row: &ProcessRow) {
        if row.restored.is_some() {
            self.members.remove(&(root, row.known_as()));
            self.foreign.remove(&root);
        }
    }

    /// The process that `number` means in the tree that begins with `root`, where that is not the
    /// one with this pid.
    fn resolve(&self, root: Pid, number: Pid) -> Option<Pid> {
        let is_foreign = || self.foreign.get(&root).is_some_and(|last| number <= *last);
        self.members
            .get(&(root, number))
            .copied()
            .or_else(|| is_foreign().then_some(NO_PROCESS))
    }
}

impl Supervisor {
    /// The process that `number` means to `reader`, or nobody: to a copy what it meant to the one
    /// that it is a copy of. Costs the depth of its tree.
    pub(super) fn resolve(&self, reader: Pid, number: Pid) -> Pid {
        let mut root = self.table.root(reader);
        loop {
            if let Some(pid) = self.local_ids.resolve(root, number) {
                return pid;
            }
            root = match self.table.get(root).map(ProcessEntry::origin) {
                Some(Origin::Copied { from, .. }) if from < root => self.table.root(from),
                _ => return number,
            };
        }
    }

    /// The number that `reader` knows `pid` by; none where that number means another to it. Costs
    /// the depth of their trees.
    pub(super) fn local_id_for(&self, reader: Pid, pid: Pid) -> Option<Pid> {
        let (root, of) = (self.table.root(reader), self.table.root(pid));
        if root == of {
            return Some(self.local_id(pid));
        }
        (self.resolve(reader, pid) == pid).then_some(pid)
    }

    /// The number that a process goes by within its tree.
    pub(super) fn local_id(&self, pid: Pid) -> Pid {
        self.table.row(pid).map_or(pid, |row| row.known_as())
    }

    /// A process as `reader` is told of it; none where it cannot be named to it.
    pub(super) fn neighbour_seen_by(&self, reader: Pid, neighbour: Neighbour) -> Option<Neighbour> {
        let pid = self.local_id_for(reader, neighbour.pid)?;
        let parent = neighbour
            .parent
            .and_then(|parent| self.local_id_for(reader, parent));
        Some(Neighbour {
            pid,
            parent,
            ..neighbour
        })
    }

    /// What the host says in the name of a process, as its receiver knows that.
    pub(super) fn with_local_sender(&self, to: Pid, mut delivery: Delivery) -> Delivery {
        if let Input::Spoke {
            from: Sender::Process(from),
            ..
        } = &mut delivery.input
        {
            *from = self.local_id_for(to, *from).unwrap_or(*from);
        }
        delivery
    }

    /// The process, then the one that it goes on from, and so on, each with the last fact that was
    /// taken over.
    pub(super) fn lineage(&self, pid: Pid) -> Lineage {
        let mut lineage = vec![(pid, None)];
        let ancestor_of = |pid| self.table.row(pid).and_then(|row| row.ancestor());
        let mut ancestor = ancestor_of(pid);
        while let Some((pid, at)) = ancestor {
            lineage.push((pid, Some(at)));
            ancestor = ancestor_of(pid);
        }
        lineage
    }
}
