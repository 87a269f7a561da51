//! Decodes streamed replies of the Chat Completions API: joins the events into the reply that a
//! complete response would contain.
//!
//! A text or a list in a delta is appended to the field of the same name, any other value replaces
//! the field. This also holds for unknown fields. Tool calls have rules of their own
//! (`partial_calls`).

mod partial_calls;
mod partial_object;

use dormouse_proto::model::{Delta, ModelError, Reply};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use self::partial_calls::Calls;
use self::partial_object::PartialObject;
use super::decode::{self, UsageFields};
use super::generated_ids::Origin;
use crate::wire::excerpt::malformed_in;
use crate::wire::failure;
use crate::wire::json_fields::{Fields, as_string, to_raw};
use crate::wire::{Completeness, Decoder};

/// Decodes a streamed reply, event by event.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    message: PartialObject,
    calls: Calls,
    finish_reason: Option<String>,
    usage: Option<UsageFields>,
    origin: Origin,
    is_done: bool,
}

#[derive(Deserialize)]
struct Chunk {
    id: Option<Value>,
    created: Option<Value>,
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<UsageFields>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u64,
    delta: Option<Fields>,
    finish_reason: Option<String>,
    error: Option<Value>,
}

impl Decoder for StreamDecoder {
    fn feed(&mut self, data: &str, deltas: &dyn Fn(Delta)) -> Result<(), ModelError> {
        if data.trim() == "[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        let chunk: Chunk = serde_json::from_str(data).map_err(|error| {
            failure::from_event(data).unwrap_or_else(|| malformed_in("event", data, &error))
        })?;
        if let Some(error) = chunk.error {
            return Err(failure::from_error_object(&error));
        }
        if chunk.choices.is_empty() && chunk.usage.is_none() {
            // A chunk without content may itself be an error object.
            return failure::from_event(data).map_or(Ok(()), Err);
        }
        let Origin { id, created } = std::mem::take(&mut self.origin);
        self.origin = Origin {
            id: id.or(chunk.id),
            created: created.or(chunk.created),
        };
        self.usage = chunk.usage.or(self.usage);
        for choice in chunk.choices.into_iter().filter(|choice| choice.index == 0) {
            if let Some(error) = choice.error {
                return Err(failure::from_error_object(&error));
            }
            if let Some(delta) = choice.delta {
                self.add_delta(&delta, deltas)?;
            }
            self.finish_reason = choice.finish_reason.or(self.finish_reason.take());
        }
        Ok(())
    }

    fn completeness(&self) -> Completeness {
        match (self.is_done, &self.finish_reason) {
            (true, _) => Completeness::Complete,
            (false, Some(_)) => Completeness::Ended,
            (false, None) => Completeness::Open,
        }
    }

    fn finish(self) -> Result<Reply, ModelError> {
        let stop = self
            .finish_reason
            .ok_or_else(|| failure::cut_stream("the stream ended before its finish reason"))?;
        let stop = decode::stop_reason(Some(&stop))?;
        let mut message = self.message.finish();
        message.set("role", to_raw("assistant"));
        let calls = self.calls.finish();
        if !calls.is_empty() {
            message.set("tool_calls", to_raw(&calls));
        }
        decode::build_reply(
            &message.to_json(),
            stop,
            self.usage.unwrap_or_default(),
            &self.origin,
        )
    }
}

impl StreamDecoder {
    fn add_delta(&mut self, delta: &Fields, deltas: &dyn Fn(Delta)) -> Result<(), ModelError> {
        for (name, value) in delta.iter().filter(|(_, value)| value.get() != "null") {
            if name == "tool_calls" {
                self.calls.add_parts(value, deltas)?;
                continue;
            }
            observed_deltas(name, value).into_iter().for_each(deltas);
            self.message.extend(name, value)?;
        }
        Ok(())
    }
}

/// The deltas that a field of an event reports to the observers of the reply.
fn observed_deltas(name: &str, value: &RawValue) -> Vec<Delta> {
    let text = || as_string(value).unwrap_or_default();
    let observed = match name {
        "content" => {
            let content = serde_json::from_str(value.get()).unwrap_or_default();
            vec![
                Delta::Thinking(decode::content_thinking(&content)),
                Delta::Text(decode::content_text(&content)),
            ]
        }
        "refusal" => vec![Delta::Text(text())],
        "reasoning_content" | "reasoning" => vec![Delta::Thinking(text())],
        _ => Vec::new(),
    };
    let is_not_empty = |delta: &Delta| !matches!(delta, Delta::Text(text) | Delta::Thinking(text) if text.is_empty());
    observed.into_iter().filter(is_not_empty).collect()
}

#[cfg(test)]
mod tests {
    use dormouse_proto::message::text_of;
    use dormouse_proto::model::{ModelErrorKind, StopReason};

    use super::*;
    use crate::testing::decoded;

    fn delta(fields: &str) -> String {
        format!(
            r#"{{"id":"x","created":7,"choices":[{{"index":0,"delta":{fields},"finish_reason":null}}]}}"#
        )
    }

    const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}"#;

    /// Test case: the deltas of a message, and the equal complete message.
    fn check(deltas: &[&str], whole: &str) {
        let deltas: Vec<_> = deltas.iter().map(|fields| delta(fields)).collect();
        let events: Vec<_> = deltas
            .iter()
            .map(String::as_str)
            .chain([STOP, USAGE, "[DONE]"])
            .collect();
        let whole = format!(
            r#"{{"id":"x","created":7,"choices":[{{"message":{whole},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":9,"completion_tokens":4}}}}"#
        );
        assert_eq!(
            decoded::<StreamDecoder>(&events).0.unwrap(),
            decode::decode_completion(&whole).unwrap()
        );
    }

    #[test]
    fn a_streamed_message_equals_the_complete_message() {
        check(
            &[
                r#"{"role":"assistant","content":""}"#,
                r#"{"content":"He"}"#,
                r#"{"content":"y \"é\""}"#,
            ],
            r#"{"role":"assistant","content":"Hey \"é\""}"#,
        );
        check(
            &[
                r#"{"role":"assistant","content":null,"reasoning_content":"h"}"#,
                r#"{"reasoning_content":"m","reasoning_details":[{"a":1}]}"#,
                r#"{"content":"so","reasoning_details":[{"b":2.50}],"rate":1}"#,
                r#"{"rate":2.0}"#,
            ],
            r#"{"role":"assistant","reasoning_content":"hm","reasoning_details":[{"a":1},{"b":2.50}],"content":"so","rate":2.0}"#,
        );
        check(
            &[
                r#"{"role":"assistant","tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"cd","arguments":""}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"ls","arguments":"{\"n\""}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"arguments":": 1.10}"}},{"index":1,"id":"b","function":{"name":"cd","arguments":"{}"}}]}"#,
            ],
            concat!(
                r#"{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"ls","arguments":"{\"n\": 1.10}"}},"#,
                r#"{"id":"b","type":"function","function":{"name":"cd","arguments":"{}"}}]}"#
            ),
        );
    }

    #[test]
    fn calls_without_ids_get_equal_ids_streamed_and_complete() {
        check(
            &[
                r#"{"role":"assistant","content":"so"}"#,
                r#"{"tool_calls":[{"index":0,"id":"","function":{"name":"ls","arguments":"{\"n\""}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"","function":{"arguments":": 1.10}"}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"name":"ls","arguments":"{}"}}]}"#,
            ],
            concat!(
                r#"{"role":"assistant","content":"so","tool_calls":[{"function":{"name":"ls","arguments":"{\"n\": 1.10}"}},"#,
                r#"{"function":{"name":"ls","arguments":"{}"}}]}"#
            ),
        );
    }

    #[test]
    fn deltas_are_reported() {
        let events = [
            delta(r#"{"reasoning":"hm"}"#),
            delta(r#"{"content":"so"}"#),
            delta(
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"ls","arguments":""}}]}"#,
            ),
            delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}"#),
        ];
        let events: Vec<_> = events.iter().map(String::as_str).chain([STOP]).collect();
        let (reply, deltas) = decoded::<StreamDecoder>(&events);
        assert_eq!(
            reply.unwrap().stop,
            StopReason::ToolUse,
            "the usage may be missing"
        );
        assert_eq!(
            deltas,
            [
                Delta::Thinking("hm".into()),
                Delta::Text("so".into()),
                Delta::ToolUse("ls".into())
            ]
        );
    }

    #[test]
    fn content_that_arrives_as_parts_and_as_text_is_kept_completely() {
        let thought = |text: &str| {
            format!(r#"{{"type":"thinking","thinking":[{{"type":"text","text":"{text}"}}]}}"#)
        };
        let said = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
        let list = |parts: &[String]| format!(r#"{{"content":[{}]}}"#, parts.join(","));
        let text = |text: &str| format!(r#"{{"content":"{text}"}}"#);
        let parts = [
            text(""),
            list(&[thought("h")]),
            list(&[thought("m"), said("So")]),
            text(" i"),
            text("t"),
            text(""),
        ];
        let kept = [thought("h"), thought("m"), said("So"), said(" it")];
        check_content(
            &parts,
            &kept,
            &[Delta::Thinking("h".into()), Delta::Thinking("m".into())],
            "So it",
        );
        let parts = [
            text("S"),
            text("o"),
            list(&[said(" it")]),
            text(" is"),
            list(&[thought("h")]),
        ];
        check_content(
            &parts,
            &[said("So"), said(" it"), said(" is"), thought("h")],
            &[Delta::Thinking("h".into())],
            "So it is",
        );
    }

    /// Test case: the deltas of a content, its stored parts, and the reported deltas.
    fn check_content(parts: &[String], kept: &[String], thoughts: &[Delta], said: &str) {
        let parts: Vec<_> = parts.iter().map(String::as_str).collect();
        check(
            &parts,
            &format!(r#"{{"content":[{}],"role":"assistant"}}"#, kept.join(",")),
        );
        let events: Vec<_> = parts.iter().map(|fields| delta(fields)).collect();
        let events: Vec<_> = events.iter().map(String::as_str).chain([STOP]).collect();
        let (reply, deltas) = decoded::<StreamDecoder>(&events);
        let (texts, others): (Vec<_>, Vec<_>) = deltas
            .into_iter()
            .partition(|delta| matches!(delta, Delta::Text(_)));
        let joined: String = texts
            .iter()
            .map(|delta| {
                if let Delta::Text(text) = delta {
                    text.as_str()
                } else {
                    ""
                }
            })
            .collect();
        assert_eq!(
            (joined.as_str(), text_of(&reply.unwrap().blocks).as_str()),
            (said, said)
        );
        assert_eq!(others, thoughts);
    }

    #[test]
    fn a_truncated_or_invalid_stream_fails_with_its_kind() {
        let text = &*delta(r#"{"content":"a"}"#);
        let failed = r#"{"error":{"message":"Overloaded","type":"overloaded_error"}}"#;
        let bare = r#"{"code":500,"message":"full","type":"exceed_context_size_error"}"#;
        let chosen = r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error","error":{"code":402,"message":"m"}}]}"#;
        let cases: [(&[&str], ModelErrorKind); 7] = [
            (&[], ModelErrorKind::CutStream),
            (&[text], ModelErrorKind::CutStream),
            (&[text, "[DONE]"], ModelErrorKind::CutStream),
            (&[text, failed], ModelErrorKind::Overloaded),
            (&[text, bare], ModelErrorKind::ContextOverflow),
            (&[text, chosen], ModelErrorKind::Unavailable),
            (&[text, "{\"choices\":"], ModelErrorKind::Malformed),
        ];
        for (events, kind) in cases {
            assert_eq!(
                decoded::<StreamDecoder>(events).0.unwrap_err().kind,
                kind,
                "{events:?}"
            );
        }
    }

    #[test]
    fn a_reply_with_too_many_fields_or_calls_is_refused() {
        let fields: Vec<_> = (0..1_000)
            .map(|n| delta(&format!(r#"{{"k{n}":1}}"#)))
            .collect();
        let call =
            |n: usize| format!(r#"{{"tool_calls":[{{"index":{n},"function":{{"name":"f"}}}}]}}"#);
        let calls: Vec<_> = (0..5_000).map(|n| delta(&call(n))).collect();
        for events in [fields, calls] {
            let events: Vec<_> = events.iter().map(String::as_str).collect();
            assert_eq!(
                decoded::<StreamDecoder>(&events).0.unwrap_err().kind,
                ModelErrorKind::Malformed
            );
        }
    }
}
