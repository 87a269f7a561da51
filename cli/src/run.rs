//! `dormouse run` and `dormouse resume`.

use std::io::{Read, Write};
use std::process::ExitCode;

use dormouse::process::{Exit, ExitStatus};
use dormouse::{Event, Events, Kernel, Process};
use futures_util::StreamExt;
use serde_json::json;

use crate::args::{Input, Resume, Run};
use crate::compose::{Composition, load};
use crate::progress::Progress;
use crate::report::{Line, totals, tree};
use crate::status::{Failure, code_of};

/// Runs a program to its end.
pub(crate) async fn run(args: Run) -> Result<ExitCode, Failure> {
    let kernel = Composition { store: args.store.as_deref(), permissions: &args.permissions }.kernel().await?;
    let program = load(&kernel, &args.program)?;
    let mut start = kernel.start(program.clone());
    match said(args.input)? {
        Some(text) => start = start.input(text),
        None if program.user().is_none() => return Err(Failure::Usage(no_input(program.name()))),
        None => {}
    }
    let watch = Watch::begin(&kernel, args.json);
    let process = start.await?;
    finish(kernel, vec![process], watch, args.store.is_some()).await
}

/// Goes on with everything that has not ended. Where all has, the results of the roots are shown once more.
pub(crate) async fn resume(args: Resume) -> Result<ExitCode, Failure> {
    let permissions = &args.permissions;
    let kernel = Composition { store: Some(&args.store), permissions }.existing().await?;
    let watch = Watch::begin(&kernel, args.json);
    kernel.resume_all().await?;
    let mut roots = Vec::new();
    for info in kernel.processes().await?.into_iter().filter(|info| info.row.parent.is_none()) {
        roots.push(kernel.process(info.row.pid).await?);
    }
    if roots.is_empty() {
        return Err(Failure::Usage(format!("the store {} holds no process", args.store.display())));
    }
    finish(kernel, roots, watch, true).await
}

fn no_input(program: &str) -> String {
    format!("program {program} has no user prompt: say something with --input TEXT, --input-file FILE or -")
}

fn said(input: Input) -> Result<Option<String>, Failure> {
    if let Some(path) = input.input_file {
        let text = std::fs::read_to_string(&path);
        return text.map(Some).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())));
    }
    if input.stdin.is_some() {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(Some(text));
    }
    Ok(input.input)
}

/// Shows what happens until the kernel has nothing more to say.
struct Watch {
    events: Events,
    json: bool,
}

impl Watch {
    fn begin(kernel: &Kernel, json: bool) -> Self {
        Self { events: kernel.events(), json }
    }

    async fn show(self) {
        let Self { mut events, json } = self;
        let mut progress = Progress::new();
        while let Some(event) = events.next().await {
            if json { print_json(&event) } else { progress.show(&event) }
        }
    }
}

fn print_json(event: &Event) {
    let pid = event.pid().map(|pid| pid.0);
    let line = match event {
        Event::Started { parent, program, .. } => {
            json!({ "event": "started", "pid": pid, "parent": parent.map(|pid| pid.0), "program": &**program })
        }
        Event::Text { text, .. } => json!({ "event": "text", "pid": pid, "text": text }),
        Event::Thinking { text, .. } => json!({ "event": "thinking", "pid": pid, "text": text }),
        Event::ToolCalled { tool, args, .. } => {
            json!({ "event": "tool_called", "pid": pid, "tool": &**tool, "args": &**args })
        }
        Event::Fact { number, fact, .. } => {
            json!({ "event": "fact", "pid": pid, "number": number.0, "fact": fact.name() })
        }
        Event::Retrying { reason, delay_ms, .. } => {
            json!({ "event": "retrying", "pid": pid, "reason": reason, "delay_ms": delay_ms })
        }
        Event::TurnEnded { outcome, .. } => {
            json!({ "event": "turn_ended", "pid": pid, "status": outcome.status.word() })
        }
        Event::Exited { exit, .. } => json!({ "event": "exited", "pid": pid, "status": exit.status.word() }),
        Event::Lagged { missed } => json!({ "event": "lagged", "missed": missed }),
    };
    print(&line.to_string());
}

/// Where standard output is gone the run still goes on to its end.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

async fn finish(kernel: Kernel, roots: Vec<Process>, watch: Watch, durable: bool) -> Result<ExitCode, Failure> {
    let json = watch.json;
    let shown = tokio::spawn(watch.show());
    let mut code = ExitCode::SUCCESS;
    for root in &roots {
        let exit = tokio::select! {
            exit = root.wait() => exit?,
            _ = tokio::signal::ctrl_c() => return stopped(kernel, durable).await,
        };
        code = if exit.status == ExitStatus::Done { code } else { code_of(exit.status) };
    }
    let lines = tree(&kernel).await?;
    let exits: Vec<_> = roots.iter().filter_map(|root| Some((root.pid().0, root.exit()?))).collect();
    // The stream of events ends with the last handle on the kernel.
    drop(roots);
    kernel.shutdown().await;
    let _ = shown.await;
    if json {
        result_as_json(&exits, &lines)
    } else {
        result_for_people(&exits, &lines)?
    }
    Ok(code)
}

/// Ctrl-C: what is durable stays as it is, to be resumed.
async fn stopped(kernel: Kernel, durable: bool) -> Result<ExitCode, Failure> {
    kernel.shutdown().await;
    let hint = if durable { "Go on with: dormouse resume --store DIR" } else { "Without --store nothing was kept." };
    writeln!(std::io::stderr(), "stopped. {hint}")?;
    Ok(ExitCode::from(130))
}

fn result_as_json(exits: &[(u64, Exit)], lines: &[Line]) {
    let (produced, entered) = totals(lines);
    for (pid, exit) in exits {
        let (status, message) = (exit.status.word(), &*exit.message);
        print(&json!({ "event": "result", "pid": pid, "status": status, "message": message }).to_string());
    }
    print(
        &json!({ "event": "tree", "processes": lines, "tool_chars": produced, "context_chars": entered }).to_string(),
    );
}

fn result_for_people(exits: &[(u64, Exit)], lines: &[Line]) -> Result<(), Failure> {
    let mut err = std::io::stderr();
    writeln!(err, "\n{}", Line::header())?;
    lines.iter().try_for_each(|line| writeln!(err, "{line}"))?;
    let (produced, entered) = totals(lines);
    writeln!(err, "\ntools returned {produced} characters, {entered} entered a context\n")?;
    for (pid, exit) in exits {
        match exit.status {
            ExitStatus::Done => print(&exit.message),
            status => writeln!(err, "process {pid} ended as {}: {}", status.word(), exit.message)?,
        }
    }
    Ok(())
}
