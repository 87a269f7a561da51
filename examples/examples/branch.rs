//! A checkpoint with two continuations: the session itself, and a branch of it. The branch contains
//! nothing that happened after the checkpoint.
//!
//! ```text
//! the session: We spoke of owls, then of mice.
//! the branch:  We spoke of owls, then of bats.
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use dormouse::Kernel;
use dormouse::models::Scripted;
use dormouse::store::LogStore;

const PROGRAM: &str = "[model]\nname = 'talks'\nprovider = 'scripted'\n";

const SCRIPT: &str = r#"
[[capture]]
name = "subjects"
from = "input"
take = "all"
pattern = 'about (\w+)'
[[turn]]
text = "We spoke of {{ subjects | join(', then of ') }}."
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let kernel = Kernel::open(LogStore::open(folder.path())?)
        .model("talks", Scripted::parse(SCRIPT, "talks")?)
        .build()
        .await?;
    let program = kernel.parse(PROGRAM)?.program;
    let session = kernel.start(program).session().without_input().await?;
    session.turn("Let us talk about owls.").await?;
    let checkpoint = session.checkpoint("after the owls").await?;
    let in_session = session.turn("And about mice.").await?;
    println!("the session: {}", in_session.message);
    let branch = kernel.branch(session.pid(), checkpoint.id).await?;
    let in_branch = branch.turn("And about bats.").await?;
    println!("the branch:  {}", in_branch.message);
    kernel.shutdown().await?;
    Ok(())
}
