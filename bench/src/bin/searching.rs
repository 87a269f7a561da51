//! The cost of searches, and their effect on other processes.
//!
//! First, this program measures turns with one search each, for texts of different sizes: a small
//! text is searched in the handler of the process actor, a larger one on the read pool. Then it
//! measures turns of a process that only calls its model: alone, and while four other processes
//! search 91 MB each by a pattern without a pause. Last, it shuts the kernel down while they
//! search.

use std::time::{Duration, Instant};

use dormouse::message::Block;
use dormouse::{Kernel, Process, ProcessView};
use dormouse_bench::{
    FnModel, Outcome, Percentiles, format_duration, kernel, print_line, program, ratio, text_reply,
    tool_call_reply,
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
/// A search for a literal that the text does not contain.
const SMALL_SEARCH: &str = r#"{"fd": "fd:1", "query": "quux"}"#;

#[tokio::main]
async fn main() -> Outcome {
    let model = FnModel(|request: dormouse::model::Request| async move {
        let input_starts_with = |word: &str| {
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
            () if input_starts_with("search for ever") => tool_call_reply("search_fd", SEARCH),
            () if input_starts_with("search once") && !has_searched => {
                tool_call_reply("search_fd", SMALL_SEARCH)
            }
            () => text_reply("done"),
        }
    });
    let kernel = kernel(model, SEARCHERS + 1).await?;
    let program = program(&kernel)?;
    for kib in [4, 16, 32, 48, 80, 128, 256] {
        let durations = turns_with_search(&kernel, &program, kib << 10).await?;
        print_line(format_args!(
            "a turn that searches {kib} KiB: median {}",
            format_duration(Percentiles::from_durations(durations).median)
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
    let (alone, searching) = (
        Percentiles::from_durations(alone),
        Percentiles::from_durations(searching),
    );
    print_line(format_args!(
        "a turn: median {:.1} times as long",
        ratio(searching.median, alone.median)
    ))?;
    let start = Instant::now();
    kernel.shutdown().await?;
    print_line(format_args!(
        "shut down in the middle of them: {}",
        format_duration(start.elapsed())
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
    process.wait_for(ProcessView::is_idle).await?;
    let mut durations = Vec::new();
    for _ in 0..TURNS {
        let start = Instant::now();
        process.goto("msg:1", "search once").await?;
        process.wait_for(ProcessView::is_idle).await?;
        durations.push(start.elapsed());
    }
    Ok(durations)
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

/// Measures turns of a process that only calls its model.
async fn turns(ticker: &Process) -> Outcome<Vec<Duration>> {
    let (measurement_start, mut durations) = (Instant::now(), Vec::new());
    while measurement_start.elapsed() < MEASURED {
        let start = Instant::now();
        ticker.input("tick").await?;
        ticker.wait_for(ProcessView::is_idle).await?;
        durations.push(start.elapsed());
        ticker.goto("msg:1", "tick").await?;
        ticker.wait_for(ProcessView::is_idle).await?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(durations)
}

fn report(what: &str, durations: &[Duration]) -> Outcome {
    let percentiles = Percentiles::from_durations(durations.to_vec());
    let longest = durations.iter().max().copied().unwrap_or_default();
    let [median, p99, longest] =
        [percentiles.median, percentiles.p99, longest].map(format_duration);
    Ok(print_line(format_args!(
        "{what}: {} turns, median {median}, 99th {p99}, longest {longest}",
        durations.len()
    ))?)
}
