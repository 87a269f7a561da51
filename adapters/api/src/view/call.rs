//! What waits for a person: held calls, and questions of tool servers.

use dormouse_actors::handle::PendingCalls;
use dormouse_actors::{HeldCall, ServerQuestion, WantedAnswer};
use dormouse_kernel::program::ValueSchema;
use dormouse_proto::record::HoldReason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A held call, as `dormouse pending --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallView {
    /// The call, such as `3/0.7`.
    pub call: String,
    /// Its process.
    pub pid: u64,
    /// The tool, as the model calls it.
    pub tool: String,
    /// The arguments: JSON text.
    pub args: String,
    /// The rule of the program that holds it.
    pub rule: Option<String>,
    /// The question, if it asks one.
    pub question: Option<QuestionView>,
    /// The effect that it repeats, if it is held for that.
    pub repeats: Option<RepeatsView>,
    /// Whether it waits for the choice of its branch, which is no verdict on the call.
    pub speculative: bool,
    /// Since when it waits: milliseconds since the epoch, UTC.
    pub since_ms: u64,
    /// When it is refused if nobody has answered: milliseconds since the epoch, UTC.
    pub expires_ms: Option<u64>,
}

/// A question of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionView {
    /// The text, as the model wrote it.
    pub text: String,
    /// The answers to choose from; any, if empty.
    pub choices: Vec<String>,
    /// The JSON Schema of the answer.
    pub schema: Option<Value>,
}

/// The effect that a call repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepeatsView {
    /// The call that ran before; `null` if it is not known.
    pub call: Option<String>,
    /// Its answer.
    pub answer: Option<String>,
}

impl From<&HeldCall> for CallView {
    fn from(call: &HeldCall) -> Self {
        let (mut rule, mut repeats) = (None, None);
        match &call.reason {
            HoldReason::Rule { rule: name } => rule = Some(name.to_string()),
            HoldReason::Repeats { effect } => {
                let effect = effect.as_ref();
                repeats = Some(RepeatsView {
                    call: effect.map(|effect| effect.call.to_string()),
                    answer: effect.and_then(|effect| effect.answer.as_deref().map(str::to_owned)),
                });
            }
            HoldReason::Question | HoldReason::Speculation => {}
        }
        let question = call.question.as_ref().map(|question| QuestionView {
            text: question.text.to_string(),
            choices: question.choices.iter().map(ToString::to_string).collect(),
            schema: question
                .schema
                .as_ref()
                .map(ValueSchema::json)
                .map(|schema| serde_json::json!(schema)),
        });
        Self {
            call: call.id.to_string(),
            pid: call.id.pid.0,
            tool: call.tool.to_string(),
            args: call.args.to_string(),
            rule,
            question,
            repeats,
            speculative: matches!(call.reason, HoldReason::Speculation),
            since_ms: call.since_ms,
            expires_ms: call.expires_ms,
        }
    }
}

/// A question of a tool server, whose call waits for the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerQuestionView {
    /// The number of the question.
    pub question: u64,
    /// The server that asks.
    pub server: String,
    /// The text, as the server wrote it. It is not trusted: show who asks.
    pub text: String,
    /// What it asks for.
    pub wanted: WantedView,
    /// Since when it waits: milliseconds since the epoch, UTC.
    pub since_ms: u64,
    /// When it is cancelled if nobody has answered: milliseconds since the epoch, UTC.
    pub expires_ms: u64,
}

/// What a tool server asks for: a value with a schema, or a visit of an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WantedView {
    /// The JSON Schema of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The address to open. The answer is an empty object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl From<&ServerQuestion> for ServerQuestionView {
    fn from(question: &ServerQuestion) -> Self {
        let wanted = match &question.wanted {
            WantedAnswer::Value(schema) => WantedView {
                schema: Some(serde_json::json!(schema.json())),
                url: None,
            },
            WantedAnswer::Visit(url) => WantedView {
                schema: None,
                url: Some(url.clone()),
            },
            _ => WantedView::default(),
        };
        Self {
            question: question.id,
            server: question.server.to_string(),
            text: question.text.clone(),
            wanted,
            since_ms: question.since_ms,
            expires_ms: question.expires_ms,
        }
    }
}

/// Everything that waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PendingView {
    /// The held calls, sorted by process.
    pub calls: Vec<CallView>,
    /// The questions of tool servers.
    pub server_questions: Vec<ServerQuestionView>,
    /// Processes whose journals cannot be read: calls of theirs may be held.
    pub unreadable: Vec<UnreadableView>,
}

/// A process whose journal cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreadableView {
    /// The process.
    pub pid: u64,
    /// Why.
    pub reason: String,
}

impl From<&PendingCalls> for PendingView {
    fn from(pending: &PendingCalls) -> Self {
        let unreadable = pending.unreadable.iter();
        Self {
            calls: pending.calls.iter().map(CallView::from).collect(),
            server_questions: pending
                .server_questions
                .iter()
                .map(ServerQuestionView::from)
                .collect(),
            unreadable: unreadable
                .map(|(pid, reason)| UnreadableView {
                    pid: pid.0,
                    reason: reason.clone(),
                })
                .collect(),
        }
    }
}
