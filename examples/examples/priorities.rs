//! Priorities: one model call at a time, and the process with the highest priority is served first.
//!
//! ```text
//! served: high, normal, low
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::Kernel;
use dormouse::message::Block;
use dormouse::model::{Delta, ModelError, Reply, Request, StopReason, Usage};
use dormouse::ports::Model;
use dormouse::process::Priority;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

/// Records the order of the calls. The first call waits until all others are queued.
struct Line {
    served: Arc<Mutex<Vec<String>>>,
    opens: Arc<Semaphore>,
}

impl Model for Line {
    fn call<'a>(
        &'a self,
        request: Request,
        _deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        async move {
            let who = request.messages[0].text();
            if who == "first" {
                self.opens.acquire().await.ok();
            } else if let Ok(mut served) = self.served.lock() {
                served.push(who.clone());
            }
            Ok(Reply {
                blocks: vec![Block::text(who)],
                stop: StopReason::EndTurn,
                usage: Usage::default(),
            })
        }
        .boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (served, opens) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let line = Line {
        served: Arc::clone(&served),
        opens: Arc::clone(&opens),
    };
    let kernel = Kernel::builder()
        .model("line", line)
        .model_calls(1)
        .build()
        .await?;
    let program = kernel
        .parse("[model]\nname = 'line'\nprovider = 'scripted'\n")?
        .program;
    let mut processes = vec![kernel.start(program.clone()).input("first").await?];
    let others = [
        ("low", Priority::Low),
        ("normal", Priority::Normal),
        ("high", Priority::High),
    ];
    for (name, priority) in others {
        let start = kernel.start(program.clone()).priority(priority);
        processes.push(start.input(name).await?);
    }
    // Wait until all of them are queued.
    tokio::time::sleep(Duration::from_millis(200)).await;
    opens.add_permits(1);
    for process in processes {
        process.wait().await?;
    }
    let served = served.lock().map_err(|_| "a call panicked")?;
    println!("served: {}", served.join(", "));
    Ok(())
}
