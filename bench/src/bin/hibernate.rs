//! The cost of hibernating and waking a process, and the memory of a hibernated one.
//!
//! * A process with 50 turns and 10 descriptors hibernates and wakes. It is measured twice: without
//!   a new fact since it woke, and after a fact, when an image has to be written and synced first.
//!   The baselines of the same run are reading its journal from the store and decoding its image,
//!   and a commit of the store alone.
//! * 100,000 and 1,000,000 sessions are started through the kernel and hibernate. Their cost is the
//!   resident memory afterwards, and again after another program has opened the store with a
//!   kernel. All sessions are listed, and some are woken one by one.
//!
//! `cargo run --release -p dormouse-bench --bin hibernate -- [SLEEPERS…]` replaces the two numbers.

use std::path::Path;
use std::time::{Duration, Instant};

use dormouse::id::Pid;
use dormouse::ports::{Batch, Journal, Store as _, WriteOp};
use dormouse::program::Program;
use dormouse::record::{ContentRef, Image, codec};
use dormouse::store::LogStore;
use dormouse::{Kernel, KernelBuilder, Process, ProcessStatus, ProcessView};
use dormouse_bench::{
    FnModel, Outcome, Percentiles, StoreTask, format_duration, open_again, print_line, ratio,
    resident_bytes, text_reply,
};
use futures_util::StreamExt;

const TURNS: usize = 50;
const DESCRIPTORS: usize = 10;
const ROUNDS: usize = 1000;
const SLEEPERS: [u64; 2] = [100_000, 1_000_000];
/// The number of sessions that are being created at once; one commit can hold several of them.
const MAX_CONCURRENT_STARTS: usize = 2048;
/// The most sessions that are woken.
const WAKE_SAMPLES: u64 = 500;

#[tokio::main]
async fn main() -> Outcome {
    let counts = match StoreTask::from_args()? {
        StoreTask::Open(folder, count) => return measure_reopened(&folder, count).await,
        StoreTask::Write(counts) if counts.is_empty() => SLEEPERS.to_vec(),
        StoreTask::Write(counts) => counts,
    };
    sleep_and_wake().await?;
    for count in counts {
        measure_sleepers(count).await?;
    }
    Ok(())
}

fn open(folder: &Path) -> Outcome<KernelBuilder> {
    let model = FnModel(|_| async {
        text_reply("A reply of some length, as models give them: not a word, and not a page.")
    });
    Ok(Kernel::open(LogStore::open(folder)?)
        .model("m", model)
        .inbox_capacity(16))
}

fn program(kernel: &Kernel) -> Outcome<Program> {
    const TEXT: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[prompt]\nsystem = \"You \
         measure.\"\n[tools]\nenabled = [\"read_fd\", \"search_fd\", \"rename_fd\", \
         \"list_fds\"]\n";
    Ok(kernel.parse(TEXT)?.program)
}

async fn sleep_and_wake() -> Outcome {
    let folder = tempfile::tempdir()?;
    let kernel = open(folder.path())?.build().await?;
    let process = create_session(&kernel).await?;
    let pid = process.pid();
    let mut durations = Durations::default();
    for _ in 0..ROUNDS {
        durations.slept.push(sleep(&process).await?);
        durations.woke.push(wake(&kernel, pid).await?);
    }
    for number in 0..ROUNDS {
        process
            .call(
                "rename_fd",
                format!("{{\"fd\": \"fd:1\", \"name\": \"name_{number}\"}}"),
            )
            .await?;
        durations.slept_after_fact.push(sleep(&process).await?);
        durations.woke_after_fact.push(wake(&kernel, pid).await?);
    }
    process.hibernate().await?;
    let view = kernel.inspect(pid).await?;
    kernel.shutdown().await?;
    let store = measure_store(folder.path(), pid)?;
    print_line(format_args!(
        "a process of {} messages and {} descriptors",
        view.messages, view.descriptors
    ))?;
    print_line(format_args!(
        "medians (and 99th percentiles) of {ROUNDS} rounds"
    ))?;
    let rows = [
        (
            "sleep and wake, nothing new",
            add_durations(&durations.slept, &durations.woke),
            store.read,
        ),
        (
            "sleep and wake after a fact",
            add_durations(&durations.slept_after_fact, &durations.woke_after_fact),
            store.commit,
        ),
        (
            "  sleep, nothing new",
            Percentiles::from_durations(durations.slept),
            store.read,
        ),
        (
            "  wake",
            Percentiles::from_durations(durations.woke),
            store.read,
        ),
        (
            "  sleep, with its image made durable",
            Percentiles::from_durations(durations.slept_after_fact),
            store.commit,
        ),
        (
            "  wake",
            Percentiles::from_durations(durations.woke_after_fact),
            store.read,
        ),
    ];
    print_line(format_args!(
        "{:40} {:>10} {:>10}",
        "journal read, image decoded",
        format_duration(store.read.median),
        format_duration(store.read.p99)
    ))?;
    print_line(format_args!(
        "{:40} {:>10} {:>10}",
        "image committed",
        format_duration(store.commit.median),
        format_duration(store.commit.p99)
    ))?;
    for (what, percentiles, baseline) in rows {
        let times = ratio(percentiles.median, baseline.median);
        print_line(format_args!(
            "{what:40} {:>10} {:>10} {times:>6.2}x",
            format_duration(percentiles.median),
            format_duration(percentiles.p99)
        ))?;
    }
    Ok(())
}

/// The durations of each round.
#[derive(Default)]
struct Durations {
    slept: Vec<Duration>,
    woke: Vec<Duration>,
    slept_after_fact: Vec<Duration>,
    woke_after_fact: Vec<Duration>,
}

fn add_durations(slept: &[Duration], woke: &[Duration]) -> Percentiles {
    Percentiles::from_durations(
        slept
            .iter()
            .zip(woke)
            .map(|(slept, woke)| *slept + *woke)
            .collect(),
    )
}

/// A session with a conversation and descriptors.
async fn create_session(kernel: &Kernel) -> Outcome<Process> {
    let process = kernel
        .start(program(kernel)?)
        .session()
        .without_input()
        .await?;
    for number in 0..DESCRIPTORS {
        process
            .open(
                format!("file:{number}"),
                "a line of what was read\n".repeat(2000 + number),
                None,
            )
            .await?;
    }
    for turn in 1..=TURNS {
        process
            .input(format!(
                "Input {turn}: please look at this, and tell me what you think of it."
            ))
            .await?;
        process
            .wait_for(|view| view.is_idle() && view.messages == 2 * turn)
            .await?;
    }
    Ok(process)
}

async fn sleep(process: &Process) -> Outcome<Duration> {
    let start = Instant::now();
    process.hibernate().await?;
    Ok(start.elapsed())
}

/// Measures until the actor of the process runs again.
async fn wake(kernel: &Kernel, pid: Pid) -> Outcome<Duration> {
    let start = Instant::now();
    kernel.resume(pid).await?;
    Ok(start.elapsed())
}

/// Durations of the store's operations alone.
struct StoreDurations {
    read: Percentiles,
    commit: Percentiles,
}

fn measure_store(folder: &Path, pid: Pid) -> Outcome<StoreDurations> {
    let store = LogStore::open(folder)?;
    let owner = store.claim()?;
    let (mut read, mut commit) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let Journal {
            image, base: at, ..
        } = store.journal(pid, None)?;
        let decoded: Image<ContentRef> = codec::decode(&image)?;
        read.push(start.elapsed());
        assert_eq!(
            decoded.table.len(),
            DESCRIPTORS,
            "the journal is that of the process that hibernated"
        );
        let start = Instant::now();
        store.commit(
            owner,
            Batch::durable(&[WriteOp::Snapshot { pid, at, image }], 0),
        )?;
        commit.push(start.elapsed());
    }
    Ok(StoreDurations {
        read: Percentiles::from_durations(read),
        commit: Percentiles::from_durations(commit),
    })
}

async fn measure_sleepers(count: u64) -> Outcome {
    let folder = tempfile::tempdir()?;
    let before = resident_bytes()?;
    let start = Instant::now();
    let kernel = open(folder.path())?.max_loaded(256).build().await?;
    let program = program(&kernel)?;
    let starter = kernel.clone();
    let starts = futures_util::stream::iter(0..count).map(|_| {
        let start = starter.start(program.clone()).session().without_input();
        async move { start.await.map(drop) }
    });
    let mut starts = std::pin::pin!(starts.buffer_unordered(MAX_CONCURRENT_STARTS));
    while let Some(started) = starts.next().await {
        started?;
    }
    print_line(format_args!(
        "{count} sessions were started in {}",
        format_duration(start.elapsed())
    ))?;
    print_memory(
        "resident of each, in the kernel that made them",
        before,
        count,
    )?;
    list_and_wake(&kernel, count).await?;
    kernel.shutdown().await?;
    open_again(folder.path(), count)
}

/// Opens a store with this many hibernated processes in a kernel.
async fn measure_reopened(folder: &Path, count: u64) -> Outcome {
    let before = resident_bytes()?;
    let start = Instant::now();
    let builder = open(folder)?.max_loaded(256);
    print_line(format_args!(
        "the store was opened in {}",
        format_duration(start.elapsed())
    ))?;
    print_memory("resident of each, in the store", before, count)?;
    let start = Instant::now();
    let kernel = builder.build().await?;
    print_line(format_args!(
        "a kernel was built on it in {}",
        format_duration(start.elapsed())
    ))?;
    print_memory(
        "resident of each, in a kernel that was opened",
        before,
        count,
    )?;
    list_and_wake(&kernel, count).await?;
    kernel.shutdown().await?;
    Ok(())
}

fn print_memory(what: &str, before: u64, count: u64) -> Outcome {
    let bytes = resident_bytes()?.saturating_sub(before);
    Ok(print_line(format_args!(
        "{what}: {} bytes ({} MiB in all)",
        bytes / count,
        bytes >> 20
    ))?)
}

async fn list_and_wake(kernel: &Kernel, count: u64) -> Outcome {
    let start = Instant::now();
    let listed = kernel.processes().await?;
    let elapsed = start.elapsed();
    let hibernated = listed
        .iter()
        .filter(|info| matches!(info.status, ProcessStatus::Hibernated | ProcessStatus::Held))
        .count();
    print_line(format_args!(
        "{} listed in {}, {hibernated} of them asleep",
        listed.len(),
        format_duration(elapsed)
    ))?;
    drop(listed);
    let mut durations = Vec::new();
    let samples = count.min(WAKE_SAMPLES);
    for number in 0..samples {
        let pid = Pid(1 + number * (count / samples));
        let start = Instant::now();
        let process = kernel.resume(pid).await?;
        process.wait_for(ProcessView::is_idle).await?;
        durations.push(start.elapsed());
    }
    let percentiles = Percentiles::from_durations(durations);
    Ok(print_line(format_args!(
        "one of them woken: {} ({})",
        format_duration(percentiles.median),
        format_duration(percentiles.p99)
    ))?)
}
