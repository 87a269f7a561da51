//! The latency of user requests to a kernel of 10,000 processes, compared with one of 10 in the
//! same run.
//!
//! Half of the processes are always in a turn, limited by 16 permits. When a turn ends, the host
//! sends the process back to the beginning of the turn, so that no conversation grows. The other
//! half is idle and is measured: `view`, `processes`, an input until it is durable, an interrupt
//! until it is durable.
//!
//! There are two runs: with a model that takes 5 ms, so that the permits leave the machine partly
//! idle; and with one that answers at once, so that all cores are busy and a request waits behind
//! the turns that are ready to continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dormouse::{Kernel, Process, View};
use dormouse_bench::{
    Outcome, Percentiles, Replies, format_duration, kernel, print_line, program, ratio, says,
};
use futures_util::future::{BoxFuture, FutureExt, try_join_all};

const FEW: usize = 10;
const MANY: usize = 10_000;
const PERMITS: usize = 16;
/// The number of requests of a kind, unless they take longer than [`PATIENCE`].
const SAMPLES: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(3);

/// A request to a process or to its kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Question {
    View,
    Processes,
    Input,
    Interrupt,
}

const QUESTIONS: [(Question, &str); 4] = [
    (Question::View, "process.view()"),
    (Question::Processes, "kernel.processes()"),
    (Question::Input, "process.input(), durable"),
    (Question::Interrupt, "process.interrupt()"),
];

#[tokio::main]
async fn main() -> Outcome {
    for (what, takes) in [
        ("takes 5 ms", Duration::from_millis(5)),
        ("answers at once", Duration::ZERO),
    ] {
        let (few, few_turns) = figures(FEW, takes).await?;
        let (many, many_turns) = figures(MANY, takes).await?;
        print_line(format_args!(
            "a model that {what}: {few_turns:.0} turns a second of {FEW} processes, \
             {many_turns:.0} of {MANY}"
        ))?;
        print_line(format_args!(
            "{:26} {:>10} {:>10} {:>4}  {:>10} {:>10} {:>4}",
            "", "median", "p99", "of", "median", "p99", "of"
        ))?;
        for (((_, asked), few), many) in QUESTIONS.iter().zip(few).zip(many) {
            let (few_asked, few) = few;
            let (many_asked, many) = many;
            let (median, p99) = (ratio(many.median, few.median), ratio(many.p99, few.p99));
            let [a, b, c, d] = [few.median, few.p99, many.median, many.p99].map(format_duration);
            print_line(format_args!(
                "{asked:26} {a:>10} {b:>10} {few_asked:>4}  {c:>10} {d:>10} {many_asked:>4}  \
                 {median:>7.1}x {p99:>7.1}x"
            ))?;
        }
    }
    Ok(())
}

/// The latencies of each request, and the turns per second, in a kernel of `count` processes.
async fn figures(count: usize, takes: Duration) -> Outcome<(Vec<(usize, Percentiles)>, f64)> {
    let model = Replies(move |_| async move {
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        says("done")
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
    let mut waiting = try_join_all(starts).await?;
    let active = waiting.split_off(count / 2);
    let turns = Arc::new(AtomicU64::new(0));
    let busy: Vec<_> = active
        .into_iter()
        .map(|process| tokio::spawn(keep_busy(process, turns.clone())))
        .collect();
    // Every process has completed its first turn, so that all are busy.
    while turns.load(Ordering::Relaxed) < busy.len() as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (begun, before) = (Instant::now(), turns.load(Ordering::Relaxed));
    let mut spreads = Vec::new();
    for (question, _) in QUESTIONS {
        let mut taken = Vec::with_capacity(SAMPLES);
        let first = Instant::now();
        for process in waiting.iter().cycle().take(SAMPLES) {
            if first.elapsed() > PATIENCE {
                break;
            }
            let start = Instant::now();
            ask(&kernel, process, question).await?;
            taken.push(start.elapsed());
            tokio::task::yield_now().await;
        }
        spreads.push((taken.len(), Percentiles::of(taken)));
    }
    let turned = turns.load(Ordering::Relaxed) - before;
    let a_second = turned as f64 / begun.elapsed().as_secs_f64();
    busy.iter().for_each(|task| task.abort());
    kernel.shutdown().await?;
    Ok((spreads, a_second))
}

fn ask<'a>(kernel: &'a Kernel, process: &'a Process, question: Question) -> BoxFuture<'a, Outcome> {
    async move {
        match question {
            Question::View => drop(process.view()),
            Question::Processes => drop(kernel.processes().await?),
            Question::Input => process.input("hello").await?,
            Question::Interrupt => process.interrupt().await?,
        }
        Ok(())
    }
    .boxed()
}

/// Runs one turn after the other, each from the same message on.
async fn keep_busy(process: Process, turns: Arc<AtomicU64>) -> Outcome {
    process.input("go").await?;
    loop {
        process.wait_for(View::is_idle).await?;
        turns.fetch_add(1, Ordering::Relaxed);
        process.goto("msg:1", "again").await?;
    }
}
