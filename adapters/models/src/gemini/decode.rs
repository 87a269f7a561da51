//! Decodes complete replies of the Gemini API, and the parts that streamed replies share with them.
//!
//! Every part keeps its original JSON text; texts and function calls are decoded in addition. A
//! part of an unknown type becomes an opaque block, and is never dropped.

use dormouse_proto::message::{Block, Raw};
use dormouse_proto::model::{ModelError, ModelErrorKind, Reply, StopReason, Usage};
use dormouse_proto::text::truncate;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::metadata::Metadata;
use super::partial_calls::{self, IncompleteCall};
use super::{FORMAT, names};
use crate::wire::excerpt::{beginning, malformed, malformed_in};
use crate::wire::failure;
use crate::wire::json_fields::Fields;

/// A complete response, or one event of a stream.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    #[serde(default)]
    pub(super) candidates: Vec<Candidate>,
    pub(super) prompt_feedback: Option<Feedback>,
    pub(super) usage_metadata: Option<UsageFields>,
    pub(super) response_id: Option<String>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate {
    #[serde(default)]
    pub(super) index: u64,
    #[serde(default)]
    pub(super) content: Option<Content>,
    pub(super) finish_reason: Option<String>,
    pub(super) finish_message: Option<String>,
    pub(super) grounding_metadata: Option<Box<RawValue>>,
    pub(super) url_context_metadata: Option<Box<RawValue>>,
    pub(super) citation_metadata: Option<Box<RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Content {
    #[serde(default)]
    pub(super) parts: Vec<Box<RawValue>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Feedback {
    block_reason: Option<String>,
    block_reason_message: Option<String>,
}

/// Decodes a complete response or an event.
///
/// # Errors
/// The text is not a response, or it reports an error of the provider.
pub(super) fn decode_response(json: &str) -> Result<Answer, ModelError> {
    let body: Answer = serde_json::from_str(json).map_err(|error| {
        failure::from_event(json).unwrap_or_else(|| malformed_in("reply", json, &error))
    })?;
    match body.error {
        Some(error) => Err(failure::from_error_object(&error)),
        None => Ok(body),
    }
}

/// Decodes a complete reply.
pub(super) fn decode_reply(json: &str) -> Result<Reply, ModelError> {
    let body = decode_response(json)?;
    if let Some(error) = body.prompt_feedback.as_ref().and_then(blocked_prompt_error) {
        return Err(error);
    }
    let candidate = body
        .candidates
        .into_iter()
        .find(|candidate| candidate.index == 0);
    let Some((candidate, reason)) =
        candidate.and_then(|mut found| found.finish_reason.take().map(|why| (found, why)))
    else {
        return Err(malformed(format!(
            "the reply has no finish reason: {}",
            beginning(json)
        )));
    };
    let metadata = Metadata::default().or_of(&candidate);
    let parts: Vec<_> = candidate
        .content
        .unwrap_or_default()
        .parts
        .iter()
        .map(|part| part.get().to_owned())
        .collect();
    let end = ReplyEnd {
        reason,
        message: candidate.finish_message,
        response_id: body.response_id,
        metadata,
    };
    build_reply(&parts, &end, body.usage_metadata.unwrap_or_default().into())
}

/// What a response says next to its parts.
#[derive(Clone, Debug)]
pub(super) struct ReplyEnd {
    /// Why the model stopped: a word of the provider.
    pub(super) reason: String,
    /// The provider's explanation of the reason.
    pub(super) message: Option<String>,
    pub(super) response_id: Option<String>,
    pub(super) metadata: Metadata,
}

/// The error if the provider blocked the prompt.
pub(super) fn blocked_prompt_error(feedback: &Feedback) -> Option<ModelError> {
    let reason = feedback.block_reason.as_deref()?;
    let message = feedback.block_reason_message.as_deref().unwrap_or_default();
    let message = truncate(&format!("the prompt was blocked: {reason} {message}"), 500);
    Some(ModelError::new(
        ModelErrorKind::ContentRefused,
        message.trim_end(),
    ))
}

/// Builds a reply from its parts.
pub(super) fn build_reply(
    parts: &[String],
    end: &ReplyEnd,
    usage: Usage,
) -> Result<Reply, ModelError> {
    let why = end.message.as_deref().unwrap_or_default();
    // The model failed to write a valid call, so the other parts may not be a valid reply.
    if let word @ ("MALFORMED_FUNCTION_CALL" | "MALFORMED_RESPONSE" | "UNEXPECTED_TOOL_CALL") =
        end.reason.as_str()
    {
        return Err(failure::sampling_failed(word, why));
    }
    let incomplete = match end.reason.as_str() {
        "STOP" | "FUNCTION_CALL" => IncompleteCall::Refused,
        _ => IncompleteCall::Kept,
    };
    let response_id = end.response_id.as_deref().unwrap_or_default();
    // These are parts still, in which each call is whole.
    let blocks = partial_calls::join(parts, incomplete)?;
    let blocks = blocks
        .iter()
        .enumerate()
        .filter_map(|(index, part)| decode_part(part, response_id, index).transpose());
    let mut blocks = blocks.collect::<Result<Vec<_>, _>>()?;
    end.metadata.attach_to(&mut blocks);
    end.metadata.sources().append_to(&mut blocks);
    let has_calls = blocks
        .iter()
        .any(|block| matches!(block, Block::ToolUse { .. }));
    let stop = match end.reason.as_str() {
        // FUNCTION_CALL is used by compatible servers.
        "STOP" | "FUNCTION_CALL" if has_calls => StopReason::ToolUse,
        "STOP" => StopReason::EndTurn,
        "MAX_TOKENS" => StopReason::MaxTokens,
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "MODEL_ARMOR" => StopReason::Refusal,
        // An unknown reason is an error, since a guess could end a process that is not done.
        other => {
            return Err(malformed(format!(
                "the model stopped as '{}': {}",
                beginning(other),
                truncate(why, 500)
            )));
        }
    };
    Ok(Reply {
        blocks,
        stop,
        usage,
    })
}

#[derive(Deserialize)]
struct Call {
    id: Option<String>,
    name: Option<String>,
    args: Option<Box<RawValue>>,
}

/// Decodes the part with this index. None if the part is empty.
fn decode_part(json: &str, response_id: &str, index: usize) -> Result<Option<Block>, ModelError> {
    let fields: Fields =
        serde_json::from_str(json).map_err(|error| malformed_in("part", json, &error))?;
    let raw = Raw::new(FORMAT, json);
    let is_thought = fields
        .get("thought")
        .is_some_and(|thought| thought.get() == "true");
    if let Some(call) = fields.get("functionCall") {
        let call: Call =
            serde_json::from_str(call.get()).map_err(|error| malformed_in("call", json, &error))?;
        let name = call
            .name
            .ok_or_else(|| malformed(format!("a call has no 'name': {}", beginning(json))))?;
        let id = call
            .id
            .filter(|id| !id.is_empty())
            .unwrap_or_else(|| names::generated_call_id(response_id, index));
        let args = call
            .args
            .filter(|args| args.get() != "null")
            .map_or("{}".to_owned(), |args| args.get().to_owned());
        return Ok(Some(Block::ToolUse {
            id: id.into(),
            name: name.into(),
            args: args.into(),
            raw: Some(raw),
        }));
    }
    Ok(match fields.text("text") {
        Some(text) if text.is_empty() && fields.len() == 1 => None,
        Some(text) if !is_thought && !text.is_empty() => Some(Block::Text {
            text: text.into(),
            raw: Some(raw),
        }),
        _ => Some(Block::Opaque(raw)),
    })
}

/// Token counts. The prompt tokens include those from a cache; the candidate tokens do not include
/// thoughts.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsageFields {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

impl UsageFields {
    /// Copies the counts that are present. In a stream each count is cumulative, and an absent
    /// count has not changed.
    pub(super) fn update(&mut self, reported: Self) {
        let fields = [
            (&mut self.prompt_token_count, reported.prompt_token_count),
            (
                &mut self.tool_use_prompt_token_count,
                reported.tool_use_prompt_token_count,
            ),
            (
                &mut self.cached_content_token_count,
                reported.cached_content_token_count,
            ),
            (
                &mut self.candidates_token_count,
                reported.candidates_token_count,
            ),
            (
                &mut self.thoughts_token_count,
                reported.thoughts_token_count,
            ),
        ];
        for (count, reported) in fields {
            *count = reported.or(*count);
        }
    }
}

impl From<UsageFields> for Usage {
    fn from(fields: UsageFields) -> Self {
        let count = |field: Option<u64>| field.unwrap_or_default();
        let cache_read_tokens = count(fields.cached_content_token_count);
        let thinking_tokens = count(fields.thoughts_token_count);
        let input = count(fields.prompt_token_count).saturating_sub(cache_read_tokens);
        Self {
            input_tokens: input.saturating_add(count(fields.tool_use_prompt_token_count)),
            output_tokens: count(fields.candidates_token_count).saturating_add(thinking_tokens),
            thinking_tokens,
            cache_read_tokens,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(parts: &str, stop: &str) -> Result<Reply, ModelError> {
        decode_reply(&format!(
            r#"{{"responseId":"r","candidates":[{{"index":0,"content":{{"role":"model","parts":[{parts}]}},"finishReason":"{stop}","finishMessage":"why"}}]}}"#
        ))
    }

    #[test]
    fn every_finish_reason_is_decoded_and_an_unknown_one_is_refused() {
        let cases = [
            ("STOP", Some(StopReason::EndTurn)),
            ("MAX_TOKENS", Some(StopReason::MaxTokens)),
            ("SAFETY", Some(StopReason::Refusal)),
            ("RECITATION", Some(StopReason::Refusal)),
            ("BLOCKLIST", Some(StopReason::Refusal)),
            ("PROHIBITED_CONTENT", Some(StopReason::Refusal)),
            ("SPII", Some(StopReason::Refusal)),
            ("MALFORMED_FUNCTION_CALL", None),
            ("OTHER", None),
        ];
        for (word, stop) in cases {
            let found = reply(r#"{"text":"x"}"#, word);
            assert!(
                stop.is_some()
                    || found
                        .as_ref()
                        .is_err_and(|error| error.message.contains("why")),
                "{found:?}"
            );
            assert_eq!(found.ok().map(|reply| reply.stop), stop, "{word}");
        }
    }

    #[test]
    fn failed_sampling_is_a_transient_error() {
        for word in [
            "MALFORMED_FUNCTION_CALL",
            "MALFORMED_RESPONSE",
            "UNEXPECTED_TOOL_CALL",
        ] {
            let error = reply(r#"{"functionCall":{}}"#, word).unwrap_err();
            assert!(
                error.is_transient() && error.message.contains(word),
                "{error}"
            );
            assert!(error.message.ends_with("why"), "{error}");
        }
        assert!(
            !reply(r#"{"text":"x"}"#, "OTHER")
                .unwrap_err()
                .is_transient()
        );
    }

    #[test]
    fn parts_are_decoded_and_keep_their_original_text() {
        let parts = [
            r#"{"text":"hm","thought":true}"#,
            r#"{"text":"so",  "thoughtSignature":"s=="}"#,
            r#"{"functionCall":{"name":"ls","args":{"n": 1.10}},"thoughtSignature":"t=="}"#,
            r#"{"functionCall":{"name":"cd","id":"c1","args":null}}"#,
            r#"{"functionCall":{"name":"ls"}}"#,
            r#"{"executableCode":{"code":"1"}}"#,
            r#"{"text":"","thoughtSignature":"u=="}"#,
        ];
        let found = reply(&parts.join(","), "STOP").unwrap();
        let raws = found.blocks.iter().map(|block| match block {
            Block::Text { raw: Some(raw), .. }
            | Block::ToolUse { raw: Some(raw), .. }
            | Block::Opaque(raw) => &*raw.json,
            other => panic!("{other:?}"),
        });
        assert_eq!(raws.collect::<Vec<_>>(), parts);
        let uses = found.blocks.iter().filter_map(|block| match block {
            Block::ToolUse { id, name, args, .. } => Some((&**id, &**name, &**args)),
            _ => None,
        });
        let expected = [
            ("unnamed_call_r_2", "ls", "{\"n\": 1.10}"),
            ("c1", "cd", "{}"),
            ("unnamed_call_r_4", "ls", "{}"),
        ];
        assert_eq!(uses.collect::<Vec<_>>(), expected);
        assert_eq!(found.stop, StopReason::ToolUse);
        assert!(reply(r#"{"text":""}"#, "STOP").unwrap().blocks.is_empty());
    }

    #[test]
    fn a_blocked_prompt_is_refused_content_and_an_invalid_reply_is_malformed() {
        let blocked =
            r#"{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{}}"#;
        assert_eq!(
            decode_reply(blocked).unwrap_err().kind,
            ModelErrorKind::ContentRefused
        );
        let failed = r#"{"error":{"code":503,"status":"UNAVAILABLE","message":"later"}}"#;
        assert_eq!(
            decode_reply(failed).unwrap_err().kind,
            ModelErrorKind::Overloaded
        );
        for json in [
            "",
            "<html>",
            "{}",
            "[]",
            r#"{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}"#,
        ] {
            assert_eq!(
                decode_reply(json).unwrap_err().kind,
                ModelErrorKind::Malformed,
                "{json}"
            );
        }
        assert_eq!(
            reply(r#"{"functionCall":{"args":{}}}"#, "STOP")
                .unwrap_err()
                .kind,
            ModelErrorKind::Malformed
        );
    }
}
