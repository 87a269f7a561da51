//! The process tree in lines: what `ps` lists and a run ends with.

use std::fmt;

use dormouse::id::Pid;
use dormouse::ports::StoreError;
use dormouse::{Amount, Kernel, KernelError, LoadError, ProcessInfo, StoreFailure, View};
use serde::Serialize;

use crate::terminal::line;

/// A process in the tree.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    #[serde(skip)]
    depth: usize,
    pid: u64,
    parent: Option<u64>,
    program: String,
    status: String,
    facts: u64,
    messages: usize,
    descriptors: usize,
    /// Characters that its tools produced.
    produced_chars: u64,
    /// Characters of that which entered its context.
    entered_chars: u64,
    input_tokens: u64,
    output_tokens: u64,
    /// In the currency of the price table, where there is one for its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
    /// Whether it cannot be read for what was acknowledged as lost.
    #[serde(skip)]
    is_acknowledged: bool,
}

/// These roots with all below them, children under their parents. A process that does not run is
/// read from its journal.
pub(crate) async fn tree(kernel: &Kernel, roots: &[Pid]) -> Result<Vec<Line>, KernelError> {
    let processes = kernel.processes().await?;
    let mut lines = Vec::with_capacity(processes.len());
    let mut open: Vec<(usize, Pid)> = roots.iter().rev().map(|pid| (0, *pid)).collect();
    while let Some((depth, pid)) = open.pop() {
        let Some(info) = processes.iter().find(|info| info.row.pid == pid) else {
            continue;
        };
        let view = match &info.view {
            Some(view) => Ok(View::clone(view)),
            None => kernel.inspect(pid).await,
        };
        lines.push(Line::new(depth, info, view));
        let children = processes
            .iter()
            .rev()
            .filter(|child| child.row.parent == Some(pid));
        open.extend(children.map(|child| (depth + 1, child.row.pid)));
    }
    Ok(lines)
}

/// Whether something cannot be had for a loss that was acknowledged.
pub(crate) fn is_acknowledged(error: &KernelError) -> bool {
    matches!(of_store(error), Some(StoreError::Lost { .. }))
}

/// Whether something cannot be had since the store has lost it.
pub(crate) fn is_loss(error: &KernelError) -> bool {
    matches!(
        of_store(error),
        Some(StoreError::Lost { .. } | StoreError::Damaged { .. })
    )
}

fn of_store(error: &KernelError) -> Option<&StoreError> {
    match error {
        KernelError::Store(StoreFailure::Store(error)) => Some(error),
        KernelError::Store(StoreFailure::Load(error)) => match &**error {
            LoadError::Store(error) => Some(error),
            _ => None,
        },
        _ => None,
    }
}

/// Characters that tools produced against those that entered a context, over all lines.
pub(crate) fn totals(lines: &[Line]) -> (u64, u64) {
    (
        lines.iter().map(|line| line.produced_chars).sum(),
        lines.iter().map(|line| line.entered_chars).sum(),
    )
}

impl Line {
    fn new(depth: usize, info: &ProcessInfo, view: Result<View, KernelError>) -> Self {
        let unreadable = view.as_ref().err().map(ToString::to_string);
        let is_acknowledged = view.as_ref().is_err_and(is_acknowledged);
        let view = view.ok();
        let view = view.as_ref();
        let tally = view.map(|view| view.tally).unwrap_or_default();
        let is_stopped = view.is_some_and(|view| view.stopped) && info.row.exit.is_none();
        let status = if is_stopped { "stopped" } else { info.status };
        let usage = view.map(|view| view.usage).unwrap_or_default();
        Self {
            depth,
            pid: info.row.pid.0,
            parent: info.row.parent.map(|pid| pid.0),
            program: info.row.program.to_string(),
            status: status.to_owned(),
            facts: view.map_or(0, |view| view.fact.0),
            messages: view.map_or(0, |view| view.messages),
            descriptors: view.map_or(0, |view| view.descriptors),
            produced_chars: tally.produced_chars,
            entered_chars: tally.entered_chars,
            input_tokens: usage.all_input_tokens(),
            output_tokens: usage.output_tokens,
            cost: (usage.cost_nanos > 0).then(|| Amount::Cost.show(usage.cost_nanos)),
            unreadable,
            is_acknowledged,
        }
    }

    /// Whether the journal of the process can be read, or nobody needs to be told any more that it
    /// cannot.
    pub(crate) fn is_well(&self) -> bool {
        self.unreadable.is_none() || self.is_acknowledged
    }

    /// What stands above the lines.
    pub(crate) fn header() -> String {
        format!(
            "{:<28} {:<14} {:>6} {:>9} {:>5} {:>12} {:>12}",
            "PROCESS", "STATUS", "FACTS", "MESSAGES", "FDS", "TOOL CHARS", "CONTEXT"
        )
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let branch = if self.depth == 0 {
            String::new()
        } else {
            format!("{}└ ", "  ".repeat(self.depth - 1))
        };
        let name = format!("{branch}{} {}", self.pid, line(&self.program));
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
        match &self.unreadable {
            Some(why) => write!(f, "\n  {}", line(why)),
            None => Ok(()),
        }
    }
}
