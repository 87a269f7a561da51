//! Typed results: a process whose program or parent asks for a result ends its turn by calling the
//! tool `submit_result` with a value that the result schema accepts.
//!
//! A value that the schema does not accept, and a reply that ends the turn without a result, are
//! failed attempts. The model is told what is wrong. After the last attempt the turn ends as
//! [`ExitStatus::InvalidResult`]. Each turn has all attempts again.
//!
//! The schema is part of the tools of the process (`toolbox.rs` adds `submit_result` to them). The
//! result is the argument [`VALUE`] of its call.

use std::sync::Arc;

use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::message::{Block, Message};
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::provider_tools::{ProviderTools, ToolForm};
use dormouse_proto::record::{Caller, ResultProgress, TurnFact};
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;
use serde_json::Value;

use super::decide::Draft;
use super::offered_tool::{Imitation, escape_schema};
use super::toolbox::{HostContext, ResultTool, with_result_tool};
use super::{Image, PendingSpawn, State};
use crate::tool::Refusal;
use dormouse_program::{Program, VALUE, ValueSchema, Violation};

/// How much of the last refusal the message of a failed turn quotes, in characters.
const QUOTED_CHARS: usize = 1_000;

/// Why a submitted value is not the result of the process. The model reads it.
#[derive(Debug, thiserror::Error)]
enum ResultError {
    #[error("This process has no result schema.")]
    NoSchema,
    #[error("The arguments are not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    #[error("{}", describe_violations(_0))]
    Schema(Vec<Violation>),
}

/// Asks a new process for a result of this schema, in place of that of its program.
pub(super) fn require_result(
    image: &mut Image,
    program: &Program,
    host: &HostContext,
    schema: &ValueSchema,
) {
    image.tools = with_result_tool(&image.tools, program, host.kernel_tools, schema);
}

/// Escapes the descriptions in a result schema for the model of the child. The parent's model wrote
/// the schema and may quote others.
///
/// # Errors
/// A name or a value in the schema imitates the kernel. Altered, it could not be submitted.
pub(super) fn with_shown_result_schema(
    mut pending: PendingSpawn,
    parent: Pid,
) -> Result<PendingSpawn, Refusal> {
    let Some(schema) = &pending.result_schema else {
        return Ok(pending);
    };
    let written: Arc<str> = schema.json().to_string().into();
    let shown = escape_schema(&written, &format!("process:{parent}")).map_err(|Imitation| {
        "Nothing was started: a name or a value in 'result_schema' looks like a word of the kernel. \
         Choose another."
            .to_owned()
    })?;
    if shown != written {
        let shown = serde_json::from_str(&shown).expect("it was made of JSON");
        let parsed = ValueSchema::parse(shown).map_err(|error| error.to_string())?;
        pending.result_schema = Some(parsed);
    }
    Ok(pending)
}

impl Draft {
    pub(super) fn submit_result(&mut self, call: CallId) {
        if self.caller() == Caller::Host {
            let refusal = "Only the model of the process submits its result.";
            return self.answer_in_full(call, Answer::failed(refusal));
        }
        let args = self.pending_call(call).args.clone();
        let answer = match self.check_result(&args) {
            Ok(value) => {
                let value = value.to_string().into();
                self.emit(TurnFact::ResultSubmitted { value });
                Answer::shown("The result was accepted.")
            }
            Err(error) => {
                self.emit(TurnFact::ResultRefused);
                let attempts = self.describe_attempts();
                Answer::failed(format!(
                    "The result was not accepted ({attempts}).\n{error}"
                ))
            }
        };
        self.answer_in_full(call, answer);
    }

    /// The submitted value.
    fn check_result(&self, args: &str) -> Result<Value, ResultError> {
        let Some(ResultTool { arguments, .. }) = self.state.toolbox.result_tool() else {
            return Err(ResultError::NoSchema);
        };
        let mut args: Value = serde_json::from_str(args)?;
        if let Err(violations) = arguments.check(&args) {
            // Models also send the JSON of the value as a string.
            let Some(decoded) = decode_value(&args).filter(|args| arguments.check(args).is_ok())
            else {
                return Err(ResultError::Schema(violations));
            };
            args = decoded;
        }
        Ok(args[VALUE].take())
    }

    fn describe_attempts(&self) -> String {
        let failed = self.state.result.failed_attempts;
        let limit = self.state.program.result().attempts;
        format!("attempt {failed} of {limit}")
    }

    /// Handles a reply that ends the turn. Returns whether the process has to submit a result: the
    /// model is then told that one is due, or the turn ends.
    pub(super) fn request_result(&mut self) -> bool {
        let Some(ResultTool { name, .. }) = self.state.toolbox.result_tool() else {
            return false;
        };
        let attempt = self.state.result.failed_attempts + 1;
        let limit = self.state.program.result().attempts;
        if attempt >= limit {
            let reply = quote(&self.state.last_reply());
            let message = format!("{} The last reply: {reply}", self.invalid_result_message());
            self.end_turn(ExitStatus::InvalidResult, message);
            return true;
        }
        let text = format!(
            "Your reply ended without a result (attempt {attempt} of {limit}). Call {name} with \
             the result."
        );
        let element = Element::new("result_due").text(text);
        let message = Arc::new(Message::user(element.to_xml()));
        self.emit(TurnFact::ResultRequested { message });
        self.call_model();
        true
    }

    /// Ends the turn if its result was submitted or all attempts failed. Returns whether it ended.
    pub(super) fn end_turn_with_result(&mut self) -> bool {
        let ResultProgress {
            failed_attempts,
            value,
        } = &self.state.result;
        if let Some(value) = value {
            self.finish_turn(Exit::with_result(value.clone()));
        } else if *failed_attempts >= self.state.program.result().attempts {
            let refusal = quote(&self.state.last_refusal());
            let message = format!("{} {refusal}", self.invalid_result_message());
            self.end_turn(ExitStatus::InvalidResult, message);
        } else {
            return false;
        }
        true
    }

    fn invalid_result_message(&self) -> String {
        let limit = self.state.program.result().attempts;
        format!(
            "the process submitted no result that its schema accepts, in {limit} attempts \
             (result.attempts)."
        )
    }
}

impl State {
    /// The text of the last failed tool call in the last message.
    fn last_refusal(&self) -> String {
        let blocks = self.messages.last().map(|message| &message.blocks);
        let mut refusals = blocks
            .into_iter()
            .flatten()
            .filter_map(|block| match block {
                Block::ToolResult {
                    text,
                    is_error: true,
                    ..
                } => Some(text.to_string()),
                _ => None,
            });
        refusals.next_back().unwrap_or_default()
    }

    /// The tools that the provider runs, and the forms in which requests present the others. The
    /// form of the tool that submits the result asks the provider to enforce its schema, if it can.
    pub(super) fn provider_tools(&self) -> Arc<ProviderTools> {
        let mut tools = self.program.provider_tools(self.model());
        for tool in self.toolbox.external() {
            if let Some(server) = &tool.server
                && let Some(form) = self.program.served_form(self.model(), server, &tool.name)
            {
                let forms = &mut Arc::make_mut(&mut tools).forms;
                forms.insert(tool.name_for_model.to_string(), form);
            }
        }
        let result_tool = self.toolbox.result_tool();
        let Some(ResultTool { name, .. }) = result_tool
            .filter(|tool| self.program.result().strict && tools.form(&tool.name).is_none())
        else {
            return tools;
        };
        let mut tools = ProviderTools::clone(&tools);
        let form = ToolForm {
            strict_if_expressible: true,
            ..ToolForm::default()
        };
        tools.forms.insert(name.to_string(), form);
        Arc::new(tools)
    }
}

/// The arguments with the value that their string holds as JSON text.
fn decode_value(args: &Value) -> Option<Value> {
    let value: Value = serde_json::from_str(args[VALUE].as_str()?).ok()?;
    let mut decoded = args.clone();
    decoded[VALUE] = value;
    Some(decoded)
}

/// The violations as a list. Places are relative to the result.
fn describe_violations(violations: &[Violation]) -> String {
    let root = format!("/{VALUE}");
    let mut lines: Vec<_> = violations
        .iter()
        .map(|Violation { at, message }| match at.strip_prefix(&root) {
            Some("") => format!("- the result: {message}"),
            Some(at) => format!("- {at}: {message}"),
            None => format!("- the arguments: {message}"),
        })
        .collect();
    lines.push("Correct it and submit it again.".to_owned());
    lines.join("\n")
}

fn quote(text: &str) -> String {
    text.chars().take(QUOTED_CHARS).collect()
}
