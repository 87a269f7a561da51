//! Limits the number of log lines about one server, so that no server fills the log.

use std::time::{Duration, Instant};

/// The most lines of one server that are logged within [`WINDOW`].
const MAX_LINES: usize = 200;
const WINDOW: Duration = Duration::from_secs(60);

/// The number of log lines about a server since the start of the current window.
pub(super) struct LogLimit {
    since: Instant,
    lines: usize,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            lines: 0,
        }
    }
}

impl LogLimit {
    /// Whether another line may be logged. Logs a notice before the first line that is left out.
    pub(super) fn admits(&mut self, server: &str) -> bool {
        if self.since.elapsed() >= WINDOW {
            *self = Self::default();
        }
        self.lines += 1;
        if self.lines == MAX_LINES + 1 {
            tracing::info!(
                target: "dormouse_mcp::stderr",
                server,
                "further lines of this server are left out: it wrote {MAX_LINES} within {} s",
                WINDOW.as_secs()
            );
        }
        self.lines <= MAX_LINES
    }
}
