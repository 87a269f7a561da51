//! The places for connections, and who keeps one when all are taken.
//!
//! A place costs a client nothing but a connection, so a place alone proves nothing. Where all places are taken, a new
//! connection gets the place of another one that is not being served: first the oldest that never sent a whole request which
//! passed the gate, then the one that has been idle for longest. A connection is never evicted while its request is answered, however
//! long that takes: an open stream of events keeps its place. So whoever only holds connections open delays nobody.
//!
//! Places are not counted by peer: clients of this machine all have one address, as do all behind a proxy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::combinators::BoxBody;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// A bounded number of places.
pub(crate) struct Door {
    capacity: usize,
    taken: Mutex<Taken>,
    /// A place is free, or its connection no longer served.
    freed: Notify,
}

#[derive(Default)]
struct Taken {
    /// Counts arrivals and turns of service, so that it orders them by age.
    clock: u64,
    places: BTreeMap<u64, Connection>,
}

struct Connection {
    state: State,
    evicted: CancellationToken,
}

/// The order is that in which connections are evicted; the numbers are moments of the clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// It has sent no whole request yet that passed the gate.
    Unproven { since: u64 },
    /// It was served, and may send another request.
    Idle { since: u64 },
    /// Its request is being answered.
    Served,
}

impl Door {
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self { capacity, taken: Mutex::default(), freed: Notify::new() })
    }

    /// A place for a new connection. It waits only where every other connection is being served.
    pub(crate) async fn admit(self: &Arc<Self>) -> Place {
        loop {
            if let Some(place) = self.try_admit() {
                return place;
            }
            // A permit is kept where this was notified before it waits.
            self.freed.notified().await;
        }
    }

    fn try_admit(self: &Arc<Self>) -> Option<Place> {
        let mut taken = self.lock();
        if taken.places.len() >= self.capacity {
            taken.evict()?;
        }
        let number = taken.tick();
        let evicted = CancellationToken::new();
        let connection = Connection { state: State::Unproven { since: number }, evicted: evicted.clone() };
        taken.places.insert(number, connection);
        Some(Place { door: self.clone(), number, evicted })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Frees the place that is needed least, if any can be freed.
    fn evict(&mut self) -> Option<()> {
        let (number, connection) = self.places.iter().min_by_key(|(_, connection)| connection.state)?;
        if connection.state == State::Served {
            return None;
        }
        connection.evicted.cancel();
        let number = *number;
        self.places.remove(&number).map(drop)
    }
}

/// The place of one connection; dropped, it is free.
pub(crate) struct Place {
    door: Arc<Door>,
    number: u64,
    evicted: CancellationToken,
}

impl Place {
    /// Cancelled when another connection was given this place.
    pub(crate) fn evicted(&self) -> CancellationToken {
        self.evicted.clone()
    }

    /// A whole request has come that passed the gate: the place is kept until what this returns is dropped.
    pub(crate) fn serve(self: &Arc<Self>) -> Serving {
        self.set(|_| State::Served);
        Serving { place: self.clone() }
    }

    /// One that was evicted in this moment stays evicted.
    fn set(&self, state: impl FnOnce(&mut Taken) -> State) {
        let mut taken = self.door.lock();
        let state = state(&mut taken);
        if let Some(connection) = taken.places.get_mut(&self.number) {
            connection.state = state;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.door.lock().places.remove(&self.number);
        self.door.freed.notify_one();
    }
}

/// A request that is being answered.
pub(crate) struct Serving {
    place: Arc<Place>,
}

impl Serving {
    /// The same body; the request counts as being answered until the body was sent or given up.
    pub(crate) fn until_the_end_of<E: Send + Sync + 'static>(self, body: BoxBody<Bytes, E>) -> BoxBody<Bytes, E> {
        body.map_frame(move |frame| {
            let _held_by_the_body = &self;
            frame
        })
        .boxed()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.place.set(|taken| State::Idle { since: taken.tick() });
        self.place.door.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Which of these were evicted.
    fn evicted(places: &[&Arc<Place>]) -> Vec<bool> {
        places.iter().map(|place| place.evicted.is_cancelled()).collect()
    }

    #[tokio::test]
    async fn the_oldest_that_proved_nothing_goes_first_then_who_is_idle_and_never_who_is_served() {
        let door = Door::new(3);
        let admit = async || Arc::new(door.admit().await);
        let (idle, stream, first) = (admit().await, admit().await, admit().await);
        drop(idle.serve());
        let served = stream.serve();
        let second = admit().await;
        assert_eq!(evicted(&[&idle, &stream, &first, &second]), [false, false, true, false]);
        let third = admit().await;
        assert_eq!(evicted(&[&idle, &stream, &second, &third]), [false, false, true, false]);
        let proven = third.serve();
        let fourth = admit().await;
        assert_eq!(evicted(&[&idle, &stream, &third, &fourth]), [true, false, false, false]);
        let last = fourth.serve();
        let waiting = tokio::time::timeout(Duration::from_millis(20), door.admit()).await;
        assert!(waiting.is_err(), "all are being served");
        drop(last);
        let fifth = admit().await;
        assert_eq!(evicted(&[&stream, &third, &fourth, &fifth]), [false, false, true, false]);
        drop((served, proven));
        assert_eq!(door.lock().places.len(), 3);
        drop((stream, third, fifth));
        assert_eq!(door.lock().places.len(), 0, "who was evicted frees no other's place");
    }
}
