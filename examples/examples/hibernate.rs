//! Ten thousand hibernated sessions on disk, and one that wakes when it gets an input.
//!
//! ```sh
//! cargo run --release -p dormouse-examples --example hibernate -- 10000
//! ```
//!
//! ```text
//! all sessions sleep
//! one wakes: I am number 77.
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use dormouse::models::Scripted;
use dormouse::store::LogStore;
use dormouse::{Durability, Kernel};

const PROGRAM: &str = "[model]\nname = 'sleeper'\nprovider = 'scripted'\n";

const SCRIPT: &str = r#"
[[capture]]
name = "number"
from = "input"
take = "first"
pattern = 'number (\d+)'
[[turn]]
text = "I am number {{ number }}."
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args()
        .nth(1)
        .map_or(Ok(10_000), |count| count.parse())?;
    let folder = tempfile::tempdir()?;
    let kernel = Kernel::open(LogStore::open(folder.path())?)
        .model("sleeper", Scripted::parse(SCRIPT, "sleeper")?)
        // A power loss may lose the turns of the last moment.
        .durability(Durability::Relaxed)
        // At most 10 sessions are in memory; the others hibernate, the longest idle first.
        .max_loaded(10)
        .build()
        .await?;
    let program = kernel.parse(PROGRAM)?.program;
    let mut sessions = Vec::new();
    for number in 0..count {
        let start = kernel.start(program.clone()).session();
        let session = start.without_input().await?;
        session.turn(format!("You are number {number}.")).await?;
        sessions.push(session);
    }
    for session in &sessions {
        session.hibernate().await?;
    }
    println!("all sessions sleep");
    let answer = sessions[77].turn("Who are you?").await?;
    println!("one wakes: {}", answer.message);
    kernel.shutdown().await?;
    Ok(())
}
