//! The cost of a race between speculative branches: nodes a second, bytes a node, and the share of
//! the prompt that a provider's cache can serve.
//!
//! A node is a branch of a session with 50 turns that is made, calls its model once, stands at its
//! write, is judged and ended. Its memory and its place on disk are measured while all nodes stand
//! at their writes. The baseline of the same run is a plain branch, and a model call of a session.
//! In a race by `BestOf`, all nodes are branches of the session. In a beam search, the best nodes
//! of each level are continued by branches of them.
//!
//! `cargo run --release -p dormouse-bench --bin race -- [NODES…]` replaces the numbers of nodes.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dormouse::message::Block;
use dormouse::model::Request;
use dormouse::store::LogStore;
use dormouse::{FnTool, Judgement, Kernel, Position, Process, RacePolicy};
use dormouse_bench::{
    FnModel, Outcome, bytes_in, format_duration, print_line, resident_bytes, text_reply,
    tool_call_reply,
};
use futures_util::future::try_join_all;

const TURNS: usize = 50;
const NODES: [u32; 3] = [8, 64, 512];
const BASELINE: u32 = 64;

/// The texts of the requests, in order.
type Prompts = Arc<Mutex<Vec<String>>>;

#[tokio::main]
async fn main() -> Outcome {
    let words = std::env::args().skip(1);
    let counts: Vec<u32> = words.map(|word| word.parse()).collect::<Result<_, _>>()?;
    let counts = match counts.is_empty() {
        true => NODES.to_vec(),
        false => counts,
    };
    let folder = tempfile::tempdir()?;
    let prompts = Prompts::default();
    let kernel = open(folder.path(), &prompts).await?;
    let session = long_session(&kernel).await?;
    baselines(&kernel, &session).await?;
    for nodes in counts {
        let policy = RacePolicy::BestOf;
        race(&kernel, &session, (nodes, nodes), policy, &prompts).await?;
        standing_nodes(&kernel, &session, nodes, folder.path()).await?;
    }
    let beam = RacePolicy::Beam { width: 4, depth: 4 };
    race(&kernel, &session, (16, 64), beam, &prompts).await?;
    Ok(kernel.shutdown().await?)
}

async fn open(folder: &Path, prompts: &Prompts) -> Outcome<Kernel> {
    let prompts = Arc::clone(prompts);
    let model = FnModel(move |request: Request| {
        let text = prompt_of(&request);
        let wants_write = text.ends_with("write");
        prompts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(text);
        let reply = match wants_write {
            true => tool_call_reply("append", "{}"),
            false => text_reply(&"A reply of some length, as models give them. ".repeat(20)),
        };
        std::future::ready(reply)
    });
    let append = FnTool::new("append", "Appends.", |_: serde_json::Value| async {
        Ok::<_, String>("appended")
    });
    Ok(Kernel::open(LogStore::open(folder)?)
        .model("m", model)
        .model_calls(1 << 12)
        .tool(append)
        .build()
        .await?)
}

/// What a provider reads of a request, as a text.
fn prompt_of(request: &Request) -> String {
    let blocks = request.messages.iter().flat_map(|message| &message.blocks);
    let texts = blocks.map(|block| match block {
        Block::Text { text, .. } | Block::ToolResult { text, .. } => text.to_string(),
        other => format!("{other:?}"),
    });
    format!("{}{}", request.system, texts.collect::<String>())
}

async fn long_session(kernel: &Kernel) -> Outcome<Process> {
    const TEXT: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[prompt]\nsystem = \"You \
         measure.\"\n[tools]\nenabled = [\"append\"]\n";
    let program = kernel.parse(TEXT)?.program;
    let session = kernel.start(program).session().without_input().await?;
    for _ in 0..TURNS {
        session.turn("Go on, and say what you found.").await?;
    }
    Ok(session)
}

async fn baselines(kernel: &Kernel, session: &Process) -> Outcome {
    let began = Instant::now();
    let at = kernel.inspect(session.pid()).await?.fact;
    let branches =
        (0..BASELINE).map(|_| async { kernel.branch(session.pid(), at).stopped().await });
    let branches = try_join_all(branches).await?;
    let per_branch = began.elapsed() / BASELINE;
    for branch in branches {
        branch.kill().await?;
    }
    let began = Instant::now();
    session.turn("Once more.").await?;
    print_line(format!(
        "baselines: a stopped branch of {TURNS} turns {}, a turn of the session {}",
        format_duration(per_branch),
        format_duration(began.elapsed())
    ))?;
    Ok(())
}

/// A race of `branches` a level and `nodes` in all.
async fn race(
    kernel: &Kernel,
    session: &Process,
    (branches, nodes): (u32, u32),
    policy: RacePolicy,
    prompts: &Prompts,
) -> Outcome {
    let lock = || prompts.lock().unwrap_or_else(PoisonError::into_inner);
    lock().clear();
    let inputs: &[&str] = match policy {
        // Branches at their writes are not continued.
        RacePolicy::Beam { .. } => &["think"],
        RacePolicy::FirstToPass | RacePolicy::BestOf => &["write"],
    };
    let race = kernel.race(session.pid(), Position::Now, branches);
    let race = race.inputs(inputs.iter().copied()).policy(policy);
    let began = Instant::now();
    let result = race
        .judge(|candidate| async move { Ok(Judgement::score(f64::from(candidate.branch))) })
        .await?;
    let elapsed = began.elapsed();
    let made = result.losers.len() + 1;
    result.winner.kill().await?;
    let all = std::mem::take(&mut *lock());
    let first = all
        .first()
        .map(String::as_bytes)
        .unwrap_or_default()
        .to_vec();
    let total: usize = all.iter().map(String::len).sum();
    let common: usize = all
        .iter()
        .skip(1)
        .map(|prompt| common_prefix(&first, prompt))
        .sum();
    print_line(format!(
        "{policy:?}: {made} nodes in {}, {:.0} nodes a second; {:.2} % of {total} bytes of prompts \
         are a prefix that was sent before",
        format_duration(elapsed),
        f64::from(nodes) / seconds(elapsed),
        100.0 * common as f64 / total as f64,
    ))?;
    Ok(())
}

/// What nodes cost while they stand at their writes.
async fn standing_nodes(kernel: &Kernel, session: &Process, nodes: u32, folder: &Path) -> Outcome {
    let (memory, disk) = (resident_bytes()?, bytes_in(folder)?);
    let at = kernel.inspect(session.pid()).await?.fact;
    let branches = (0..nodes).map(|_| async {
        let branch = kernel.branch(session.pid(), at).speculative().await?;
        branch.input("write").await?;
        branch
            .wait_for(|view| view.rests && view.phase.asks())
            .await?;
        Ok::<_, dormouse::KernelError>(branch)
    });
    let branches = try_join_all(branches).await?;
    let memory = resident_bytes()?.saturating_sub(memory) / u64::from(nodes);
    let disk = bytes_in(folder)?.saturating_sub(disk) / u64::from(nodes);
    for branch in branches {
        branch.kill().await?;
    }
    print_line(format!(
        "{nodes} nodes at their writes: {memory} bytes of memory and {disk} bytes on disk a node"
    ))?;
    Ok(())
}

fn common_prefix(one: &[u8], other: &str) -> usize {
    let pairs = one.iter().zip(other.as_bytes());
    pairs.take_while(|(one, other)| one == other).count()
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64().max(f64::EPSILON)
}
