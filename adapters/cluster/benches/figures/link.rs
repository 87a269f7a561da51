//! A model that sends a message to another process whenever it is called for a new turn, and tells
//! when it was called and when it sent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dormouse::id::Pid;
use dormouse::message::Block;
use dormouse::model::{Delta, ModelError, Reply, Request, StopReason, Usage};
use dormouse::ports::Model;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc::UnboundedSender;

/// How long a turn of a receiver lasts before it sends, so that the sender's own turn is over.
const PAUSE: Duration = Duration::from_millis(15);

/// What two processes share that write to each other.
pub(crate) struct Link {
    sent: Mutex<Option<Instant>>,
    arrived: UnboundedSender<Duration>,
}

impl Link {
    pub(crate) fn new(arrived: UnboundedSender<Duration>) -> Arc<Self> {
        let sent = Mutex::new(None);
        Arc::new(Self { sent, arrived })
    }
}

/// The model of one of the two. Clones are the same model.
#[derive(Clone)]
pub(crate) struct LinkModel {
    link: Arc<Link>,
    /// To whom it writes.
    pub(crate) to: Arc<OnceLock<Pid>>,
    calls: Arc<AtomicUsize>,
}

impl LinkModel {
    pub(crate) fn new(link: &Arc<Link>) -> Self {
        Self {
            link: link.clone(),
            to: Arc::default(),
            calls: Arc::default(),
        }
    }
}

impl Model for LinkModel {
    fn call<'a>(
        &'a self,
        _request: Request,
        _deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let called = Instant::now();
        async move {
            // A turn has two calls: one that sends, and one that has the answer of the tool.
            if self.calls.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
                return Ok(reply(Block::text("sent"), StopReason::EndTurn));
            }
            let sent = self.link.sent.lock();
            let sent = sent.unwrap_or_else(PoisonError::into_inner).take();
            if let Some(sent) = sent {
                // The measurement may be over.
                let _ = self.link.arrived.send(called - sent);
            }
            tokio::time::sleep(PAUSE).await;
            let to = self.to.get().copied().unwrap_or(Pid(0));
            let message = Block::ToolUse {
                id: "use_0".into(),
                name: "send_message".into(),
                args: format!(r#"{{"to": "{to}", "text": "{}"}}"#, "a word ".repeat(20)).into(),
                raw: None,
            };
            let now = Some(Instant::now());
            *self
                .link
                .sent
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = now;
            Ok(reply(message, StopReason::ToolUse))
        }
        .boxed()
    }
}

fn reply(block: Block, stop: StopReason) -> Reply {
    Reply {
        blocks: vec![block],
        stop,
        usage: Usage::default(),
    }
}
