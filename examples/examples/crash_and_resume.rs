//! A program that is killed in the middle of its work, and a second one that continues the work
//! without repeating the completed steps.
//!
//! ```text
//! step 1
//! step 2
//! killed in the middle of step 3
//! step 3
//! step 4
//! the work is done
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::path::Path;
use std::process::Command;

use dormouse::models::Scripted;
use dormouse::store::LogStore;
use dormouse::{Kernel, Recovery};

const PROGRAM: &str = "
[model]
name = 'worker'
provider = 'scripted'
[tools]
enabled = ['step']
";

const SCRIPT: &str = r#"
[[turn]]
when.holds = "round < 4"
calls = [{ tool = "step", args = { number = "{{ round + 1 }}" } }]
[[turn]]
text = "the work is done"
"#;

/// Does a step of the work. It is idempotent, so that the kernel may repeat it after a crash.
#[dormouse::tool(idempotent)]
async fn step(
    /// The number of the step.
    number: String,
) -> Result<String, String> {
    if number == "3" && std::env::var_os("CRASHES").is_some() {
        std::process::abort();
    }
    println!("step {number}");
    Ok("done".to_owned())
}

async fn work(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let kernel = Kernel::open(LogStore::open(folder)?)
        .model("worker", Scripted::parse(SCRIPT, "worker")?)
        .tool(step())
        .recovery(Recovery::Resume)
        .build()
        .await?;
    let processes = kernel.processes().await?;
    let process = match processes.first() {
        Some(info) => kernel.process(info.row.pid).await?,
        None => {
            let program = kernel.parse(PROGRAM)?.program;
            kernel.start(program).input("Do all four steps.").await?
        }
    };
    println!("{}", process.wait().await?.message);
    kernel.shutdown().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(folder) = std::env::var_os("CRASHES") {
        return work(folder.as_ref()).await;
    }
    let folder = tempfile::tempdir()?;
    let program = std::env::current_exe()?;
    let crashed = Command::new(program)
        .env("CRASHES", folder.path())
        .status()?;
    assert!(!crashed.success(), "the first program does not survive");
    println!("killed in the middle of step 3");
    work(folder.path()).await
}
