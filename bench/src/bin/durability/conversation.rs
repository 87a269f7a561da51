//! A long conversation with a checkpoint at every turn: what it takes on the disk.

use std::path::Path;

use dormouse::Kernel;
use dormouse::model::Request;
use dormouse::store::LogStore;
use dormouse_bench::{Outcome, Replies, line, program, says};

use crate::{bytes, disk_bytes};

const TURNS: usize = 500;
const MESSAGE_BYTES: usize = 1_000;

fn said(number: usize) -> String {
    String::from_utf8_lossy(&bytes(number as u64 + 1, MESSAGE_BYTES)).into_owned()
}

/// `bench/durability.py` has LangGraph keep the same messages: it reads the figures from this line.
pub(crate) fn conversation(folder: &Path) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let store = folder.join("store");
    let spoken = runtime.block_on(async {
        let model = Replies(|request: Request| async move { says(&said(request.messages.len())) });
        let kernel = Kernel::open(LogStore::open(&store)?).model("m", model).build().await?;
        let process = kernel.start(program(&kernel)?).session().without_input().await?;
        for turn in 0..TURNS {
            process.input(said(2 * turn)).await?;
            process.wait_for(|view| view.is_idle() && view.messages == 2 * (turn + 1)).await?;
            process.checkpoint(format!("turn {turn}")).await?;
        }
        kernel.shutdown().await;
        Outcome::Ok(2 * TURNS * MESSAGE_BYTES)
    })?;
    let log = disk_bytes(&store.join("log"))?;
    let all = disk_bytes(&store)?;
    line(format_args!(
        "{TURNS} turns of {} bytes: conversation {spoken} bytes, log {log}, store {all}",
        2 * MESSAGE_BYTES
    ))?;
    line(format_args!(
        "log: {:.2}x the conversation; store, index included: {:.2}x",
        log as f64 / spoken as f64,
        all as f64 / spoken as f64
    ))?;
    Ok(())
}
