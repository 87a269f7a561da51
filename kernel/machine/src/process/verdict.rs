//! What a person decides about a held call, and why that may not apply (`held.rs`).

use std::sync::Arc;

use dormouse_program::{ValueSchema, Violation};
use dormouse_proto::id::{CallId, Pid};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tool::Refusal;

/// What a person decides about a held call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    /// The call runs.
    Approve {
        /// Arguments in place of those of the model, as JSON text; `None` leaves them unchanged.
        args: Option<String>,
    },
    /// The call does not run.
    Refuse {
        /// Why, for the model; may be empty.
        why: String,
    },
    /// The call does not run and gets the recorded answer of the effect that it repeats.
    Recall,
    /// The answer to a question.
    Answer {
        /// The value, as [`Question::check`] accepts it.
        value: Value,
    },
}

/// A question of the model to the person. The tool `ask_user` takes choices or a schema, not both.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The question.
    pub text: String,
    /// The valid answers; empty if the answer is free.
    pub choices: Vec<String>,
    /// The JSON Schema of valid answers, if the model gives one.
    pub schema: Option<ValueSchema>,
}

impl Question {
    /// Checks an answer: it must be one of the choices, if there are any, and match the schema, if
    /// there is one.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn check(&self, value: &Value) -> Result<(), AnswerError> {
        let is_choice = |choice: &String| value.as_str() == Some(choice);
        if !self.choices.is_empty() && !self.choices.iter().any(is_choice) {
            return Err(AnswerError::NoChoice {
                value: value.clone(),
                choices: self.choices.clone(),
            });
        }
        let Some(schema) = &self.schema else {
            let is_blank = value.as_str().is_some_and(|text| text.trim().is_empty());
            return match is_blank {
                true => Err(AnswerError::Empty),
                false => Ok(()),
            };
        };
        schema
            .check(value)
            .map_err(|violations| AnswerError::Schema {
                violations,
                schema: schema.clone(),
            })
    }
}

/// Why the verdict of a person does not apply, and what is valid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum VerdictError {
    /// The process holds no such call.
    #[error(
        "process {pid} holds no call {call}: it was answered before, has expired, or its turn has \
         ended"
    )]
    NotHeld {
        /// The process, by the number that it has within its tree.
        pid: Pid,
        /// The call.
        call: CallId,
    },
    /// The call is a question, which can neither be approved nor be recalled.
    #[error("call {0} is a question: answer it with a value, or refuse it")]
    IsQuestion(CallId),
    /// The call is no question, so it has no answer.
    #[error("call {call} of `{tool}` is no question: approve or refuse it")]
    NoQuestion {
        /// The call.
        call: CallId,
        /// Name of its tool, as given to the model.
        tool: Arc<str>,
    },
    /// The call repeats no known effect, or one whose answer was not recorded.
    #[error("no answer is recorded for call {0}: approve or refuse it")]
    NoRecordedAnswer(CallId),
    /// The call is one of a speculative process, which has to be chosen as a whole.
    #[error(
        "call {0} is one of a speculative branch, and waits until that branch is chosen: choose it \
         (`Process::choose`), or refuse the call"
    )]
    Speculative(CallId),
    /// The arguments of the person are not JSON. The text is that of the parser.
    #[error("the edited arguments are not JSON: {0}")]
    EditNotJson(String),
    /// The arguments of the person are JSON, but no object.
    #[error("the edited arguments must be a JSON object, such as {{\"path\": \"a.txt\"}}")]
    EditNoObject,
    /// The question cannot be read any more.
    #[error(transparent)]
    Question(Refusal),
    /// The process has no tool any more that asks the question.
    #[error("the tool of the question is gone")]
    NoTool,
    /// The value is no answer to the question.
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

/// Why a value is no answer to a question, and what is valid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The value is a text that says nothing, and the question takes any text.
    #[error("the answer is empty: say something, or refuse the question")]
    Empty,
    /// The value is none of the choices.
    #[error("{value} is none of the choices. Valid: {}", quote_all(choices))]
    NoChoice {
        /// The value.
        value: Value,
        /// The choices.
        choices: Vec<String>,
    },
    /// The schema of the question does not accept the value.
    #[error(
        "the value does not match the schema of the question: {}. The schema: {}",
        join_all(violations),
        schema.json()
    )]
    Schema {
        /// The parts that the schema does not accept.
        violations: Vec<Violation>,
        /// The schema.
        schema: ValueSchema,
    },
}

fn quote_all(choices: &[String]) -> String {
    let choices: Vec<_> = choices.iter().map(|choice| format!("{choice:?}")).collect();
    choices.join(", ")
}

fn join_all(violations: &[Violation]) -> String {
    let violations: Vec<_> = violations.iter().map(ToString::to_string).collect();
    violations.join("; ")
}
