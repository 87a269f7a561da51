//! A model of your own: a function from a request to a reply.
//!
//! ```text
//! You said 3 words, and I know 1 tool.
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use dormouse::Kernel;
use dormouse::message::Block;
use dormouse::model::{Delta, ModelError, Reply, Request, StopReason, Usage};
use dormouse::ports::Model;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// Counts the words of a request. A real model would send the request to a server.
struct WordCountModel;

impl Model for WordCountModel {
    fn call<'a>(
        &'a self,
        request: Request,
        _deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        async move {
            let words = request.messages[0].text().split_whitespace().count();
            let text = format!(
                "You said {words} words, and I know {} tool.",
                request.tools.len()
            );
            Ok(Reply {
                blocks: vec![Block::text(text)],
                stop: StopReason::EndTurn,
                usage: Usage::default(),
            })
        }
        .boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kernel = Kernel::builder()
        .model("counting", WordCountModel)
        .build()
        .await?;
    let program = kernel.parse(
        "[model]\nname = 'counting'\nprovider = 'scripted'\n[tools]\nenabled = ['list_processes']\n",
    )?;
    let process = kernel.start(program.program).input("one two three").await?;
    println!("{}", process.wait().await?.message);
    kernel.shutdown().await?;
    Ok(())
}
