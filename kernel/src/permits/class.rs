//! One class of priority: the trees that wait in it, and whose turn it is.
//!
//! A turn is a number of grants of the class. A tree that comes new gets the turn that is now; one
//! that was served, the turn when all others that waited have been served too. The smallest is
//! next, and of equal ones the tree that stands longer. Turns that are given out only grow with the
//! grants, so that a tree waits for a round of others at most, and for newcomers only until the
//! grants have reached its turn.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_proto::id::Pid;

use super::PermitTicket;

#[derive(Debug, Default)]
pub(super) struct Class {
    /// How far it has come among the classes.
    pass: u64,
    /// Permits that it was granted so far.
    grants: u64,
    /// Trees that wait or hold a permit; others are forgotten.
    trees: BTreeMap<Pid, Tree>,
    /// The trees that wait, by turn. The ticket tells trees of one turn apart: it is the first that
    /// waited when they were put here.
    line: BTreeSet<(u64, PermitTicket, Pid)>,
}

#[derive(Debug)]
struct Tree {
    /// Its place in the line, while it waits.
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
        !self.line.is_empty()
    }

    /// A class that nobody waited in has saved nothing up: it stands at `least`, one permit of its
    /// own behind where the classes have come.
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
            // One that was served a moment ago does not come new; what lies further back counts
            // neither for nor against it.
            known.turn = known.turn.max(self.grants);
            known.since = ticket;
            self.line.insert((known.turn, ticket, tree));
        }
        known.waiting.insert(ticket);
    }

    /// Serves the tree whose turn it is. Its next call, if one waits, comes after a round of those
    /// that wait now.
    pub(super) fn serve(&mut self, stride: u64) -> Option<PermitTicket> {
        let (_, _, pid) = self.line.pop_first()?;
        let tree = self
            .trees
            .get_mut(&pid)
            .expect("a tree in the line is known");
        let ticket = tree.waiting.pop_first().expect("a tree in the line waits");
        self.pass += stride;
        self.grants += 1;
        tree.granted += 1;
        tree.turn = self.grants + self.line.len().max(1) as u64;
        if let Some(first) = tree.waiting.first() {
            tree.since = *first;
            self.line.insert((tree.turn, tree.since, pid));
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
            self.line.remove(&(tree.turn, tree.since, pid));
        }
        self.forget(pid);
    }

    pub(super) fn give_back(&mut self, pid: Pid) {
        self.trees
            .get_mut(&pid)
            .expect("a tree with a permit is known")
            .granted -= 1;
        self.forget(pid);
    }

    /// What neither waits nor holds a permit costs nothing.
    fn forget(&mut self, pid: Pid) {
        if self
            .trees
            .get(&pid)
            .is_some_and(|tree| tree.waiting.is_empty() && tree.granted == 0)
        {
            self.trees.remove(&pid);
        }
    }
}
