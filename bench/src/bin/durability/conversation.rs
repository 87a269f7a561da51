//! Measures the size on disk of a long conversation with a checkpoint at every turn.

use std::path::Path;

use dormouse::Kernel;
use dormouse::model::Request;
use dormouse::store::LogStore;
use dormouse_bench::{FnModel, Outcome, print_line, program, text_reply};

use crate::{disk_bytes, random_bytes};

const TURNS: usize = 500;
/// `bench/durability.py` stores messages of the first length with LangGraph.
const MESSAGE_BYTES: [usize; 2] = [1_000, 2_000];

fn message_text(number: usize, length: usize) -> String {
    String::from_utf8_lossy(&random_bytes(number as u64 + 1, length)).into_owned()
}

/// Measures short and long messages: the overhead of a turn should be the same for both.
pub(crate) fn conversation(folder: &Path) -> Outcome {
    MESSAGE_BYTES
        .iter()
        .try_for_each(|length| measure_conversation(&folder.join(length.to_string()), *length))
}

fn measure_conversation(folder: &Path, length: usize) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let store = folder.join("store");
    let conversation = runtime.block_on(async {
        let model = FnModel(move |request: Request| async move {
            text_reply(&message_text(request.messages.len(), length))
        });
        let kernel = Kernel::open(LogStore::open(&store)?)
            .model("m", model)
            .build()
            .await?;
        let process = kernel
            .start(program(&kernel)?)
            .session()
            .without_input()
            .await?;
        for turn in 0..TURNS {
            process.input(message_text(2 * turn, length)).await?;
            process
                .wait_for(|view| view.is_idle() && view.messages == 2 * (turn + 1))
                .await?;
            process.checkpoint(format!("turn {turn}")).await?;
        }
        kernel.shutdown().await?;
        Outcome::Ok(2 * TURNS * length)
    })?;
    let log = disk_bytes(&store.join("log"))?;
    let all = disk_bytes(&store)?;
    print_line(format_args!(
        "{TURNS} turns of {} bytes: conversation {conversation} bytes, log {log}, store {all}",
        2 * length
    ))?;
    print_line(format_args!(
        "log: {:.2}x the conversation, {} bytes a turn in addition to its text; store, index \
         included: {:.2}x",
        log as f64 / conversation as f64,
        log.saturating_sub(conversation as u64) / TURNS as u64,
        all as f64 / conversation as f64
    ))?;
    Ok(())
}
