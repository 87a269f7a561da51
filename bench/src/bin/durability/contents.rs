//! Measures processes with many or large contents: their first checkpoint, the second one after a
//! turn, and their forks.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dormouse::model::Request;
use dormouse::store::LogStore;
use dormouse::user_input::InputPart;
use dormouse::{Kernel, Process};
use dormouse_bench::{
    FnModel, Outcome, Percentiles, format_duration, peak_bytes, print_line, program, ratio,
    resident_bytes, text_reply,
};

use crate::{disk_bytes, random_bytes, timed};

/// 1,000 contents of 100 KB.
pub(crate) fn small(folder: &Path) -> Outcome {
    first_checkpoint(folder, 1_000, 100_000)
}

/// 20 contents of 50 MB.
pub(crate) fn large(folder: &Path) -> Outcome {
    first_checkpoint(folder, 20, 50_000_000)
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
}

async fn open(folder: &Path) -> Outcome<Kernel> {
    let model = FnModel(|_: Request| async { text_reply("done") });
    Ok(Kernel::open(LogStore::open(folder)?)
        .model("m", model)
        .build()
        .await?)
}

async fn session(kernel: &Kernel) -> Outcome<Process> {
    Ok(kernel
        .start(program(kernel)?)
        .session()
        .without_input()
        .await?)
}

fn parts(count: usize, length: usize) -> Vec<InputPart> {
    (0..count)
        .map(|number| InputPart::new("bench", random_bytes(number as u64 + 1, length)))
        .collect()
}

/// Measures an input with all contents and a checkpoint after it, compared with writing and syncing
/// one file of the same bytes.
fn first_checkpoint(folder: &Path, count: usize, length: usize) -> Outcome {
    let total = (count * length) as u64;
    let parts = parts(count, length);
    let raw: Vec<Bytes> = parts.iter().map(|part| part.bytes.clone()).collect();
    let mut plain = Vec::new();
    // Measured before and after, since the throughput of a disk varies from second to second.
    plain.push(write_one_file(&folder.join("before"), &raw)?);
    let before = resident_bytes()?;
    let elapsed = runtime()?.block_on(async {
        let kernel = open(&folder.join("store")).await?;
        let process = session(&kernel).await?;
        let start = Instant::now();
        process.input(parts).await?;
        process.checkpoint("first").await?;
        let elapsed = start.elapsed();
        kernel.shutdown().await?;
        Outcome::Ok(elapsed)
    })?;
    let extra = peak_bytes()?.saturating_sub(before);
    plain.push(write_one_file(&folder.join("after"), &raw)?);
    let one_file = Percentiles::from_durations(plain).median;
    let rate = |elapsed: Duration| total as f64 / 1e6 / elapsed.as_secs_f64();
    print_line(format_args!(
        "{count} x {length} bytes: {} ({:.0} MB/s), one file written and synced {} ({:.0} MB/s): \
         {:.0} % of its speed",
        format_duration(elapsed),
        rate(elapsed),
        format_duration(one_file),
        rate(one_file),
        100.0 * ratio(one_file, elapsed)
    ))?;
    let disk = disk_bytes(&folder.join("store"))?;
    print_line(format_args!(
        "disk: {:.3}x the bytes; memory beside them: {:.0} MB",
        disk as f64 / total as f64,
        extra as f64 / 1e6
    ))?;
    Ok(())
}

fn write_one_file(path: &Path, parts: &[Bytes]) -> Outcome<Duration> {
    let (done, elapsed) = timed(|| {
        let mut file = File::create(path)?;
        parts.iter().try_for_each(|part| file.write_all(part))?;
        file.sync_data()
    });
    done?;
    std::fs::remove_file(path)?;
    Ok(elapsed)
}

const CHECKPOINTS: usize = 50;

/// Measures a checkpoint after a turn: of a process with almost no contents, and of one with 500
/// MB.
pub(crate) fn second_checkpoint(folder: &Path) -> Outcome {
    let mut medians = Vec::new();
    for (name, count, length) in [("nothing", 1, 10_000), ("10 x 50 MB", 10, 50_000_000)] {
        let durations = runtime()?.block_on(async {
            let kernel = open(&folder.join(count.to_string())).await?;
            let process = session(&kernel).await?;
            process.input(parts(count, length)).await?;
            process.wait_for(dormouse::ProcessView::is_idle).await?;
            process.checkpoint("first").await?;
            let mut durations = Vec::new();
            for turn in 0..CHECKPOINTS {
                let turns = process.view().map_or(0, |view| view.messages);
                process.input(format!("turn {turn}")).await?;
                process
                    .wait_for(|view| view.is_idle() && view.messages > turns)
                    .await?;
                let start = Instant::now();
                process.checkpoint("next").await?;
                durations.push(start.elapsed());
            }
            kernel.shutdown().await?;
            Outcome::Ok(durations)
        })?;
        let percentiles = Percentiles::from_durations(durations);
        print_line(format_args!(
            "holding {name}: p50 {}, p99 {}",
            format_duration(percentiles.median),
            format_duration(percentiles.p99)
        ))?;
        medians.push(percentiles.median);
    }
    print_line(format_args!(
        "the second beside the first: {:.2}x",
        ratio(medians[1], medians[0])
    ))?;
    Ok(())
}

/// Measures the disk space of 100 forks of a process with 100 MB of contents.
pub(crate) fn forks(folder: &Path) -> Outcome {
    runtime()?.block_on(async {
        let kernel = open(&folder.join("store")).await?;
        let process = session(&kernel).await?;
        process.input(parts(10, 10_000_000)).await?;
        process.wait_for(dormouse::ProcessView::is_idle).await?;
        let one = disk_bytes(&folder.join("store"))?;
        for _ in 0..100 {
            process.fork().await?;
        }
        kernel.shutdown().await?;
        let all = disk_bytes(&folder.join("store"))?;
        print_line(format_args!(
            "one process with 100 MB: {:.1} MB; with 100 forks of it: {:.1} MB: {:.3}x",
            one as f64 / 1e6,
            all as f64 / 1e6,
            all as f64 / one as f64
        ))?;
        Outcome::Ok(())
    })
}
