//! Bounds the number of connections, and chooses which one is evicted for a new one.
//!
//! A client can open connections at no cost and never send a request. When all slots are taken, a
//! new connection therefore evicts one that is not being served: first the oldest one without an
//! admitted request whose body has come, then the one that is idle longest. A
//! connection is never evicted while its request is being answered, so an open event stream keeps
//! its slot. A client that only holds connections open therefore delays no other client.
//!
//! The task of an evicted connection closes its socket a moment after the slot is free. For that
//! moment, there are more sockets than slots.
//!
//! Slots are not counted per peer, since all clients of this machine have one address, and so do
//! all clients behind a proxy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// A bounded number of connections.
#[derive(Debug)]
pub struct Connections {
    capacity: usize,
    open: Mutex<OpenConnections>,
    /// Notified when a slot is freed, or when the connection in it can be evicted.
    freed: Notify,
}

#[derive(Debug, Default)]
struct OpenConnections {
    /// A logical clock: it counts new connections and answered requests, to order them by age.
    clock: u64,
    by_number: BTreeMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    state: State,
    evicted: CancellationToken,
}

/// The order of the states is the order of eviction. The numbers are values of the logical clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// The connection has not sent a complete request that was admitted.
    Unproven { since: u64 },
    /// Its last request was answered; it may send another one.
    Idle { since: u64 },
    /// Its request is being answered.
    Answering,
}

impl Connections {
    /// At most `capacity` connections.
    #[must_use]
    pub fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            capacity,
            open: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Returns a slot for a new connection. Waits only while all other connections are being
    /// served.
    pub async fn admit(self: &Arc<Self>) -> Slot {
        loop {
            if let Some(slot) = self.try_admit() {
                return slot;
            }
            // A notification that came after the attempt is stored, so it is not lost.
            self.freed.notified().await;
        }
    }

    fn try_admit(self: &Arc<Self>) -> Option<Slot> {
        let mut open = self.lock();
        if open.by_number.len() >= self.capacity {
            open.evict()?;
        }
        let number = open.tick();
        let evicted = CancellationToken::new();
        let connection = Connection {
            state: State::Unproven { since: number },
            evicted: evicted.clone(),
        };
        open.by_number.insert(number, connection);
        Some(Slot {
            connections: self.clone(),
            number,
            evicted,
        })
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Evicts a connection, unless all are being served.
    fn evict(&mut self) -> Option<()> {
        let (number, connection) = self
            .by_number
            .iter()
            .min_by_key(|(_, connection)| connection.state)?;
        if connection.state == State::Answering {
            return None;
        }
        connection.evicted.cancel();
        let number = *number;
        self.by_number.remove(&number).map(drop)
    }
}

/// The slot of one connection, which is freed when this is dropped.
#[derive(Debug)]
pub struct Slot {
    connections: Arc<Connections>,
    number: u64,
    evicted: CancellationToken,
}

impl Slot {
    /// Cancelled when the connection is evicted.
    #[must_use]
    pub fn evicted(&self) -> CancellationToken {
        self.evicted.clone()
    }

    /// Keeps the connection from being evicted until the returned guard is dropped. Call it when a
    /// complete request was admitted.
    #[must_use]
    pub fn serve(self: &Arc<Self>) -> RequestGuard {
        self.set_state(|_| State::Answering);
        RequestGuard { slot: self.clone() }
    }

    /// Sets the state of the connection. Does nothing if the connection was evicted.
    fn set_state(&self, state: impl FnOnce(&mut OpenConnections) -> State) {
        let mut open = self.connections.lock();
        let state = state(&mut open);
        if let Some(connection) = open.by_number.get_mut(&self.number) {
            connection.state = state;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.lock().by_number.remove(&self.number);
        self.connections.freed.notify_one();
    }
}

/// A request that is being answered, whose connection is not evicted.
#[derive(Debug)]
pub struct RequestGuard {
    slot: Arc<Slot>,
}

impl RequestGuard {
    /// Returns the body with this guard attached: the guard is dropped once the body was sent or
    /// dropped.
    pub fn attach_to<B: Body>(self, body: B) -> impl Body<Data = B::Data, Error = B::Error> {
        body.map_frame(move |frame| {
            let _guard = &self;
            frame
        })
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.slot
            .set_state(|open| State::Idle { since: open.tick() });
        self.slot.connections.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Whether each of these connections was evicted.
    fn are_evicted(slots: &[&Arc<Slot>]) -> Vec<bool> {
        slots
            .iter()
            .map(|slot| slot.evicted.is_cancelled())
            .collect()
    }

    #[tokio::test]
    async fn the_oldest_unproven_connection_is_evicted_first_then_the_longest_idle_and_never_a_served_one()
     {
        let connections = Connections::new(3);
        let admit = async || Arc::new(connections.admit().await);
        let (idle, stream, first) = (admit().await, admit().await, admit().await);
        drop(idle.serve());
        let served = stream.serve();
        let second = admit().await;
        assert_eq!(
            are_evicted(&[&idle, &stream, &first, &second]),
            [false, false, true, false]
        );
        let third = admit().await;
        assert_eq!(
            are_evicted(&[&idle, &stream, &second, &third]),
            [false, false, true, false]
        );
        let proven = third.serve();
        let fourth = admit().await;
        assert_eq!(
            are_evicted(&[&idle, &stream, &third, &fourth]),
            [true, false, false, false]
        );
        let last = fourth.serve();
        let waiting = tokio::time::timeout(Duration::from_millis(20), connections.admit()).await;
        assert!(waiting.is_err(), "all are being served");
        drop(last);
        let fifth = admit().await;
        assert_eq!(
            are_evicted(&[&stream, &third, &fourth, &fifth]),
            [false, false, true, false]
        );
        drop((served, proven));
        assert_eq!(connections.lock().by_number.len(), 3);
        drop((stream, third, fifth));
        assert_eq!(
            connections.lock().by_number.len(),
            0,
            "an evicted connection frees no other's slot"
        );
    }
}
