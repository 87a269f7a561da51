//! The table of processes that `ps` prints and that a run ends with: one line for each process,
//! children below their parents.

use std::collections::BTreeMap;
use std::fmt;

use dormouse::api::view::{self, PausedView, ProcessTable};
use dormouse::id::Pid;
use dormouse::ports::StoreError;
use dormouse::schedule::format_time;
use dormouse::{Kernel, KernelError, Paused, ProcessView};
use serde::Serialize;

pub(crate) use dormouse::api::view::is_acknowledged_loss;

use crate::failure::store_error;
use crate::terminal::one_line;

/// One process of the table. As JSON, it is what the control API answers: scripts read it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ProcessLine {
    #[serde(skip)]
    depth: usize,
    #[serde(flatten)]
    line: view::ProcessLine,
    /// The limit that it is paused at, as people read it.
    #[serde(skip)]
    paused_at: Option<String>,
    /// Whether the process is unreadable because of a loss that `fsck --repair` acknowledged.
    #[serde(skip)]
    is_acknowledged: bool,
}

/// The lines of these roots and of all processes below them. A process that does not run is read
/// from its journal.
pub(crate) async fn process_lines(
    kernel: &Kernel,
    roots: &[Pid],
) -> Result<Vec<ProcessLine>, KernelError> {
    let table = ProcessTable::read(kernel).await?;
    let mut children: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
    for info in table.processes() {
        if let Some(parent) = info.row.parent {
            children.entry(parent).or_default().push(info.row.pid);
        }
    }
    let mut lines = Vec::with_capacity(table.processes().len());
    // A stack of processes whose lines are still to come. It is filled in reverse, so that the
    // first child is popped first.
    let mut stack: Vec<(usize, Pid)> = roots.iter().rev().map(|pid| (0, *pid)).collect();
    while let Some((depth, pid)) = stack.pop() {
        let Some(info) = table.find(pid) else {
            continue;
        };
        let view = ProcessTable::view(kernel, info).await;
        let line = table.line(info, view.as_ref());
        lines.push(ProcessLine::new(depth, line, view.as_ref()));
        let children = children.get(&pid).into_iter().flatten();
        stack.extend(children.rev().map(|child| (depth + 1, *child)));
    }
    Ok(lines)
}

/// Whether the error reports that the store has lost something, acknowledged or not.
pub(crate) fn is_loss(error: &KernelError) -> bool {
    matches!(
        store_error(error),
        Some(StoreError::Lost { .. } | StoreError::Damaged { .. })
    )
}

/// Over all lines: the characters that tools returned, and those that entered a context.
pub(crate) fn total_chars(lines: &[ProcessLine]) -> (u64, u64) {
    let produced = lines.iter().map(|line| line.line.produced_chars).sum();
    let entered = lines.iter().map(|line| line.line.entered_chars).sum();
    (produced, entered)
}

/// A pause as JSON. Scripts read it: `docs/limits.md`.
pub(crate) fn paused_json(paused: &Paused) -> serde_json::Value {
    serde_json::json!(PausedView::from(paused))
}

impl ProcessLine {
    fn new(
        depth: usize,
        line: view::ProcessLine,
        view: Result<&ProcessView, &KernelError>,
    ) -> Self {
        let paused = view.ok().and_then(|view| view.paused.as_ref());
        Self {
            depth,
            line,
            paused_at: paused.map(ToString::to_string),
            is_acknowledged: view.is_err_and(is_acknowledged_loss),
        }
    }

    /// Sets the status to what the program says that runs the process.
    pub(crate) fn set_status(&mut self, statuses: &BTreeMap<Pid, String>) {
        if let Some(status) = statuses.get(&Pid(self.line.pid)) {
            self.line.status.clone_from(status);
        }
    }

    /// Whether the line reports no new problem: the journal can be read, or its loss was
    /// acknowledged.
    pub(crate) fn is_readable_or_acknowledged(&self) -> bool {
        self.line.unreadable.is_none() || self.is_acknowledged
    }

    /// The titles of the columns.
    pub(crate) fn header() -> String {
        format!(
            "{:<28} {:<14} {:>6} {:>9} {:>5} {:>12} {:>12}",
            "PROCESS", "STATUS", "FACTS", "MESSAGES", "FDS", "TOOL CHARS", "CONTEXT"
        )
    }
}

impl fmt::Display for ProcessLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let indent = if self.depth == 0 {
            String::new()
        } else {
            format!("{}└ ", "  ".repeat(self.depth - 1))
        };
        let name = format!("{indent}{} {}", self.line.pid, one_line(&self.line.program));
        write!(
            f,
            "{name:<28} {:<14} {:>6} {:>9} {:>5} {:>12} {:>12}",
            self.line.status,
            self.line.facts,
            self.line.messages,
            self.line.descriptors,
            self.line.produced_chars,
            self.line.entered_chars
        )?;
        if !self.line.server_tool_calls.is_empty() {
            let calls = self.line.server_tool_calls.iter();
            let calls: Vec<_> = calls
                .map(|(tool, calls)| format!("{tool} {calls}"))
                .collect();
            write!(
                f,
                "\n  tools of the provider: {}",
                one_line(&calls.join(", "))
            )?;
        }
        if self.line.reopenings > 0 {
            write!(f, "\n  opened again: {}", self.line.reopenings)?;
        }
        if let Some(paused) = &self.paused_at {
            write!(f, "\n  paused: {paused}")?;
        }
        if !self.line.labels.is_empty() {
            write!(f, "\n  labels: {}", one_line(&self.line.labels.join(", ")))?;
        }
        if let Some(label) = &self.line.waits_for_label {
            write!(f, "\n  waits for label {}", one_line(label))?;
        }
        if let Some(next_alarm_ms) = self.line.next_alarm_ms {
            write!(f, "\n  next alarm: {}", format_time(next_alarm_ms))?;
        }
        match &self.line.unreadable {
            Some(why) => write!(f, "\n  {}", one_line(why)),
            None => Ok(()),
        }
    }
}
