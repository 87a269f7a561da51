//! A budget of output tokens for a process and its children. The process ends regularly when the
//! budget is used up.
//!
//! ```text
//! ended as budget_exhausted after 3 model calls
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dormouse::message::Block;
use dormouse::model::{Delta, ModelError, Reply, Request, StopReason, Usage};
use dormouse::ports::Model;
use dormouse::{Budget, Kernel};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// A model that never finishes, and uses 100 output tokens for each reply.
#[derive(Default)]
struct EndlessModel(Arc<AtomicU32>);

impl Model for EndlessModel {
    fn call<'a>(
        &'a self,
        _request: Request,
        _deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let call = self.0.fetch_add(1, Ordering::Relaxed);
        let tool_call = Block::ToolUse {
            id: format!("use_{call}").into(),
            name: "list_processes".into(),
            args: "{}".into(),
            raw: None,
        };
        let usage = Usage {
            output_tokens: 100,
            ..Usage::default()
        };
        let reply = Reply {
            blocks: vec![tool_call],
            stop: StopReason::ToolUse,
            usage,
        };
        async move { Ok(reply) }.boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = EndlessModel::default();
    let calls = Arc::clone(&model.0);
    let kernel = Kernel::builder().model("endless", model).build().await?;
    let program = kernel.parse(
        "[model]\nname = 'endless'\nprovider = 'scripted'\n[tools]\nenabled = ['list_processes']\n",
    )?;
    let budget = Budget {
        output_tokens: Some(250),
        ..Budget::default()
    };
    let start = kernel.start(program.program).budget(budget);
    let exit = start.input("Look around.").await?.wait().await?;
    println!(
        "ended as {} after {} model calls",
        exit.status.word(),
        calls.load(Ordering::Relaxed)
    );
    kernel.shutdown().await?;
    Ok(())
}
