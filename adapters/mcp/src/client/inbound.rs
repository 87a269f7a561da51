//! What a server sends unasked: answered, noted or dropped here, and bounded.
//!
//! A ping is answered, and any other request is refused, since no capability for it is declared.
//! Progress and changed tools are noted; any other notification is dropped. The protocol library
//! sees only answers to our own requests: it starts a task and writes log lines for each message,
//! without a bound.
//!
//! The connection to a server that does not read its answers, or that sends far too much unasked,
//! is closed.

use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dormouse_proto::tool::Progress;
use rmcp::model::{
    ClientResult, ConstString, ErrorCode, ErrorData, JsonRpcMessage, NumberOrString,
    ProgressNotificationParam, RequestId, ServerNotification, ServerRequest,
};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};

use super::manners::shortened;
use super::noise::Noise;
use super::session::{END, Watched};

/// So many answers wait at once to be written to a server. Nothing more is read from it meanwhile.
const MOST_ANSWERS: usize = 128;
/// A server that reads none of so many answers for so long is left.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// A server that sends more messages unasked than this within [`WINDOW`] is left.
const MOST_UNASKED: usize = 10_000;
/// Of these messages, so many of the progress of calls are passed on within [`WINDOW`]: a later one
/// says what a dropped one said.
const MOST_PROGRESS: usize = 1_000;
const WINDOW: Duration = Duration::from_secs(10);
/// The longest id of a request that is answered: the answer repeats it.
const MOST_ID_BYTES: usize = 1 << 10;

/// Why we left a server, once we did. Shared by a transport and the session that uses it.
#[derive(Clone, Default)]
pub(super) struct Left(Arc<OnceLock<&'static str>>);

impl Left {
    /// Notes the first cause: what the server did.
    pub(super) fn because(&self, why: &'static str) {
        let _ = self.0.set(why);
    }

    pub(super) fn why(&self) -> Option<&'static str> {
        self.0.get().copied()
    }
}

/// A transport of which only answers to our requests are received.
pub(super) struct Inbound<T> {
    transport: T,
    server: Arc<str>,
    /// How often the server said that its tools changed.
    changes: watch::Sender<u64>,
    watched: Watched,
    left: Left,
    /// The answers that are being written.
    answers: JoinSet<()>,
    /// By when one of [`MOST_ANSWERS`] has to be written.
    answer_by: Option<tokio::time::Instant>,
    window: Window,
    noise: Noise,
}

/// What was sent unasked since a time.
struct Window {
    since: Instant,
    messages: usize,
    progress: usize,
}

impl<T: Transport<RoleClient>> Inbound<T> {
    pub(super) fn new(
        transport: T,
        server: &Arc<str>,
        changes: watch::Sender<u64>,
        watched: Watched,
        left: Left,
    ) -> Self {
        Self {
            transport,
            server: server.clone(),
            changes,
            watched,
            left,
            answers: JoinSet::new(),
            answer_by: None,
            window: Window {
                since: Instant::now(),
                messages: 0,
                progress: 0,
            },
            noise: Noise::default(),
        }
    }

    /// Waits until another answer may be written.
    ///
    /// # Errors
    /// What the server did, if it has to be left.
    async fn wait_for_room(&mut self) -> Result<(), &'static str> {
        while self.answers.try_join_next().is_some() {}
        while self.answers.len() >= MOST_ANSWERS {
            // Kept while this future is dropped and made anew.
            let by = *self
                .answer_by
                .get_or_insert_with(|| tokio::time::Instant::now() + ANSWER_WAIT);
            if timeout_at(by, self.answers.join_next()).await.is_err() {
                return Err("asked without reading its answers");
            }
            self.answer_by = None;
        }
        self.answer_by = None;
        Ok(())
    }

    /// Counts a message that was sent unasked.
    ///
    /// # Errors
    /// What the server did, if it has to be left.
    fn count(&mut self) -> Result<(), &'static str> {
        if self.window.since.elapsed() >= WINDOW {
            self.window = Window {
                since: Instant::now(),
                messages: 0,
                progress: 0,
            };
        }
        self.window.messages += 1;
        if self.window.messages > MOST_UNASKED {
            return Err("sent more than 10000 messages that nobody asked for within 10 s");
        }
        Ok(())
    }

    fn answer(&mut self, id: RequestId, request: &ServerRequest) {
        if matches!(&id, NumberOrString::String(id) if id.len() > MOST_ID_BYTES) {
            self.trace("a request with a long id is not answered");
            return;
        }
        let answer = match request {
            ServerRequest::PingRequest(_) => JsonRpcMessage::response(ClientResult::empty(()), id),
            request => {
                let method = shortened(method(request));
                JsonRpcMessage::error(
                    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None),
                    Some(id),
                )
            }
        };
        let sent = self.transport.send(answer);
        // A server that cannot be answered has ended: that is seen where it is read.
        self.answers.spawn(async move { drop(sent.await) });
    }

    fn note(&mut self, notification: ServerNotification) {
        match notification {
            ServerNotification::ProgressNotification(progress) => {
                self.note_progress(progress.params)
            }
            ServerNotification::ToolListChangedNotification(_) => {
                self.changes.send_modify(|changes| *changes += 1);
                self.trace(
                    "the tools of a server changed: for processes that are born from now on",
                );
            }
            _ => {}
        }
    }

    fn note_progress(&mut self, progress: ProgressNotificationParam) {
        self.window.progress += 1;
        if self.window.progress > MOST_PROGRESS {
            return;
        }
        let ProgressNotificationParam {
            progress_token,
            progress: done,
            total,
            message,
            ..
        } = progress;
        let message = shortened(message.as_deref().unwrap_or_default());
        let out = self
            .watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&progress_token)
            .cloned();
        // A call that has ended makes no progress.
        if let Some(out) = out {
            out.tell(Progress {
                done,
                total,
                message: message.into(),
            });
        }
    }

    fn trace(&mut self, what: &str) {
        // What is not traced anyway is no noise.
        if tracing::enabled!(tracing::Level::DEBUG) && self.noise.admits(&self.server) {
            tracing::debug!(server = &*self.server, "{what}");
        }
    }

    fn leave(&self, why: &'static str) {
        tracing::warn!(server = &*self.server, "a tool server is left: it {why}");
        self.left.because(why);
    }
}

fn method(request: &ServerRequest) -> &str {
    match request {
        ServerRequest::PingRequest(request) => request.method.as_str(),
        ServerRequest::CreateMessageRequest(request) => request.method.as_str(),
        ServerRequest::ListRootsRequest(request) => request.method.as_str(),
        ServerRequest::ElicitRequest(request) => request.method.as_str(),
        ServerRequest::CustomRequest(request) => &request.method,
        // The library may come to know more kinds.
        _ => "",
    }
}

impl<T: Transport<RoleClient> + 'static> Transport<RoleClient> for Inbound<T> {
    type Error = T::Error;

    fn name() -> std::borrow::Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            if let Err(why) = self.wait_for_room().await {
                self.leave(why);
                return None;
            }
            let unasked = match self.transport.receive().await? {
                answer @ (JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) => {
                    return Some(answer);
                }
                unasked => unasked,
            };
            if let Err(why) = self.count() {
                self.leave(why);
                return None;
            }
            match unasked {
                JsonRpcMessage::Request(asked) => self.answer(asked.id, &asked.request),
                JsonRpcMessage::Notification(told) => self.note(told.notification),
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
            }
            // A server that has much to say leaves others their turn.
            tokio::task::consume_budget().await;
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        // They may hold what is closed.
        self.answers.shutdown().await;
        // A transport that waits for its messages to be received cannot close: it ends once it is
        // dropped.
        timeout(END, self.transport.close()).await.unwrap_or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Asks for a ping without end. No answer is ever written.
    #[derive(Default)]
    struct Asks {
        id: String,
        answers: Arc<AtomicUsize>,
    }

    impl Transport<RoleClient> for Asks {
        type Error = io::Error;

        fn send(
            &mut self,
            _: TxJsonRpcMessage<RoleClient>,
        ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
            self.answers.fetch_add(1, Ordering::Relaxed);
            std::future::pending()
        }

        async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
            let ping = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, self.id);
            Some(serde_json::from_str(&ping).unwrap())
        }

        async fn close(&mut self) -> Result<(), Self::Error> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_answers_wait_and_so_many_messages_are_read() {
        for (id, expected_answers, expected_why) in [
            (
                "1".to_owned(),
                MOST_ANSWERS,
                "asked without reading its answers",
            ),
            (
                "1".repeat(MOST_ID_BYTES + 1),
                0,
                "sent more than 10000 messages that nobody asked for within 10 s",
            ),
        ] {
            let (answers, left) = (Arc::<AtomicUsize>::default(), Left::default());
            let asks = Asks {
                id,
                answers: answers.clone(),
            };
            let changes = watch::Sender::new(0);
            let mut inbound =
                Inbound::new(asks, &"s".into(), changes, Watched::default(), left.clone());
            assert!(inbound.receive().await.is_none());
            assert_eq!(
                (answers.load(Ordering::Relaxed), left.why()),
                (expected_answers, Some(expected_why))
            );
            inbound.close().await.unwrap();
        }
    }
}
