//! The queue of model calls that wait for a permit of their provider.
//!
//! The queue is pure: tickets are numbers, time is an argument in milliseconds of any monotonic
//! clock, and nothing here waits.
//!
//! * No more calls run at the same time than the limit permits.
//! * Priority classes are weighted. If all of them have waiting calls, four of seven permits go to
//!   high, two to normal and one to low.
//! * Within a class, process trees take turns, independent of the number of their calls. A tree
//!   that got a permit comes after all trees that were waiting at that time. At most one round of
//!   new trees comes before it, so that no tree starves.
//! * Within a tree, calls are served in order of arrival.
//! * While the queue is paused, no permit is granted.
//!
//! The classes are scheduled by stride scheduling: each class has a *pass* value, which grows by
//! the *stride* of the class with each permit, and the class with the lowest pass value is next.

mod class;

use std::collections::BTreeMap;

use dormouse_proto::id::Pid;
use dormouse_proto::process::Priority;

use self::class::Class;

/// A position in the queue of one provider, and after the grant a permit. A queue never reuses a
/// ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitTicket(u64);

/// The origin of a call that needs a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Priority class.
    pub priority: Priority,
    /// Tree of the process, identified by its root.
    pub tree: Pid,
}

/// State of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TicketState {
    Waiting,
    Granted,
}

/// The queue for the permits of one provider.
#[derive(Debug)]
pub struct Permits {
    max_granted: usize,
    granted: usize,
    next_ticket: u64,
    paused_until_ms: u64,
    /// Pass value, before its last permit, of the class that got the latest permit.
    current_pass: u64,
    classes: BTreeMap<Priority, Class>,
    tickets: BTreeMap<PermitTicket, (Requester, TicketState)>,
}

impl Permits {
    /// A queue with `max_granted` permits, at least one.
    #[must_use]
    pub fn new(max_granted: usize) -> Self {
        Self {
            max_granted: max_granted.max(1),
            granted: 0,
            next_ticket: 0,
            paused_until_ms: 0,
            current_pass: 0,
            classes: BTreeMap::new(),
            tickets: BTreeMap::new(),
        }
    }

    /// Adds a call to the queue. O(log n) in the tickets.
    pub fn enter(&mut self, requester: Requester) -> PermitTicket {
        let ticket = PermitTicket(self.next_ticket);
        self.next_ticket += 1;
        let class = self.classes.entry(requester.priority).or_default();
        class.enter(
            requester.tree,
            ticket,
            self.current_pass + stride(requester.priority),
        );
        self.tickets
            .insert(ticket, (requester, TicketState::Waiting));
        ticket
    }

    /// Grants the next permit. `None` if no call is waiting, all permits are in use, or the queue
    /// is paused at `now_ms`. Call it until it returns `None`, after each change and at the end of
    /// a pause. O(log n) in the tickets.
    pub fn grant(&mut self, now_ms: u64) -> Option<PermitTicket> {
        if self.granted >= self.max_granted || self.paused_until(now_ms).is_some() {
            return None;
        }
        let waiting = self
            .classes
            .iter_mut()
            .filter(|(_, class)| class.has_waiting());
        // Of classes with the same pass value, the higher priority wins.
        let (priority, class) = waiting
            .min_by_key(|(priority, class)| (class.pass(), std::cmp::Reverse(**priority)))?;
        self.current_pass = class.pass();
        let ticket = class.grant_next(stride(*priority))?;
        let (_, state) = self
            .tickets
            .get_mut(&ticket)
            .expect("each waiting call of a class has a ticket");
        *state = TicketState::Granted;
        self.granted += 1;
        Some(ticket)
    }

    /// Removes a ticket: withdraws it if it is waiting, or returns its permit. The caller does not
    /// need to know which, since the permit may have been granted in the same instant. Ignores
    /// unknown tickets. O(log n) in the tickets.
    pub fn leave(&mut self, ticket: PermitTicket) {
        let Some((requester, state)) = self.tickets.remove(&ticket) else {
            return;
        };
        let class = self
            .classes
            .get_mut(&requester.priority)
            .expect("each ticket was added to its class");
        match state {
            TicketState::Waiting => class.withdraw(requester.tree, ticket),
            TicketState::Granted => {
                self.granted -= 1;
                class.return_permit(requester.tree);
            }
        }
    }

    /// Pauses the queue until `until_ms`. A pause is never shortened. O(1).
    pub fn pause(&mut self, until_ms: u64) {
        self.paused_until_ms = self.paused_until_ms.max(until_ms);
    }

    /// End of the pause that is active at `now_ms`, if any. O(1).
    #[must_use]
    pub fn paused_until(&self, now_ms: u64) -> Option<u64> {
        Some(self.paused_until_ms).filter(|until| now_ms < *until)
    }

    /// Number of granted permits. O(1).
    #[must_use]
    pub fn granted(&self) -> usize {
        self.granted
    }

    /// Number of waiting tickets. O(1).
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.tickets.len() - self.granted
    }
}

/// Returns the increase of a class's pass value per permit: the inverse of the weights 4, 2 and 1.
fn stride(priority: Priority) -> u64 {
    match priority {
        Priority::High => 1,
        Priority::Normal => 2,
        Priority::Low => 4,
    }
}

#[cfg(test)]
mod tests;
