//! A checkpoint, and two ways on from it: the process itself, and a branch that knows nothing of
//! what came later.
//!
//! ```text
//! the session: We spoke of owls, then of mice.
//! the branch:  We spoke of owls, then of bats.
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use dormouse::models::Scripted;
use dormouse::store::LogStore;
use dormouse::{Kernel, KernelError, Process, View};

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

/// Says something, and returns the last words of the conversation once it waits again.
async fn say(kernel: &Kernel, session: &Process, text: &str) -> Result<String, KernelError> {
    let before = session.wait_for(View::is_idle).await?.messages;
    session.input(text).await?;
    let is_answered = |view: &View| view.is_idle() && view.messages > before;
    session.wait_for(is_answered).await?;
    let at = dormouse::Point::Now;
    let conversation = kernel.conversation(session.pid(), at).await?;
    Ok(conversation
        .messages
        .last()
        .map(|message| message.text())
        .unwrap_or_default())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let kernel = Kernel::open(LogStore::open(folder.path())?)
        .model("talks", Scripted::parse(SCRIPT, "talks")?)
        .build()
        .await?;
    let program = kernel.parse(PROGRAM)?.program;
    let session = kernel.start(program).session().without_input().await?;
    say(&kernel, &session, "Let us talk about owls.").await?;
    let checkpoint = session.checkpoint("after the owls").await?;
    let here = say(&kernel, &session, "And about mice.").await?;
    println!("the session: {here}");
    let branch = kernel.branch(session.pid(), checkpoint.id).await?;
    let there = say(&kernel, &branch, "And about bats.").await?;
    println!("the branch:  {there}");
    kernel.shutdown().await?;
    Ok(())
}
