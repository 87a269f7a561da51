//! `dormouse run`, and showing what becomes of what runs.

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use dormouse::id::Pid;
use dormouse::process::{Exit, ExitStatus};
use dormouse::spoken::{Spoken, SpokenPart, USER_INPUT};
use dormouse::{Kernel, Process, View};
use serde_json::json;

use crate::args::{Input, Run};
use crate::compose::{Composition, load};
use crate::report::{Line, totals, tree};
use crate::requirements::tell_of_missing;
use crate::resume::hold_others;
use crate::status::{Failure, code_of};
use crate::stop::StopSignals;
use crate::terminal::{self, tell};
use crate::watch::{Output, Watch};

/// Runs a program to its end.
pub(crate) async fn run(args: Run) -> Result<ExitCode, Failure> {
    let kernel = Composition::of(args.store.as_deref(), &args.key)
        .permissions(&args.permissions)
        .models(&args.models)
        .kernel()
        .await?;
    let program = load(&kernel, &args.program)?;
    let mut start = kernel.start(program.clone());
    match said(args.input)? {
        Some(spoken) => start = start.input(spoken),
        None if program.user().is_none() => return Err(Failure::Usage(no_input(program.name()))),
        None => {}
    }
    let watch = Watch::begin(&kernel, Output::of(args.json));
    let stop = StopSignals::listen()?;
    tell_of_missing(&kernel, [&program]);
    hold_others(&kernel, &[]).await?;
    let process = start.await?;
    finish(kernel, vec![process], watch, stop, args.store.as_deref()).await
}

fn no_input(program: &str) -> String {
    format!("program {program} has no user prompt: say something with --input TEXT, --input-file FILE or -")
}

/// The parts in the order text, files, standard input. What stands alone is the user's input, wherever it was read from; it was
/// typed only where it is the text.
fn said(input: Input) -> Result<Option<Spoken>, Failure> {
    let mut parts: Vec<_> = input.input.map(SpokenPart::text).into_iter().collect();
    for path in input.input_file {
        let bytes = std::fs::read(&path).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        parts.push(SpokenPart::new(format!("file:{}", path.display()), bytes));
    }
    if input.stdin.is_some() {
        let mut bytes = Vec::new();
        let read = std::io::stdin().read_to_end(&mut bytes);
        read.map_err(|error| Failure::Usage(format!("standard input: {error}")))?;
        parts.push(SpokenPart::new("stdin", bytes));
    }
    if let [alone] = &mut parts[..] {
        alone.source = USER_INPUT.into();
    }
    Ok((!parts.is_empty()).then_some(Spoken { parts }))
}

/// What became of a root.
enum Settled {
    Ended(Exit),
    /// A session that waits for further input; nothing will happen by itself.
    Waits,
}

/// Shows what becomes of these, until each has ended or waits.
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
    // The stream of events ends with the last handle on the kernel.
    drop(roots);
    kernel.shutdown().await;
    watch.end().await;
    match output {
        Output::Json => show_json(&results, &lines)?,
        Output::ForPeople => show(&results, &lines)?,
    }
    Ok(code(&results))
}

/// A process that is stopped waits as well: nobody here continues it.
async fn settled(root: &Process) -> Result<Settled, Failure> {
    let waits = root.wait_for(|view: &View| view.is_idle() || view.stopped);
    tokio::select! {
        biased;
        exit = root.wait() => Ok(Settled::Ended(exit?)),
        waits = waits => waits.map(|_| Settled::Waits).map_err(Failure::from),
    }
}

fn code(results: &[(Pid, Settled)]) -> ExitCode {
    let failed = results.iter().find_map(|(_, settled)| match settled {
        Settled::Ended(exit) if exit.status != ExitStatus::Done => Some(exit.status),
        Settled::Ended(_) | Settled::Waits => None,
    });
    failed.map_or(ExitCode::SUCCESS, code_of)
}

/// What is durable stays as it is, to be resumed; running commands are ended. A second signal does not wait for that.
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
        Some(path) => format!("Go on with: dormouse resume --store {} and the same --allow flags.", path.display()),
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
        };
        let result = json!({ "event": "result", "pid": pid.0, "status": status, "message": message });
        writeln!(out, "{}", terminal::json(&result))?;
    }
    let tree = json!({ "event": "tree", "processes": lines, "tool_chars": produced, "context_chars": entered });
    Ok(writeln!(out, "{}", terminal::json(&tree))?)
}

fn show(results: &[(Pid, Settled)], lines: &[Line]) -> Result<(), Failure> {
    tell(&format!("\n{}", Line::header()));
    lines.iter().for_each(|line| tell(&line.to_string()));
    let (produced, entered) = totals(lines);
    tell(&format!("\ntools returned {produced} characters, {entered} entered a context\n"));
    for (pid, settled) in results {
        match settled {
            Settled::Ended(Exit { status: ExitStatus::Done, message, .. }) => {
                writeln!(terminal::stdout(), "{message}")?
            }
            Settled::Ended(Exit { status, message, .. }) => {
                tell(&format!("process {pid} ended as {}: {message}", status.word()));
            }
            Settled::Waits => tell(&format!("process {pid} waits for input")),
        }
    }
    Ok(())
}
