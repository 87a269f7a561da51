//! The progress of a running swarm: a tree with spinners on a terminal, plain lines when piped.

use dormouse::record::{CallFact, DescriptorFact};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::Duration;

use dormouse::id::Pid;
use dormouse::process::Exit;
use dormouse::{Event, Fact};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::terminal::{self, coloured_stderr, line};

/// Shows events as they come.
pub(crate) enum Progress {
    /// A line for each process, with a spinner while it lives.
    Tree(Tree),
    /// A line for each step.
    Plain,
}

pub(crate) struct Tree {
    bars: MultiProgress,
    processes: HashMap<Pid, Branch>,
}

/// A process's line, and the line that its next child stands under.
struct Branch {
    depth: usize,
    bar: ProgressBar,
    last_child: Option<Pid>,
}

impl Progress {
    /// A tree where standard error is a terminal.
    pub(crate) fn new() -> Self {
        if coloured_stderr().is_terminal() {
            Self::Tree(Tree {
                bars: MultiProgress::new(),
                processes: HashMap::new(),
            })
        } else {
            Self::Plain
        }
    }

    /// Shows one event.
    pub(crate) fn show(&mut self, event: &Event) {
        match self {
            Self::Tree(tree) => tree.show(event),
            Self::Plain => plain(event),
        }
    }
}

fn plain(event: &Event) {
    let (Some(pid), Some(step)) = (event.pid(), step(event)) else {
        return;
    };
    terminal::tell(&format!("[{pid}] {}", line(&step)));
}

/// What an event says to a person; none for those that happen too often.
fn step(event: &Event) -> Option<String> {
    Some(match event {
        Event::Started {
            program,
            parent: Some(parent),
            ..
        } => format!("{program} starts, child of {parent}"),
        Event::Started {
            program,
            parent: None,
            ..
        } => format!("{program} starts"),
        Event::ToolCalled { tool, args, .. } => format!("calls {tool} {}", shortened(args)),
        Event::ToolProgress { tool, progress, .. } => format!("{tool}: {}", come(progress)),
        Event::Fact { fact, .. } => fact_step(fact)?,
        Event::Retrying {
            reason, delay_ms, ..
        } => format!("tries again in {delay_ms} ms: {reason}"),
        Event::ModelSwitched {
            from, to, reason, ..
        } => format!("asks {to} instead of {from}: {reason}"),
        Event::TurnEnded { outcome, .. } => format!("waits ({})", ended(outcome)),
        Event::Hibernated { .. } => "hibernates".to_owned(),
        Event::Woke { .. } => "woke".to_owned(),
        Event::Exited { exit, .. } => ended(exit),
        Event::Text { .. } | Event::Thinking { .. } | Event::Lagged { .. } => return None,
    })
}

/// How far a tool has come.
fn come(said: &dormouse::tool::Progress) -> String {
    let dormouse::tool::Progress {
        done,
        total,
        message,
    } = said;
    let of = total
        .map(|total| format!(" of {total}"))
        .unwrap_or_default();
    shortened(format!("{done}{of} {message}").trim_end())
}

fn fact_step(fact: &Fact) -> Option<String> {
    match fact {
        Fact::Descriptor(DescriptorFact::Opened { id, entry }) => Some(format!(
            "{id} holds {} bytes of {}",
            entry.content.len, entry.source
        )),
        Fact::Call(CallFact::ModelCalled { .. }) => Some("asks its model".to_owned()),
        _ => None,
    }
}

fn ended(exit: &Exit) -> String {
    format!("{}: {}", exit.status.word(), shortened(&exit.message))
}

/// The first line, up to 80 characters.
fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let short: String = line.chars().take(80).collect();
    if short.len() < text.trim_end().len() {
        format!("{short}…")
    } else {
        short
    }
}

impl Tree {
    fn show(&mut self, event: &Event) {
        let Some(pid) = event.pid() else { return };
        if let Event::Started {
            parent, program, ..
        } = event
        {
            return self.start(pid, *parent, program);
        }
        let (Some(Branch { bar, .. }), Some(step)) = (self.processes.get(&pid), step(event)) else {
            return;
        };
        match event {
            Event::Exited { .. } => bar.finish_with_message(line(&step)),
            _ => bar.set_message(line(&step)),
        }
    }

    /// A process that was restarted keeps its line.
    fn start(&mut self, pid: Pid, parent: Option<Pid>, program: &str) {
        if self.processes.contains_key(&pid) {
            return;
        }
        let depth = parent
            .and_then(|parent| self.processes.get(&parent))
            .map_or(0, |above| above.depth + 1);
        let bar = match parent
            .map(|parent| self.last_below(parent))
            .and_then(|last| self.processes.get(&last))
        {
            Some(above) => self
                .bars
                .insert_after(&above.bar, ProgressBar::new_spinner()),
            None => self.bars.add(ProgressBar::new_spinner()),
        };
        let style = ProgressStyle::with_template("{prefix}{spinner} {wide_msg}");
        bar.set_style(
            style
                .expect("the template is valid")
                .tick_chars("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏✓"),
        );
        bar.set_prefix(format!("{}{pid} {} ", "  ".repeat(depth), line(program)));
        bar.enable_steady_tick(Duration::from_millis(120));
        self.processes.insert(
            pid,
            Branch {
                depth,
                bar,
                last_child: None,
            },
        );
        if let Some(above) = parent.and_then(|parent| self.processes.get_mut(&parent)) {
            above.last_child = Some(pid);
        }
    }

    /// The process whose line is the last of the branch.
    fn last_below(&self, pid: Pid) -> Pid {
        match self
            .processes
            .get(&pid)
            .and_then(|branch| branch.last_child)
        {
            Some(child) => self.last_below(child),
            None => pid,
        }
    }
}
