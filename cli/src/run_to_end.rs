//! The last part of every command that runs processes: waits until each root process has ended or
//! can do nothing more by itself, then prints the results and chooses the exit code.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use dormouse::id::Pid;
use dormouse::process::{Exit, ExitStatus};
use dormouse::{Kernel, KernelError, Process, ProcessError, ProcessView};
use serde_json::{Value, json};

use crate::event_printer::EventPrinter;
use crate::failure::{Failure, exit_code};
use crate::process_table::{ProcessLine, process_lines, total_chars};
use crate::stop_signals::StopSignals;
use crate::terminal::{self, OutputFormat, print_stderr};

/// Why a root process runs no further.
enum RootOutcome {
    Ended(Exit),
    /// It waits for further input.
    Idle,
    /// It was stopped, and does not continue by itself.
    Stopped,
    /// It has not ended, but cannot run here. The text says why.
    Held(String),
}

/// Prints events until every root has an outcome, then shuts the kernel down and prints the
/// results. A signal ends the wait: the command then exits with the code of the signal.
///
/// Exits with 3 if a root is held, if a content could not be read, or if what was written could not
/// be synced.
pub(crate) async fn run_to_end(
    kernel: Kernel,
    roots: Vec<Process>,
    events: EventPrinter,
    mut stop: StopSignals,
    store: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let format = events.format();
    let mut results = Vec::new();
    for root in &roots {
        let outcome = tokio::select! {
            outcome = wait_for_outcome(root) => outcome?,
            code = stop.next() => return shut_down_early(kernel, events, store, stop, code).await,
        };
        results.push((root.pid(), outcome));
    }
    let pids: Vec<Pid> = roots.iter().map(Process::pid).collect();
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
    for content in &unreadable {
        print_stderr(&format!("unreadable: {content}"));
    }
    closed?;
    Ok(if unreadable.is_empty() {
        code_of_results(&results)
    } else {
        ExitCode::from(3)
    })
}

async fn wait_for_outcome(root: &Process) -> Result<RootOutcome, Failure> {
    // A stopped process counts as an outcome: nothing continues it while this command runs.
    let idle_or_stopped = root.wait_for(|view: &ProcessView| view.is_idle() || view.stopped);
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
        view = idle_or_stopped => Ok(if view?.stopped {
            RootOutcome::Stopped
        } else {
            RootOutcome::Idle
        }),
    }
}

/// A held root makes the code 3. Otherwise the first root that ended without finishing its task
/// determines the code.
fn code_of_results(results: &[(Pid, RootOutcome)]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    let mut has_failed = false;
    for (_, outcome) in results {
        match outcome {
            RootOutcome::Held(_) => return ExitCode::from(3),
            RootOutcome::Ended(exit) if exit.status != ExitStatus::Done && !has_failed => {
                code = exit_code(exit.status);
                has_failed = true;
            }
            RootOutcome::Ended(_) | RootOutcome::Idle | RootOutcome::Stopped => {}
        }
    }
    code
}

/// Shuts down after a signal: the store keeps what is durable, and running commands are ended. A
/// second signal does not wait for that.
async fn shut_down_early(
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
            RootOutcome::Stopped => ("stopped", "it is stopped"),
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
            RootOutcome::Stopped => print_stderr(&format!("process {pid} is stopped")),
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
