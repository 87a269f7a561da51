//! Bombs in full size: what takes all it can get is set off in a kernel of its own, ends as
//! designed, and this prints how it ended, after how much, in which time, and with how much memory
//! beside a kernel in which nothing happens.
//!
//! `bombs [NAME]`: without a name all of them, each in a process of its own, so that peaks of
//! memory are told apart. Needs `/proc` and the command `yes`. Exits with 1 where one failed or did
//! not end.

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

/// After so long a bomb did not end.
const PATIENCE: Duration = Duration::from_secs(300);

/// How often a process that measures is looked at.
const GLANCE: Duration = Duration::from_millis(20);

fn main() -> Result<ExitCode, Box<dyn Error>> {
    match std::env::args().nth(1) {
        None => all(),
        Some(name) => {
            let bomb = Bomb::ALL.into_iter().find(|bomb| bomb.name() == name);
            let names: Vec<_> = Bomb::ALL.iter().map(|bomb| bomb.name()).collect();
            let bomb = bomb.ok_or_else(|| {
                format!("there is no bomb '{name}': there are {}", names.join(", "))
            })?;
            writeln!(io::stdout(), "{}", set_off(bomb)?)?;
            // A thread that a tool holds is not waited for.
            std::process::exit(0)
        }
    }
}

/// Sets one off in this process; its line of the table.
fn set_off(bomb: Bomb) -> Result<String, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()?;
    let began = Instant::now();
    let End {
        exit,
        processes,
        done,
        refused,
        chars,
        bystander,
    } = runtime.block_on(bomb.set_off(LARGE))?;
    let seconds = began.elapsed().as_secs_f64();
    // A thread that a tool holds would be waited for here.
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

fn all() -> Result<ExitCode, Box<dyn Error>> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:<12} {:>9} {:>8} {:>8} {:>10} {:>8} {:>8}   ended, then a bystander",
        "bomb", "processes", "done", "refused", "chars", "seconds", "MiB"
    )?;
    let mut failed = Vec::new();
    for bomb in Bomb::ALL {
        match run(bomb)? {
            Some(line) => write!(out, "{line}")?,
            None => {
                writeln!(
                    out,
                    "{:<12} FAILED, or did not end within {PATIENCE:?}",
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

/// Sets one off in a process of its own; none where it does not end, or fails.
fn run(bomb: Bomb) -> Result<Option<String>, Box<dyn Error>> {
    let myself = std::env::current_exe()?;
    let mut child = Command::new(myself)
        .arg(bomb.name())
        .stdout(Stdio::piped())
        .spawn()?;
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if began.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(GLANCE);
    };
    let mut line = String::new();
    child
        .stdout
        .take()
        .ok_or("its output is piped")?
        .read_to_string(&mut line)?;
    Ok(status.success().then_some(line))
}
