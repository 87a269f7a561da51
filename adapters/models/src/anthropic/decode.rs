//! Decodes complete replies of the Messages API, and the parts that streamed replies share with
//! them.
//!
//! Every block keeps its original JSON text; texts and tool uses are decoded in addition. A block
//! of an unknown type becomes an opaque block, and is never dropped.

use dormouse_proto::message::{Block, Raw};
use dormouse_proto::model::{ModelError, Reply, StopReason, Usage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::FORMAT;
use super::container::{self, Container};
use crate::wire::excerpt::{beginning, malformed, malformed_in};
use crate::wire::failure;
use crate::wire::json_fields::Fields;
use crate::wire::sources::Sources;

#[derive(Deserialize)]
struct ReplyBody {
    content: Option<Vec<Box<RawValue>>>,
    stop_reason: Option<String>,
    #[serde(default)]
    usage: UsageFields,
    #[serde(default, deserialize_with = "container::lenient")]
    container: Option<Container>,
    error: Option<serde_json::Value>,
}

/// Decodes a complete reply.
pub(super) fn decode_message(json: &str) -> Result<Reply, ModelError> {
    let body: ReplyBody =
        serde_json::from_str(json).map_err(|error| malformed_in("reply", json, &error))?;
    if let Some(error) = body.error {
        return Err(failure::from_error_object(&error));
    }
    let content = body
        .content
        .ok_or_else(|| malformed("the reply has no 'content'"))?;
    let blocks = content
        .iter()
        .map(|block| decode_block(block.get()))
        .collect::<Result<_, _>>()?;
    let mut usage = Usage::default();
    body.usage.update(&mut usage);
    build_reply(blocks, body.stop_reason.as_deref(), usage, body.container)
}

/// Builds a reply from its parts.
pub(super) fn build_reply(
    mut blocks: Vec<Block>,
    stop: Option<&str>,
    usage: Usage,
    container: Option<Container>,
) -> Result<Reply, ModelError> {
    sources(&blocks).append_to(&mut blocks);
    let stop = match stop_reason(stop)? {
        // Some servers report the normal end of a turn although the model calls tools.
        StopReason::EndTurn
            if blocks
                .iter()
                .any(|block| matches!(block, Block::ToolUse { .. })) =>
        {
            StopReason::ToolUse
        }
        stop => stop,
    };
    blocks.extend(container.and_then(Container::into_block));
    Ok(Reply {
        blocks,
        stop,
        usage,
    })
}

/// The sources that the texts of a reply cite.
pub(super) fn sources(blocks: &[Block]) -> Sources {
    let mut sources = Sources::default();
    for block in blocks {
        if let Block::Text { raw: Some(raw), .. } = block
            && raw.json.contains("\"citations\"")
        {
            let json: Value = serde_json::from_str(&raw.json).unwrap_or_default();
            sources.add_citations(&json["citations"]);
        }
    }
    sources
}

/// Decodes one block of a reply.
pub(super) fn decode_block(json: &str) -> Result<Block, ModelError> {
    let fields: Fields =
        serde_json::from_str(json).map_err(|error| malformed_in("block", json, &error))?;
    let args = fields
        .get("input")
        .map_or_else(|| "{}".to_owned(), |input| input.get().to_owned());
    block_of(&fields, json, args)
}

/// The block with these fields, whose JSON text is `json`. `args` are the arguments of a tool use.
pub(super) fn block_of(fields: &Fields, json: &str, args: String) -> Result<Block, ModelError> {
    let raw = Raw::new(FORMAT, json);
    let kind = fields
        .text("type")
        .ok_or_else(|| malformed(format!("a block has no 'type': {}", beginning(json))))?;
    let required = |name: &str| {
        let missing = || {
            malformed(format!(
                "a block of type '{kind}' has no '{name}': {}",
                beginning(json)
            ))
        };
        fields.text(name).ok_or_else(missing)
    };
    Ok(match kind.as_str() {
        "text" => Block::Text {
            text: required("text")?.into(),
            raw: Some(raw),
        },
        "tool_use" => Block::ToolUse {
            id: required("id")?.into(),
            name: required("name")?.into(),
            args: args.into(),
            raw: Some(raw),
        },
        _ => Block::Opaque(raw),
    })
}

fn stop_reason(word: Option<&str>) -> Result<StopReason, ModelError> {
    Ok(match word {
        Some("end_turn") => StopReason::EndTurn,
        Some("tool_use") => StopReason::ToolUse,
        Some("max_tokens") => StopReason::MaxTokens,
        Some("stop_sequence") => StopReason::StopSequence,
        Some("pause_turn") => StopReason::Pause,
        Some("refusal") => StopReason::Refusal,
        Some("model_context_window_exceeded") => StopReason::ContextWindow,
        // An unknown reason is an error, since a guess could end a process that is not done, or run
        // truncated tool calls.
        Some(other) => {
            return Err(malformed(format!(
                "the stop reason '{}' is not known",
                beginning(other)
            )));
        }
        None => return Err(malformed("the reply is complete but has no stop reason")),
    })
}

/// Token counts. In a stream each count is cumulative, and an absent count has not changed.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct UsageFields {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct OutputDetails {
    thinking_tokens: Option<u64>,
}

impl UsageFields {
    /// Copies the counts that are present. Counts are cumulative, so a zero after another count
    /// comes from a server that does not count there.
    pub(super) fn update(&self, usage: &mut Usage) {
        let fields = [
            (&mut usage.input_tokens, self.input_tokens),
            (&mut usage.output_tokens, self.output_tokens),
            (
                &mut usage.thinking_tokens,
                self.output_tokens_details
                    .unwrap_or_default()
                    .thinking_tokens,
            ),
            (&mut usage.cache_read_tokens, self.cache_read_input_tokens),
            (
                &mut usage.cache_write_tokens,
                self.cache_creation_input_tokens,
            ),
        ];
        for (count, reported) in fields {
            *count = reported.filter(|reported| *reported > 0).unwrap_or(*count);
        }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::model::ModelErrorKind;

    use super::*;

    fn whole(content: &str, stop: &str) -> String {
        format!(
            r#"{{"type": "message", "role": "assistant", "content": {content}, "stop_reason": {stop}, "new": 1}}"#
        )
    }

    #[test]
    fn every_stop_reason_is_decoded_and_an_unknown_one_is_refused() {
        let cases = [
            ("\"end_turn\"", Some(StopReason::EndTurn)),
            ("\"tool_use\"", Some(StopReason::ToolUse)),
            ("\"max_tokens\"", Some(StopReason::MaxTokens)),
            ("\"stop_sequence\"", Some(StopReason::StopSequence)),
            ("\"pause_turn\"", Some(StopReason::Pause)),
            ("\"refusal\"", Some(StopReason::Refusal)),
            (
                "\"model_context_window_exceeded\"",
                Some(StopReason::ContextWindow),
            ),
            ("\"sleepy\"", None),
            ("null", None),
        ];
        for (word, stop) in cases {
            assert_eq!(
                super::decode_message(&whole("[]", word))
                    .ok()
                    .map(|reply| reply.stop),
                stop,
                "{word}"
            );
        }
    }

    #[test]
    fn blocks_are_decoded_and_keep_their_original_text() {
        let blocks = [
            r#"{"type":"text",  "text":"a\u00e9","citations":null}"#,
            r#"{"type":"tool_use","id":"t1","name":"ls","input":{"n": 1.10, "b":2},"caller":{"type":"direct"}}"#,
            r#"{"type":"thinking","thinking":"hm","signature":"s=="}"#,
            r#"{"kind":1,"type":"not_yet_invented"}"#,
        ];
        let reply =
            super::decode_message(&whole(&format!("[{}]", blocks.join(",")), "\"end_turn\""))
                .unwrap();
        let raws = reply.blocks.iter().map(|block| match block {
            Block::Text { raw: Some(raw), .. }
            | Block::ToolUse { raw: Some(raw), .. }
            | Block::Opaque(raw) => &*raw.json,
            other => panic!("{other:?}"),
        });
        assert_eq!(raws.collect::<Vec<_>>(), blocks);
        assert!(matches!(&reply.blocks[0], Block::Text { text, .. } if **text == *"aé"));
        assert!(
            matches!(&reply.blocks[1], Block::ToolUse { args, .. } if **args == *r#"{"n": 1.10, "b":2}"#)
        );
        assert_eq!(
            reply.stop,
            StopReason::ToolUse,
            "tools are asked for, whatever the server calls it"
        );
    }

    #[test]
    fn an_invalid_reply_is_malformed_and_quoted() {
        let cases = [
            ("", "EOF"),
            ("<html>bad gateway</html>", "bad gateway"),
            ("{}", "content"),
            (&whole(r#"[{"text":"x"}]"#, "\"end_turn\""), "'type'"),
            (&whole(r#"[{"type":"text"}]"#, "\"end_turn\""), "'text'"),
            (
                &whole(
                    r#"[{"type":"tool_use","name":"a","input":{}}]"#,
                    "\"tool_use\"",
                ),
                "'id'",
            ),
            (&whole("[7]", "\"end_turn\""), "JSON object"),
        ];
        for (json, part) in cases {
            let error = super::decode_message(json).unwrap_err();
            assert_eq!(error.kind, ModelErrorKind::Malformed);
            assert!(error.message.contains(part), "{part:?} is not in: {error}");
        }
    }
}
