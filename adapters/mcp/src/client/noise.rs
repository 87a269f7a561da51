//! Bounds how much is traced of what one server says, so that none of them fills a log.

use std::time::{Duration, Instant};

/// So many lines of one server are traced within [`WINDOW`].
const MOST_LINES: usize = 200;
const WINDOW: Duration = Duration::from_secs(60);

/// The lines of a server since a time.
pub(super) struct Noise {
    since: Instant,
    lines: usize,
}

impl Default for Noise {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            lines: 0,
        }
    }
}

impl Noise {
    /// Whether another line is traced. The first one that is not is announced by a line.
    pub(super) fn admits(&mut self, server: &str) -> bool {
        if self.since.elapsed() >= WINDOW {
            *self = Self::default();
        }
        self.lines += 1;
        if self.lines == MOST_LINES + 1 {
            tracing::info!(
                target: "dormouse_mcp::stderr",
                server,
                "further lines of this server are left out: it wrote {MOST_LINES} within {} s",
                WINDOW.as_secs()
            );
        }
        self.lines <= MOST_LINES
    }
}
