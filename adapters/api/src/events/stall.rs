//! Ends connections whose clients take nothing for long.
//!
//! While a client reads nothing, its connection does not ask for the next event either. A stream
//! sends a comment now and then, so a connection that asks for nothing for longer is stalled.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::serve::ConnectionEnd;

/// A connection that takes nothing for this long is ended.
const STALLED_AFTER: Duration = Duration::from_secs(60);

/// Watches one stream, until it is dropped.
pub(super) struct StallWatch {
    started: Instant,
    last_read_ms: Arc<AtomicU64>,
}

impl StallWatch {
    pub(super) fn start(end: ConnectionEnd) -> Self {
        let started = Instant::now();
        let last_read_ms = Arc::new(AtomicU64::new(0));
        tokio::spawn(end_when_stalled(
            started,
            Arc::downgrade(&last_read_ms),
            end,
        ));
        Self {
            started,
            last_read_ms,
        }
    }

    /// The connection asks for the next event.
    pub(super) fn note_read(&self) {
        let now = elapsed_ms(self.started);
        self.last_read_ms.store(now, Ordering::Relaxed);
    }
}

fn elapsed_ms(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

async fn end_when_stalled(started: Instant, last_read_ms: Weak<AtomicU64>, end: ConnectionEnd) {
    loop {
        tokio::time::sleep(STALLED_AFTER / 4).await;
        let Some(last_read_ms) = last_read_ms.upgrade() else {
            return;
        };
        let silent = elapsed_ms(started).saturating_sub(last_read_ms.load(Ordering::Relaxed));
        if u128::from(silent) > STALLED_AFTER.as_millis() {
            tracing::debug!("a stream of events ended, since its client reads nothing");
            return end.end();
        }
    }
}
