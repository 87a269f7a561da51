//! The table of processes that `ps` prints and that a run ends with: one line for each process,
//! children below their parents.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use dormouse::id::Pid;
use dormouse::label::Label;
use dormouse::ports::StoreError;
use dormouse::schedule::format_time;
use dormouse::{Amount, Kernel, KernelError, Paused, ProcessInfo, ProcessStatus, ProcessView};
use serde::Serialize;

use crate::failure::store_error;
use crate::label::{describe_used_up, find_used_up};
use crate::terminal::one_line;

/// One process of the table. As JSON, its fields are public: scripts read them.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ProcessLine {
    #[serde(skip)]
    depth: usize,
    pid: u64,
    parent: Option<u64>,
    program: String,
    status: String,
    facts: u64,
    messages: usize,
    descriptors: usize,
    /// Characters that its tools returned.
    produced_chars: u64,
    /// The part of these characters that entered its context.
    entered_chars: u64,
    input_tokens: u64,
    output_tokens: u64,
    /// The calls of tools that the provider ran, by tool.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    server_tool_calls: BTreeMap<String, u32>,
    /// How often it was opened again after it had ended.
    #[serde(skip_serializing_if = "is_zero")]
    reopenings: u32,
    /// When the next of its alarms is due: milliseconds since the epoch, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_alarm_ms: Option<u64>,
    /// The limit that it is paused at.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<serde_json::Value>,
    /// As people read it.
    #[serde(skip)]
    paused_at: Option<String>,
    /// The labels of its tree.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    labels: Vec<String>,
    /// The label that it waits for, with the limit that is reached and the end of the period.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for_label: Option<String>,
    /// In the currency of the price table; absent if the table has no price for its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
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
    let processes = kernel.processes().await?;
    let statuses = kernel.labels();
    let mut by_pid = BTreeMap::new();
    let mut children: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
    for info in &processes {
        by_pid.insert(info.row.pid, info);
        if let Some(parent) = info.row.parent {
            children.entry(parent).or_default().push(info.row.pid);
        }
    }
    let mut lines = Vec::with_capacity(processes.len());
    // A stack of processes whose lines are still to come, with the labels of their tree. It is
    // filled in reverse, so that the first child is popped first.
    let mut stack: Vec<(usize, Pid, Arc<[Label]>)> = roots
        .iter()
        .rev()
        .map(|pid| (0, *pid, Arc::default()))
        .collect();
    while let Some((depth, pid, labels)) = stack.pop() {
        let Some(info) = by_pid.get(&pid) else {
            continue;
        };
        let view = match &info.view {
            Some(view) => Ok(ProcessView::clone(view)),
            None => kernel.inspect(pid).await,
        };
        let labels = if depth == 0 {
            info.row.labels.clone()
        } else {
            labels
        };
        let used_up = find_used_up(&statuses, &labels);
        let used_up = used_up.filter(|_| view.as_ref().is_ok_and(|view| view.suspended));
        let status = match used_up {
            Some(_) if info.row.exit.is_none() && !info.row.is_paused => ProcessStatus::Suspended,
            _ => listed_status(&processes, info, view.as_ref().ok()),
        };
        let mut line = ProcessLine::new(depth, info, status, view);
        line.waits_for_label = used_up.as_ref().map(describe_used_up);
        lines.push(line);
        let children = children.get(&pid).into_iter().flatten();
        let children = children
            .rev()
            .map(|child| (depth + 1, *child, labels.clone()));
        stack.extend(children);
    }
    Ok(lines)
}

/// What holds a process up, as its journal and the rows above it say, or else its status in the
/// kernel: that of a process which is not loaded says no more than so.
fn listed_status(
    processes: &[ProcessInfo],
    info: &ProcessInfo,
    view: Option<&ProcessView>,
) -> ProcessStatus {
    match view {
        _ if info.row.exit.is_some() => info.status,
        Some(view) if view.paused.is_some() => ProcessStatus::Paused,
        Some(view) if view.stopped => ProcessStatus::Stopped,
        // Its journal may say otherwise: it is told when it is resumed.
        _ if is_below_paused(processes, info) => ProcessStatus::Suspended,
        _ => info.status,
    }
}

/// Whether a process above this one is paused at a limit. `processes` is sorted by pid.
fn is_below_paused(processes: &[ProcessInfo], info: &ProcessInfo) -> bool {
    let find = |pid: Pid| {
        let at = processes.binary_search_by_key(&pid, |info| info.row.pid);
        Some(&processes[at.ok()?])
    };
    let parent = |info: &&ProcessInfo| find(info.row.parent?);
    std::iter::successors(parent(&info), parent).any(|above| above.row.is_paused)
}

/// Whether the error reports a loss that `fsck --repair` acknowledged.
pub(crate) fn is_acknowledged_loss(error: &KernelError) -> bool {
    matches!(store_error(error), Some(StoreError::Lost { .. }))
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
    let produced = lines.iter().map(|line| line.produced_chars).sum();
    let entered = lines.iter().map(|line| line.entered_chars).sum();
    (produced, entered)
}

/// A pause as JSON. Scripts read it: `docs/limits.md`.
pub(crate) fn paused_json(paused: &Paused) -> serde_json::Value {
    let Paused {
        amount,
        used,
        limit,
    } = paused;
    serde_json::json!({
        "amount": amount.word(), "used": amount.show(*used), "limit": amount.show(*limit),
    })
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl ProcessLine {
    fn new(
        depth: usize,
        info: &ProcessInfo,
        status: ProcessStatus,
        view: Result<ProcessView, KernelError>,
    ) -> Self {
        let unreadable = view.as_ref().err().map(ToString::to_string);
        let is_acknowledged = view.as_ref().is_err_and(is_acknowledged_loss);
        let view = view.ok();
        let view = view.as_ref();
        let output_totals = view.map(|view| view.output_totals).unwrap_or_default();
        let paused = view.and_then(|view| view.paused.as_ref());
        let usage = view.map(|view| view.usage).unwrap_or_default();
        Self {
            depth,
            pid: info.row.pid.0,
            parent: info.row.parent.map(|pid| pid.0),
            program: info.row.program.to_string(),
            status: status.word().to_owned(),
            facts: view.map_or(0, |view| view.fact.0),
            messages: view.map_or(0, |view| view.messages),
            descriptors: view.map_or(0, |view| view.descriptors),
            produced_chars: output_totals.produced_chars,
            entered_chars: output_totals.entered_chars,
            input_tokens: usage.all_input_tokens(),
            output_tokens: usage.output_tokens,
            server_tool_calls: view
                .into_iter()
                .flat_map(|view| &view.server_tool_calls)
                .map(|(tool, calls)| (tool.to_string(), *calls))
                .collect(),
            reopenings: info.row.reopenings,
            next_alarm_ms: view.and_then(|view| view.alarms.iter().map(|alarm| alarm.due_ms).min()),
            paused: paused.map(paused_json),
            paused_at: paused.map(ToString::to_string),
            labels: info.row.labels.iter().map(ToString::to_string).collect(),
            waits_for_label: None,
            cost: (usage.cost_nanos > 0).then(|| Amount::Cost.show(usage.cost_nanos)),
            unreadable,
            is_acknowledged,
        }
    }

    /// Sets the status to what the program says that runs the process.
    pub(crate) fn set_status(&mut self, statuses: &BTreeMap<Pid, String>) {
        if let Some(status) = statuses.get(&Pid(self.pid)) {
            self.status.clone_from(status);
        }
    }

    /// Whether the line reports no new problem: the journal can be read, or its loss was
    /// acknowledged.
    pub(crate) fn is_readable_or_acknowledged(&self) -> bool {
        self.unreadable.is_none() || self.is_acknowledged
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
        let name = format!("{indent}{} {}", self.pid, one_line(&self.program));
        write!(
            f,
            "{name:<28} {:<14} {:>6} {:>9} {:>5} {:>12} {:>12}",
            self.status,
            self.facts,
            self.messages,
            self.descriptors,
            self.produced_chars,
            self.entered_chars
        )?;
        if !self.server_tool_calls.is_empty() {
            let calls = self.server_tool_calls.iter();
            let calls: Vec<_> = calls
                .map(|(tool, calls)| format!("{tool} {calls}"))
                .collect();
            write!(
                f,
                "\n  tools of the provider: {}",
                one_line(&calls.join(", "))
            )?;
        }
        if self.reopenings > 0 {
            write!(f, "\n  opened again: {}", self.reopenings)?;
        }
        if let Some(paused) = &self.paused_at {
            write!(f, "\n  paused: {paused}")?;
        }
        if !self.labels.is_empty() {
            write!(f, "\n  labels: {}", one_line(&self.labels.join(", ")))?;
        }
        if let Some(label) = &self.waits_for_label {
            write!(f, "\n  waits for label {}", one_line(label))?;
        }
        if let Some(next_alarm_ms) = self.next_alarm_ms {
            write!(f, "\n  next alarm: {}", format_time(next_alarm_ms))?;
        }
        match &self.unreadable {
            Some(why) => write!(f, "\n  {}", one_line(why)),
            None => Ok(()),
        }
    }
}
