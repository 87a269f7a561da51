//! Memory of a kernel while many processes are created and end. Prints for each round: private
//! memory and mapped pages of the store's files as the operating system counts them, the contents
//! in memory, the rows of the process table (one for each process that was not deleted), and how
//! many records a garbage collection read.
//!
//! `churn [ROUNDS] [PROCESSES]`: in each round this many processes are created; each opens contents
//! of 10 to 300 KB, runs a turn and ends. One in ten lives for ten rounds. Compare with a run under
//! `MALLOC_ARENA_MAX=1`: the difference is memory that the allocator retains.

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use dormouse::ports::SweepMode;
use dormouse::retention::{CheckpointRules, EndedRule, Retention};
use dormouse::store::LogStore;
use dormouse::{Kernel, Process};
use dormouse_bench::{FnModel, Outcome, program, text_reply};

/// The limit of content bytes in memory.
const RESIDENT_BYTES_LIMIT: u64 = 16 << 20;

/// The value in KiB of a line of `/proc/self/status`.
fn status_kib(status: &str, name: &str) -> u64 {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok())
        .unwrap_or_default()
}

/// A text that is different for each seed.
fn text(seed: u64) -> String {
    let lines = 200 + seed.wrapping_mul(2_654_435_761) % 6_000;
    (0..lines)
        .map(|line| format!("{seed} says {line}, and no more than that of it.\n"))
        .collect()
}

async fn run_process(kernel: Kernel, seed: u64) -> Outcome<Process> {
    let process = kernel
        .start(program(&kernel)?)
        .session()
        .without_input()
        .await?;
    for content in 0..3 {
        process.open("it", text(seed * 3 + content), None).await?;
    }
    let args = r#"{"fd": "fd:2", "page": 2}"#;
    process.call("read_fd", args).await?;
    process.input("go on").await?;
    process.checkpoint("").await?;
    Ok(process)
}

async fn end_process(process: Process) -> Outcome {
    process.kill().await?;
    process.wait().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome {
    let mut numbers = env::args()
        .skip(1)
        .filter_map(|number| number.parse::<u64>().ok());
    let (rounds, processes_per_round) =
        (numbers.next().unwrap_or(60), numbers.next().unwrap_or(100));
    let folder = tempfile::tempdir()?;
    let store = LogStore::open(folder.path())?;
    let model = FnModel(|_| async { text_reply("ok") });
    let kernel = Kernel::open(store)
        .model("m", model)
        .resident_bytes_limit(RESIDENT_BYTES_LIMIT)
        .build()
        .await?;
    let retention = Retention {
        checkpoints: CheckpointRules {
            last: Some(2),
            ..CheckpointRules::default()
        },
        ended: EndedRule::ForMs(0),
        ..Retention::default()
    };
    let mut long_lived = VecDeque::new();
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "round  private KiB  files KiB  contents KiB  rows  log MiB  looked at  gc ms"
    )?;
    for round in 0..rounds {
        let tasks = (0..processes_per_round).map(|number| {
            tokio::spawn(run_process(
                kernel.clone(),
                round * processes_per_round + number,
            ))
        });
        let tasks: Vec<_> = tasks.collect();
        for (number, task) in tasks.into_iter().enumerate() {
            let process = task.await??;
            if number % 10 == 0 {
                long_lived.push_back((round, process))
            } else {
                end_process(process).await?
            }
        }
        while long_lived
            .front()
            .is_some_and(|(since, _)| since + 10 <= round)
        {
            if let Some((_, process)) = long_lived.pop_front() {
                end_process(process).await?;
            }
        }
        let start = Instant::now();
        let report = kernel
            .collect_garbage(retention.clone(), SweepMode::Free)
            .await?;
        let elapsed = start.elapsed();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let status = fs::read_to_string("/proc/self/status")?;
        writeln!(
            out,
            "{round:5}  {:11}  {:9}  {:12}  {:4}  {:7}  {:9}  {:5}",
            status_kib(&status, "RssAnon"),
            status_kib(&status, "RssFile"),
            kernel.resident_bytes() >> 10,
            kernel.processes().await?.len(),
            report.swept.bytes_after >> 20,
            report.read + report.swept.inspected_records,
            elapsed.as_millis()
        )?;
    }
    drop(long_lived);
    kernel.shutdown().await?;
    Ok(())
}
