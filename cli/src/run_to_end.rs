//! The last part of every command that runs processes: waits until each root process has ended or
//! can do nothing more by itself, then prints the results and chooses the exit code.

mod awaited_decisions;
mod outcome;
mod results;

use std::path::Path;
use std::process::ExitCode;

use dormouse::id::Pid;
use dormouse::{Kernel, Process};

use crate::args::RunFlags;
use crate::event_printer::EventPrinter;
use crate::failure::Failure;
use crate::process_table::{ProcessLine, process_lines};
use crate::resume::how_to_continue;
use crate::sleepers::{Sleepers, wait_for_sleepers};
use crate::stop_signals::StopSignals;
use crate::terminal::{OutputFormat, print_stderr};

pub(crate) use self::awaited_decisions::{RestingTree, waking_alarm_ms};
pub(crate) use self::outcome::RootOutcome;
use self::outcome::wait_for_outcome;
use self::results::{code_of_results, print_json, print_text};

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
/// Exits with 5 if nothing is left to do before the next alarm or the next period of a label, with
/// 4 if something waits for a person, and with 3 if a root is held, if a content could not be read,
/// or if what was written could not be synced.
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
    let has_ended = |(_, outcome): &&(Pid, RootOutcome)| matches!(outcome, RootOutcome::Ended(_));
    let ended = slept.outcomes.iter().filter(has_ended);
    pids.extend(ended.map(|(pid, _)| *pid));
    results.extend(slept.outcomes);
    let went_to_sleep = results.iter().filter_map(|(_, outcome)| match outcome {
        RootOutcome::Asleep(next_alarm_ms) => Some(*next_alarm_ms),
        _ => None,
    });
    let sleepers = went_to_sleep.fold(slept.unfinished, Sleepers::with);
    let lines = process_lines(&kernel, &pids).await?;
    let unreadable = kernel.unreadable();
    drop(roots);
    let closed = kernel.shutdown().await;
    events.finish().await;
    let code = print_results(&results, &lines, &sleepers, format, store)?;
    for content in &unreadable {
        print_stderr(&format!("unreadable: {content}"));
    }
    closed?;
    Ok(match unreadable.is_empty() {
        true => code,
        false => ExitCode::from(3),
    })
}

/// Prints what became of the roots of a run, with the lines of their trees. Returns the exit code.
pub(crate) fn print_results(
    results: &[(Pid, RootOutcome)],
    lines: &[ProcessLine],
    sleepers: &Sleepers,
    format: OutputFormat,
    store: Option<&Path>,
) -> Result<ExitCode, Failure> {
    match format {
        OutputFormat::Json => print_json(results, lines)?,
        OutputFormat::Text => print_text(results, lines, store)?,
    }
    sleepers.print(format, store)?;
    Ok(code_of_results(results, sleepers))
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
        Some(folder) => how_to_continue(folder),
        None => "Nothing was saved: the run had no --store.".to_owned(),
    };
    print_stderr(&format!("stopped. {hint}"));
    closed?;
    Ok(ExitCode::from(code))
}
