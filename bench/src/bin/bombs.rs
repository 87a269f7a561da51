//! Runs each resource bomb of `dormouse_tests::bombs` at full size, in a kernel of its own. A bomb
//! uses as much of one resource as it can get. Prints how the bomb ended, how much it did, how long
//! it took, its peak memory, and how a *bystander* ended: a process of the same kernel that is
//! started afterwards.
//!
//! `bombs [NAME]`: without a name all bombs run, each in an operating system process of its own, so
//! that peaks of memory are not mixed. Needs `/proc` and the command `yes`. Exits with 1 if a bomb
//! failed or did not end.

use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use dormouse_tests::bombs::{Bomb, End, Size};

/// 1 + 6 + 36 + 216 + 1296 processes; 20,000 messages from a process and as many from the host; 64
/// MB of output.
const LARGE: Size = Size {
    width: 6,
    depth: 64,
    budget: Some(1_000),
    messages: 100,
    model_calls: 200,
    output_cap: 64_000_000,
    deadline: Duration::from_secs(1),
};

/// A bomb that runs longer than this counts as not ended.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The interval at which the process of a bomb is checked for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

fn main() -> Result<ExitCode, Box<dyn Error>> {
    match std::env::args().nth(1) {
        None => run_all(),
        Some(name) => {
            let bomb = Bomb::ALL.into_iter().find(|bomb| bomb.name() == name);
            let names: Vec<_> = Bomb::ALL.iter().map(|bomb| bomb.name()).collect();
            let bomb = bomb.ok_or_else(|| {
                format!("there is no bomb '{name}': there are {}", names.join(", "))
            })?;
            writeln!(io::stdout(), "{}", run_in_process(bomb)?)?;
            // `exit` does not wait for threads that a tool still holds.
            std::process::exit(0)
        }
    }
}

/// Runs a bomb in this process, and returns its row of the table.
fn run_in_process(bomb: Bomb) -> Result<String, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()?;
    let start = Instant::now();
    let End {
        exit,
        processes,
        done,
        refused,
        chars,
        bystander,
    } = runtime.block_on(bomb.set_off(LARGE))?;
    let seconds = start.elapsed().as_secs_f64();
    // Dropping the runtime would wait for threads that a tool still holds.
    runtime.shutdown_background();
    let message: String = exit.message.chars().take(90).collect();
    Ok(format!(
        "{:<12} {processes:>9} {done:>8} {refused:>8} {chars:>10} {seconds:>8.2} {:>8.1}   {}, \
         then {}: {message}",
        bomb.name(),
        dormouse_bench::peak_bytes()? as f64 / 1024.0 / 1024.0,
        exit.status.word(),
        bystander.word(),
    ))
}

fn run_all() -> Result<ExitCode, Box<dyn Error>> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:<12} {:>9} {:>8} {:>8} {:>10} {:>8} {:>8}   ended, then a bystander",
        "bomb", "processes", "done", "refused", "chars", "seconds", "MiB"
    )?;
    let mut failed = Vec::new();
    for bomb in Bomb::ALL {
        match run_in_subprocess(bomb)? {
            Some(line) => write!(out, "{line}")?,
            None => {
                writeln!(
                    out,
                    "{:<12} FAILED, or did not end within {TIMEOUT:?}",
                    bomb.name()
                )?;
                failed.push(bomb.name());
            }
        }
        out.flush()?;
    }
    Ok(if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs a bomb in a process of its own; `None` if it fails or does not end.
fn run_in_subprocess(bomb: Bomb) -> Result<Option<String>, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let mut child = Command::new(program)
        .arg(bomb.name())
        .stdout(Stdio::piped())
        .spawn()?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > TIMEOUT {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    let mut line = String::new();
    child
        .stdout
        .take()
        .ok_or("its output is piped")?
        .read_to_string(&mut line)?;
    Ok(status.success().then_some(line))
}
