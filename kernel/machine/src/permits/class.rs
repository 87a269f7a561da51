//! One priority class: selects the process tree that gets the next permit of the class.
//!
//! Each tree has a *turn*, a value of the class's grant counter (not the turn of a process). The
//! turn of a new tree is the current value. After a grant, a tree's turn is the counter plus the
//! number of other waiting trees, so that each of them goes first. The tree with the lowest turn is
//! next; if turns are equal, the tree that has been waiting longer. Therefore a tree waits for at
//! most one round of other trees, and for new trees only until the counter reaches its turn.
//!
//! `permits.rs` chooses among the classes, by their pass values.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_proto::id::Pid;

use super::PermitTicket;

#[derive(Debug, Default)]
pub(super) struct Class {
    /// Pass value for stride scheduling among the classes.
    pass: u64,
    /// Grant counter: permits that the class has granted so far.
    grants: u64,
    /// Trees that have waiting calls or permits; others are removed.
    trees: BTreeMap<Pid, Tree>,
    /// Waiting trees by turn. The ticket is the tree's oldest waiting one at the time when the tree
    /// was inserted here; it orders trees of the same turn.
    queue: BTreeSet<(u64, PermitTicket, Pid)>,
}

#[derive(Debug)]
struct Tree {
    /// Part of the tree's key in `queue` while it waits.
    turn: u64,
    /// Part of the tree's key in `queue` while it waits.
    waiting_since: PermitTicket,
    waiting: BTreeSet<PermitTicket>,
    granted: usize,
}

impl Class {
    pub(super) fn pass(&self) -> u64 {
        self.pass
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The ticket that [`grant_next`](Self::grant_next) grants.
    pub(super) fn next(&self) -> Option<PermitTicket> {
        let (_, _, root) = self.queue.first()?;
        self.trees.get(root)?.waiting.first().copied()
    }

    /// Adds a ticket. If no call of the class was waiting, its pass value is raised to `min_pass`
    /// (the scheduler's current pass value plus one stride of this class), so that a class does not
    /// save up permits while it is empty.
    pub(super) fn enter(&mut self, root: Pid, ticket: PermitTicket, min_pass: u64) {
        if !self.has_waiting() {
            self.pass = self.pass.max(min_pass);
        }
        let new_tree = Tree {
            turn: self.grants,
            waiting_since: ticket,
            waiting: BTreeSet::new(),
            granted: 0,
        };
        let tree = self.trees.entry(root).or_insert(new_tree);
        if tree.waiting.is_empty() {
            // A tree that still holds a permit keeps its turn, which may be later than the counter.
            // A tree without permits was removed, and counts as new.
            tree.turn = tree.turn.max(self.grants);
            tree.waiting_since = ticket;
            self.queue.insert((tree.turn, ticket, root));
        }
        tree.waiting.insert(ticket);
    }

    /// Grants a permit to the tree with the lowest turn. Its next call comes after one round of the
    /// trees that are waiting now.
    pub(super) fn grant_next(&mut self, stride: u64) -> Option<PermitTicket> {
        let (_, _, root) = self.queue.pop_first()?;
        let tree = self
            .trees
            .get_mut(&root)
            .expect("a tree in the queue is registered");
        let ticket = tree
            .waiting
            .pop_first()
            .expect("a tree in the queue has a waiting call");
        self.pass += stride;
        self.grants += 1;
        tree.granted += 1;
        tree.turn = self.grants + self.queue.len().max(1) as u64;
        if let Some(first) = tree.waiting.first() {
            tree.waiting_since = *first;
            self.queue.insert((tree.turn, tree.waiting_since, root));
        }
        Some(ticket)
    }

    pub(super) fn withdraw(&mut self, root: Pid, ticket: PermitTicket) {
        let tree = self
            .trees
            .get_mut(&root)
            .expect("a tree with a ticket is registered");
        tree.waiting.remove(&ticket);
        if tree.waiting.is_empty() {
            self.queue.remove(&(tree.turn, tree.waiting_since, root));
        }
        self.remove_if_unused(root);
    }

    pub(super) fn return_permit(&mut self, root: Pid) {
        self.trees
            .get_mut(&root)
            .expect("a tree with a permit is registered")
            .granted -= 1;
        self.remove_if_unused(root);
    }

    /// Removes a tree that has neither waiting calls nor permits.
    fn remove_if_unused(&mut self, root: Pid) {
        if self
            .trees
            .get(&root)
            .is_some_and(|tree| tree.waiting.is_empty() && tree.granted == 0)
        {
            self.trees.remove(&root);
        }
    }
}
