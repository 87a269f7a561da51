//! Decodes complete replies of the Responses API, and the parts that streamed replies share with
//! them.
//!
//! Every item keeps its original JSON text; messages and function calls are decoded in addition.
//! An item of an unknown type becomes an opaque block, and is never dropped.

use dormouse_proto::message::{Block, Raw};
use dormouse_proto::model::{ModelError, Reply, StopReason, Usage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::FORMAT;
use crate::wire::excerpt::{beginning, malformed, malformed_in};
use crate::wire::failure;
use crate::wire::json_fields::{Fields, input_args, is_object, to_raw};
use crate::wire::sources::Sources;
use crate::wire::usage::{Counts, Details};

/// A complete response, or the one in the last event of a stream.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Response {
    #[serde(default)]
    pub(super) output: Vec<Box<RawValue>>,
    status: Option<String>,
    incomplete_details: Option<Incomplete>,
    error: Option<Value>,
    usage: Option<UsageFields>,
}

impl Response {
    /// Whether the reply is complete, not truncated.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.status.as_deref(), Some("completed") | None)
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Incomplete {
    reason: Option<String>,
}

/// Decodes a complete reply.
pub(super) fn decode_reply(json: &str) -> Result<Reply, ModelError> {
    let response: Response =
        serde_json::from_str(json).map_err(|error| malformed_in("reply", json, &error))?;
    let items = response
        .output
        .iter()
        .map(|item| item.get().to_owned())
        .collect();
    build_reply(items, response)
}

/// Builds a reply from its items and the fields next to them.
pub(super) fn build_reply(items: Vec<String>, response: Response) -> Result<Reply, ModelError> {
    if let Some(error) = response.error {
        return Err(failure::from_error_object(&error));
    }
    let items: Vec<_> = items
        .iter()
        .map(|json| decode_item(json))
        .collect::<Result<_, _>>()?;
    let is_refusal = items
        .iter()
        .any(|item| item.message_kind == MessageKind::Refusal);
    let mut blocks: Vec<_> = items.into_iter().map(|item| item.block).collect();
    sources(&blocks).append_to(&mut blocks);
    let has_calls = blocks
        .iter()
        .any(|block| matches!(block, Block::ToolUse { .. }));
    let reason = response
        .incomplete_details
        .and_then(|details| details.reason);
    let stop = match (response.status.as_deref(), reason.as_deref()) {
        // Compatible servers may leave the status out.
        (Some("completed") | None, _) if has_calls => StopReason::ToolUse,
        (Some("completed") | None, _) if is_refusal => StopReason::Refusal,
        (Some("completed"), _) => StopReason::EndTurn,
        (None, _) if !blocks.is_empty() => StopReason::EndTurn,
        (Some("incomplete"), Some("max_output_tokens" | "max_tokens")) => StopReason::MaxTokens,
        (Some("incomplete"), Some("content_filter")) => StopReason::Refusal,
        (status, reason) => return Err(unknown_status(status, reason)),
    };
    Ok(Reply {
        blocks,
        stop,
        usage: response.usage.unwrap_or_default().into(),
    })
}

/// The sources that the messages of a reply cite.
pub(super) fn sources(blocks: &[Block]) -> Sources {
    let mut sources = Sources::default();
    for block in blocks {
        if let Block::Text { raw: Some(raw), .. } = block
            && raw.json.contains("\"annotations\"")
        {
            let json: Value = serde_json::from_str(&raw.json).unwrap_or_default();
            for part in json["content"].as_array().into_iter().flatten() {
                sources.add_citations(&part["annotations"]);
            }
        }
    }
    sources
}

/// The error for a status or a reason that is not known. A guess could end a process that is not
/// done, or run truncated tool calls.
fn unknown_status(status: Option<&str>, reason: Option<&str>) -> ModelError {
    let [status, reason] = [status, reason].map(|word| beginning(word.unwrap_or("none")));
    malformed(format!(
        "the reply is not complete, and the reason is not known: status '{status}', reason \
         '{reason}'"
    ))
}

#[derive(Deserialize)]
struct Item {
    r#type: Option<String>,
    #[serde(default)]
    content: Value,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    /// The text that a custom tool takes.
    input: Option<String>,
}

/// What a message of the model contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    Answer,
    Refusal,
}

struct DecodedItem {
    block: Block,
    message_kind: MessageKind,
}

fn decode_item(json: &str) -> Result<DecodedItem, ModelError> {
    let item: Item =
        serde_json::from_str(json).map_err(|error| malformed_in("item", json, &error))?;
    let raw = Raw::new(FORMAT, json);
    let required = |field: Option<String>, name: &str| {
        field.ok_or_else(|| {
            malformed(format!(
                "a function call has no '{name}': {}",
                beginning(json)
            ))
        })
    };
    let mut message_kind = MessageKind::Answer;
    let block = match item.r#type.as_deref() {
        Some("message") => {
            let parts = item
                .content
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            if parts.iter().any(|part| part["type"] == "refusal") {
                message_kind = MessageKind::Refusal;
            }
            let text: String = parts
                .iter()
                .filter_map(|part| part["text"].as_str().or(part["refusal"].as_str()))
                .collect();
            Block::Text {
                text: text.into(),
                raw: Some(raw),
            }
        }
        Some("function_call") => {
            let args = item
                .arguments
                .filter(|args| !args.trim().is_empty())
                .unwrap_or_else(|| "{}".to_owned());
            let (id, name) = (
                required(item.call_id, "call_id")?,
                required(item.name, "name")?,
            );
            let raw = if is_object(&args) {
                raw
            } else {
                Raw::new(raw.format, repaired_call(json)?)
            };
            Block::ToolUse {
                id: id.into(),
                name: name.into(),
                args: args.into(),
                raw: Some(raw),
            }
        }
        Some("custom_tool_call") => Block::ToolUse {
            id: required(item.call_id, "call_id")?.into(),
            name: required(item.name, "name")?.into(),
            args: input_args(&item.input.unwrap_or_default()).into(),
            raw: Some(raw),
        },
        Some(_) => Block::Opaque(raw),
        None => {
            return Err(malformed(format!(
                "an item has no 'type': {}",
                beginning(json)
            )));
        }
    };
    Ok(DecodedItem {
        block,
        message_kind,
    })
}

/// The item of a call whose arguments are not an object, with empty arguments instead, which the
/// provider accepts.
fn repaired_call(json: &str) -> Result<String, ModelError> {
    let mut call: Fields =
        serde_json::from_str(json).map_err(|error| malformed_in("item", json, &error))?;
    call.set("arguments", to_raw("{}"));
    Ok(call.to_json())
}

/// Token counts in this format.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct UsageFields {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    total_tokens: Option<u64>,
    input_tokens_details: Option<Details>,
    output_tokens_details: Option<Details>,
}

impl From<UsageFields> for Usage {
    fn from(fields: UsageFields) -> Self {
        let counts = Counts {
            input: fields.input_tokens,
            output: fields.output_tokens,
            total: fields.total_tokens,
            input_details: fields.input_tokens_details,
            output_details: fields.output_tokens_details,
        };
        counts.into()
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::model::ModelErrorKind;

    use super::*;

    const SAID: &str = r#"{"id":"m","type":"message","role":"assistant","content":[{"type":"output_text","text":"a"},{"type":"output_text","text":"b"}]}"#;
    const CALL: &str = r#"{"id":"f","type":"function_call","call_id":"c","name":"ls","arguments":"{\"n\": 1.10}"}"#;
    const REFUSED: &str =
        r#"{"type":"message","content":[{"type":"refusal","refusal":"I cannot."}]}"#;

    fn reply(items: &[&str], rest: &str) -> Result<Reply, ModelError> {
        decode_reply(&format!(r#"{{"output":[{}],{rest}}}"#, items.join(",")))
    }

    #[test]
    fn every_status_is_decoded_and_an_unknown_one_is_refused() {
        let incomplete = |reason: &str| {
            format!(r#""status":"incomplete","incomplete_details":{{"reason":"{reason}"}}"#)
        };
        let cases: [(&[&str], String, Option<StopReason>); 9] = [
            (
                &[SAID],
                r#""status":"completed""#.into(),
                Some(StopReason::EndTurn),
            ),
            (
                &[SAID, CALL],
                r#""status":"completed""#.into(),
                Some(StopReason::ToolUse),
            ),
            (
                &[REFUSED],
                r#""status":"completed""#.into(),
                Some(StopReason::Refusal),
            ),
            (
                &[CALL],
                incomplete("max_output_tokens"),
                Some(StopReason::MaxTokens),
            ),
            (
                &[SAID],
                incomplete("content_filter"),
                Some(StopReason::Refusal),
            ),
            (&[SAID], incomplete("sleepy"), None),
            (&[SAID], r#""status":"in_progress""#.into(), None),
            (
                &[SAID],
                r#""object":"response""#.into(),
                Some(StopReason::EndTurn),
            ),
            (&[], r#""object":"response""#.into(), None),
        ];
        for (items, rest, stop) in cases {
            assert_eq!(
                reply(items, &rest).ok().map(|reply| reply.stop),
                stop,
                "{items:?} {rest}"
            );
        }
    }

    #[test]
    fn items_are_decoded_and_keep_their_original_text() {
        let reasoning = r#"{"id":"r", "type":"reasoning","summary":[],"encrypted_content":"x=="}"#;
        let new = r#"{"kind":1,"type":"not_yet_invented"}"#;
        let found = reply(&[reasoning, SAID, CALL, new], r#""status":"completed""#).unwrap();
        let raws = found.blocks.iter().map(|block| match block {
            Block::Text { raw: Some(raw), .. }
            | Block::ToolUse { raw: Some(raw), .. }
            | Block::Opaque(raw) => &*raw.json,
            other => panic!("{other:?}"),
        });
        assert_eq!(raws.collect::<Vec<_>>(), [reasoning, SAID, CALL, new]);
        assert!(matches!(&found.blocks[1], Block::Text { text, .. } if **text == *"ab"));
        let Block::ToolUse { id, name, args, .. } = &found.blocks[2] else {
            panic!("{found:?}")
        };
        assert_eq!((&**id, &**name, &**args), ("c", "ls", "{\"n\": 1.10}"));
    }

    #[test]
    fn invalid_arguments_reach_the_kernel_and_are_not_sent_back() {
        let cut = r#"{"id":"f","type":"function_call","call_id":"c","name":"ls","arguments":"{\"n\": ","status":"x"}"#;
        let found = reply(&[cut], r#""status":"completed""#).unwrap();
        let [
            Block::ToolUse {
                args,
                raw: Some(raw),
                ..
            },
        ] = &found.blocks[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!(&**args, "{\"n\": ");
        assert_eq!(
            &*raw.json,
            r#"{"id":"f","type":"function_call","call_id":"c","name":"ls","arguments":"{}","status":"x"}"#
        );
    }

    #[test]
    fn a_reported_failure_is_classified_and_an_invalid_reply_is_malformed() {
        let failed = reply(
            &[],
            r#""status":"failed","error":{"code":"server_error","message":"oops"}"#,
        )
        .unwrap_err();
        assert_eq!(failed.kind, ModelErrorKind::Transport);
        for json in [
            "",
            "<html>",
            "{}",
            r#"{"output":[{"id":1}],"status":"completed"}"#,
        ] {
            assert_eq!(
                decode_reply(json).unwrap_err().kind,
                ModelErrorKind::Malformed,
                "{json}"
            );
        }
        let nameless = r#"{"type":"function_call","call_id":"c","arguments":"{}"}"#;
        assert!(
            reply(&[nameless], r#""status":"completed""#)
                .unwrap_err()
                .message
                .contains("'name'")
        );
    }
}
