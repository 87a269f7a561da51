//! Prints the events of a kernel while its processes run: as JSON lines on standard output, or as
//! progress on standard error. Questions of tool servers among them are answered by the user, or
//! declined (`server_questions.rs`).

use std::io::Write;

use dormouse::api::view::EventView;
use dormouse::{Event, Events, Kernel};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::args::RunFlags;
use crate::progress::Progress;
use crate::server_questions::{Answerer, Answers};
use crate::terminal::{self, OutputFormat};

/// A task that prints the events of a kernel until the kernel is shut down.
pub(crate) struct EventPrinter {
    format: OutputFormat,
    task: JoinHandle<()>,
}

impl EventPrinter {
    /// Prints every event of a command with these flags from now on.
    pub(crate) fn of_run(kernel: &Kernel, flags: &RunFlags) -> Self {
        let format = OutputFormat::from_json_flag(flags.json);
        Self::spawn(kernel, format, Answers::of_run(flags))
    }

    /// Prints every event from now on.
    pub(crate) fn spawn(kernel: &Kernel, format: OutputFormat, answers: Answers) -> Self {
        let events = kernel.events();
        let answerer = Answerer::new(kernel.clone(), answers);
        let task = match format {
            OutputFormat::Json => tokio::spawn(print_json(events, answerer)),
            OutputFormat::Text => tokio::spawn(show_progress(events, answerer)),
        };
        Self { format, task }
    }

    pub(crate) fn format(&self) -> OutputFormat {
        self.format
    }

    /// Prints the remaining events. Returns only after the kernel was shut down.
    pub(crate) async fn finish(self) {
        // If the task panicked, the panic was printed already.
        let _ = self.task.await;
    }

    /// Drops the remaining events.
    pub(crate) fn abort(self) {
        self.task.abort();
    }
}

async fn show_progress(mut events: Events, mut answerer: Answerer) {
    let mut progress = Progress::new();
    loop {
        let was_asking = answerer.is_asking();
        tokio::select! {
            event = events.next() => {
                let Some(event) = event else { return };
                progress.show(&event);
                if answerer.will_ask(&event) {
                    progress.hide();
                }
                answerer.handle_event(event);
            }
            line = answerer.next_line() => answerer.handle_line(line),
        }
        if was_asking && !answerer.is_asking() {
            progress.show_again();
        }
    }
}

async fn print_json(mut events: Events, mut answerer: Answerer) {
    let mut out = terminal::stdout();
    while let Some(event) = events.next().await {
        // If the reader of standard output is gone, the run still continues to its end.
        let _ = writeln!(out, "{}", terminal::escaped_json(&event_json(&event)));
        answerer.handle_event(event);
    }
}

/// The public form of an event. Scripts read it: `docs/command-line.md`.
pub(crate) fn event_json(event: &Event) -> Value {
    json!(EventView::from(event))
}
