//! Translation between pids and the local ids of branched and imported trees.
//!
//! The conversation of a branched or imported process contains the pids of the processes that it
//! was made from: children, senders, mail, and text that its model has read. None of that is
//! rewritten. Instead, this module translates at the boundary: an id that leaves a process is
//! resolved to a pid, and a pid that enters a process is replaced by the local id that the process
//! knows. The field `branched_from` of a process row holds the local id of such a process.
//!
//! An id is first looked up among the members of the same tree. The mapping is derived from the
//! rows of the process table, so it is durable without a record of its own. A process that was
//! created after the branch has its pid as local id; that pid is greater than every id of the
//! original tree. (If a tree was imported from a kernel with higher numbers, the pid is at least the
//! local id of no member.) A process outside of the tree whose pid collides with a local id is unreachable:
//! the tree cannot name it, and it cannot write to the tree.

use std::collections::BTreeMap;

use dormouse_kernel::process::Input;
use dormouse_proto::id::Pid;
use dormouse_proto::mail::{ReachableProcess, Sender};
use dormouse_proto::process::{Origin, ProcessRow};

use super::entry::ProcessEntry;
use super::{Lineage, Supervisor};
use crate::process::Delivery;

/// A pid that no process has.
pub(super) const NO_PROCESS: Pid = Pid(0);

/// The local ids in branched and imported trees, by the root of the tree.
#[derive(Debug, Default)]
pub(crate) struct LocalIds {
    /// The pids, by the root of the tree and the local id.
    pids_by_local_id: BTreeMap<(Pid, Pid), Pid>,
    /// For each imported tree, by its root: the greatest pid of the store that the tree was
    /// exported from. Every id up to that pid belongs to that store.
    last_source_pids: BTreeMap<Pid, Pid>,
}

impl LocalIds {
    /// Adds the local id of a process in the tree of `root`.
    pub(super) fn insert(&mut self, root: Pid, row: &ProcessRow) {
        if let Some(branch_origin) = row.branched_from {
            self.pids_by_local_id
                .insert((root, branch_origin.local_id), row.pid);
            if let Some(import) = branch_origin.import {
                let last = self.last_source_pids.entry(root).or_insert(import.last_pid);
                *last = import.last_pid.max(*last);
            }
        }
    }

    /// Removes a process whose creation failed or whose tree was deleted.
    pub(super) fn remove(&mut self, root: Pid, row: &ProcessRow) {
        if row.branched_from.is_some() {
            self.pids_by_local_id.remove(&(root, row.local_id()));
            self.last_source_pids.remove(&root);
        }
    }

    /// The pid of local id `id` in the tree of `root`; [`NO_PROCESS`] for an id of the store
    /// that the tree was exported from; `None` if the tree does not define the id.
    fn resolve(&self, root: Pid, id: Pid) -> Option<Pid> {
        let belongs_to_source = || {
            self.last_source_pids
                .get(&root)
                .is_some_and(|last| id <= *last)
        };
        self.pids_by_local_id
            .get(&(root, id))
            .copied()
            .or_else(|| belongs_to_source().then_some(NO_PROCESS))
    }
}

impl Supervisor {
    /// The pid of the process that `observer` knows by `id`, or [`NO_PROCESS`]. A copy resolves an
    /// id like the process that it was copied from. Costs the depth of its tree.
    pub(super) fn resolve(&self, observer: Pid, id: Pid) -> Pid {
        let mut root = self.table.root(observer);
        loop {
            match self.local_ids.resolve(root, id) {
                // A process of the tree that is younger than its import.
                Some(NO_PROCESS) if self.is_in_tree(id, root) => return id,
                Some(pid) => return pid,
                None => {}
            }
            root = match self.table.get(root).map(ProcessEntry::origin) {
                Some(Origin::Copied { from, .. }) if from < root => self.table.root(from),
                _ => return id,
            };
        }
    }

    fn is_in_tree(&self, pid: Pid, root: Pid) -> bool {
        self.table.get(pid).is_some() && self.table.root(pid) == root
    }

    /// The id by which `observer` knows `pid`; `None` if `observer` knows another process by that
    /// id. Costs the depth of both trees.
    pub(super) fn local_id_for(&self, observer: Pid, pid: Pid) -> Option<Pid> {
        if self.table.root(observer) == self.table.root(pid) {
            return Some(self.local_id(pid));
        }
        (self.resolve(observer, pid) == pid).then_some(pid)
    }

    /// The id of a process within its tree.
    pub(super) fn local_id(&self, pid: Pid) -> Pid {
        self.table.row(pid).map_or(pid, |row| row.local_id())
    }

    /// Replaces the pids of an entry in a list of processes by the ids that `observer` knows;
    /// `None` if `observer` cannot name the process.
    pub(super) fn with_local_ids(
        &self,
        observer: Pid,
        process: ReachableProcess,
    ) -> Option<ReachableProcess> {
        let pid = self.local_id_for(observer, process.pid)?;
        let parent = process
            .parent
            .and_then(|parent| self.local_id_for(observer, parent));
        Some(ReachableProcess {
            pid,
            parent,
            ..process
        })
    }

    /// Replaces the sender of a message that the host sends in the name of a process by the id that
    /// the receiver knows.
    pub(super) fn with_local_sender(&self, to: Pid, mut delivery: Delivery) -> Delivery {
        if let Input::UserInput {
            from: Sender::Process(from),
            ..
        } = &mut delivery.input
        {
            *from = self.local_id_for(to, *from).unwrap_or(*from);
        }
        delivery
    }

    /// The process, then the process that it was copied or restored from, and so on, each with the
    /// last fact that was taken from it.
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
