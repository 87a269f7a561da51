//! Three branches of one point want to write. Each stands at its write until it is judged, and only
//! the winner's write is done.
//!
//! ```text
//! branch 1 wants append {"line":"1 + 1 = 3"}
//! branch 2 wants append {"line":"1 + 1 = 2"}
//! branch 3 wants append {"line":"1 + 1 = 11"}
//! the file holds ["1 + 1 = 2"]
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::{Arc, Mutex, PoisonError};

use dormouse::models::Scripted;
use dormouse::store::LogStore;
use dormouse::{FnTool, Judgement, Kernel, Position, RacePolicy};
use schemars::JsonSchema;
use serde::Deserialize;

const PROGRAM: &str =
    "[model]\nname = 'sums'\nprovider = 'scripted'\n[tools]\nenabled = ['append']\n";

const SCRIPT: &str = r#"
[[turn]]
when.prompt = "Try"
when.round = 0
calls = [{ tool = "append", args = { line = "1 + 1 = {{ prompt | replace('Try ', '') }}" } }]
[[turn]]
text = "{{ last }}"
"#;

#[derive(Deserialize, JsonSchema)]
struct Append {
    line: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&file);
    let append = FnTool::new(
        "append",
        "Appends a line.",
        move |Append { line }: Append| {
            lines
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line);
            async { Ok::<_, String>("appended") }
        },
    );
    let kernel = Kernel::open(LogStore::open(folder.path())?)
        .model("sums", Scripted::parse(SCRIPT, "sums")?)
        .tool(append)
        .build()
        .await?;
    let program = kernel.parse(PROGRAM)?.program;
    let session = kernel.start(program).session().without_input().await?;
    session.turn("What is 1 + 1?").await?;

    let race = kernel.race(session.pid(), Position::Now, 3);
    let race = race
        .inputs(["Try 3", "Try 2", "Try 11"])
        .policy(RacePolicy::BestOf);
    let result = race
        .judge(|candidate| async move {
            let is_right = candidate
                .calls
                .iter()
                .any(|call| call.args.contains("= 2\""));
            Ok(if is_right {
                Judgement::PASS
            } else {
                Judgement::FAIL
            })
        })
        .await?;
    let losers = result
        .losers
        .iter()
        .filter_map(|loser| loser.candidate.as_ref());
    let mut branches: Vec<_> = losers.chain([&result.candidate]).collect();
    branches.sort_by_key(|candidate| candidate.branch);
    for candidate in branches {
        for call in &candidate.calls {
            println!(
                "branch {} wants {} {}",
                candidate.branch, call.tool, call.args
            );
        }
    }
    result.winner.wait_for(|view| view.is_idle()).await?;
    let written = file.lock().unwrap_or_else(PoisonError::into_inner).clone();
    println!("the file holds {written:?}");
    kernel.shutdown().await?;
    Ok(())
}
