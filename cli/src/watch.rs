//! Showing what happens while it happens.

use std::io::Write;

use dormouse::{Event, Events, Kernel};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::progress::Progress;
use crate::terminal;

/// Whom the output is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// One JSON object a line, on standard output.
    Json,
    /// Progress on standard error.
    ForPeople,
}

impl Output {
    /// What the flag `--json` says.
    pub(crate) fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::ForPeople }
    }
}

/// A task that shows the events of a kernel until it is gone.
pub(crate) struct Watch {
    output: Output,
    task: JoinHandle<()>,
}

impl Watch {
    /// Begins to watch, from the next event on.
    pub(crate) fn begin(kernel: &Kernel, output: Output) -> Self {
        let events = kernel.events();
        let task = match output {
            Output::Json => tokio::spawn(print(events)),
            Output::ForPeople => tokio::spawn(progress(events)),
        };
        Self { output, task }
    }

    /// Whom the output is for.
    pub(crate) fn output(&self) -> Output {
        self.output
    }

    /// Shows the rest, after the kernel was shut down.
    pub(crate) async fn end(self) {
        // A task that panicked has said so.
        let _ = self.task.await;
    }

    /// Stops at once.
    pub(crate) fn cut(self) {
        self.task.abort();
    }
}

async fn progress(mut events: Events) {
    let mut progress = Progress::new();
    while let Some(event) = events.next().await {
        progress.show(&event);
    }
}

/// Where standard output is gone the run still goes on to its end.
async fn print(mut events: Events) {
    while let Some(event) = events.next().await {
        let _ = writeln!(terminal::stdout(), "{}", terminal::json(&line(&event)));
    }
}

fn line(event: &Event) -> Value {
    let pid = event.pid().map(|pid| pid.0);
    match event {
        Event::Started {
            parent, program, ..
        } => {
            json!({ "event": "started", "pid": pid, "parent": parent.map(|pid| pid.0), "program": &**program })
        }
        Event::Text { text, .. } => json!({ "event": "text", "pid": pid, "text": text }),
        Event::Thinking { text, .. } => json!({ "event": "thinking", "pid": pid, "text": text }),
        Event::ToolCalled { tool, args, .. } => {
            json!({ "event": "tool_called", "pid": pid, "tool": &**tool, "args": &**args })
        }
        Event::ToolProgress { tool, progress, .. } => json!({
            "event": "tool_progress", "pid": pid, "tool": &**tool,
            "done": progress.done, "total": progress.total, "message": &*progress.message,
        }),
        Event::Fact { number, fact, .. } => {
            json!({ "event": "fact", "pid": pid, "number": number.0, "fact": fact.name() })
        }
        Event::Retrying {
            reason, delay_ms, ..
        } => {
            json!({ "event": "retrying", "pid": pid, "reason": reason, "delay_ms": delay_ms })
        }
        Event::ModelSwitched {
            from, to, reason, ..
        } => {
            json!({ "event": "model_switched", "pid": pid, "from": &**from, "to": &**to, "reason": &**reason })
        }
        Event::TurnEnded { outcome, .. } => {
            json!({ "event": "turn_ended", "pid": pid, "status": outcome.status.word() })
        }
        Event::Hibernated { .. } => json!({ "event": "hibernated", "pid": pid }),
        Event::Woke { .. } => json!({ "event": "woke", "pid": pid }),
        Event::Exited { exit, .. } => {
            json!({ "event": "exited", "pid": pid, "status": exit.status.word() })
        }
        Event::Lagged { missed } => json!({ "event": "lagged", "missed": missed }),
    }
}
