//! The cost of searches, and their effect on other processes.
//!
//! First, turns of a process that searches a text once in each, by the size of the text: a small
//! text is searched in the handler, a larger one on the pool. Then, turns of a process that only
//! calls its model: alone, and while four others search 91 MB each by a pattern without a pause.
//! Last, the kernel is shut down while they search.

use std::time::{Duration, Instant};

use dormouse::message::Block;
use dormouse::{Kernel, Process, View};
use dormouse_bench::{
    Outcome, Percentiles, Replies, calls, format_duration, kernel, print_line, program, ratio, says,
};
use futures_util::future::try_join_all;

const SEARCHERS: usize = 4;
const TEXT_BYTES: usize = 91_000_000;
const TEXT: &str =
    "the quick brown fox is jumping 12 times over the lazy dog, and sleeping at noon.\n";
const TURNS: usize = 300;
const MEASURED: Duration = Duration::from_secs(10);
/// Matches nothing and contains no literal, so that the automaton reads all bytes.
const SEARCH: &str = r#"{"fd": "fd:1", "query": "[a-z ]+[0-9]{5}", "regex": true}"#;
/// The same, for a text that is searched in the handler if it is small.
const SMALL_SEARCH: &str = r#"{"fd": "fd:1", "query": "quux"}"#;

#[tokio::main]
async fn main() -> Outcome {
    let model = Replies(|request: dormouse::model::Request| async move {
        let is_told = |word: &str| {
            request
                .messages
                .first()
                .is_some_and(|message| message.text().starts_with(word))
        };
        let last = request
            .messages
            .last()
            .and_then(|message| message.blocks.first());
        let has_searched = matches!(last, Some(Block::ToolResult { .. }));
        match () {
            () if is_told("search for ever") => calls("search_fd", SEARCH),
            () if is_told("search once") && !has_searched => calls("search_fd", SMALL_SEARCH),
            () => says("done"),
        }
    });
    let kernel = kernel(model, SEARCHERS + 1).await?;
    let program = program(&kernel)?;
    for kib in [4, 16, 32, 48, 80, 128, 256] {
        let taken = turns_with_search(&kernel, &program, kib << 10).await?;
        print_line(format_args!(
            "a turn that searches {kib} KiB: median {}",
            format_duration(Percentiles::of(taken).median)
        ))?;
    }
    let ticker = kernel
        .start(program.clone())
        .session()
        .without_input()
        .await?;
    let alone = turns(&ticker).await?;
    report("alone", &alone)?;
    let text = bytes::Bytes::from(TEXT.repeat(TEXT_BYTES / TEXT.len()));
    let starts = (0..SEARCHERS).map(|_| searcher(&kernel, &program, text.clone()));
    let _searchers: Vec<Process> = try_join_all(starts).await?;
    let searching = turns(&ticker).await?;
    report("while four search", &searching)?;
    let (alone, searching) = (Percentiles::of(alone), Percentiles::of(searching));
    print_line(format_args!(
        "a turn: median {:.1} times as long",
        ratio(searching.median, alone.median)
    ))?;
    let begun = Instant::now();
    kernel.shutdown().await?;
    print_line(format_args!(
        "shut down in the middle of them: {}",
        format_duration(begun.elapsed())
    ))?;
    Ok(())
}

async fn turns_with_search(
    kernel: &Kernel,
    program: &dormouse::program::Program,
    bytes: usize,
) -> Outcome<Vec<Duration>> {
    let process = kernel
        .start(program.clone())
        .session()
        .without_input()
        .await?;
    process
        .open(
            "text",
            bytes::Bytes::from(TEXT.repeat(bytes / TEXT.len())),
            None,
        )
        .await?;
    process.input("search once").await?;
    process.wait_for(View::is_idle).await?;
    let mut taken = Vec::new();
    for _ in 0..TURNS {
        let start = Instant::now();
        process.goto("msg:1", "search once").await?;
        process.wait_for(View::is_idle).await?;
        taken.push(start.elapsed());
    }
    Ok(taken)
}

async fn searcher(
    kernel: &Kernel,
    program: &dormouse::program::Program,
    text: bytes::Bytes,
) -> Outcome<Process> {
    let process = kernel
        .start(program.clone())
        .session()
        .without_input()
        .await?;
    process.open("text", text, None).await?;
    process.input("search for ever").await?;
    Ok(process)
}

/// The durations of the turns.
async fn turns(ticker: &Process) -> Outcome<Vec<Duration>> {
    let (begun, mut taken) = (Instant::now(), Vec::new());
    while begun.elapsed() < MEASURED {
        let start = Instant::now();
        ticker.input("tick").await?;
        ticker.wait_for(View::is_idle).await?;
        taken.push(start.elapsed());
        ticker.goto("msg:1", "tick").await?;
        ticker.wait_for(View::is_idle).await?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(taken)
}

fn report(what: &str, taken: &[Duration]) -> Outcome {
    let percentiles = Percentiles::of(taken.to_vec());
    let longest = taken.iter().max().copied().unwrap_or_default();
    let [median, p99, longest] =
        [percentiles.median, percentiles.p99, longest].map(format_duration);
    Ok(print_line(format_args!(
        "{what}: {} turns, median {median}, 99th {p99}, longest {longest}",
        taken.len()
    ))?)
}
