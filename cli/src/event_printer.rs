//! Prints the events of a kernel while its processes run: as JSON lines on standard output, or as
//! progress on standard error. Questions of tool servers among them are answered by the user, or
//! declined (`server_questions.rs`).

use std::io::Write;

use dormouse::{Event, Events, Kernel, RaiseSource, WantedAnswer};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::approval::call_json;
use crate::args::RunFlags;
use crate::process_table::paused_json;
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
        Event::ServerToolCalled {
            tool, calls, args, ..
        } => json!({
            "event": "server_tool_called", "pid": pid, "tool": &**tool, "calls": calls,
            "args": &**args,
        }),
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
        Event::CallHeld { call } => {
            let mut held = call_json(call);
            held["event"] = "call_held".into();
            held
        }
        Event::HeldCallAnswered { call } => {
            json!({ "event": "held_call_answered", "pid": pid, "call": call.to_string() })
        }
        Event::ServerAsks { question } => json!({
            "event": "server_asks", "question": question.id, "server": &*question.server,
            "text": question.text, "wanted": wanted_json(&question.wanted),
            "since_ms": question.since_ms, "expires_ms": question.expires_ms,
        }),
        Event::ServerQuestionClosed { id } => {
            json!({ "event": "server_question_closed", "question": id })
        }
        Event::LimitReached { paused, .. } => json!({
            "event": "limit_reached", "pid": pid, "paused": paused_json(paused),
        }),
        Event::LabelReached {
            label,
            reached,
            until_ms,
            ..
        } => json!({
            "event": "label_reached", "pid": pid, "label": label.to_string(),
            "reached": paused_json(reached), "until_ms": until_ms,
        }),
        Event::LimitRaised { by, source, .. } => json!({
            "event": "limit_raised", "pid": pid, "by": by.to_string(),
            "by_rule": *source == RaiseSource::Rule,
        }),
        Event::TurnEnded { outcome, .. } => {
            json!({ "event": "turn_ended", "pid": pid, "status": outcome.status.word() })
        }
        Event::Hibernated { .. } => json!({ "event": "hibernated", "pid": pid }),
        Event::Woke { .. } => json!({ "event": "woke", "pid": pid }),
        Event::Reopened { reopenings, .. } => {
            json!({ "event": "reopened", "pid": pid, "reopenings": reopenings })
        }
        Event::Exited { exit, .. } => {
            json!({ "event": "exited", "pid": pid, "status": exit.status.word() })
        }
        Event::Lagged { missed } => json!({ "event": "lagged", "missed": missed }),
    }
}

fn wanted_json(wanted: &WantedAnswer) -> Value {
    match wanted {
        WantedAnswer::Value(schema) => json!({ "schema": schema.json() }),
        WantedAnswer::Visit(url) => json!({ "url": url }),
        _ => Value::Null,
    }
}
