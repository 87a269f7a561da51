//! Priorities: the kernel makes one model call at a time, and the waiting process with the highest
//! priority is first.
//!
//! ```text
//! served: high, normal, low
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::message::Block;
use dormouse::model::{Delta, ModelError, Reply, Request, StopReason, Usage};
use dormouse::ports::Model;
use dormouse::process::Priority;
use dormouse::{Kernel, ProcessStatus};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, Semaphore};

/// A model that records the order of its calls. Its first call waits for a permit of the gate, so
/// that all other calls are queued meanwhile.
struct QueuedModel {
    served: Arc<Mutex<Vec<String>>>,
    /// Notified when the first call is being served.
    busy: Arc<Notify>,
    gate: Arc<Semaphore>,
}

impl Model for QueuedModel {
    fn call<'a>(
        &'a self,
        request: Request,
        _deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        async move {
            let name = request.messages[0].text();
            if name == "first" {
                self.busy.notify_one();
                self.gate.acquire().await.ok();
            } else if let Ok(mut served) = self.served.lock() {
                served.push(name.clone());
            }
            Ok(Reply {
                blocks: vec![Block::text(name)],
                stop: StopReason::EndTurn,
                usage: Usage::default(),
            })
        }
        .boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (served, busy) = (Arc::default(), Arc::new(Notify::new()));
    let gate = Arc::new(Semaphore::new(0));
    let model = QueuedModel {
        served: Arc::clone(&served),
        busy: Arc::clone(&busy),
        gate: Arc::clone(&gate),
    };
    let kernel = Kernel::builder()
        .model("line", model)
        .model_calls(1)
        .build()
        .await?;
    let program = kernel
        .parse("[model]\nname = 'line'\nprovider = 'scripted'\n")?
        .program;
    let mut processes = vec![kernel.start(program.clone()).input("first").await?];
    busy.notified().await;
    let others = [
        ("low", Priority::Low),
        ("normal", Priority::Normal),
        ("high", Priority::High),
    ];
    for (name, priority) in others {
        let start = kernel.start(program.clone()).priority(priority);
        processes.push(start.input(name).await?);
    }
    for process in &processes {
        process
            .wait_for(|view| view.status() == ProcessStatus::Thinking)
            .await?;
    }
    // The last process queues its model call within a moment.
    tokio::time::sleep(Duration::from_millis(200)).await;
    gate.add_permits(1);
    for process in processes {
        process.wait().await?;
    }
    let served = served.lock().map_err(|_| "a call panicked")?;
    println!("served: {}", served.join(", "));
    Ok(())
}
