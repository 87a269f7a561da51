//! Decodes complete replies of the Chat Completions API, and the parts that streamed replies share
//! with them.
//!
//! A complete reply goes through [`decode_completion`]. A streamed one is put together first
//! (`stream.rs`): its message as JSON text, its stop reason and its counts. Both then call
//! [`stop_reason`], which fails if sampling failed, and [`build_reply`], which makes the blocks.
//!
//! The first block keeps the message itself (`raw`), byte for byte, since that is what is sent back
//! in later requests. Servers refuse a call without an id, or with arguments that are no object; so
//! a message that has one is kept in a repaired form ([`repaired_message`]), in which all fields
//! that are not replaced keep their bytes ([`Fields`]). A call without an id gets one that is
//! derived from the reply and its [`Origin`], the id and time that the server gave it. The sources
//! that the reply cites ([`Cited`]) are appended to the text of its block as a list, which is not
//! sent back, since the message itself is.

use dormouse_proto::message::{Block, Raw};
use dormouse_proto::model::{ModelError, ModelErrorKind, Reply, StopReason, Usage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::FORMAT;
use super::cited::Cited;
use super::generated_ids::{GeneratedIds, Origin};
use crate::wire::excerpt::{beginning, malformed, malformed_in};
use crate::wire::failure;
use crate::wire::json_fields::{Fields, input_args, is_object, to_raw};
use crate::wire::usage::{Counts, Details};

#[derive(Deserialize)]
struct ReplyBody {
    id: Option<Value>,
    created: Option<Value>,
    choices: Option<Vec<Choice>>,
    usage: Option<UsageFields>,
    citations: Option<Value>,
    search_results: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    message: Option<Box<RawValue>>,
    finish_reason: Option<String>,
    error: Option<Value>,
}

/// Decodes a complete reply.
pub(super) fn decode_completion(json: &str) -> Result<Reply, ModelError> {
    let body: ReplyBody =
        serde_json::from_str(json).map_err(|error| malformed_in("reply", json, &error))?;
    if let Some(error) = body.error {
        return Err(failure::from_error_object(&error));
    }
    let choice = body.choices.unwrap_or_default().into_iter().next();
    let choice = choice.ok_or_else(|| malformed("the reply has no choice"))?;
    if let Some(error) = choice.error {
        return Err(failure::from_error_object(&error));
    }
    let stop = stop_reason(choice.finish_reason.as_deref())?;
    let message = choice
        .message
        .ok_or_else(|| malformed("the reply has no message"))?;
    let origin = Origin {
        id: body.id,
        created: body.created,
    };
    let cited = Cited::new(body.citations, body.search_results);
    let usage = body.usage.unwrap_or_default();
    build_reply(message.get(), stop, usage, &origin, &cited)
}

/// The fields of a message that are decoded.
#[derive(Deserialize)]
struct Message {
    content: Option<Value>,
    refusal: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    tool_calls: Vec<Call>,
}

#[derive(Deserialize)]
pub(super) struct Call {
    #[serde(default)]
    id: Option<String>,
    function: Option<Function>,
    custom: Option<Custom>,
}

impl Call {
    /// The function and its arguments.
    pub(super) fn function_call(&self) -> Option<(&str, Option<&Value>)> {
        self.function
            .as_ref()
            .map(|function| (function.name.as_str(), function.arguments.as_ref()))
    }

    /// Whether servers accept the arguments in the next request.
    fn has_valid_args(&self) -> bool {
        let Some(function) = &self.function else {
            return true;
        };
        function.arguments.as_ref().is_some_and(holds_object)
    }
}

/// Whether arguments are an object: as a text, or, as some servers send them, the object itself.
fn holds_object(args: &Value) -> bool {
    match args {
        Value::String(text) => is_object(text),
        args => args.is_object(),
    }
}

/// The call of a tool that takes a text.
#[derive(Deserialize)]
struct Custom {
    name: String,
    #[serde(default)]
    input: String,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: Option<Value>,
}

/// Deserializes a field that may be null, which counts as absent.
pub(super) fn null_as_default<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// Builds a reply from its message and the fields next to it.
pub(super) fn build_reply(
    json: &str,
    stop: StopReason,
    usage: UsageFields,
    origin: &Origin,
    cited: &Cited,
) -> Result<Reply, ModelError> {
    let message: Message =
        serde_json::from_str(json).map_err(|error| malformed_in("message", json, &error))?;
    let refusal = message.refusal.filter(|refusal| !refusal.is_empty());
    let content = message.content.as_ref().map(content_text);
    let texts = [content, refusal.clone()].into_iter().flatten();
    let texts: Vec<_> = texts.filter(|text| !text.is_empty()).collect();
    let text = texts.join("\n\n");
    let generated_ids = GeneratedIds::for_reply(origin, &text, &message.tool_calls);
    let mut blocks = Vec::new();
    if !text.is_empty() {
        blocks.push(Block::Text {
            text: text.into(),
            raw: None,
        });
    }
    let lacks_id = |call: &Call| call.id.as_deref().is_none_or(str::is_empty);
    let is_refused = |call: &Call| lacks_id(call) || !call.has_valid_args();
    let needs_repair = message.tool_calls.iter().any(is_refused);
    for (index, call) in message.tool_calls.into_iter().enumerate() {
        blocks.push(tool_use(index, call, json, &generated_ids)?);
    }
    if needs_repair {
        attach_original(&mut blocks, &repaired_message(json, &generated_ids)?);
    } else {
        attach_original(&mut blocks, json);
    }
    cited.sources(json).append_to(&mut blocks);
    let has_calls = blocks
        .iter()
        .any(|block| matches!(block, Block::ToolUse { .. }));
    let stop = match stop {
        // Some servers report the normal end of a turn although the model calls tools.
        StopReason::EndTurn if has_calls => StopReason::ToolUse,
        StopReason::ToolUse if !has_calls => StopReason::EndTurn,
        StopReason::EndTurn if refusal.is_some() => StopReason::Refusal,
        stop => stop,
    };
    Ok(Reply {
        blocks,
        stop,
        usage: usage.into(),
    })
}

/// Attaches the message that is sent back, the original or its repaired form, to the first block,
/// if that can hold it; otherwise adds a block for it. A message with nothing but a role is
/// dropped.
fn attach_original(blocks: &mut Vec<Block>, json: &str) {
    let original = Raw::new(FORMAT, json);
    match blocks.first_mut() {
        Some(Block::Text { raw, .. } | Block::ToolUse { raw, .. }) => *raw = Some(original),
        _ if is_empty_message(json) => {}
        _ => blocks.push(Block::Opaque(original)),
    }
}

/// The message in a form that servers accept in the next request. A call whose arguments are
/// absent, or neither an object nor a text of one, gets empty arguments, and a call without an id
/// gets the generated id that its result will also have.
fn repaired_message(json: &str, generated_ids: &GeneratedIds) -> Result<String, ModelError> {
    let object = |json: &str| {
        serde_json::from_str::<Fields>(json).map_err(|error| malformed_in("message", json, &error))
    };
    let mut message = object(json)?;
    let calls = message.get("tool_calls").map_or("[]", RawValue::get);
    let mut calls: Vec<Fields> =
        serde_json::from_str(calls).map_err(|error| malformed_in("message", json, &error))?;
    for (index, call) in calls.iter_mut().enumerate() {
        if call.text("id").is_none_or(|id| id.is_empty()) {
            call.set("id", to_raw(&generated_ids.call_id(index)));
        }
        let Some(function) = call.get("function") else {
            continue;
        };
        let mut function = object(function.get())?;
        let args = function.get("arguments").map(RawValue::get);
        let args = args.and_then(|args| serde_json::from_str(args).ok());
        if !args.as_ref().is_some_and(holds_object) {
            function.set("arguments", to_raw("{}"));
            call.set("function", to_raw(&function));
        }
    }
    message.set("tool_calls", to_raw(&calls));
    Ok(message.to_json())
}

/// Whether a message has nothing but a role. Servers refuse such a message, so it is not sent back.
fn is_empty_message(json: &str) -> bool {
    let fields: Fields = serde_json::from_str(json).unwrap_or_default();
    let is_empty = |json: &str| matches!(json, "null" | "\"\"" | "[]" | "{}");
    fields
        .iter()
        .all(|(name, value)| name == "role" || is_empty(value.get()))
}

/// The text of the field `content`, which is a text or a list of parts.
pub(super) fn content_text(content: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match content {
        Value::Array(parts) => parts.iter().map(|part| text(&part["text"])).collect(),
        content => text(content),
    }
}

/// The thinking in the field `content`, if it is a list of parts.
pub(super) fn content_thinking(content: &Value) -> String {
    content
        .as_array()
        .into_iter()
        .flatten()
        .map(|part| content_text(&part["thinking"]))
        .collect()
}

fn tool_use(
    index: usize,
    call: Call,
    json: &str,
    generated_ids: &GeneratedIds,
) -> Result<Block, ModelError> {
    let id = call
        .id
        .filter(|id| !id.is_empty())
        .unwrap_or_else(|| generated_ids.call_id(index));
    if let Some(custom) = call.custom.filter(|custom| !custom.name.is_empty()) {
        return Ok(Block::ToolUse {
            id: id.into(),
            name: custom.name.into(),
            args: input_args(&custom.input).into(),
            raw: None,
        });
    }
    let function = call.function.filter(|function| !function.name.is_empty());
    let function = function.ok_or_else(|| {
        malformed(format!(
            "a tool call names no function: {}",
            beginning(json)
        ))
    })?;
    // Some servers send the object itself instead of its text.
    let args = match function.arguments {
        Some(Value::String(text)) if text.trim().is_empty() => "{}".to_owned(),
        Some(Value::String(text)) => text,
        Some(Value::Null) | None => "{}".to_owned(),
        Some(object) => object.to_string(),
    };
    Ok(Block::ToolUse {
        id: id.into(),
        name: function.name.into(),
        args: args.into(),
        raw: None,
    })
}

/// Why the model stopped. Callers check it before they decode the message: after a failure there
/// may be no valid one.
pub(super) fn stop_reason(word: Option<&str>) -> Result<StopReason, ModelError> {
    Ok(match word {
        Some("stop" | "eos" | "eos_token" | "stop_sequence" | "end_turn") => StopReason::EndTurn,
        Some("tool_calls" | "function_call") => StopReason::ToolUse,
        Some("length" | "max_tokens") => StopReason::MaxTokens,
        Some("content_filter") => StopReason::Refusal,
        Some(word @ "insufficient_system_resource") => {
            return Err(ModelError::new(
                ModelErrorKind::Overloaded,
                format!("the server stopped the model: {word}"),
            ));
        }
        Some(word) if word == "error" || word.starts_with("function_call_filter") => {
            return Err(failure::sampling_failed(word, ""));
        }
        // An unknown reason is an error, since a guess could end a process that is not done, or run
        // truncated tool calls.
        Some(other) => {
            return Err(malformed(format!(
                "the finish reason '{}' is not known",
                beginning(other)
            )));
        }
        None => return Err(malformed("the reply is complete but has no finish reason")),
    })
}

/// Token counts in this format.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct UsageFields {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    completion_tokens_details: Option<Details>,
}

impl From<UsageFields> for Usage {
    fn from(fields: UsageFields) -> Self {
        let counts = Counts {
            input: fields.prompt_tokens,
            output: fields.completion_tokens,
            total: fields.total_tokens,
            input_details: fields.prompt_tokens_details,
            output_details: fields.completion_tokens_details,
        };
        counts.into()
    }
}

#[cfg(test)]
mod tests;
