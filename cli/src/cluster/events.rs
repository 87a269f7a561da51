//! Prints the events of processes of a cluster, in the forms of those of a kernel.

use std::io::Write;
use std::time::Duration;

use dormouse::Event;
use dormouse::api::view::{EventView, FactEventView};
use dormouse::id::Pid;
use dormouse_cluster::{ClusterEvent, ClusterProcess};
use futures_util::{Stream, StreamExt};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::event_printer::event_json;
use crate::progress::Progress;
use crate::terminal::{self, OutputFormat};

/// How long the last events of processes that have ended are waited for.
const LAST_EVENTS: Duration = Duration::from_secs(1);

/// A task that prints the events of some processes until they end.
pub(super) struct EventPrinter(JoinHandle<()>);

impl EventPrinter {
    /// Prints the events of these processes from now on.
    pub(super) fn spawn(processes: &[ClusterProcess], format: OutputFormat) -> Self {
        let events = processes.iter().map(|process| {
            let pid = process.pid();
            process.events().map(move |event| (pid, event)).boxed()
        });
        let events = futures_util::stream::select_all(events);
        Self(match format {
            OutputFormat::Json => tokio::spawn(print_json(events)),
            OutputFormat::Text => tokio::spawn(show_progress(events)),
        })
    }

    /// Prints the remaining events of processes that have ended.
    pub(super) async fn finish(self) {
        let Self(mut task) = self;
        if tokio::time::timeout(LAST_EVENTS, &mut task).await.is_err() {
            task.abort();
        }
    }

    /// Drops the remaining events.
    pub(super) fn abort(self) {
        self.0.abort();
    }
}

async fn print_json(mut events: impl Stream<Item = (Pid, ClusterEvent)> + Unpin) {
    let mut out = terminal::stdout();
    while let Some((pid, event)) = events.next().await {
        let line = match event {
            ClusterEvent::Fact { number, name } => Some(json!(EventView::Fact(FactEventView {
                pid: pid.0,
                number: number.0,
                fact: name.to_string(),
                commit: None,
                at_ms: None,
                summary: None,
            }))),
            event => kernel_event(pid, event).map(|event| event_json(&event)),
        };
        if let Some(line) = line {
            // If the reader of standard output is gone, the processes still go on.
            let _ = writeln!(out, "{}", terminal::escaped_json(&line));
        }
    }
}

async fn show_progress(mut events: impl Stream<Item = (Pid, ClusterEvent)> + Unpin) {
    let mut progress = Progress::new();
    while let Some((pid, event)) = events.next().await {
        if let Some(event) = kernel_event(pid, event) {
            progress.show(&event);
        }
    }
}

/// The event as a kernel tells it; `None` for facts, of which others see the name only, and for
/// events that others see without what a kernel says of them.
fn kernel_event(pid: Pid, event: ClusterEvent) -> Option<Event> {
    Some(match event {
        ClusterEvent::Text(text) => Event::Text { pid, text },
        ClusterEvent::ToolCalled { tool, args } => Event::ToolCalled { pid, tool, args },
        ClusterEvent::TurnEnded(outcome) => Event::TurnEnded { pid, outcome },
        ClusterEvent::Hibernated => Event::Hibernated { pid },
        ClusterEvent::Woke => Event::Woke { pid },
        ClusterEvent::Exited(exit) => Event::Exited { pid, exit },
        _ => return None,
    })
}
