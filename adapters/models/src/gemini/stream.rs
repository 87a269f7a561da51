//! Decodes streamed replies of the Gemini API: joins the events into the reply that a complete
//! response would contain.
//!
//! Each event has parts of its own. Consecutive plain texts are joined into one part; a part with a
//! signature, or with an unknown field, stays separate.

use dormouse_proto::model::{Delta, ModelError, Reply};

use super::decode::{self, ReplyEnd, UsageFields};
use super::metadata::Metadata;
use crate::wire::excerpt::{check_count, malformed_in};
use crate::wire::failure;
use crate::wire::json_fields::{Fields, to_raw};
use crate::wire::{Completeness, Decoder};

/// The most parts of a reply. No real reply has so many.
const MAX_PARTS: usize = 1 << 16;

/// Decodes a streamed reply, event by event.
#[derive(Clone, Debug, Default)]
pub struct StreamDecoder {
    parts: Vec<String>,
    /// The kind and the text of the last part, if the next part may continue it.
    open_text: Option<(TextKind, String)>,
    end: Option<ReplyEnd>,
    /// The id of the response, which not every event has to repeat.
    response_id: Option<String>,
    usage: UsageFields,
    metadata: Metadata,
}

/// The kind of text in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextKind {
    Answer,
    Thought,
}

impl Decoder for StreamDecoder {
    fn feed(&mut self, data: &str, deltas: &dyn Fn(Delta)) -> Result<(), ModelError> {
        let body = decode::decode_response(data)?;
        self.usage.update(body.usage_metadata.unwrap_or_default());
        self.response_id = body.response_id.or(self.response_id.take());
        if let Some(error) = body
            .prompt_feedback
            .as_ref()
            .and_then(decode::blocked_prompt_error)
        {
            return Err(error);
        }
        for candidate in body
            .candidates
            .into_iter()
            .filter(|candidate| candidate.index == 0)
        {
            self.metadata = std::mem::take(&mut self.metadata).or_of(&candidate);
            for part in candidate.content.unwrap_or_default().parts {
                self.add_part(part.get(), deltas)?;
            }
            if let Some(reason) = candidate.finish_reason.filter(|reason| is_given(reason)) {
                let end = ReplyEnd {
                    reason,
                    message: candidate.finish_message,
                    response_id: None,
                    metadata: Metadata::default(),
                };
                let is_first = self.end.replace(end).is_none();
                if is_first && let Ok(reply) = self.clone().finish() {
                    self.metadata.sources().report(&reply.blocks, deltas);
                }
            }
        }
        Ok(())
    }

    /// Never [`Completeness::Complete`], since the format does not mark the last event.
    fn completeness(&self) -> Completeness {
        if self.end.is_some() {
            Completeness::Ended
        } else {
            Completeness::Open
        }
    }

    fn finish(mut self) -> Result<Reply, ModelError> {
        self.close_text();
        let mut end = self
            .end
            .ok_or_else(|| failure::cut_stream("the stream ended before its finish reason"))?;
        end.response_id = self.response_id;
        end.metadata = self.metadata;
        decode::build_reply(&self.parts, &end, self.usage.into())
    }
}

/// Whether a finish reason is one: the first word is the default value of the field.
fn is_given(reason: &str) -> bool {
    !matches!(reason, "FINISH_REASON_UNSPECIFIED" | "")
}

impl StreamDecoder {
    fn add_part(&mut self, json: &str, deltas: &dyn Fn(Delta)) -> Result<(), ModelError> {
        let part: Fields =
            serde_json::from_str(json).map_err(|error| malformed_in("part", json, &error))?;
        let kind = if part
            .get("thought")
            .is_some_and(|thought| thought.get() == "true")
        {
            TextKind::Thought
        } else {
            TextKind::Answer
        };
        if let Some(text) = part.text("text").filter(|text| !text.is_empty()) {
            deltas(match kind {
                TextKind::Answer => Delta::Text(text.clone()),
                TextKind::Thought => Delta::Thinking(text.clone()),
            });
            if part
                .iter()
                .all(|(name, _)| matches!(name, "text" | "thought"))
            {
                match &mut self.open_text {
                    Some((open_kind, open)) if *open_kind == kind => open.push_str(&text),
                    _ => {
                        self.close_text();
                        self.open_text = Some((kind, text));
                    }
                }
                return Ok(());
            }
        }
        if let Some(call) = part.get("functionCall") {
            let call: Fields = serde_json::from_str(call.get())
                .map_err(|error| malformed_in("call", json, &error))?;
            // A part without a name continues the arguments of the call before it.
            if let Some(name) = call.text("name") {
                deltas(Delta::ToolUse(name));
            }
        }
        self.close_text();
        self.parts.push(json.to_owned());
        check_count(self.parts.len(), MAX_PARTS, "parts")
    }

    /// Completes the part whose text is still open.
    fn close_text(&mut self) {
        if let Some((kind, text)) = self.open_text.take() {
            let part = Fields::default().with("text", &text);
            let part = if kind == TextKind::Thought {
                part.with("thought", &true)
            } else {
                part
            };
            self.parts.push(to_raw(&part).get().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::message::Block;
    use dormouse_proto::model::ModelErrorKind;

    use super::*;
    use crate::testing::decoded;

    fn event(parts: &str, stop: &str) -> String {
        let stop = if stop.is_empty() {
            String::new()
        } else {
            format!(r#","finishReason":"{stop}""#)
        };
        format!(
            r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}},"index":0{stop}}}],"usageMetadata":{{"promptTokenCount":9,"cachedContentTokenCount":4,"candidatesTokenCount":2,"thoughtsTokenCount":3}}}}"#
        )
    }

    #[test]
    fn plain_texts_are_joined_and_parts_with_other_fields_stay_separate() {
        let events = [
            event(r#"{"text":"h","thought":true}"#, ""),
            event(r#"{"text":"m","thought":true}"#, ""),
            event(r#"{"text":"He"},{"text":"y"}"#, ""),
            event(r#"{"text":"!","thoughtSignature":"s=="}"#, ""),
            event(
                r#"{"functionCall":{"name":"ls","args":{}},"thoughtSignature":"t=="}"#,
                "",
            ),
            event(r#"{"text":""}"#, "STOP"),
        ];
        let events: Vec<_> = events.iter().map(String::as_str).collect();
        let (reply, deltas) = decoded::<StreamDecoder>(&events);
        let reply = reply.unwrap();
        let raws = reply.blocks.iter().map(|block| match block {
            Block::Text { raw: Some(raw), .. }
            | Block::ToolUse { raw: Some(raw), .. }
            | Block::Opaque(raw) => &*raw.json,
            other => panic!("{other:?}"),
        });
        let expected = [
            r#"{"text":"hm","thought":true}"#,
            r#"{"text":"Hey"}"#,
            r#"{"text":"!","thoughtSignature":"s=="}"#,
            r#"{"functionCall":{"name":"ls","args":{}},"thoughtSignature":"t=="}"#,
        ];
        assert_eq!(raws.collect::<Vec<_>>(), expected);
        assert_eq!(deltas.len(), 6, "{deltas:?}");
        let usage = reply.usage;
        assert_eq!((usage.input_tokens, usage.cache_read_tokens), (5, 4));
        assert_eq!((usage.output_tokens, usage.thinking_tokens), (5, 3));
    }

    #[test]
    fn what_earlier_events_say_holds_for_the_reply() {
        let call = r#"{"responseId":"r","candidates":[{"content":{"parts":[{"functionCall":{"name":"ls"}}]},"finishReason":"FINISH_REASON_UNSPECIFIED"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":2}}"#;
        let error = decoded::<StreamDecoder>(&[call]).0.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::CutStream, "{error}");
        let last = r#"{"candidates":[{"finishReason":"STOP","index":0}],"usageMetadata":{"candidatesTokenCount":3}}"#;
        let reply = decoded::<StreamDecoder>(&[call, last]).0.unwrap();
        let usage = reply.usage;
        assert_eq!((usage.input_tokens, usage.output_tokens), (9, 3));
        let Block::ToolUse { id, .. } = &reply.blocks[0] else {
            panic!("a call: {reply:?}")
        };
        assert_eq!(&**id, "unnamed_call_r_0");
    }

    #[test]
    fn a_truncated_or_invalid_stream_fails_with_its_kind() {
        let text = &*event(r#"{"text":"a"}"#, "");
        let failed = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"quota"}}"#;
        let blocked = r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#;
        let malformed = &*event("", "MALFORMED_FUNCTION_CALL");
        let cases: [(&[&str], ModelErrorKind); 6] = [
            (&[], ModelErrorKind::CutStream),
            (&[text], ModelErrorKind::CutStream),
            (&[text, failed], ModelErrorKind::Overloaded),
            (&[blocked], ModelErrorKind::ContentRefused),
            (&[text, malformed], ModelErrorKind::CutStream),
            (&[text, "{oops"], ModelErrorKind::Malformed),
        ];
        for (events, kind) in cases {
            assert_eq!(
                decoded::<StreamDecoder>(events).0.unwrap_err().kind,
                kind,
                "{events:?}"
            );
        }
    }
}
