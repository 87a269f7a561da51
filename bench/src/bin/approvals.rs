//! The cost of processes that wait for a person: a million of them by default, each with one held
//! call, all hibernated.
//!
//! Each process runs one turn, whose model asks the user, and hibernates. Another operating system
//! process then opens the store with a kernel that resumes all of them. Printed are the bytes that
//! each takes on disk and in memory, how long the store and the kernel take to open, how long
//! listing the held calls takes, and how long a process takes from the answer to the end of its
//! turn. `alarms` has the same figures for processes that wait for a time.
//!
//! `cargo run --release -p dormouse-bench --bin approvals -- [PROCESSES]` replaces the million.

use std::path::Path;
use std::time::{Duration, Instant};

use dormouse::id::Pid;
use dormouse::model::Request;
use dormouse::program::Program;
use dormouse::store::LogStore;
use dormouse::{Durability, Kernel, KernelBuilder, KernelError, ProcessError, Recovery};
use dormouse_bench::{
    FnModel, Outcome, StoreTask, format_duration, open_again, print_bytes_on_disk, print_line,
    resident_bytes, text_reply, tool_call_reply,
};
use dormouse_tests::results;
use futures_util::StreamExt;

const PROCESSES: u64 = 1_000_000;
/// The number of processes that run a turn at once.
const MAX_CONCURRENT_TURNS: usize = 2048;
/// How many held calls are answered, one after the other.
const ANSWERED: u64 = 500;

#[tokio::main]
async fn main() -> Outcome {
    match StoreTask::from_args()? {
        StoreTask::Open(folder, count) => measure_opened(&folder, count).await,
        StoreTask::Write(counts) => measure(counts.first().copied().unwrap_or(PROCESSES)).await,
    }
}

fn open(folder: &Path) -> Outcome<KernelBuilder> {
    let model = FnModel(|request: Request| async move {
        match results(&request, 0).is_empty() {
            true => tool_call_reply("ask_user", r#"{"question": "Shall I?"}"#),
            false => text_reply("Done."),
        }
    });
    Ok(Kernel::open(LogStore::open(folder)?)
        .model("m", model)
        .model_calls(MAX_CONCURRENT_TURNS)
        // What this measures is what waits, not how fast it came to that.
        .durability(Durability::EveryTurn)
        .inbox_capacity(16))
}

async fn measure(count: u64) -> Outcome {
    const TEXT: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = \
                        [\"ask_user\"]\n";
    let folder = tempfile::tempdir()?;
    let kernel = open(folder.path())?.build().await?;
    let program = kernel.parse(TEXT)?.program;
    let start = Instant::now();
    ask_all(&kernel, &program, count).await?;
    print_line(format_args!(
        "{count} processes have asked, and hibernate, after {}",
        format_duration(start.elapsed())
    ))?;
    kernel.shutdown().await?;
    print_bytes_on_disk(folder.path(), count)?;
    open_again(folder.path(), count)
}

async fn ask_all(kernel: &Kernel, program: &Program, count: u64) -> Outcome {
    let turns = futures_util::stream::iter(0..count)
        .map(|_| ask(kernel, program))
        .buffer_unordered(MAX_CONCURRENT_TURNS);
    let mut turns = std::pin::pin!(turns);
    while let Some(turn) = turns.next().await {
        turn?;
    }
    Ok(())
}

/// Runs a process until its call is held, and lets it hibernate.
async fn ask(kernel: &Kernel, program: &Program) -> Result<(), KernelError> {
    let process = kernel.start(program.clone()).input("Go.").await?;
    loop {
        match process.hibernate().await {
            Err(KernelError::Process(ProcessError::Pending { .. })) => {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            done => return done,
        }
    }
}

async fn measure_opened(folder: &Path, count: u64) -> Outcome {
    let before = resident_bytes()?;
    let start = Instant::now();
    let builder = open(folder)?.recovery(Recovery::Resume);
    print_line(format_args!(
        "the store was opened in {}",
        format_duration(start.elapsed())
    ))?;
    let start = Instant::now();
    let kernel = builder.build().await?;
    // The supervisor answers once it has looked at all rows.
    kernel.process(Pid(1)).await?;
    print_line(format_args!(
        "a kernel that resumes them was built in {}",
        format_duration(start.elapsed())
    ))?;
    let bytes = resident_bytes()?.saturating_sub(before);
    print_line(format_args!("in memory: {} bytes each", bytes / count))?;
    let start = Instant::now();
    let pending = kernel.pending().await?;
    assert_eq!(pending.calls.len() as u64, count, "each has one held call");
    print_line(format_args!(
        "all held calls were listed in {}",
        format_duration(start.elapsed())
    ))?;
    let step = (count / ANSWERED).max(1);
    let mut took = Vec::new();
    for call in pending.calls.iter().step_by(step as usize) {
        let start = Instant::now();
        kernel.answer(call.id, "yes".into()).await?;
        kernel.process(call.id.pid).await?.wait().await?;
        took.push(start.elapsed());
    }
    took.sort_unstable();
    print_line(format_args!(
        "from the answer to the end of the turn: median {}, 99 % {}",
        format_duration(took[took.len() / 2]),
        format_duration(took[took.len() * 99 / 100])
    ))?;
    Ok(kernel.shutdown().await?)
}
