//! The latency of user requests to a kernel of 10,000 processes, compared with one of 10 in the
//! same run.
//!
//! Half of the processes are always in a turn, limited by 16 permits. When a turn ends, the host
//! sends the process back to the beginning of the turn, so that no conversation grows. The other
//! half is idle and is measured: `view`, `processes`, an input until it is durable, an interrupt
//! until it is durable.
//!
//! There are two runs. In the first, the model takes 5 ms, and the limit of 16 calls leaves the
//! machine partly idle. In the second, the model answers at once, so that all cores are busy and a
//! request waits for the turns that are ready to continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dormouse::{Kernel, Process, ProcessView};
use dormouse_bench::{
    FnModel, Outcome, Percentiles, format_duration, kernel, print_line, program, ratio, text_reply,
};
use futures_util::future::{BoxFuture, FutureExt, try_join_all};

const FEW: usize = 10;
const MANY: usize = 10_000;
const PERMITS: usize = 16;
/// The number of requests of a kind, unless they take longer than [`MAX_SAMPLING`].
const SAMPLES: usize = 1000;
const MAX_SAMPLING: Duration = Duration::from_secs(3);

/// A request to a process or to its kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    View,
    Processes,
    Input,
    Interrupt,
}

const REQUEST_KINDS: [(RequestKind, &str); 4] = [
    (RequestKind::View, "process.view()"),
    (RequestKind::Processes, "kernel.processes()"),
    (RequestKind::Input, "process.input(), durable"),
    (RequestKind::Interrupt, "process.interrupt()"),
];

#[tokio::main]
async fn main() -> Outcome {
    for (description, latency) in [
        ("takes 5 ms", Duration::from_millis(5)),
        ("answers at once", Duration::ZERO),
    ] {
        let (few, few_turns) = measure_kernel(FEW, latency).await?;
        let (many, many_turns) = measure_kernel(MANY, latency).await?;
        print_line(format_args!(
            "a model that {description}: {few_turns:.0} turns a second of {FEW} processes, \
             {many_turns:.0} of {MANY}"
        ))?;
        print_line(format_args!(
            "{:26} {:>10} {:>10} {:>4}  {:>10} {:>10} {:>4}",
            "", "median", "p99", "of", "median", "p99", "of"
        ))?;
        for (((_, name), few), many) in REQUEST_KINDS.iter().zip(few).zip(many) {
            let (few_count, few) = few;
            let (many_count, many) = many;
            let (median, p99) = (ratio(many.median, few.median), ratio(many.p99, few.p99));
            let [a, b, c, d] = [few.median, few.p99, many.median, many.p99].map(format_duration);
            print_line(format_args!(
                "{name:26} {a:>10} {b:>10} {few_count:>4}  {c:>10} {d:>10} {many_count:>4}  \
                 {median:>7.1}x {p99:>7.1}x"
            ))?;
        }
    }
    Ok(())
}

/// The latencies of each request, and the turns per second, in a kernel of `count` processes.
async fn measure_kernel(
    count: usize,
    latency: Duration,
) -> Outcome<(Vec<(usize, Percentiles)>, f64)> {
    let model = FnModel(move |_| async move {
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        text_reply("done")
    });
    let kernel = kernel(model, PERMITS).await?;
    let program = program(&kernel)?;
    let starts = (0..count).map(|_| {
        kernel
            .start(program.clone())
            .session()
            .without_input()
            .into_future()
    });
    let mut idle = try_join_all(starts).await?;
    let active = idle.split_off(count / 2);
    let turns = Arc::new(AtomicU64::new(0));
    let busy: Vec<_> = active
        .into_iter()
        .map(|process| tokio::spawn(keep_busy(process, turns.clone())))
        .collect();
    // As many turns have ended as there are processes, so that the processes are busy.
    while turns.load(Ordering::Relaxed) < busy.len() as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (start, turns_before) = (Instant::now(), turns.load(Ordering::Relaxed));
    let mut percentiles = Vec::new();
    for (kind, _) in REQUEST_KINDS {
        let mut durations = Vec::with_capacity(SAMPLES);
        let first = Instant::now();
        for process in idle.iter().cycle().take(SAMPLES) {
            if first.elapsed() > MAX_SAMPLING {
                break;
            }
            let start = Instant::now();
            send_request(&kernel, process, kind).await?;
            durations.push(start.elapsed());
            tokio::task::yield_now().await;
        }
        percentiles.push((durations.len(), Percentiles::from_durations(durations)));
    }
    let completed_turns = turns.load(Ordering::Relaxed) - turns_before;
    let turns_per_second = completed_turns as f64 / start.elapsed().as_secs_f64();
    busy.iter().for_each(|task| task.abort());
    kernel.shutdown().await?;
    Ok((percentiles, turns_per_second))
}

fn send_request<'a>(
    kernel: &'a Kernel,
    process: &'a Process,
    kind: RequestKind,
) -> BoxFuture<'a, Outcome> {
    async move {
        match kind {
            RequestKind::View => drop(process.view()),
            RequestKind::Processes => drop(kernel.processes().await?),
            RequestKind::Input => process.input("hello").await?,
            RequestKind::Interrupt => process.interrupt().await?,
        }
        Ok(())
    }
    .boxed()
}

/// Runs one turn after the other, each from the same message on.
async fn keep_busy(process: Process, turns: Arc<AtomicU64>) -> Outcome {
    process.input("go").await?;
    loop {
        process.wait_for(ProcessView::is_idle).await?;
        turns.fetch_add(1, Ordering::Relaxed);
        process.goto("msg:1", "again").await?;
    }
}
