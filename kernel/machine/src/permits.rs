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
//! * A call with a limit of tokens a minute waits until the calls of the last minute leave room for it
//!   (`window`), and those behind it wait too, so that a large call does not starve.
//! * A queue that shares its limits with others of the same server keeps its [`PermitShare`] of them.
//!
//! The classes are scheduled by stride scheduling: each class has a *pass* value, which grows by
//! the *stride* of the class with each permit, and the class with the lowest pass value is next.

mod class;
mod window;

use std::collections::BTreeMap;

use dormouse_proto::id::Pid;
use dormouse_proto::process::Priority;

use self::class::Class;
use self::window::TokenWindow;
pub use self::window::{TokenDemand, TokenShare};

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

/// What one of several queues for the same server may use by itself. `None` is no other limit than
/// that of the queue, and of its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PermitShare {
    /// The most calls at a time.
    pub calls: Option<usize>,
    /// The most tokens of a minute.
    pub tokens: Option<TokenShare>,
}

/// What a queue uses, and what it could use in addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PermitDemand {
    /// Calls that run.
    pub granted: usize,
    /// Calls that wait.
    pub waiting: usize,
    /// The call that comes next.
    pub next: Option<PermitTicket>,
    /// Tokens that count now, of calls that have a limit.
    pub tokens: u64,
    /// The tokens of the next call, as estimated, if it has a limit.
    pub next_tokens: u64,
    /// The tokens of all waiting calls that have a limit.
    pub waiting_tokens: u64,
    /// The smallest limit of a waiting call: tokens in a minute.
    pub per_minute: Option<u64>,
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
    /// The demands of the tickets that have a limit of tokens.
    demands: BTreeMap<PermitTicket, TokenDemand>,
    window: TokenWindow,
    share: PermitShare,
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
            demands: BTreeMap::new(),
            window: TokenWindow::default(),
            share: PermitShare::default(),
        }
    }

    /// Sets what this queue may use of limits that it shares with others. Permits that are granted
    /// stay. O(1).
    pub fn set_share(&mut self, share: PermitShare) {
        self.share = share;
    }

    /// What the queue may use of shared limits. O(1).
    #[must_use]
    pub fn share(&self) -> PermitShare {
        self.share
    }

    /// What the queue uses, and could use. O(n) in the waiting calls that have a limit of tokens and in
    /// the calls of the last minute.
    #[must_use]
    pub fn demand(&self, now_ms: u64) -> PermitDemand {
        let next = self.next().map(|(_, ticket)| ticket);
        let next_tokens = next.and_then(|ticket| self.demands.get(&ticket));
        PermitDemand {
            granted: self.granted,
            waiting: self.waiting(),
            next,
            tokens: self.window.counted(now_ms),
            next_tokens: next_tokens.map_or(0, |demand| demand.tokens),
            waiting_tokens: self
                .demands
                .values()
                .fold(0, |sum: u64, demand| sum.saturating_add(demand.tokens)),
            per_minute: self.demands.values().map(|demand| demand.per_minute).min(),
        }
    }

    fn has_free_permit(&self) -> bool {
        self.granted < self.share.calls.unwrap_or(self.max_granted)
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

    /// Adds a call that has to keep a limit of tokens. O(log n) in the tickets.
    pub fn enter_limited(&mut self, requester: Requester, demand: TokenDemand) -> PermitTicket {
        let ticket = self.enter(requester);
        self.demands.insert(ticket, demand);
        ticket
    }

    /// Grants the next permit. `None` if no call is waiting, all permits are in use, the queue
    /// is paused at `now_ms`, or the tokens of the last minute leave no room. Call it until it returns
    /// `None`, after each change and at the time of [`wake_ms`](Self::wake_ms). O(log n) in the tickets,
    /// and in the calls of the last minute if the next call has a limit.
    pub fn grant(&mut self, now_ms: u64) -> Option<PermitTicket> {
        if !self.has_free_permit() || self.paused_until(now_ms).is_some() {
            return None;
        }
        let (priority, next) = self.next()?;
        let demand = self.demands.get(&next).copied();
        let share = self.share.tokens;
        if demand.is_some_and(|demand| !self.window.has_room(demand, share, now_ms)) {
            return None;
        }
        let class = self.classes.get_mut(&priority)?;
        self.current_pass = class.pass();
        let ticket = class.grant_next(stride(priority))?;
        if let Some(demand) = self.demands.remove(&ticket) {
            self.window.begin(ticket, demand);
        }
        let (_, state) = self
            .tickets
            .get_mut(&ticket)
            .expect("each waiting call of a class has a ticket");
        *state = TicketState::Granted;
        self.granted += 1;
        Some(ticket)
    }

    /// The class and the ticket that come next.
    fn next(&self) -> Option<(Priority, PermitTicket)> {
        let waiting = self.classes.iter().filter(|(_, class)| class.has_waiting());
        // Of classes with the same pass value, the higher priority wins.
        let (priority, class) = waiting
            .min_by_key(|(priority, class)| (class.pass(), std::cmp::Reverse(**priority)))?;
        Some((*priority, class.next()?))
    }

    /// When a permit may be granted that is not granted at `now_ms`: at the end of a pause, or when
    /// the tokens of the last minute leave room. `None` if something has to change first.
    #[must_use]
    pub fn wake_ms(&self, now_ms: u64) -> Option<u64> {
        if let Some(until_ms) = self.paused_until(now_ms) {
            return Some(until_ms);
        }
        if !self.has_free_permit() {
            return None;
        }
        let (_, next) = self.next()?;
        let demand = *self.demands.get(&next)?;
        self.window.room_at(demand, self.share.tokens, now_ms)
    }

    /// A call has ended: what it used counts for a minute. `used` are its tokens, if they are known;
    /// otherwise the estimate counts. The caller returns the permit as well.
    pub fn end_call(&mut self, ticket: PermitTicket, used: Option<u64>, now_ms: u64) {
        self.window.end(ticket, used, now_ms);
    }

    /// Removes a ticket: withdraws it if it is waiting, or returns its permit. The caller does not
    /// need to know which, since the permit may have been granted in the same instant. Ignores
    /// unknown tickets. O(log n) in the tickets.
    pub fn leave(&mut self, ticket: PermitTicket) {
        let Some((requester, state)) = self.tickets.remove(&ticket) else {
            return;
        };
        self.demands.remove(&ticket);
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
