//! The last part of every command that runs processes: waits until each root process has ended or
//! can do nothing more by itself, then prints the results and chooses the exit code.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use dormouse::id::{FactNumber, Pid};
use dormouse::process::{Exit, ExitStatus};
use dormouse::schedule::format_time;
use dormouse::{
    Event, Events, HeldCall, Kernel, KernelError, LabelStatus, Paused, Process, ProcessError,
    ProcessInfo, ProcessView,
};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::approval::{call_json, print_how_to_answer};
use crate::args::RunFlags;
use crate::event_printer::EventPrinter;
use crate::failure::{Failure, exit_code};
use crate::label::{find_used_up, label_json, print_how_to_go_on};
use crate::process_table::{ProcessLine, paused_json, process_lines, total_chars};
use crate::process_trees::Trees;
use crate::raise::print_how_to_raise;
use crate::sleepers::{Sleepers, earliest, wait_for_sleepers};
use crate::stop_signals::StopSignals;
use crate::terminal::{self, OutputFormat, print_stderr};

/// How often a tree whose root waits for its children is looked at.
const TREE_CHECK: Duration = Duration::from_millis(200);

/// Why a root process runs no further.
enum RootOutcome {
    Ended(Exit),
    /// It waits for further input.
    Idle,
    /// It waits for its next alarm, or that of a process below it, due at this time: milliseconds
    /// since the epoch, UTC.
    Asleep(u64),
    /// It was stopped, and does not continue by itself.
    Stopped,
    /// Nothing goes on in its tree, and this waits for a person.
    Asking(AwaitedDecisions),
    /// Nothing goes on in its tree, since this label has used up its budget.
    AtLabel(Box<LabelStatus>),
    /// It has not ended, but cannot run here. The text says why.
    Held(String),
}

/// What waits for a person in a tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AwaitedDecisions {
    /// Calls to approve or answer.
    pub(crate) calls: Vec<HeldCall>,
    /// Processes that are paused at a limit.
    pub(crate) paused: Vec<(Pid, Paused)>,
}

impl AwaitedDecisions {
    fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.paused.is_empty()
    }

    /// Adds what waits in one process. One that is not loaded is read from its journal.
    pub(crate) async fn add(&mut self, kernel: &Kernel, info: &ProcessInfo) -> Result<(), Failure> {
        let pid = info.row.pid;
        let mut info = info.clone();
        if info.view.is_none() && (info.row.is_paused || info.row.waiting.may_hold_calls()) {
            info.view = Some(Box::new(kernel.inspect(pid).await?));
        }
        self.calls.extend(info.held_calls());
        let paused = info.view.and_then(|view| view.paused);
        self.paused.extend(paused.map(|paused| (pid, paused)));
        Ok(())
    }
}

/// Whether a run ends when nothing is left to do before the next alarm.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenAsleep {
    /// It ends, with exit code 5: another run continues at that time.
    End,
    /// It waits.
    Wait,
}

impl WhenAsleep {
    /// Without a store nothing can be continued, so such a run waits.
    pub(crate) fn from_flags(flags: &RunFlags, store: Option<&Path>) -> Self {
        if flags.wait || store.is_none() {
            Self::Wait
        } else {
            Self::End
        }
    }
}

/// The roots of a run.
pub(crate) struct Roots {
    /// Those that have something to do.
    pub(crate) awake: Vec<Process>,
    /// Those whose trees only wait for alarms, without handles: there may be a million.
    pub(crate) asleep: Vec<Pid>,
}

impl From<Process> for Roots {
    fn from(root: Process) -> Self {
        Self {
            awake: vec![root],
            asleep: Vec::new(),
        }
    }
}

/// Prints events until every root has an outcome, then shuts the kernel down and prints the
/// results. A signal ends the wait: the command then exits with the code of the signal.
///
/// Exits with 5 if nothing is left to do before the next alarm or the next period of a label, with 4 if something waits for a
/// person, and with 3 if a root is held, if a content could not be read, or if what was written could not
/// be synced.
pub(crate) async fn run_to_end(
    kernel: Kernel,
    roots: Roots,
    when_asleep: WhenAsleep,
    events: EventPrinter,
    mut stop: StopSignals,
    store: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let format = events.format();
    let Roots {
        awake: roots,
        asleep,
    } = roots;
    let mut results = Vec::new();
    for root in &roots {
        let outcome = tokio::select! {
            outcome = wait_for_outcome(&kernel, root, when_asleep) => outcome?,
            code = stop.next() => return shut_down_early(kernel, events, store, stop, code).await,
        };
        results.push((root.pid(), outcome));
    }
    let mut pids: Vec<Pid> = roots.iter().map(Process::pid).collect();
    let slept = tokio::select! {
        slept = wait_for_sleepers(&kernel, &asleep, when_asleep) => slept?,
        code = stop.next() => return shut_down_early(kernel, events, store, stop, code).await,
    };
    pids.extend(slept.ended.iter().map(|(pid, _)| *pid));
    let ended = slept.ended.into_iter();
    results.extend(ended.map(|(pid, exit)| (pid, RootOutcome::Ended(exit))));
    let idle = slept.idle.into_iter();
    results.extend(idle.map(|pid| (pid, RootOutcome::Idle)));
    let asking = slept.asking.into_iter();
    results.extend(asking.map(|(pid, waiting)| (pid, RootOutcome::Asking(waiting))));
    let went_to_sleep = results.iter().filter_map(|(_, outcome)| match outcome {
        RootOutcome::Asleep(next_alarm_ms) => Some(*next_alarm_ms),
        _ => None,
    });
    let sleepers = went_to_sleep.fold(slept.still_asleep, Sleepers::with);
    let lines = process_lines(&kernel, &pids).await?;
    let unreadable = kernel.unreadable();
    // The stream of events ends when the last handle of the kernel is dropped.
    drop(roots);
    let closed = kernel.shutdown().await;
    events.finish().await;
    match format {
        OutputFormat::Json => print_json(&results, &lines)?,
        OutputFormat::Text => print_text(&results, &lines, store)?,
    }
    sleepers.print(format, store)?;
    for content in &unreadable {
        print_stderr(&format!("unreadable: {content}"));
    }
    closed?;
    Ok(if unreadable.is_empty() {
        code_of_results(&results, &sleepers)
    } else {
        ExitCode::from(3)
    })
}

async fn wait_for_outcome(
    kernel: &Kernel,
    root: &Process,
    when_asleep: WhenAsleep,
) -> Result<RootOutcome, Failure> {
    // A stopped process counts as an outcome: nothing continues it while this command runs.
    let idle_or_stopped = root.wait_for(|view: &ProcessView| {
        let waits_for_alarm = when_asleep == WhenAsleep::Wait && !view.alarms.is_empty();
        (view.is_idle() && !waits_for_alarm) || view.stopped
    });
    let tree_asleep = wait_until_tree_sleeps(kernel, root, when_asleep);
    tokio::select! {
        // The end comes first: a process that has ended is idle, too.
        biased;
        exit = root.wait() => match exit {
            Ok(exit) => Ok(RootOutcome::Ended(exit)),
            Err(KernelError::Process(ProcessError::Held { reason, .. })) => {
                Ok(RootOutcome::Held(reason.to_string()))
            }
            Err(error) => Err(error.into()),
        },
        view = idle_or_stopped => {
            let view = view?;
            Ok(match view.next_alarm_ms {
                _ if view.stopped => RootOutcome::Stopped,
                Some(next_alarm_ms) => RootOutcome::Asleep(next_alarm_ms),
                None => RootOutcome::Idle,
            })
        },
        next_alarm_ms = tree_asleep => Ok(RootOutcome::Asleep(next_alarm_ms?)),
        tree = wait_until_asking(kernel, root.pid(), when_asleep) => {
            let RestingTree { waiting, label, .. } = tree?;
            Ok(match label {
                Some(label) if waiting.is_empty() => RootOutcome::AtLabel(Box::new(label)),
                _ => RootOutcome::Asking(waiting),
            })
        }
    }
}

/// Waits until a root rests and all of its background children only wait for alarms. Never ends in
/// a run that waits for alarms. Returns when the next one is due.
async fn wait_until_tree_sleeps(
    kernel: &Kernel,
    root: &Process,
    when_asleep: WhenAsleep,
) -> Result<u64, Failure> {
    if when_asleep == WhenAsleep::Wait {
        return std::future::pending().await;
    }
    loop {
        root.wait_for(|view: &ProcessView| view.status() == "waiting")
            .await?;
        let processes = kernel.processes().await?;
        let mut tree = BTreeSet::from([root.pid()]);
        let mut next_alarm_ms = None;
        let mut is_asleep = true;
        // A parent has a lower pid than its children, so it comes first.
        for info in processes.iter().filter(|info| info.row.exit.is_none()) {
            let is_child = info.row.parent.is_some_and(|parent| tree.contains(&parent));
            if is_child || info.row.pid == root.pid() {
                tree.insert(info.row.pid);
                is_asleep &= matches!(info.status, "asleep" | "waiting");
                next_alarm_ms = earliest(next_alarm_ms, info.row.waiting.alarm_ms());
            }
        }
        if let Some(next_alarm_ms) = next_alarm_ms.filter(|_| is_asleep) {
            return Ok(next_alarm_ms);
        }
        tokio::time::sleep(TREE_CHECK).await;
    }
}

/// How often it is looked whether a tree with held calls goes on.
const ASKING_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until nothing goes on in a tree, and something of it waits for a person, or for the budget of
/// a label, which is returned. In a run that waits for alarms, none is set either, and no label holds
/// it up.
async fn wait_until_asking(
    kernel: &Kernel,
    root: Pid,
    when_asleep: WhenAsleep,
) -> Result<RestingTree, Failure> {
    let mut events = kernel.events();
    let mut before = None;
    let mut has_asked = has_asked(kernel, root).await?;
    loop {
        if !has_asked {
            wait_for_question(&mut events).await;
            has_asked = true;
        }
        let now = RestingTree::find(kernel, root, when_asleep).await?;
        match now {
            // An input may be on its way from one process to another: so nothing may have happened
            // since the last look either.
            Some(tree) if before.as_ref() == Some(&tree) => return Ok(tree),
            Some(_) => tokio::time::sleep(ASKING_INTERVAL).await,
            None => wait_for_change(&mut events).await,
        }
        before = now;
    }
}

/// The label of a tree that is used up.
fn find_label_of_tree(
    kernel: &Kernel,
    processes: &[ProcessInfo],
    root: Pid,
) -> Option<LabelStatus> {
    let mut rows = processes.iter().map(|info| &info.row);
    let row = rows.find(|row| row.pid == root)?;
    find_used_up(&kernel.labels(), &row.labels)
}

/// Whether something of the tree waits for a person.
async fn has_asked(kernel: &Kernel, root: Pid) -> Result<bool, Failure> {
    let processes = kernel.processes().await?;
    let members = Trees::new(processes.clone()).living_members(&[root]);
    // A process that begins may not have been told yet.
    if find_label_of_tree(kernel, &processes, root).is_some() {
        return Ok(true);
    }
    let asks = |info: &ProcessInfo| {
        let is_suspended = info.view.as_ref().is_some_and(|view| view.suspended);
        let asks = info.status == "asking" || !info.held_calls().is_empty();
        info.row.is_paused || is_suspended || asks
    };
    let mut of_tree = processes
        .iter()
        .filter(|info| members.contains(&info.row.pid));
    Ok(of_tree.any(asks))
}

async fn wait_for_question(events: &mut Events) {
    while let Some(event) = events.next().await {
        if matches!(
            event,
            Event::CallHeld { .. }
                | Event::LimitReached { .. }
                | Event::LabelReached { .. }
                | Event::Lagged { .. }
        ) {
            return;
        }
    }
    // The kernel is shutting down.
    std::future::pending().await
}

/// Waits for the next event after which a tree may rest.
async fn wait_for_change(events: &mut Events) {
    while let Some(event) = events.next().await {
        if !matches!(event, Event::Text { .. } | Event::Thinking { .. }) {
            // Events come in groups, so some time is left before the next look.
            return tokio::time::sleep(ASKING_INTERVAL).await;
        }
    }
    // The kernel is shutting down.
    std::future::pending().await
}

/// A tree in which nothing goes on, and something waits for a person or for the budget of a label.
#[derive(PartialEq)]
struct RestingTree {
    /// The last fact of each process.
    facts: Vec<(Pid, FactNumber)>,
    waiting: AwaitedDecisions,
    /// The label that holds processes of the tree up.
    label: Option<LabelStatus>,
}

impl RestingTree {
    /// The tree of `root`; `None` if something goes on in it, or nothing waits.
    async fn find(
        kernel: &Kernel,
        root: Pid,
        when_asleep: WhenAsleep,
    ) -> Result<Option<Self>, Failure> {
        let processes = kernel.processes().await?;
        let trees = Trees::new(processes.clone());
        let members: BTreeSet<Pid> = trees.living_members(&[root]).into_iter().collect();
        let (mut facts, mut waiting) = (Vec::new(), AwaitedDecisions::default());
        let mut is_suspended = false;
        for info in processes
            .iter()
            .filter(|info| members.contains(&info.row.pid))
        {
            if when_asleep == WhenAsleep::Wait && info.row.waiting.alarm_ms().is_some() {
                return Ok(None);
            }
            is_suspended |= info.view.as_ref().is_some_and(|view| view.suspended);
            match &info.view {
                // A hibernated process has no view, and rests.
                None if matches!(info.status, "paused" | "asking" | "stopped" | "hibernated") => {}
                Some(view) if view.rests => facts.push((info.row.pid, view.fact)),
                Some(_) => return Ok(None),
                // It could not be resumed, or waits for its next alarm.
                None if matches!(info.status, "held" | "asleep") => {}
                None => return Ok(None),
            }
            waiting.add(kernel, info).await?;
        }
        let label = match is_suspended {
            true => find_label_of_tree(kernel, &processes, root),
            false => None,
        };
        if label.is_some() && when_asleep == WhenAsleep::Wait {
            return Ok(None);
        }
        let waits = label.is_some() || !waiting.is_empty();
        Ok(waits.then_some(Self {
            facts,
            waiting,
            label,
        }))
    }
}

/// A held root makes the code 3. Otherwise the first root that ended without finishing its task
/// determines the code. If there is none, a root whose calls wait for a person makes it 4, or else
/// sleeping roots, and those that a label holds up, make it 5.
fn code_of_results(results: &[(Pid, RootOutcome)], sleepers: &Sleepers) -> ExitCode {
    let is_at_label =
        |(_, outcome): &(Pid, RootOutcome)| matches!(outcome, RootOutcome::AtLabel(_));
    let mut code = if sleepers.count == 0 && !results.iter().any(is_at_label) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(5)
    };
    let mut has_failed = false;
    for (_, outcome) in results {
        match outcome {
            RootOutcome::Held(_) => return ExitCode::from(3),
            RootOutcome::Asking(_) if !has_failed => code = ExitCode::from(4),
            RootOutcome::Ended(exit) if exit.status != ExitStatus::Done && !has_failed => {
                code = exit_code(exit.status);
                has_failed = true;
            }
            RootOutcome::Ended(_)
            | RootOutcome::Idle
            | RootOutcome::Asleep(_)
            | RootOutcome::Stopped
            | RootOutcome::AtLabel(_)
            | RootOutcome::Asking(_) => {}
        }
    }
    code
}

/// Shuts down after a signal: the store keeps what is durable, and running commands are ended. A
/// second signal does not wait for that.
pub(crate) async fn shut_down_early(
    kernel: Kernel,
    events: EventPrinter,
    store: Option<&Path>,
    mut stop: StopSignals,
    code: u8,
) -> Result<ExitCode, Failure> {
    let closed = tokio::select! {
        closed = kernel.shutdown() => closed,
        _ = stop.next() => Ok(()),
    };
    events.abort();
    let hint = match store {
        Some(path) => format!(
            "Continue with: dormouse resume --store {} and the same --allow flags.",
            path.display()
        ),
        None => "Nothing was saved: the run had no --store.".to_owned(),
    };
    print_stderr(&format!("stopped. {hint}"));
    closed?;
    Ok(ExitCode::from(code))
}

fn print_json(results: &[(Pid, RootOutcome)], lines: &[ProcessLine]) -> Result<(), Failure> {
    let (produced, entered) = total_chars(lines);
    let mut out = terminal::stdout();
    for (pid, outcome) in results {
        let (status, message) = match outcome {
            RootOutcome::Ended(exit) => (exit.status.word(), &*exit.message),
            RootOutcome::Idle => ("idle", "it waits for input"),
            RootOutcome::Asleep(_) => ("asleep", "it waits for its next alarm"),
            RootOutcome::Stopped => ("stopped", "it is stopped"),
            RootOutcome::Asking(waiting) => {
                for (pid, paused) in &waiting.paused {
                    let paused = json!({
                        "event": "paused", "pid": pid.0, "paused": paused_json(paused),
                    });
                    writeln!(out, "{}", terminal::escaped_json(&paused))?;
                }
                for call in &waiting.calls {
                    let mut pending = call_json(call);
                    pending["event"] = "pending".into();
                    writeln!(out, "{}", terminal::escaped_json(&pending))?;
                }
                match waiting.calls.is_empty() && !waiting.paused.is_empty() {
                    true => ("paused", "it is paused at a limit"),
                    false => ("asking", "its calls wait for a person"),
                }
            }
            RootOutcome::AtLabel(label) => {
                let mut event = label_json(label);
                event["event"] = "at_label".into();
                writeln!(out, "{}", terminal::escaped_json(&event))?;
                ("suspended", "a label of its tree has used up its budget")
            }
            RootOutcome::Held(reason) => ("held", reason.as_str()),
        };
        let mut result =
            json!({ "event": "result", "pid": pid.0, "status": status, "message": message });
        if let RootOutcome::Ended(exit) = outcome
            && let Ok(value) = exit.result_as::<Value>()
        {
            result["value"] = value;
        }
        writeln!(out, "{}", terminal::escaped_json(&result))?;
    }
    let tree = json!({
        "event": "tree", "processes": lines, "tool_chars": produced, "context_chars": entered,
    });
    Ok(writeln!(out, "{}", terminal::escaped_json(&tree))?)
}

/// Only the answers of finished roots go to standard output; the rest is about them and goes to
/// standard error.
fn print_text(
    results: &[(Pid, RootOutcome)],
    lines: &[ProcessLine],
    store: Option<&Path>,
) -> Result<(), Failure> {
    print_stderr(&format!("\n{}", ProcessLine::header()));
    for line in lines {
        print_stderr(&line.to_string());
    }
    let (produced, entered) = total_chars(lines);
    print_stderr(&format!(
        "\ntools returned {produced} characters, {entered} entered a context\n"
    ));
    for (pid, outcome) in results {
        match outcome {
            RootOutcome::Ended(exit) if exit.status == ExitStatus::Done => {
                writeln!(terminal::stdout(), "{}", exit.message)?;
            }
            RootOutcome::Ended(exit) => print_stderr(&format!(
                "process {pid} ended as {}: {}",
                exit.status.word(),
                exit.message
            )),
            RootOutcome::Idle => print_stderr(&format!("process {pid} waits for input")),
            RootOutcome::Asleep(next_alarm_ms) => print_stderr(&format!(
                "process {pid} is asleep until {}",
                format_time(*next_alarm_ms)
            )),
            RootOutcome::Stopped => print_stderr(&format!("process {pid} is stopped")),
            RootOutcome::Asking(waiting) => {
                for (pid, paused) in &waiting.paused {
                    print_how_to_raise(*pid, paused, store);
                }
                if !waiting.calls.is_empty() {
                    print_how_to_answer(&waiting.calls, store);
                }
            }
            RootOutcome::AtLabel(label) => print_how_to_go_on(label, store),
            RootOutcome::Held(reason) => {
                let hint = match store {
                    Some(store) => format!(": dormouse resume --store {}", store.display()),
                    None => String::new(),
                };
                print_stderr(&format!(
                    "process {pid} is held: {reason}. It has not ended, and continues when it is \
                     resumed{hint}"
                ));
            }
        }
    }
    Ok(())
}
