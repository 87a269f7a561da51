//! Who may ask a provider next: the queue for its permits.
//!
//! Pure: tickets are numbers and time comes in as milliseconds of any clock that does not go back.
//! Nothing here waits.
//!
//! * No more calls run at once than the bound says.
//! * Between classes of priority it is weighted: where all wait, of seven permits four go to high,
//!   two to normal, one to low.
//! * Within a class the trees take turns, whatever each of them asks for: one that was served comes
//!   again after the others that waited then. One that comes new waits for none that was served
//!   since, and after at most one round of newcomers the old are served, so that nobody starves.
//! * Within a tree, the first to come is the first to be served.
//! * While the queue is paused nothing is granted.

mod class;

use std::collections::BTreeMap;

use dormouse_proto::id::Pid;
use dormouse_proto::process::Priority;

use self::class::Class;

/// A place in the queue of one provider, then a permit of it. Never given out twice by one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitTicket(u64);

/// Who wants a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Its class.
    pub priority: Priority,
    /// Its tree, by the process at the top.
    pub tree: Pid,
}

/// Where a ticket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Waiting,
    Granted,
}

/// The queue for the permits of one provider.
#[derive(Debug)]
pub struct Permits {
    bound: usize,
    granted: usize,
    next: u64,
    paused_until_ms: u64,
    /// The class that was served last had come so far.
    reached: u64,
    classes: BTreeMap<Priority, Class>,
    tickets: BTreeMap<PermitTicket, (Requester, Standing)>,
}

impl Permits {
    /// A queue with `bound` permits; with at least one, since without any nobody could ever be
    /// served.
    #[must_use]
    pub fn new(bound: usize) -> Self {
        Self {
            bound: bound.max(1),
            granted: 0,
            next: 0,
            paused_until_ms: 0,
            reached: 0,
            classes: BTreeMap::new(),
            tickets: BTreeMap::new(),
        }
    }

    /// Stands in the queue. O(log n) in the tickets that are out.
    pub fn enter(&mut self, asker: Requester) -> PermitTicket {
        let ticket = PermitTicket(self.next);
        self.next += 1;
        let class = self.classes.entry(asker.priority).or_default();
        class.enter(asker.tree, ticket, self.reached + stride(asker.priority));
        self.tickets.insert(ticket, (asker, Standing::Waiting));
        ticket
    }

    /// Grants a permit to whoever is next; none where nobody waits, all permits are out, or the
    /// queue is paused at `now_ms`. To be called until there is none, after each change and at the
    /// end of a pause. O(log n) in the tickets that are out.
    pub fn grant(&mut self, now_ms: u64) -> Option<PermitTicket> {
        if self.granted >= self.bound || self.paused_until(now_ms).is_some() {
            return None;
        }
        let waiting = self.classes.iter_mut().filter(|(_, class)| class.waits());
        // Of two that have come equally far, the higher.
        let (priority, class) = waiting
            .min_by_key(|(priority, class)| (class.pass(), std::cmp::Reverse(**priority)))?;
        self.reached = class.pass();
        let ticket = class.serve(stride(*priority))?;
        let (_, standing) = self
            .tickets
            .get_mut(&ticket)
            .expect("who waits in a class holds a ticket");
        *standing = Standing::Granted;
        self.granted += 1;
        Some(ticket)
    }

    /// Withdraws a ticket that waits, or gives back its permit. Whoever gives up need not know
    /// which it is: it may have been granted in the same instant. One that is gone already changes
    /// nothing. O(log n) in the tickets that are out.
    pub fn leave(&mut self, ticket: PermitTicket) {
        let Some((asker, standing)) = self.tickets.remove(&ticket) else {
            return;
        };
        let class = self
            .classes
            .get_mut(&asker.priority)
            .expect("who holds a ticket came through its class");
        match standing {
            Standing::Waiting => class.withdraw(asker.tree, ticket),
            Standing::Granted => {
                self.granted -= 1;
                class.give_back(asker.tree);
            }
        }
    }

    /// Grants nothing before `until_ms`. A pause is never shortened: of two the longer one holds.
    /// O(1).
    pub fn pause(&mut self, until_ms: u64) {
        self.paused_until_ms = self.paused_until_ms.max(until_ms);
    }

    /// The end of the pause that holds at `now_ms`, if one does. O(1).
    #[must_use]
    pub fn paused_until(&self, now_ms: u64) -> Option<u64> {
        Some(self.paused_until_ms).filter(|until| now_ms < *until)
    }

    /// How many permits are out. O(1).
    #[must_use]
    pub fn granted(&self) -> usize {
        self.granted
    }

    /// How many tickets wait. O(1).
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.tickets.len() - self.granted
    }
}

/// How far a permit brings a class: the one that has come least far is served next. Inverse to the
/// weights 4, 2 and 1.
fn stride(priority: Priority) -> u64 {
    match priority {
        Priority::High => 1,
        Priority::Normal => 2,
        Priority::Low => 4,
    }
}

#[cfg(test)]
mod tests;
