//! `dormouse call`: executes tool calls against a process, without a model. Calls and answers are
//! JSON objects, one a line.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use dormouse::tool::Answer;
use dormouse::{KernelError, Process};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::failure::{Failure, file_failure};
use crate::kernel_setup::{KernelSetup, load_program};
use crate::permissions::Permissions;
use crate::stop_signals::{StopSignals, exit_at_once};
use crate::store_key::Key;
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

/// One line of the file with the calls.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum CallLine {
    Tool {
        tool: String,
        #[serde(default)]
        args: Value,
    },
    Open {
        open: FileToOpen,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileToOpen {
    file: PathBuf,
    page_size: Option<u32>,
}

/// Executes the calls in order. A call that fails has an error as its answer, and the next call is
/// still made.
pub(crate) async fn call(args: Call) -> Result<ExitCode, Failure> {
    let lines = open_calls(&args.calls)?;
    let kernel = KernelSetup::new(args.store.as_deref(), &args.key)
        .permissions(&args.permissions)
        .build()
        .await?;
    let program = load_program(&kernel, &args.program)?;
    let mut stop = StopSignals::listen()?;
    let process = kernel.start(program).session().without_input().await?;
    // Reading the next line blocks, so the calls are answered in a task of their own.
    let mut answering = tokio::spawn(answer_all(process.clone(), lines));
    let end = tokio::select! {
        end = &mut answering => Ok(end),
        code = stop.next() => Err(code),
    };
    // The process is killed, because it would otherwise stay in the store, waiting for calls, and
    // the commands of its tools would keep running.
    if process.kill().await.is_ok() {
        process.wait().await?;
    }
    let closed = kernel.shutdown().await;
    match end {
        Ok(answered) => {
            answered.map_err(|error| Failure::Run(error.to_string()))??;
            Ok(closed.map(|()| ExitCode::SUCCESS)?)
        }
        Err(code) => exit_at_once(code, closed),
    }
}

async fn answer_all(process: Process, mut lines: impl BufRead) -> Result<(), Failure> {
    let mut out = terminal::stdout();
    let mut line = Vec::new();
    loop {
        line.clear();
        let bytes_read = lines
            .read_until(b'\n', &mut line)
            .map_err(|error| Failure::Usage(format!("the calls cannot be read: {error}")))?;
        if bytes_read == 0 {
            return Ok(());
        }
        let line = String::from_utf8_lossy(&line);
        if !line.trim().is_empty() {
            let answer = answer(&process, line.trim()).await?;
            let answer = json!({ "is_error": answer.is_error, "text": &*answer.text });
            writeln!(out, "{}", terminal::escaped_json(&answer))?;
            out.flush()?;
        }
    }
}

fn open_calls(path: &Path) -> Result<BufReader<Box<dyn Read + Send>>, Failure> {
    if path == Path::new("-") {
        return Ok(BufReader::new(Box::new(std::io::stdin())));
    }
    let file = std::fs::File::open(path).map_err(|error| file_failure(path, &error))?;
    Ok(BufReader::new(Box::new(file)))
}

async fn answer(process: &Process, line: &str) -> Result<Answer, KernelError> {
    match serde_json::from_str(line) {
        Ok(CallLine::Tool { tool, args }) => process.call(tool, arguments_json(&args)).await,
        Ok(CallLine::Open { open }) => open_file(process, open).await,
        Err(_) => Ok(Answer::failed(format!(
            "not a call: {line}\nA line is {{\"tool\": NAME, \"args\": {{…}}}} or {{\"open\": \
             {{\"file\": PATH, \"page_size\": N}}}}."
        ))),
    }
}

/// The arguments as a tool expects them: a line without arguments means an empty object.
fn arguments_json(args: &Value) -> String {
    if args.is_null() {
        "{}".to_owned()
    } else {
        args.to_string()
    }
}

async fn open_file(
    process: &Process,
    FileToOpen { file, page_size }: FileToOpen,
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
