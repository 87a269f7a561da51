//! Decodes complete replies of the Chat Completions API, and the parts that streamed replies share
//! with them.

use dormouse_proto::message::{Block, Raw};
use dormouse_proto::model::{ModelError, ModelErrorKind, Reply, StopReason, Usage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::FORMAT;
use super::generated_ids::{GeneratedIds, Origin};
use crate::wire::excerpt::{beginning, malformed, malformed_in};
use crate::wire::failure;
use crate::wire::json_fields::{Fields, input_args, is_object, to_raw};
use crate::wire::sources::Sources;
use crate::wire::usage::{Counts, Details};

#[derive(Deserialize)]
struct ReplyBody {
    id: Option<Value>,
    created: Option<Value>,
    choices: Option<Vec<Choice>>,
    usage: Option<UsageFields>,
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
    build_reply(message.get(), stop, body.usage.unwrap_or_default(), &origin)
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
) -> Result<Reply, ModelError> {
    let message: Message =
        serde_json::from_str(json).map_err(|error| malformed_in("message", json, &error))?;
    let refusal = message.refusal.filter(|refusal| !refusal.is_empty());
    let text = message
        .content
        .as_ref()
        .map(content_text)
        .unwrap_or_default()
        + refusal.as_deref().unwrap_or_default();
    let generated_ids = GeneratedIds::for_reply(origin, &text, &message.tool_calls);
    let mut blocks = Vec::new();
    if !text.is_empty() {
        blocks.push(Block::Text {
            text: text.into(),
            raw: None,
        });
    }
    let lacks_id = |call: &Call| call.id.as_deref().is_none_or(str::is_empty);
    let any_lacks_id = message.tool_calls.iter().any(lacks_id);
    for (index, call) in message.tool_calls.into_iter().enumerate() {
        blocks.push(tool_use(index, call, json, &generated_ids)?);
    }
    let has_invalid_args =
        |block: &Block| matches!(block, Block::ToolUse { args, .. } if !is_object(args));
    if any_lacks_id || blocks.iter().any(has_invalid_args) {
        attach_original(&mut blocks, &repaired_message(json, &generated_ids)?);
    } else {
        attach_original(&mut blocks, json);
    }
    sources(json).append_to(&mut blocks);
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

/// The sources that a message cites.
pub(super) fn sources(message: &str) -> Sources {
    let mut sources = Sources::default();
    if message.contains("\"annotations\"") {
        let message: Value = serde_json::from_str(message).unwrap_or_default();
        sources.add_citations(&message["annotations"]);
    }
    sources
}

/// Attaches the original message to the first block.
fn attach_original(blocks: &mut Vec<Block>, json: &str) {
    let original = Raw::new(FORMAT, json);
    match blocks.first_mut() {
        Some(Block::Text { raw, .. } | Block::ToolUse { raw, .. }) => *raw = Some(original),
        _ if is_empty_message(json) => {}
        _ => blocks.push(Block::Opaque(original)),
    }
}

/// The message in a form that servers accept in the next request. A call whose arguments are not an
/// object gets empty arguments, and a call without an id gets the generated id that its result will
/// also have.
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
        if function
            .text("arguments")
            .is_some_and(|args| !is_object(&args))
        {
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
            "a call is of no function by name: {}",
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

/// Why the model stopped. This is checked before the message, since there may be no valid message
/// if sampling failed.
pub(super) fn stop_reason(word: Option<&str>) -> Result<StopReason, ModelError> {
    Ok(match word {
        Some("stop" | "eos" | "eos_token" | "stop_sequence" | "end_turn") => StopReason::EndTurn,
        Some("tool_calls" | "function_call") => StopReason::ToolUse,
        Some("length" | "max_tokens") => StopReason::MaxTokens,
        Some("content_filter") => StopReason::Refusal,
        Some(word @ "insufficient_system_resource") => {
            return Err(ModelError::new(
                ModelErrorKind::Overloaded,
                format!("the model stopped as '{word}'"),
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
mod tests {
    use serde_json::json;

    use super::*;

    fn reply(message: &str, stop: &str) -> Result<Reply, ModelError> {
        decode_completion(&format!(
            r#"{{"choices":[{{"index":0,"message":{message},"finish_reason":{stop}}}],"usage":null}}"#
        ))
    }

    #[test]
    fn every_finish_reason_is_decoded_and_an_unknown_one_is_refused() {
        let cases = [
            ("\"stop\"", Some(StopReason::EndTurn)),
            ("\"length\"", Some(StopReason::MaxTokens)),
            ("\"content_filter\"", Some(StopReason::Refusal)),
            ("\"tool_calls\"", Some(StopReason::EndTurn)),
            ("\"eos_token\"", Some(StopReason::EndTurn)),
            ("\"stop_sequence\"", Some(StopReason::EndTurn)),
            ("\"sleepy\"", None),
            ("null", None),
        ];
        for (word, stop) in cases {
            let found =
                reply(r#"{"role":"assistant","content":"x"}"#, word).map(|reply| reply.stop);
            assert_eq!(found.ok(), stop, "{word}");
        }
        let refused = reply(
            r#"{"role":"assistant","content":null,"refusal":"I cannot."}"#,
            "\"stop\"",
        )
        .unwrap();
        assert_eq!(refused.stop, StopReason::Refusal);
        assert!(
            matches!(&refused.blocks[..], [Block::Text { text, .. }] if **text == *"I cannot.")
        );
    }

    #[test]
    fn failed_sampling_is_a_transient_error() {
        let cases = [
            ("error", ModelErrorKind::CutStream),
            (
                "function_call_filter: MALFORMED_FUNCTION_CALL",
                ModelErrorKind::CutStream,
            ),
            ("insufficient_system_resource", ModelErrorKind::Overloaded),
        ];
        for (word, kind) in cases {
            let nameless = r#"{"role":"assistant","tool_calls":[{"id":"a"}]}"#;
            for message in ["null", r#"{"role":"assistant","content":"x"}"#, nameless] {
                let error = reply(message, &format!("\"{word}\"")).unwrap_err();
                assert_eq!((error.kind, error.is_transient()), (kind, true), "{error}");
                assert!(error.message.contains(word), "{error}");
            }
        }
    }

    #[test]
    fn the_first_block_keeps_the_original_message() {
        let call = r#"{"index":0,"id":"c1","type":"function","function":{"name":"ls","arguments":"{\"n\": 1.10}"}}"#;
        let bare = r#"{"id":"c2","function":{"name":"cd","arguments":{"to":"x"}}}"#;
        let message = format!(
            r#"{{"role":"assistant", "reasoning":"hm","content":"so","tool_calls":[{call},{bare}]}}"#
        );
        let found = reply(&message, "\"stop\"").unwrap();
        let [text, ls, cd] = &found.blocks[..] else {
            panic!("{found:?}")
        };
        assert!(
            matches!(text, Block::Text { text, raw: Some(raw) } if **text == *"so" && *raw.json == *message)
        );
        let Block::ToolUse {
            id,
            name,
            args,
            raw: None,
        } = ls
        else {
            panic!("{ls:?}")
        };
        assert_eq!((&**id, &**name, &**args), ("c1", "ls", "{\"n\": 1.10}"));
        assert!(
            matches!(cd, Block::ToolUse { id, args, .. } if **id == *"c2" && **args == *"{\"to\":\"x\"}")
        );
        assert_eq!(
            found.stop,
            StopReason::ToolUse,
            "tools are asked for, whatever the server calls it"
        );
        let thought = reply(
            r#"{"role":"assistant","content":"","reasoning_content":"hm"}"#,
            "\"length\"",
        )
        .unwrap();
        assert!(
            matches!(&thought.blocks[..], [Block::Opaque(_)]),
            "{thought:?}"
        );
        let silent = r#"{"role":"assistant","content":null,"refusal":null,"annotations":[]}"#;
        assert!(reply(silent, "\"stop\"").unwrap().blocks.is_empty());
    }

    #[test]
    fn a_call_without_an_id_is_sent_back_with_the_id_of_its_answer() {
        for id in ["", r#""id":"","#, r#""id":null,"#] {
            let call = format!(
                r#"{{{id}"type":"function","function":{{"name":"ls","arguments":"{{}}"}}}}"#
            );
            let found = reply(
                &format!(r#"{{"role":"assistant","content":"so","tool_calls":[{call}]}}"#),
                "\"stop\"",
            )
            .unwrap();
            let [
                Block::Text { raw: Some(raw), .. },
                Block::ToolUse { id, .. },
            ] = &found.blocks[..]
            else {
                panic!("{found:?}")
            };
            let back: Value = serde_json::from_str(&raw.json).unwrap();
            assert_eq!(
                (id.starts_with("call_"), &back["tool_calls"][0]["id"]),
                (true, &Value::from(&**id))
            );
        }
    }

    #[test]
    fn invalid_arguments_reach_the_kernel_and_are_not_sent_back() {
        let call = |args: &str| {
            format!(
                r#"{{"id":"c","type":"function","function":{{"name":"ls","arguments":{args}}}}}"#
            )
        };
        let message = |cut: &str| {
            format!(
                r#"{{"role":"assistant","tool_calls":[{},{}],"x":1.50}}"#,
                call(r#""{\"n\":1}""#),
                call(cut)
            )
        };
        let found = reply(&message(r#""{\"n\": ""#), "\"length\"").unwrap();
        let [
            Block::ToolUse { raw: Some(raw), .. },
            Block::ToolUse { args, .. },
        ] = &found.blocks[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!(&**args, "{\"n\": ");
        assert_eq!(&*raw.json, message(r#""{}""#));
    }

    #[test]
    fn cached_and_thinking_tokens_are_counted_once() {
        let usage = json!({"prompt_tokens": 100, "completion_tokens": 9, "total_tokens": 109,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
            "completion_tokens_details": {"reasoning_tokens": 5}});
        let fields: UsageFields = serde_json::from_value(usage).unwrap();
        let expected = Usage {
            input_tokens: 10,
            output_tokens: 9,
            thinking_tokens: 5,
            cache_read_tokens: 60,
            cache_write_tokens: 30,
            ..Usage::default()
        };
        assert_eq!(Usage::from(fields), expected);
        let separate = json!({"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 15,
            "completion_tokens_details": {"reasoning_tokens": 3}});
        assert_eq!(
            Usage::from(serde_json::from_value::<UsageFields>(separate).unwrap()).output_tokens,
            5
        );
    }

    #[test]
    fn an_invalid_reply_is_malformed_and_a_reported_failure_is_classified() {
        let nameless = r#"{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"","arguments":""}}]}"#;
        for json in [
            "",
            "<html>",
            "{}",
            r#"{"choices":[]}"#,
            r#"{"choices":[{"finish_reason":"stop"}]}"#,
        ] {
            assert_eq!(
                decode_completion(json).unwrap_err().kind,
                ModelErrorKind::Malformed,
                "{json}"
            );
        }
        assert_eq!(
            reply(nameless, "\"stop\"").unwrap_err().kind,
            ModelErrorKind::Malformed
        );
        let failed = r#"{"error":{"message":"slow down","code":"rate_limit_exceeded"}}"#;
        assert_eq!(
            decode_completion(failed).unwrap_err().kind,
            ModelErrorKind::Overloaded
        );
        let failed = r#"{"choices":[{"message":{"role":"assistant","content":"x"},"finish_reason":"error","error":{"code":429,"message":"slow"}}]}"#;
        assert_eq!(
            decode_completion(failed).unwrap_err().kind,
            ModelErrorKind::Overloaded
        );
    }
}
