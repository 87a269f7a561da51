//! The cost of processes that sleep until an alarm: a million of them, of which a thousand are due.
//!
//! Sleepers are started through the kernel, with alarms in a year; then a thousand more, which are
//! due a few seconds later. When that time is over, another operating system process opens the
//! store with a kernel that resumes all of them. Printed are the bytes that each takes on disk and
//! in memory, how long the store and the kernel take to open, with and without resuming the
//! sleepers, and how long it takes until all that are due have ended their turns.
//!
//! `cargo run --release -p dormouse-bench --bin alarms -- [SLEEPERS]` replaces the million.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use dormouse::program::Program;
use dormouse::store::LogStore;
use dormouse::{Event, Kernel, KernelBuilder, ProcessStatus, Recovery};
use dormouse_bench::{
    FnModel, Outcome, StoreTask, format_duration, open_again, print_bytes_on_disk, print_line,
    resident_bytes, text_reply,
};
use futures_util::StreamExt;

const SLEEPERS: u64 = 1_000_000;
const DUE: u64 = 1_000;
const UNTIL_DUE: Duration = Duration::from_secs(10);
const YEAR: Duration = Duration::from_secs(365 * 86_400);
/// The number of processes that are being created at once.
const MAX_CONCURRENT_STARTS: usize = 2048;

#[tokio::main]
async fn main() -> Outcome {
    match StoreTask::from_args()? {
        StoreTask::Open(folder, count) => measure_opened(&folder, count).await,
        StoreTask::Write(counts) => measure(counts.first().copied().unwrap_or(SLEEPERS)).await,
    }
}

fn open(folder: &Path) -> Outcome<KernelBuilder> {
    let model = FnModel(|_| async { text_reply("Done.") });
    Ok(Kernel::open(LogStore::open(folder)?)
        .model("m", model)
        .inbox_capacity(16)
        .max_loaded(256))
}

async fn measure(count: u64) -> Outcome {
    let folder = tempfile::tempdir()?;
    let kernel = open(folder.path())?.build().await?;
    const TEXT: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";
    let program = kernel.parse(TEXT)?.program;
    let start = Instant::now();
    start_sleepers(&kernel, &program, count, SystemTime::now() + YEAR).await?;
    print_line(format_args!(
        "{count} sleepers were started in {}",
        format_duration(start.elapsed())
    ))?;
    let due_at = Instant::now() + UNTIL_DUE;
    start_sleepers(&kernel, &program, DUE, SystemTime::now() + UNTIL_DUE).await?;
    kernel.shutdown().await?;
    print_bytes_on_disk(folder.path(), count)?;
    tokio::time::sleep_until(due_at.into()).await;
    open_again(folder.path(), count)
}

async fn start_sleepers(
    kernel: &Kernel,
    program: &Program,
    count: u64,
    due: SystemTime,
) -> Outcome {
    let starts = futures_util::stream::iter(0..count).map(|_| {
        let start = kernel.start(program.clone()).input("Look again.").at(due);
        async move { start.await.map(drop) }
    });
    let mut starts = std::pin::pin!(starts.buffer_unordered(MAX_CONCURRENT_STARTS));
    while let Some(started) = starts.next().await {
        started?;
    }
    Ok(())
}

async fn measure_opened(folder: &Path, count: u64) -> Outcome {
    let before = resident_bytes()?;
    let start = Instant::now();
    let builder = open(folder)?;
    print_line(format_args!(
        "the store was opened in {}",
        format_duration(start.elapsed())
    ))?;
    let start = Instant::now();
    let kernel = builder.build().await?;
    print_line(format_args!(
        "a kernel that holds them was built in {}",
        format_duration(start.elapsed())
    ))?;
    kernel.shutdown().await?;
    let builder = open(folder)?.recovery(Recovery::Resume);
    let start = Instant::now();
    let kernel = builder.build().await?;
    let mut events = kernel.events();
    let is_exit = |event: &Event| matches!(event, Event::Exited { .. });
    // The supervisor answers once it has found those that are due.
    kernel.process(dormouse::id::Pid(1)).await?;
    print_line(format_args!(
        "a kernel that resumes them was built, and those due were found, in {}",
        format_duration(start.elapsed())
    ))?;
    // Before the list below, which takes more memory than the sleepers.
    let bytes = resident_bytes()?.saturating_sub(before);
    print_line(format_args!("in memory: {} bytes each", bytes / count))?;
    loop {
        let processes = kernel.processes().await?;
        let ended = processes.iter().filter(|info| info.row.exit.is_some());
        let ended = ended.count() as u64;
        if ended == DUE {
            let asleep = processes
                .iter()
                .filter(|info| info.status == ProcessStatus::Asleep);
            assert_eq!(asleep.count() as u64, count, "nobody else was woken");
            break;
        }
        while let Some(event) = events.next().await {
            if is_exit(&event) || matches!(event, Event::Lagged { .. }) {
                break;
            }
        }
    }
    print_line(format_args!(
        "the {DUE} that were due had ended their turns {} after that began",
        format_duration(start.elapsed())
    ))?;
    Ok(kernel.shutdown().await?)
}
