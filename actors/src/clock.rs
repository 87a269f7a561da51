//! The only place in this crate that reads the system clock. The process machine receives time as
//! data.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the epoch, UTC.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}
