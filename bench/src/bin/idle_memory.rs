//! The resident memory of each of 100,000 waiting processes, compared with 100,000 bare actors.
//!
//! `idle_memory [COUNT]`: each kind is measured in an operating system process of its own
//! (`idle_memory measure KIND COUNT`), so that no memory of another kind can be reused. The figure
//! is the growth of resident memory, divided by the count; handles on the processes are dropped.

use std::process::Command;
use std::time::Duration;

use dormouse::Kernel;
use dormouse_bench::{
    Countdown, FnModel, Outcome, bare_actor, kernel, print_line, program, resident_bytes,
    text_reply, tool_call_reply,
};
use serde_json::json;

const COUNT: usize = 100_000;
const KINDS: [(&str, &str); 4] = [
    ("actors", "bare actors"),
    ("sessions", "sessions without any input"),
    (
        "copies",
        "forks by the host of a session with a conversation",
    ),
    ("children", "forked children that wait for their model"),
];
/// The number of children of one process.
const SIBLINGS: usize = 1000;

#[tokio::main]
async fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => compare(COUNT),
        ["measure", kind, count] => {
            print_line(measure(kind, count.parse()?).await?).map_err(Into::into)
        }
        [count] => compare(count.parse()?),
        _ => Err("idle_memory [COUNT]".into()),
    }
}

fn compare(count: usize) -> Outcome {
    print_line(format_args!("bytes for each of {count}, resident"))?;
    let mut bare = None;
    for (kind, what) in KINDS {
        let program = std::env::current_exe()?;
        let output = Command::new(program)
            .args(["measure", kind, &count.to_string()])
            .output()?;
        let bytes: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
        let times = bytes / *bare.get_or_insert(bytes);
        print_line(format_args!("{what:52} {bytes:>8.0} {times:>6.2}x of bare"))?;
    }
    Ok(())
}

/// The resident bytes of each of `count` objects of a kind.
async fn measure(kind: &str, count: usize) -> Outcome<u64> {
    let before;
    match kind {
        "actors" => {
            let mut actors = Vec::with_capacity(count);
            before = resident_bytes()?;
            for _ in 0..count {
                actors.push(bare_actor(|_| ()).await?);
            }
            wait_until_idle().await;
            let after = resident_bytes()?;
            drop(actors);
            Ok((after - before) / count as u64)
        }
        "sessions" => {
            let kernel = kernel(FnModel(|_| async { text_reply("nobody asks") }), 16).await?;
            let program = program(&kernel)?;
            before = resident_bytes()?;
            for _ in 0..count {
                drop(
                    kernel
                        .start(program.clone())
                        .session()
                        .without_input()
                        .await?,
                );
            }
            growth_per_process(&kernel, before, count).await
        }
        "copies" => {
            let kernel = kernel(FnModel(|_| async { text_reply("noted") }), 16).await?;
            let session = kernel
                .start(program(&kernel)?)
                .session()
                .without_input()
                .await?;
            session.open("bench", "x".repeat(100_000), None).await?;
            for _ in 0..4 {
                session.input("note this").await?;
                session.wait_for(dormouse::ProcessView::is_idle).await?;
            }
            before = resident_bytes()?;
            for _ in 0..count {
                drop(session.fork().await?);
            }
            growth_per_process(&kernel, before, count).await
        }
        "children" => {
            let started = Countdown::new(count);
            let called = started.clone();
            let model = FnModel(move |request: dormouse::model::Request| {
                let is_parent = request.messages.len() == 1;
                let called = called.clone();
                async move {
                    if is_parent {
                        return tool_call_reply(
                            "fork",
                            &json!({ "prompts": vec!["look"; SIBLINGS] }).to_string(),
                        );
                    }
                    called.count_down();
                    std::future::pending().await
                }
            });
            let kernel = kernel(model, 2 * count).await?;
            let program = program(&kernel)?;
            before = resident_bytes()?;
            for _ in 0..count / SIBLINGS {
                drop(kernel.start(program.clone()).input("go").await?);
            }
            started.wait_for_zero().await;
            growth_per_process(&kernel, before, count).await
        }
        _ => Err(format!("{kind} is none of {KINDS:?}").into()),
    }
}

async fn growth_per_process(kernel: &Kernel, before: u64, count: usize) -> Outcome<u64> {
    wait_until_idle().await;
    let after = resident_bytes()?;
    // Keeps the kernel alive until here, and checks that the processes exist.
    let living = kernel.processes().await?.len();
    assert!(living >= count, "{living} of {count} are there");
    Ok((after - before) / count as u64)
}

/// Waits until the objects that were just started are idle.
async fn wait_until_idle() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}
