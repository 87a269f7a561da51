//! Decodes streamed replies of the Responses API: joins the events into the reply that a complete
//! response would contain.
//!
//! Events report each item in several places, which `items.rs` combines. The texts of deltas are
//! also reported, as a [`Delta`], to those who watch the reply.

mod items;

use dormouse_proto::model::{Delta, ModelError, Reply};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use self::items::{ItemText, Items};
use super::decode::{self, MessageKind, Response};
use crate::wire::excerpt::malformed_in;
use crate::wire::failure;
use crate::wire::json_fields::Fields;
use crate::wire::{Completeness, Decoder};

/// Decodes a streamed reply, event by event.
#[derive(Clone, Debug, Default)]
pub struct StreamDecoder {
    items: Items,
    response: Option<Response>,
}

#[derive(Deserialize)]
struct Event {
    r#type: String,
    output_index: Option<u64>,
    content_index: Option<u64>,
    item: Option<Box<RawValue>>,
    delta: Option<Value>,
    text: Option<String>,
    refusal: Option<String>,
    arguments: Option<String>,
    input: Option<String>,
    response: Option<Box<RawValue>>,
    error: Option<Value>,
}

impl Event {
    /// The text of a delta; empty if it has none.
    fn delta_text(&self) -> String {
        let delta = self.delta.as_ref().and_then(Value::as_str);
        delta.unwrap_or_default().to_owned()
    }
}

impl Decoder for StreamDecoder {
    fn feed(&mut self, data: &str, deltas: &dyn Fn(Delta)) -> Result<(), ModelError> {
        // Some servers end the stream with this word, as in the Chat Completions API.
        if data.trim() == "[DONE]" {
            return Ok(());
        }
        let mut event: Event = serde_json::from_str(data).map_err(|error| {
            failure::from_event(data).unwrap_or_else(|| malformed_in("event", data, &error))
        })?;
        let index = event.output_index;
        match event.r#type.as_str() {
            "response.output_text.delta" => {
                self.add_delta(&event, MessageKind::Answer, deltas)?;
            }
            "response.refusal.delta" => self.add_delta(&event, MessageKind::Refusal, deltas)?,
            "response.output_text.done" => {
                self.add_whole_text(&event, MessageKind::Answer, event.text.clone())?;
            }
            "response.refusal.done" => {
                self.add_whole_text(&event, MessageKind::Refusal, event.refusal.clone())?;
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                deltas(Delta::Thinking(event.delta_text()))
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                let arguments = ItemText::Delta(event.delta_text());
                self.items.add_arguments(index, arguments);
            }
            "response.function_call_arguments.done" => {
                if let Some(arguments) = event.arguments {
                    self.items.add_arguments(index, ItemText::Whole(arguments));
                }
            }
            "response.custom_tool_call_input.done" => {
                if let Some(input) = event.input {
                    self.items.add_arguments(index, ItemText::Whole(input));
                }
            }
            "response.output_item.added" => {
                let fields = event
                    .item
                    .and_then(|item| serde_json::from_str::<Fields>(item.get()).ok())
                    .unwrap_or_default();
                let kind = fields.text("type");
                if matches!(kind.as_deref(), Some("function_call" | "custom_tool_call"))
                    && let Some(name) = fields.text("name")
                {
                    deltas(Delta::ToolUse(name));
                }
                self.items.begin(index, fields)?;
            }
            "response.output_item.done" => {
                if let Some(item) = event.item {
                    self.items.complete(index, &item)?;
                }
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => {
                let json = event.response.as_deref().map_or("{}", RawValue::get);
                let response = serde_json::from_str(json)
                    .map_err(|error| malformed_in("reply", json, &error))?;
                let is_first = self.response.replace(response).is_none();
                if is_first && let Ok(reply) = self.clone().finish() {
                    decode::sources(&reply.blocks).report(&reply.blocks, deltas);
                }
            }
            "error" => {
                // Without a field `error`, the event itself is the error object.
                let whole_event = || serde_json::from_str(data).unwrap_or_default();
                return Err(failure::from_error_object(
                    &event.error.take().unwrap_or_else(whole_event),
                ));
            }
            // The events for parts of items and for the provider's progress are not needed. Event
            // types that a provider adds later are ignored too.
            _ => {}
        }
        Ok(())
    }

    fn completeness(&self) -> Completeness {
        if self.response.is_some() {
            Completeness::Complete
        } else {
            Completeness::Open
        }
    }

    fn finish(self) -> Result<Reply, ModelError> {
        let Some(response) = self.response else {
            return Err(failure::cut_stream(format!(
                "the stream ended after {} items before its response",
                self.items.len()
            )));
        };
        let items = self.items.finish(&response)?;
        decode::build_reply(items, response)
    }
}

impl StreamDecoder {
    /// Adds a delta of a message, and reports it.
    fn add_delta(
        &mut self,
        event: &Event,
        kind: MessageKind,
        deltas: &dyn Fn(Delta),
    ) -> Result<(), ModelError> {
        let text = event.delta_text();
        deltas(Delta::Text(text.clone()));
        let part = event.content_index.unwrap_or(0);
        self.items
            .add_text(event.output_index, part, kind, ItemText::Delta(text))
    }

    /// Sets the text of a part of a message, if the event contains it.
    fn add_whole_text(
        &mut self,
        event: &Event,
        kind: MessageKind,
        text: Option<String>,
    ) -> Result<(), ModelError> {
        let Some(text) = text else {
            return Ok(());
        };
        let part = event.content_index.unwrap_or(0);
        self.items
            .add_text(event.output_index, part, kind, ItemText::Whole(text))
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::message::Block;
    use dormouse_proto::model::{ModelErrorKind, StopReason};

    use super::*;
    use crate::testing::decoded;

    const BEGUN: &str =
        r#"{"type":"response.created","response":{"status":"in_progress","output":[]}}"#;
    const CALL: &str = r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"c","name":"ls","arguments":"{}"}}"#;
    const THOUGHT: &str = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","encrypted_content":"x="}}"#;
    const DONE: &str = r#"{"type":"response.completed","response":{"status":"completed","output":[],"usage":{"input_tokens":7,"output_tokens":3,"input_tokens_details":{"cached_tokens":5},"output_tokens_details":{"reasoning_tokens":2}}}}"#;

    #[test]
    fn items_keep_their_order_and_deltas_are_reported() {
        let events = [
            BEGUN,
            r#"{"type":"response.reasoning_summary_text.delta","delta":"hm"}"#,
            r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","name":"ls","arguments":""}}"#,
            CALL,
            THOUGHT,
            r#"{"type":"response.output_text.delta","delta":"so"}"#,
            r#"{"type":"response.not_yet_invented","delta":{"a":1}}"#,
            DONE,
        ];
        let (reply, deltas) = decoded::<StreamDecoder>(&events);
        let reply = reply.unwrap();
        assert!(
            matches!(&reply.blocks[..], [Block::Opaque(_), Block::ToolUse { .. }]),
            "{reply:?}"
        );
        let usage = reply.usage;
        assert_eq!(
            (
                usage.input_tokens,
                usage.cache_read_tokens,
                usage.thinking_tokens
            ),
            (2, 5, 2)
        );
        assert_eq!(reply.stop, StopReason::ToolUse);
        assert_eq!(
            deltas,
            [
                Delta::Thinking("hm".into()),
                Delta::ToolUse("ls".into()),
                Delta::Text("so".into())
            ]
        );
    }

    /// Whether an item is complete in an event, in the response at the end, or only in deltas, the
    /// reply has it once, in its place.
    #[test]
    fn each_place_that_reports_an_item_is_read() {
        let second = r#"{"type":"function_call","id":"fc2","call_id":"d","name":"rm","arguments":"{\"p\":1}"}"#;
        let added = r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","id":"fc2","call_id":"d","name":"rm","arguments":"","status":"in_progress"}}"#;
        let delta = |text: &str| {
            let delta = serde_json::json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": text});
            delta.to_string()
        };
        let done = |output: &[&str]| {
            let output = output.join(",");
            format!(
                r#"{{"type":"response.completed","response":{{"status":"completed","output":[{output}]}}}}"#
            )
        };
        let thought = r#"{"type":"reasoning","encrypted_content":"x="}"#;
        let first = r#"{"type":"function_call","call_id":"c","name":"ls","arguments":"{}"}"#;
        let unnumbered =
            |item: &str| format!(r#"{{"type":"response.output_item.done","item":{item}}}"#);
        let whole = r#"{"type":"response.function_call_arguments.done","output_index":2,"arguments":"{\"p\":1}"}"#;
        let events = [
            // In the response only.
            vec![THOUGHT.into(), CALL.into(), done(&[thought, first, second])],
            vec![THOUGHT.into(), done(&[thought, first, second])],
            vec![done(&[thought, first, second])],
            // In deltas only.
            vec![
                THOUGHT.into(),
                CALL.into(),
                added.into(),
                delta("{\"p\""),
                delta(":1}"),
                done(&[]),
            ],
            vec![
                THOUGHT.into(),
                CALL.into(),
                added.into(),
                delta("{"),
                whole.into(),
                done(&[]),
            ],
            // Everywhere; and without positions.
            vec![
                THOUGHT.into(),
                CALL.into(),
                added.into(),
                whole.into(),
                done(&[thought, first, second]),
            ],
            vec![
                unnumbered(thought),
                unnumbered(first),
                unnumbered(second),
                done(&[thought, first, second]),
            ],
            vec![
                unnumbered(first),
                unnumbered(second),
                done(&[thought, first, second]),
            ],
        ];
        for events in &events {
            let events: Vec<&str> = events.iter().map(String::as_str).collect();
            let reply = decoded::<StreamDecoder>(&events).0.unwrap();
            let calls: Vec<_> = reply
                .blocks
                .iter()
                .filter_map(|block| match block {
                    Block::ToolUse { id, name, args, .. } => Some((&**id, &**name, &**args)),
                    _ => None,
                })
                .collect();
            assert_eq!(
                calls,
                [("c", "ls", "{}"), ("d", "rm", r#"{"p":1}"#)],
                "{events:?}"
            );
        }
        let cut = [added, &done(&[])];
        let error = decoded::<StreamDecoder>(&cut).0.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::CutStream, "{error}");
        assert!(error.to_string().contains("'rm'"), "{error}");
        let incomplete = r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}}"#;
        let reply = decoded::<StreamDecoder>(&[CALL, added, incomplete])
            .0
            .unwrap();
        assert_eq!((reply.blocks.len(), reply.stop), (1, StopReason::MaxTokens));
    }

    #[test]
    fn a_message_of_deltas_is_a_message() {
        let added = r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m","role":"assistant","content":[],"status":"in_progress"}}"#;
        let delta = |text: &str| {
            format!(
                r#"{{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"{text}"}}"#
            )
        };
        let whole = r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"text":"all is well"}"#;
        let done = r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#;
        for last in [
            vec![delta("all "), delta("is well")],
            vec![delta("all"), whole.into()],
        ] {
            let mut events = vec![added];
            events.extend(last.iter().map(String::as_str));
            events.push(done);
            let reply = decoded::<StreamDecoder>(&events).0.unwrap();
            assert_eq!(
                dormouse_proto::message::text_of(&reply.blocks),
                "all is well"
            );
            assert_eq!(reply.stop, StopReason::EndTurn);
        }
    }

    #[test]
    fn a_truncated_or_invalid_stream_fails_with_its_kind() {
        let cut = r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"x"}}}"#;
        let failed = r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"m"}}}"#;
        let error = r#"{"type":"error","code":"server_error","message":"m","param":null}"#;
        let nested = r#"{"type":"error","error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"m"}}"#;
        let cases: [(&[&str], ModelErrorKind); 7] = [
            (&[], ModelErrorKind::CutStream),
            (&[BEGUN, THOUGHT, CALL], ModelErrorKind::CutStream),
            (&[BEGUN, cut], ModelErrorKind::Malformed),
            (&[BEGUN, failed], ModelErrorKind::Overloaded),
            (&[BEGUN, error], ModelErrorKind::Transport),
            (&[BEGUN, nested], ModelErrorKind::ContextOverflow),
            (&[BEGUN, "{oops"], ModelErrorKind::Malformed),
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
