//! Shows the progress of running processes on standard error: a tree with spinners if that is a
//! terminal, otherwise a line for each step.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::Duration;

use dormouse::RaiseSource;
use dormouse::id::Pid;
use dormouse::process::Exit;
use dormouse::record::{CallFact, DescriptorFact};
use dormouse::{Event, Fact};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::{coloured_stderr, one_line, print_stderr};

/// Shows events while they happen.
pub(crate) enum Progress {
    /// A line for each process, with a spinner until the process ends.
    Tree(ProgressTree),
    /// A line for each step.
    Lines,
}

pub(crate) struct ProgressTree {
    bars: MultiProgress,
    lines: HashMap<Pid, TreeLine>,
}

/// The line of a process.
struct TreeLine {
    depth: usize,
    bar: ProgressBar,
    /// The child that was added last. The line of the next child is inserted after the lines of
    /// this one.
    last_child: Option<Pid>,
}

impl Progress {
    /// Chooses the form by what standard error is.
    pub(crate) fn new() -> Self {
        if coloured_stderr().is_terminal() {
            Self::Tree(ProgressTree {
                bars: MultiProgress::new(),
                lines: HashMap::new(),
            })
        } else {
            Self::Lines
        }
    }

    /// Takes the tree away, so that the user can be asked something. Steps are not shown meanwhile.
    pub(crate) fn hide(&self) {
        if let Self::Tree(tree) = self {
            // If standard error is closed, nothing is to be taken away.
            let _ = tree.bars.clear();
            tree.bars.set_draw_target(ProgressDrawTarget::hidden());
        }
    }

    /// Shows the tree again.
    pub(crate) fn show_again(&self) {
        if let Self::Tree(tree) = self {
            tree.bars.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Shows one event.
    pub(crate) fn show(&mut self, event: &Event) {
        match self {
            Self::Tree(tree) => tree.show(event),
            Self::Lines => print_step(event),
        }
    }
}

fn print_step(event: &Event) {
    if let Some(pid) = event.pid()
        && let Some(step) = describe_step(event)
    {
        print_stderr(&format!("[{pid}] {}", one_line(&step)));
    }
}

/// Describes an event to a person. None for events that happen too often to be shown.
fn describe_step(event: &Event) -> Option<String> {
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
        Event::ToolCalled { tool, args, .. } => format!("calls {tool} {}", first_line(args)),
        Event::ServerToolCalled { tool, args, .. } => {
            format!("its provider ran {tool} {}", first_line(args))
        }
        Event::ToolProgress { tool, progress, .. } => {
            format!("{tool}: {}", describe_tool_progress(progress))
        }
        Event::Fact { fact, .. } => describe_fact(fact)?,
        Event::Retrying {
            reason, delay_ms, ..
        } => format!("retries in {delay_ms} ms: {reason}"),
        Event::ModelSwitched {
            from, to, reason, ..
        } => format!("calls {to} instead of {from}: {reason}"),
        Event::CallHeld { call } => {
            format!("asks you about {} {}", call.tool, first_line(&call.args))
        }
        Event::HeldCallAnswered { call } => format!("call {} is answered", call.call),
        Event::ServerAsks { question } => {
            format!(
                "tool server {} asks: {}",
                question.server,
                first_line(&question.text)
            )
        }
        Event::ServerQuestionClosed { id } => format!("question {id} of a tool server is closed"),
        Event::LimitReached { paused, .. } => format!("is paused: {paused}"),
        Event::LabelReached { label, reached, .. } => {
            format!("waits: the label {label} has used {reached}")
        }
        Event::LimitRaised { by, source, .. } => match source {
            RaiseSource::Rule => format!("its limits are raised by budget.raise: {by}"),
            RaiseSource::Person => format!("its limits are raised: {by}"),
        },
        Event::TurnEnded { outcome, .. } => format!("waits ({})", describe_exit(outcome)),
        Event::Hibernated { .. } => "hibernates".to_owned(),
        Event::Woke { .. } => "woke".to_owned(),
        Event::Reopened { .. } => "is opened again".to_owned(),
        Event::Exited { exit, .. } => describe_exit(exit),
        Event::Text { .. } | Event::Thinking { .. } | Event::Lagged { .. } => return None,
    })
}

fn describe_tool_progress(progress: &dormouse::tool::Progress) -> String {
    let dormouse::tool::Progress {
        done,
        total,
        message,
    } = progress;
    let text = match total {
        Some(total) => format!("{done} of {total} {message}"),
        None => format!("{done} {message}"),
    };
    first_line(text.trim_end())
}

fn describe_fact(fact: &Fact) -> Option<String> {
    match fact {
        Fact::Descriptor(DescriptorFact::Opened { id, entry }) => Some(format!(
            "{id} holds {} bytes of {}",
            entry.content.len, entry.source
        )),
        Fact::Call(CallFact::ModelCalled { .. }) => Some("calls its model".to_owned()),
        _ => None,
    }
}

fn describe_exit(exit: &Exit) -> String {
    format!("{}: {}", exit.status.word(), first_line(&exit.message))
}

/// The first line, up to 80 characters, and an ellipsis if there is more.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let short: String = line.chars().take(80).collect();
    if short.len() < text.trim_end().len() {
        format!("{short}…")
    } else {
        short
    }
}

impl ProgressTree {
    fn show(&mut self, event: &Event) {
        let Some(pid) = event.pid() else { return };
        if let Event::Started {
            parent, program, ..
        } = event
        {
            return self.add_process(pid, *parent, program);
        }
        let (Some(line), Some(step)) = (self.lines.get(&pid), describe_step(event)) else {
            return;
        };
        match event {
            Event::Exited { .. } => line.bar.finish_with_message(one_line(&step)),
            _ => line.bar.set_message(one_line(&step)),
        }
    }

    /// Adds a line for a process. A process that was restarted keeps its line.
    fn add_process(&mut self, pid: Pid, parent: Option<Pid>, program: &str) {
        if self.lines.contains_key(&pid) {
            return;
        }
        // A parent that started before this command began to watch has no line.
        let parent = parent.filter(|parent| self.lines.contains_key(parent));
        let mut depth = 0;
        let mut bar = ProgressBar::new_spinner();
        match parent {
            Some(parent) => {
                depth = self.lines[&parent].depth + 1;
                let last = self.last_descendant(parent);
                bar = self.bars.insert_after(&self.lines[&last].bar, bar);
            }
            None => bar = self.bars.add(bar),
        }
        let style = ProgressStyle::with_template("{prefix}{spinner} {wide_msg}")
            .expect("the template is valid")
            .tick_chars("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏✓");
        bar.set_style(style);
        bar.set_prefix(format!(
            "{}{pid} {} ",
            "  ".repeat(depth),
            one_line(program)
        ));
        bar.enable_steady_tick(Duration::from_millis(120));
        let line = TreeLine {
            depth,
            bar,
            last_child: None,
        };
        self.lines.insert(pid, line);
        if let Some(parent) = parent.and_then(|parent| self.lines.get_mut(&parent)) {
            parent.last_child = Some(pid);
        }
    }

    /// The process with the last line among `pid` and the processes below it.
    fn last_descendant(&self, mut pid: Pid) -> Pid {
        while let Some(child) = self.lines.get(&pid).and_then(|line| line.last_child) {
            pid = child;
        }
        pid
    }
}
