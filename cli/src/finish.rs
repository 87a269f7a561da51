//! Waits until processes have ended or wait for input, and shows how they ended.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use dormouse::id::Pid;
use dormouse::process::{Exit, ExitStatus};
use dormouse::{Kernel, KernelError, Process, ProcessError, View};
use serde_json::json;

use crate::report::{Line, totals, tree};
use crate::status::{Failure, code_of};
use crate::stop::StopSignals;
use crate::terminal::{self, tell};
use crate::watch::{Output, Watch};

/// How a root came to rest.
enum Settled {
    Ended(Exit),
    /// It waits for further input.
    Waits,
    /// It was stopped, and does not continue by itself.
    Stopped,
    /// It had to stop, for this reason, and has not ended.
    Held(String),
}

/// Shows events until each of these roots has ended or waits, then shuts the kernel down and shows
/// the results.
pub(crate) async fn finish(
    kernel: Kernel,
    roots: Vec<Process>,
    watch: Watch,
    mut stop: StopSignals,
    store: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let output = watch.output();
    let mut results = Vec::new();
    for root in &roots {
        let settled = tokio::select! {
            settled = settled(root) => settled?,
            code = stop.next() => return stopped(kernel, watch, store, stop, code).await,
        };
        results.push((root.pid(), settled));
    }
    let pids: Vec<Pid> = roots.iter().map(Process::pid).collect();
    let lines = tree(&kernel, &pids).await?;
    let unreadable = kernel.unreadable();
    // The stream of events ends with the last handle on the kernel.
    drop(roots);
    kernel.shutdown().await;
    watch.end().await;
    match output {
        Output::Json => show_json(&results, &lines)?,
        Output::ForPeople => show(&results, &lines, store)?,
    }
    for content in &unreadable {
        tell(&format!("unreadable: {content}"));
    }
    Ok(if unreadable.is_empty() {
        code(&results)
    } else {
        ExitCode::from(3)
    })
}

/// A stopped process is not waited for: no command continues it while this one runs.
async fn settled(root: &Process) -> Result<Settled, Failure> {
    let waits = root.wait_for(|view: &View| view.is_idle() || view.stopped);
    tokio::select! {
        biased;
        exit = root.wait() => match exit {
            Ok(exit) => Ok(Settled::Ended(exit)),
            Err(KernelError::Process(ProcessError::Held { reason, .. })) => Ok(Settled::Held(reason.to_string())),
            Err(error) => Err(error.into()),
        },
        waits = waits => Ok(if waits?.stopped { Settled::Stopped } else { Settled::Waits }),
    }
}

fn code(results: &[(Pid, Settled)]) -> ExitCode {
    if results
        .iter()
        .any(|(_, settled)| matches!(settled, Settled::Held(_)))
    {
        return ExitCode::from(3);
    }
    let failed = results.iter().find_map(|(_, settled)| match settled {
        Settled::Ended(exit) if exit.status != ExitStatus::Done => Some(exit.status),
        Settled::Ended(_) | Settled::Waits | Settled::Stopped | Settled::Held(_) => None,
    });
    failed.map_or(ExitCode::SUCCESS, code_of)
}

/// Shuts down after a signal: the store keeps what is durable, and running commands are ended. A
/// second signal does not wait for that.
async fn stopped(
    kernel: Kernel,
    watch: Watch,
    store: Option<&Path>,
    mut stop: StopSignals,
    code: u8,
) -> Result<ExitCode, Failure> {
    tokio::select! {
        () = kernel.shutdown() => {}
        _ = stop.next() => {}
    }
    watch.cut();
    let hint = match store {
        Some(path) => format!(
            "Go on with: dormouse resume --store {} and the same --allow flags.",
            path.display()
        ),
        None => "Without --store nothing was kept.".to_owned(),
    };
    tell(&format!("stopped. {hint}"));
    Ok(ExitCode::from(code))
}

fn show_json(results: &[(Pid, Settled)], lines: &[Line]) -> Result<(), Failure> {
    let (produced, entered) = totals(lines);
    let mut out = terminal::stdout();
    for (pid, settled) in results {
        let (status, message) = match settled {
            Settled::Ended(exit) => (exit.status.word(), &*exit.message),
            Settled::Waits => ("idle", "it waits for input"),
            Settled::Stopped => ("stopped", "it is stopped"),
            Settled::Held(reason) => ("held", reason.as_str()),
        };
        let result =
            json!({ "event": "result", "pid": pid.0, "status": status, "message": message });
        writeln!(out, "{}", terminal::json(&result))?;
    }
    let tree = json!({ "event": "tree", "processes": lines, "tool_chars": produced, "context_chars": entered });
    Ok(writeln!(out, "{}", terminal::json(&tree))?)
}

fn show(results: &[(Pid, Settled)], lines: &[Line], store: Option<&Path>) -> Result<(), Failure> {
    tell(&format!("\n{}", Line::header()));
    lines.iter().for_each(|line| tell(&line.to_string()));
    let (produced, entered) = totals(lines);
    tell(&format!(
        "\ntools returned {produced} characters, {entered} entered a context\n"
    ));
    for (pid, settled) in results {
        match settled {
            Settled::Ended(Exit {
                status: ExitStatus::Done,
                message,
                ..
            }) => writeln!(terminal::stdout(), "{message}")?,
            Settled::Ended(Exit {
                status, message, ..
            }) => {
                tell(&format!(
                    "process {pid} ended as {}: {message}",
                    status.word()
                ));
            }
            Settled::Waits => tell(&format!("process {pid} waits for input")),
            Settled::Stopped => tell(&format!("process {pid} is stopped")),
            Settled::Held(reason) => {
                let store =
                    store.map(|store| format!(": dormouse resume --store {}", store.display()));
                let hint = store.unwrap_or_default();
                tell(&format!(
                    "process {pid} is held: {reason}. It has not ended, and goes on when it is \
                     resumed{hint}"
                ));
            }
        }
    }
    Ok(())
}
