//! Handles the messages of a server that do not answer a request, and bounds their number.
//!
//! A ping is answered, and any other request is passed on to the downstream client (the MCP client
//! that the kernel itself serves, `downstream_requests.rs`), or refused if there is none. Progress
//! is reported and changed tools are counted; every other notification goes to the downstream
//! client, or is dropped. The protocol library sees only the answers to the requests of this crate,
//! because the library starts a task and writes log lines for each message, without a bound.
//!
//! The connection is closed if the server does not read the answers to its requests, or if the
//! server sends more than [`MAX_UNSOLICITED`] such messages within [`WINDOW`].

use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dormouse_proto::tool::Progress;
use rmcp::model::{
    ClientResult, JsonRpcMessage, NumberOrString, ProgressNotificationParam, RequestId,
    ServerNotification, ServerRequest,
};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};

use super::downstream_requests::DownstreamRequests;
use super::log_limit::LogLimit;
use super::protocol_handler::truncate_text;
use super::session::{END_TIMEOUT, ProgressSink, ProgressSinks};

/// The most answers that wait to be written. Nothing is read from the server while they wait.
const MAX_ANSWERS: usize = 128;
/// The connection is closed if the server reads none of these waiting answers for this long.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// The most unsolicited messages within [`WINDOW`]. More of them close the connection.
const MAX_UNSOLICITED: usize = 10_000;
/// The most progress notifications that are reported within [`WINDOW`]. Dropping one loses nothing,
/// since a later one supersedes it.
const MAX_PROGRESS: usize = 1_000;
const WINDOW: Duration = Duration::from_secs(10);
/// The longest id of a request that is answered, since the answer repeats the id.
const MAX_ID_BYTES: usize = 1 << 10;

/// Why this client closed the connection, if it did. Shared by a transport and its session.
#[derive(Clone, Default)]
pub(super) struct CloseReason(Arc<OnceLock<&'static str>>);

impl CloseReason {
    /// Records the reason, as a verb phrase with the server as its subject. Only the first reason
    /// is kept.
    pub(super) fn set(&self, why: &'static str) {
        let _ = self.0.set(why);
    }

    pub(super) fn get(&self) -> Option<&'static str> {
        self.0.get().copied()
    }
}

/// A transport that passes on only the answers to this client's requests.
pub(super) struct AnswersOnly<T> {
    transport: T,
    server: Arc<str>,
    /// Counts the notifications that the tools of the server changed.
    changes: watch::Sender<u64>,
    progress_sinks: ProgressSinks,
    downstream_requests: DownstreamRequests,
    close_reason: CloseReason,
    /// The answers that are being written.
    answers: JoinSet<()>,
    /// The time by which one of [`MAX_ANSWERS`] answers has to be written.
    answer_by: Option<tokio::time::Instant>,
    window: MessageWindow,
    log_limit: LogLimit,
}

/// The unsolicited messages since a point in time.
struct MessageWindow {
    since: Instant,
    messages: usize,
    progress: usize,
}

impl<T: Transport<RoleClient>> AnswersOnly<T> {
    pub(super) fn new(
        transport: T,
        server: &Arc<str>,
        changes: watch::Sender<u64>,
        progress_sinks: ProgressSinks,
        downstream_requests: DownstreamRequests,
        close_reason: CloseReason,
    ) -> Self {
        Self {
            transport,
            server: server.clone(),
            changes,
            progress_sinks,
            downstream_requests,
            close_reason,
            answers: JoinSet::new(),
            answer_by: None,
            window: MessageWindow {
                since: Instant::now(),
                messages: 0,
                progress: 0,
            },
            log_limit: LogLimit::default(),
        }
    }

    /// Waits until another answer may be written.
    ///
    /// # Errors
    /// The reason, as a verb phrase with the server as its subject, if the connection must be
    /// closed.
    async fn wait_for_answer_slot(&mut self) -> Result<(), &'static str> {
        while self.answers.try_join_next().is_some() {}
        while self.answers.len() >= MAX_ANSWERS {
            // Stored outside of this future, which may be dropped and created again.
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

    /// Counts an unsolicited message.
    ///
    /// # Errors
    /// The reason, as a verb phrase with the server as its subject, if the connection must be
    /// closed.
    fn count_message(&mut self) -> Result<(), &'static str> {
        if self.window.since.elapsed() >= WINDOW {
            self.window = MessageWindow {
                since: Instant::now(),
                messages: 0,
                progress: 0,
            };
        }
        self.window.messages += 1;
        if self.window.messages > MAX_UNSOLICITED {
            return Err("sent more than 10000 messages that nobody asked for within 10 s");
        }
        Ok(())
    }

    /// Answers a request of the server.
    fn answer(&mut self, id: RequestId, request: &ServerRequest) {
        if matches!(&id, NumberOrString::String(id) if id.len() > MAX_ID_BYTES) {
            self.log("a request with a long id is not answered");
            return;
        }
        let answer = match request {
            ServerRequest::PingRequest(_) => JsonRpcMessage::response(ClientResult::empty(()), id),
            request => match self.downstream_requests.begin(id.clone(), request) {
                Ok(()) => return,
                Err(refusal) => JsonRpcMessage::error(refusal, Some(id)),
            },
        };
        self.send_answer(answer);
    }

    fn send_answer(&mut self, answer: TxJsonRpcMessage<RoleClient>) {
        let sent = self.transport.send(answer);
        // If the answer cannot be written, the server has ended, which the next read reports.
        self.answers.spawn(async move { drop(sent.await) });
    }

    fn handle_notification(&mut self, notification: ServerNotification) {
        match &notification {
            ServerNotification::ProgressNotification(progress) => {
                self.report_progress(progress.params.clone());
                return;
            }
            ServerNotification::CancelledNotification(cancelled) => {
                if let Some(id) = &cancelled.params.request_id {
                    self.downstream_requests.cancel(id);
                }
                return;
            }
            ServerNotification::ToolListChangedNotification(_) => {
                self.changes.send_modify(|changes| *changes += 1);
                self.log("the tools of a server changed: new processes get the new ones");
            }
            _ => {}
        }
        self.downstream_requests.notify(notification);
    }

    fn report_progress(&mut self, progress: ProgressNotificationParam) {
        self.window.progress += 1;
        if self.window.progress > MAX_PROGRESS {
            return;
        }
        let ProgressNotificationParam {
            progress_token,
            progress: done,
            total,
            message,
            ..
        } = progress;
        let message = truncate_text(message.as_deref().unwrap_or_default());
        let out = self
            .progress_sinks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&progress_token)
            .cloned();
        // The progress of a call that has ended is dropped.
        if let Some(ProgressSink { out, reported }) = out {
            reported.send_modify(|reports| *reports += 1);
            out.report_progress(Progress {
                done,
                total,
                message: message.into(),
            });
        }
    }

    fn log(&mut self, what: &str) {
        // A line that is not logged must not count against the limit.
        if tracing::enabled!(tracing::Level::DEBUG) && self.log_limit.admits(&self.server) {
            tracing::debug!(server = &*self.server, "{what}");
        }
    }

    fn close_because(&self, why: &'static str) {
        tracing::warn!(
            server = &*self.server,
            "the connection to a tool server is closed, since it {why}"
        );
        self.close_reason.set(why);
    }
}

impl<T: Transport<RoleClient> + 'static> Transport<RoleClient> for AnswersOnly<T> {
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
            if let Err(why) = self.wait_for_answer_slot().await {
                self.close_because(why);
                return None;
            }
            let received = tokio::select! {
                received = self.transport.receive() => received,
                answer = self.downstream_requests.next_answer() => {
                    self.send_answer(answer);
                    continue;
                }
            };
            let unsolicited = match received? {
                answer @ (JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) => {
                    return Some(answer);
                }
                unsolicited => unsolicited,
            };
            if let Err(why) = self.count_message() {
                self.close_because(why);
                return None;
            }
            match unsolicited {
                JsonRpcMessage::Request(message) => self.answer(message.id, &message.request),
                JsonRpcMessage::Notification(message) => {
                    self.handle_notification(message.notification)
                }
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
            }
            // A server that sends many messages must not starve other tasks.
            tokio::task::consume_budget().await;
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        // The tasks that write answers may hold the transport that is to be closed.
        self.answers.shutdown().await;
        // A transport whose peer reads no messages cannot close. It ends when it is dropped.
        timeout(END_TIMEOUT, self.transport.close())
            .await
            .unwrap_or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Requests a ping again and again. No answer is ever written.
    #[derive(Default)]
    struct EndlessPings {
        id: String,
        answers: Arc<AtomicUsize>,
    }

    impl Transport<RoleClient> for EndlessPings {
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
    async fn unwritten_answers_and_unsolicited_messages_are_limited() {
        for (id, expected_answers, expected_why) in [
            (
                "1".to_owned(),
                MAX_ANSWERS,
                "asked without reading its answers",
            ),
            (
                "1".repeat(MAX_ID_BYTES + 1),
                0,
                "sent more than 10000 messages that nobody asked for within 10 s",
            ),
        ] {
            let (answers, close_reason) = (Arc::<AtomicUsize>::default(), CloseReason::default());
            let transport = EndlessPings {
                id,
                answers: answers.clone(),
            };
            let changes = watch::Sender::new(0);
            let mut inbound = AnswersOnly::new(
                transport,
                &"s".into(),
                changes,
                ProgressSinks::default(),
                DownstreamRequests::new("s".into(), None, watch::Sender::new(0)),
                close_reason.clone(),
            );
            assert!(inbound.receive().await.is_none());
            assert_eq!(
                (answers.load(Ordering::Relaxed), close_reason.get()),
                (expected_answers, Some(expected_why))
            );
            inbound.close().await.unwrap();
        }
    }
}
