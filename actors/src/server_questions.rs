//! Questions of tool servers to the user (elicitations), which arrive while a server runs a call.
//!
//! Such a question belongs to a running call of a server, so it lives in memory: if the kernel
//! stops, the call is in flight, and its question is gone with the connection. Questions of models,
//! which survive that, are held calls ([`HeldCall`](crate::HeldCall)).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_kernel::program::ValueSchema;
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use tokio::sync::{broadcast, oneshot};

use crate::clock::now_ms;
use crate::event::Event;
use crate::ports::{ServerAnswer, ServerClient, ServerRequestError};

/// A question of a tool server to the user. The call that led to it waits for the answer, and does
/// not run out of time meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerQuestion {
    /// The number of the question, unique in this kernel.
    pub id: u64,
    /// The name of the server.
    pub server: Arc<str>,
    /// The question, as the server wrote it. It is not trusted: show who asks.
    pub text: String,
    /// What the server asks for.
    pub wanted: WantedAnswer,
    /// Since when the question waits: milliseconds since the epoch, UTC.
    pub since_ms: u64,
    /// When the question is cancelled if nobody has answered: milliseconds since the epoch, UTC.
    pub expires_ms: u64,
}

/// What a server asks the user for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WantedAnswer {
    /// An object that this JSON Schema accepts.
    Value(ValueSchema),
    /// That the user opens this URL. The answer is an empty object.
    Visit(String),
}

/// Why a question of a server was not answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerQuestionError {
    /// No such question waits.
    #[error(
        "question {0} of a tool server does not wait: it was answered, has expired, or its call has \
         ended. `pending()` lists what waits"
    )]
    Closed(u64),
    /// The value does not match the schema of the question, which waits on.
    #[error("question {id} was not answered: {reason}")]
    Invalid {
        /// The question.
        id: u64,
        /// What the schema demands.
        reason: String,
    },
}

/// The open questions of one kernel, and the client that its tool servers see.
pub(crate) struct ServerQuestions {
    expires_after: Duration,
    events: broadcast::WeakSender<Event>,
    open: Mutex<OpenQuestions>,
}

#[derive(Default)]
struct OpenQuestions {
    last_id: u64,
    by_id: BTreeMap<u64, OpenQuestion>,
}

struct OpenQuestion {
    question: ServerQuestion,
    answer: oneshot::Sender<Value>,
}

impl ServerQuestions {
    /// Questions expire after `expires_after`.
    pub(crate) fn new(expires_after: Duration, events: &broadcast::Sender<Event>) -> Self {
        Self {
            expires_after,
            events: events.downgrade(),
            open: Mutex::default(),
        }
    }

    /// The open questions, in the order in which they came.
    pub(crate) fn list(&self) -> Vec<ServerQuestion> {
        let open = self.open();
        let questions = open.by_id.values().map(|open| open.question.clone());
        questions.collect()
    }

    /// Answers a question with a value that its schema accepts.
    pub(crate) fn accept(&self, id: u64, content: Value) -> Result<(), ServerQuestionError> {
        let mut open = self.open();
        let Some(asked) = open.by_id.get(&id) else {
            return Err(ServerQuestionError::Closed(id));
        };
        let answer = match &asked.question.wanted {
            WantedAnswer::Visit(_) => json!({ "action": "accept" }),
            WantedAnswer::Value(schema) => {
                schema.check(&content).map_err(|violations| {
                    let reasons: Vec<_> = violations.iter().map(ToString::to_string).collect();
                    ServerQuestionError::Invalid {
                        id,
                        reason: reasons.join("; "),
                    }
                })?;
                json!({ "action": "accept", "content": content })
            }
        };
        open.answer(id, answer)
    }

    /// Tells the server that the user declines to answer.
    pub(crate) fn decline(&self, id: u64) -> Result<(), ServerQuestionError> {
        self.open().answer(id, json!({ "action": "decline" }))
    }

    fn open(&self) -> MutexGuard<'_, OpenQuestions> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, event: Event) {
        if let Some(events) = self.events.upgrade() {
            // Without a subscriber the event is of no use to anybody.
            let _ = events.send(event);
        }
    }

    /// Opens a question, and returns what its answer comes from.
    fn ask(&self, server: &Arc<str>, text: String, wanted: WantedAnswer) -> Asked {
        let since_ms = now_ms();
        let expires_in = u64::try_from(self.expires_after.as_millis()).unwrap_or(u64::MAX);
        let (answer, answered) = oneshot::channel();
        let mut open = self.open();
        open.last_id += 1;
        let question = ServerQuestion {
            id: open.last_id,
            server: server.clone(),
            text,
            wanted,
            since_ms,
            expires_ms: since_ms.saturating_add(expires_in),
        };
        let id = question.id;
        let asked = OpenQuestion {
            question: question.clone(),
            answer,
        };
        open.by_id.insert(id, asked);
        drop(open);
        self.publish(Event::ServerAsks { question });
        Asked { id, answered }
    }
}

impl OpenQuestions {
    fn answer(&mut self, id: u64, answer: Value) -> Result<(), ServerQuestionError> {
        let asked = self.by_id.remove(&id);
        let sent = asked.map(|asked| asked.answer.send(answer));
        match sent {
            Some(Ok(())) => Ok(()),
            // The call has ended in this moment.
            Some(Err(_)) | None => Err(ServerQuestionError::Closed(id)),
        }
    }
}

struct Asked {
    id: u64,
    answered: oneshot::Receiver<Value>,
}

/// Removes a question when its request ends: answered, expired, or cancelled by the server, which
/// drops the future of the request.
struct RemoveWhenDropped {
    questions: Arc<ServerQuestions>,
    id: u64,
}

impl Drop for RemoveWhenDropped {
    fn drop(&mut self) {
        self.questions.open().by_id.remove(&self.id);
        self.questions
            .publish(Event::ServerQuestionClosed { id: self.id });
    }
}

/// The client that tool servers see in a kernel whose host answers questions.
pub(crate) struct AnsweringClient(pub(crate) Arc<ServerQuestions>);

impl ServerClient for AnsweringClient {
    fn capabilities(&self) -> Value {
        json!({ "elicitation": { "form": {}, "url": {} } })
    }

    fn request(
        &self,
        server: &Arc<str>,
        method: &str,
        params: Value,
    ) -> BoxFuture<'static, ServerAnswer> {
        if method != "elicitation/create" {
            return std::future::ready(Err(ServerRequestError::unknown_method(method))).boxed();
        }
        let (text, wanted) = match parse_question(params) {
            Ok(question) => question,
            Err(error) => return std::future::ready(Err(error)).boxed(),
        };
        let questions = self.0.clone();
        let Asked { id, answered } = questions.ask(server, text, wanted);
        let expires_after = questions.expires_after;
        let open = RemoveWhenDropped { questions, id };
        async move {
            let answer = tokio::time::timeout(expires_after, answered).await;
            drop(open);
            Ok(match answer {
                Ok(Ok(answer)) => answer,
                // Nobody answered in time, or the kernel is closing.
                Ok(Err(_)) | Err(_) => json!({ "action": "cancel" }),
            })
        }
        .boxed()
    }

    fn notify(&self, _server: &Arc<str>, _method: &str, _params: Value) {}
}

fn parse_question(mut params: Value) -> Result<(String, WantedAnswer), ServerRequestError> {
    let text = params["message"].as_str().unwrap_or_default().to_owned();
    let wanted = match params["url"].as_str() {
        Some(url) => WantedAnswer::Visit(url.to_owned()),
        None => {
            let schema = ValueSchema::parse(params["requestedSchema"].take());
            WantedAnswer::Value(schema.map_err(|error| invalid_params(error.to_string()))?)
        }
    };
    Ok((text, wanted))
}

fn invalid_params(message: String) -> ServerRequestError {
    const INVALID_PARAMS: i32 = -32602;
    ServerRequestError::Refused {
        code: INVALID_PARAMS,
        message,
        data: None,
    }
}
