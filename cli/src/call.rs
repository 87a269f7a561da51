//! `dormouse call`: tool calls against a process, one JSON object a line in, one a line out.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use dormouse::tool::Answer;
use dormouse::{KernelError, Process};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::compose::{Composition, load};
use crate::key::Key;
use crate::permissions::Permissions;
use crate::status::Failure;
use crate::stop::StopSignals;
use crate::terminal;

/// `dormouse call`
#[derive(Debug, Args)]
pub(crate) struct Call {
    /// The program file.
    pub(crate) program: PathBuf,
    /// The calls, one JSON object a line: {"tool": NAME, "args": {…}} or {"open": {"file": PATH,
    /// "page_size": N}}. `-` reads them from standard input.
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) calls: PathBuf,
    /// Keep everything durable in this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) key: Key,
    #[command(flatten)]
    pub(crate) permissions: Permissions,
}

/// One line of the file of calls.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Line {
    Tool {
        tool: String,
        #[serde(default)]
        args: Value,
    },
    Open {
        open: Open,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Open {
    file: PathBuf,
    page_size: Option<u32>,
}

/// Executes the calls in order. A call that fails is an answer like any other; the next one is
/// still made.
pub(crate) async fn call(args: Call) -> Result<ExitCode, Failure> {
    let lines = open(&args.calls)?;
    let kernel = Composition::of(args.store.as_deref(), &args.key)
        .permissions(&args.permissions)
        .kernel()
        .await?;
    let program = load(&kernel, &args.program)?;
    let mut stop = StopSignals::listen()?;
    let process = kernel.start(program).session().without_input().await?;
    // In a task of its own: reading the next line blocks.
    let mut answering = tokio::spawn(answer_all(process.clone(), lines));
    let end = tokio::select! {
        end = &mut answering => Ok(end),
        code = stop.next() => Err(code),
    };
    // However it went, the process does not stay behind in the store as one that waits, nor what
    // its tools run.
    if process.kill().await.is_ok() {
        process.wait().await?;
    }
    kernel.shutdown().await;
    match end {
        Ok(answered) => answered
            .map_err(|error| Failure::Run(error.to_string()))?
            .map(|()| ExitCode::SUCCESS),
        // A read of the next line cannot be given up: the task that waits for it goes down with the
        // program.
        Err(code) => std::process::exit(code.into()),
    }
}

async fn answer_all(process: Process, mut lines: impl BufRead) -> Result<(), Failure> {
    let mut out = terminal::stdout();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines.read_until(b'\n', &mut line);
        if read.map_err(|error| Failure::Usage(format!("the calls cannot be read: {error}")))? == 0
        {
            return Ok(());
        }
        let line = String::from_utf8_lossy(&line);
        if !line.trim().is_empty() {
            let answer = answer(&process, line.trim()).await?;
            let answer = json!({ "is_error": answer.is_error, "text": &*answer.text });
            writeln!(out, "{}", terminal::json(&answer))?;
            out.flush()?;
        }
    }
}

fn open(path: &Path) -> Result<BufReader<Box<dyn Read + Send>>, Failure> {
    if path == Path::new("-") {
        return Ok(BufReader::new(Box::new(std::io::stdin())));
    }
    let file = std::fs::File::open(path);
    let file = file.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    Ok(BufReader::new(Box::new(file)))
}

async fn answer(process: &Process, line: &str) -> Result<Answer, KernelError> {
    match serde_json::from_str(line) {
        Ok(Line::Tool { tool, args }) => process.call(tool, arguments(&args)).await,
        Ok(Line::Open { open }) => open_file(process, open).await,
        Err(_) => Ok(Answer::failed(format!(
            "not a call: {line}\nA line is {{\"tool\": NAME, \"args\": {{…}}}} or {{\"open\": \
             {{\"file\": PATH, \"page_size\": N}}}}."
        ))),
    }
}

fn arguments(args: &Value) -> String {
    if args.is_null() {
        "{}".to_owned()
    } else {
        args.to_string()
    }
}

async fn open_file(
    process: &Process,
    Open { file, page_size }: Open,
) -> Result<Answer, KernelError> {
    if page_size == Some(0) {
        return Ok(Answer::failed(
            "page_size is 0: a page holds at least one character",
        ));
    }
    match std::fs::read(&file) {
        Ok(bytes) => {
            process
                .open(format!("file:{}", file.display()), bytes, page_size)
                .await
        }
        Err(error) => Ok(Answer::failed(format!("{}: {error}", file.display()))),
    }
}
