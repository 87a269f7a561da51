//! Which processes are above and below another one, and what a process inherits from those above it.

use std::sync::Arc;

use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::label::Label;
use dormouse_proto::process::{Origin, ProcessRow};

use super::ProcessTable;
use crate::supervisor::entry::{ProcessEntry, RunState, child_slot};

impl ProcessTable {
    /// Whether the tree of a process was stopped, so that its new children start stopped.
    pub(in crate::supervisor) fn inherits_stop(&self, parent: Option<Pid>) -> bool {
        parent
            .and_then(|parent| self.get(parent))
            .is_some_and(|parent| parent.children_start_stopped)
    }

    /// Records whether the tree of a process is stopped.
    pub(in crate::supervisor) fn set_stop_inherited(&mut self, pid: Pid, inherits_stop: bool) {
        if let Some(entry) = self.get_mut(pid) {
            entry.children_start_stopped = inherits_stop;
        }
    }

    /// Whether a process above this one is paused at a limit. Costs the depth of the tree.
    pub(in crate::supervisor) fn is_below_paused(&self, pid: Pid) -> bool {
        let parent = |pid: Pid| self.get(pid).and_then(ProcessEntry::parent);
        let mut above = std::iter::successors(parent(pid), |pid| parent(*pid));
        above.any(|pid| self.get(pid).is_some_and(ProcessEntry::is_paused))
    }

    /// The root of the tree of `pid`, by which ids and temporary files of the tree are found. If the
    /// store has lost an ancestor of `pid`, the result is the lost process nearest to `pid`, which
    /// is not in the table. Costs the depth of the tree.
    pub(in crate::supervisor) fn root(&self, pid: Pid) -> Pid {
        let parent = |pid: &Pid| self.get(*pid).and_then(ProcessEntry::parent);
        std::iter::successors(Some(pid), parent)
            .last()
            .unwrap_or(pid)
    }

    /// The labels of the tree of `pid`. Costs the depth of the tree.
    pub(in crate::supervisor) fn labels(&self, pid: Pid) -> Arc<[Label]> {
        let root = self.get(self.root(pid));
        root.map(ProcessEntry::labels).unwrap_or_default()
    }

    /// The highest ancestor of `pid` that is in the table: the root of its tree, unless the store
    /// has lost an ancestor. The isolation of a tree is recorded under this process, because users
    /// see it as the root. Costs the depth of the tree.
    pub(in crate::supervisor) fn highest_known_ancestor(&self, pid: Pid) -> Pid {
        let known_parent = |pid: &Pid| {
            let parent = self.get(*pid).and_then(ProcessEntry::parent)?;
            self.get(parent).map(|_| parent)
        };
        std::iter::successors(Some(pid), known_parent)
            .last()
            .unwrap_or(pid)
    }

    /// The child that a call created, if there is one.
    pub(in crate::supervisor) fn child(&self, parent: Pid, origin: &Origin) -> Option<ProcessRow> {
        let (call, index) = child_slot(origin)?;
        self.child_at(parent, call, index)
    }

    /// Like [`child`](Self::child), by the call and the index of the child.
    pub(in crate::supervisor) fn child_at(
        &self,
        parent: Pid,
        call: CallId,
        index: u32,
    ) -> Option<ProcessRow> {
        self.row(*self.children.get(&(parent, call, index))?)
    }

    /// The children that have not ended, and the calls that created them.
    pub(in crate::supervisor) fn living_children(&self, parent: Pid) -> Vec<(Pid, CallId)> {
        let is_living = |pid: Pid| {
            self.run_state(pid)
                .is_some_and(|run_state| run_state != RunState::Ended)
        };
        self.children_of(parent)
            .filter(|(child, _)| is_living(*child))
            .collect()
    }

    /// All children, and the calls that created them.
    pub(in crate::supervisor) fn children_of(
        &self,
        parent: Pid,
    ) -> impl Iterator<Item = (Pid, CallId)> {
        let first = (parent, CallId { epoch: 0, seq: 0 }, 0);
        let children = self
            .children
            .range(first..)
            .take_while(move |((of, ..), _)| *of == parent);
        children.map(|((_, call, _), child)| (*child, *call))
    }

    /// A process and its descendants that have not ended, parents first.
    pub(in crate::supervisor) fn living_tree(&self, root: Pid) -> Vec<Pid> {
        let mut tree = vec![root];
        let mut next = 0;
        while let Some(parent) = tree.get(next).copied() {
            tree.extend(
                self.living_children(parent)
                    .into_iter()
                    .map(|(child, _)| child),
            );
            next += 1;
        }
        tree
    }
}
