//! Measures opening a store of 1 GB, and the first answer of a process that is loaded from it.

use std::path::Path;
use std::time::{Duration, Instant};

use dormouse::Kernel;
use dormouse::model::Request;
use dormouse::store::LogStore;
use dormouse::user_input::InputPart;
use dormouse_bench::{
    FnModel, Outcome, Percentiles, format_duration, print_line, program, resident_bytes, text_reply,
};

use crate::{random_bytes, timed};

const ROUNDS: usize = 20;

/// Repeats both with a warm page cache: opening the store alone, then building a kernel on it that
/// resumes the process and reads a page.
pub(crate) fn restored(folder: &Path) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let store = folder.join("store");
    let builder = || {
        let model = FnModel(|_: Request| async { text_reply("done") });
        Outcome::Ok(Kernel::open(LogStore::open(&store)?).model("m", model))
    };
    let pid = runtime.block_on(async {
        let kernel = builder()?.build().await?;
        let process = kernel
            .start(program(&kernel)?)
            .session()
            .without_input()
            .await?;
        for part in 0..20 {
            process
                .input(InputPart::new("bench", random_bytes(part + 1, 50_000_000)))
                .await?;
            process.wait_for(dormouse::ProcessView::is_idle).await?;
        }
        let pid = process.pid();
        kernel.shutdown().await?;
        Outcome::Ok(pid)
    })?;
    // Memory that creating the store left allocated is not a cost of restoring it, so only the
    // growth from here on is measured.
    let (mut open_times, mut answer_times, mut memory_growth) =
        (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (found, elapsed) = timed(|| LogStore::open(&store));
        drop(found?);
        open_times.push(elapsed);
        let (elapsed, bytes) = runtime.block_on(async {
            let kernel = builder()?.build().await?;
            let before = resident_bytes()?;
            let start = Instant::now();
            let process = kernel.resume(pid).await?;
            let page = 1 + 100 * round;
            let answer = process
                .call(
                    "read_fd",
                    format!(r#"{{"fd": "fd:{}", "page": {page}}}"#, 1 + round),
                )
                .await?;
            let elapsed = start.elapsed();
            let bytes = resident_bytes()?.saturating_sub(before);
            if answer.is_error {
                return Err(format!("{answer:?}").into());
            }
            kernel.shutdown().await?;
            Outcome::<(Duration, u64)>::Ok((elapsed, bytes))
        })?;
        answer_times.push(elapsed);
        memory_growth.push(bytes);
    }
    let (open_times, answer_times) = (
        Percentiles::from_durations(open_times),
        Percentiles::from_durations(answer_times),
    );
    print_line(format_args!(
        "a store of 1 GB opens in {} (p99 {})",
        format_duration(open_times.median),
        format_duration(open_times.p99)
    ))?;
    print_line(format_args!(
        "resumed and a page read in {} (p99 {})",
        format_duration(answer_times.median),
        format_duration(answer_times.p99)
    ))?;
    memory_growth.sort_unstable();
    print_line(format_args!(
        "memory grew by {:.2} MB (median)",
        memory_growth[memory_growth.len() / 2] as f64 / 1e6
    ))?;
    Ok(())
}
