//! An orchestrator: jobs become processes, a few at a time, each with a budget. A failed
//! job continues from the position before the failure instead of starting again.
//!
//! ```text
//! job 1: sorted 3 letters
//! job 2: sorted 3 letters
//! job 3: failed after 2 facts of work, continued from there: sorted 3 letters
//! job 4: sorted 3 letters
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::atomic::{AtomicBool, Ordering};

use dormouse::model::{Delta, ModelError, ModelErrorKind, Reply, Request};
use dormouse::models::Scripted;
use dormouse::ports::Model;
use dormouse::process::{ExitStatus, Priority};
use dormouse::program::{ProgramBuilder, Provider};
use dormouse::store::LogStore;
use dormouse::{Budget, Kernel, KernelError, Process};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream;

const SCRIPT: &str = r#"
[[turn]]
when.round = 0
calls = [{ tool = "sort", args = { letters = 3 } }]
[[turn]]
text = "{{ last }}"
"#;

/// Sorts letters.
#[dormouse::tool]
async fn sort(
    /// The number of letters.
    letters: u32,
) -> Result<String, String> {
    Ok(format!("sorted {letters} letters"))
}

/// A model whose key expires once: after job 3 has done its work.
struct UnreliableModel {
    model: Scripted,
    has_failed: AtomicBool,
}

impl Model for UnreliableModel {
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let is_late = request.messages.len() > 1 && request.messages[0].text() == "job 3";
        if is_late && !self.has_failed.swap(true, Ordering::Relaxed) {
            return Box::pin(async {
                Err(ModelError::new(
                    ModelErrorKind::Authentication,
                    "the key has expired",
                ))
            });
        }
        self.model.call(request, deltas)
    }
}

/// Waits for a job. If its model failed, continues it on a branch and waits for that.
async fn run(kernel: &Kernel, process: Process) -> Result<String, KernelError> {
    let exit = process.wait().await?;
    if exit.status != ExitStatus::ModelFailed {
        return Ok(exit.message.to_string());
    }
    let facts = kernel.log(process.pid()).await?;
    let last_return = facts.iter().rev().find(|fact| fact.name == "tool_returned");
    let last_result = last_return.map(|fact| fact.number).unwrap_or_default();
    let retried = kernel
        .branch(process.pid(), last_result)
        .await?
        .wait()
        .await?;
    let tool_facts = facts.iter().filter(|fact| fact.name.starts_with("tool_"));
    let tool_facts = tool_facts.count();
    Ok(format!(
        "failed after {tool_facts} facts of work, continued from there: {}",
        retried.message
    ))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let model = UnreliableModel {
        model: Scripted::parse(SCRIPT, "worker")?,
        has_failed: AtomicBool::new(false),
    };
    let kernel = Kernel::open(LogStore::open(folder.path())?)
        .model("worker", model)
        .tool(sort())
        .build()
        .await?;
    let source = ProgramBuilder::new("worker", Provider::Scripted).tools(["sort"]);
    let program = kernel.parse(source)?.program;
    let budget = Budget {
        processes: Some(4),
        ..Budget::default()
    };
    let job = |number: u32| {
        let (kernel, program) = (kernel.clone(), program.clone());
        async move {
            let start = kernel.start(program).budget(budget).priority(Priority::Low);
            let process = start.input(format!("job {number}")).await?;
            let result = run(&kernel, process).await?;
            Ok::<_, KernelError>(format!("job {number}: {result}"))
        }
    };
    // Two at a time, in the order of the jobs.
    let mut results = stream::iter((1..=4).map(job)).buffered(2);
    while let Some(result) = results.next().await {
        println!("{}", result?);
    }
    drop(results);
    kernel.shutdown().await?;
    Ok(())
}
