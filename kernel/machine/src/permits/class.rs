//! One priority class: its waiting trees, and which of them is next.
//!
//! A turn is a value of the class's grant counter. A new tree gets the current value; a tree that
//! was served gets the value at which all others that are waiting have been served. The lowest turn
//! is next; among equal ones, the tree that has been waiting longer. Turns only grow with the
//! grants, so that a tree waits for at most one round of others, and for new trees only until the
//! counter has reached its turn.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_proto::id::Pid;

use super::PermitTicket;

#[derive(Debug, Default)]
pub(super) struct Class {
    /// Pass value among the classes.
    pass: u64,
    /// Permits that were granted so far.
    grants: u64,
    /// Trees that wait or hold a permit; others are removed.
    trees: BTreeMap<Pid, Tree>,
    /// Waiting trees by turn. The ticket is the first that was waiting when the tree was added, and
    /// orders trees of the same turn.
    queue: BTreeSet<(u64, PermitTicket, Pid)>,
}

#[derive(Debug)]
struct Tree {
    /// Position in `queue` while it waits.
    turn: u64,
    since: PermitTicket,
    waiting: BTreeSet<PermitTicket>,
    granted: usize,
}

impl Class {
    pub(super) fn pass(&self) -> u64 {
        self.pass
    }

    pub(super) fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Adds a ticket. An empty class has no credit from the past: its pass value is raised to
    /// `least`, one of its own strides behind the current one.
    pub(super) fn enter(&mut self, tree: Pid, ticket: PermitTicket, least: u64) {
        if !self.waits() {
            self.pass = self.pass.max(least);
        }
        let new = Tree {
            turn: self.grants,
            since: ticket,
            waiting: BTreeSet::new(),
            granted: 0,
        };
        let known = self.trees.entry(tree).or_insert(new);
        if known.waiting.is_empty() {
            // A tree that was just served does not count as new; older grants count neither for nor
            // against it.
            known.turn = known.turn.max(self.grants);
            known.since = ticket;
            self.queue.insert((known.turn, ticket, tree));
        }
        known.waiting.insert(ticket);
    }

    /// Serves the tree whose turn it is. Its next waiting call comes after a round of those that
    /// wait now.
    pub(super) fn serve(&mut self, stride: u64) -> Option<PermitTicket> {
        let (_, _, pid) = self.queue.pop_first()?;
        let tree = self
            .trees
            .get_mut(&pid)
            .expect("a tree in the queue is known");
        let ticket = tree.waiting.pop_first().expect("a tree in the queue waits");
        self.pass += stride;
        self.grants += 1;
        tree.granted += 1;
        tree.turn = self.grants + self.queue.len().max(1) as u64;
        if let Some(first) = tree.waiting.first() {
            tree.since = *first;
            self.queue.insert((tree.turn, tree.since, pid));
        }
        Some(ticket)
    }

    pub(super) fn withdraw(&mut self, pid: Pid, ticket: PermitTicket) {
        let tree = self
            .trees
            .get_mut(&pid)
            .expect("a tree with a ticket is known");
        tree.waiting.remove(&ticket);
        if tree.waiting.is_empty() {
            self.queue.remove(&(tree.turn, tree.since, pid));
        }
        self.remove_if_unused(pid);
    }

    pub(super) fn return_permit(&mut self, pid: Pid) {
        self.trees
            .get_mut(&pid)
            .expect("a tree with a permit is known")
            .granted -= 1;
        self.remove_if_unused(pid);
    }

    /// Removes a tree that neither waits nor holds a permit.
    fn remove_if_unused(&mut self, pid: Pid) {
        if self
            .trees
            .get(&pid)
            .is_some_and(|tree| tree.waiting.is_empty() && tree.granted == 0)
        {
            self.trees.remove(&pid);
        }
    }
}
