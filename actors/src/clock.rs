//! The only place in this crate that reads the system clock. The process machine receives time as
//! data.

use std::time::{SystemTime, UNIX_EPOCH};

/// The present time in milliseconds since the epoch, UTC.
pub(crate) fn now_ms() -> u64 {
    ms_since_epoch(SystemTime::now())
}

/// A time in milliseconds since the epoch, UTC; 0 for a time before it.
pub(crate) fn ms_since_epoch(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}
