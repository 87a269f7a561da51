//! Decodes streamed replies of the OpenAI Responses API. Each item of a reply is taken whole from
//! its event `response.output_item.done`; deltas only serve to watch the reply while it arrives.

use std::collections::BTreeMap;

use dormouse_proto::model::{Delta, ModelError, Reply};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::decode::{self, Response};
use crate::wire::excerpt::malformed_in;
use crate::wire::failure;
use crate::wire::{Decoder, Progress};

/// Decodes a streamed reply, event by event.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    items: BTreeMap<u64, String>,
    response: Option<Response>,
}

#[derive(Deserialize)]
struct Event {
    r#type: String,
    output_index: Option<u64>,
    item: Option<Box<RawValue>>,
    delta: Option<Value>,
    response: Option<Box<RawValue>>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct StartedItem {
    r#type: Option<String>,
    name: Option<String>,
}

impl Decoder for StreamDecoder {
    fn feed(&mut self, data: &str, deltas: &dyn Fn(Delta)) -> Result<(), ModelError> {
        // Some servers end the stream with this word, as in the Chat Completions API.
        if data.trim() == "[DONE]" {
            return Ok(());
        }
        let event: Event = serde_json::from_str(data).map_err(|error| {
            failure::in_event(data).unwrap_or_else(|| malformed_in("event", data, &error))
        })?;
        let text = || {
            event
                .delta
                .as_ref()
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        match event.r#type.as_str() {
            "response.output_text.delta" | "response.refusal.delta" => deltas(Delta::Text(text())),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                deltas(Delta::Thinking(text()))
            }
            "response.output_item.added" => {
                let begun = event
                    .item
                    .and_then(|item| serde_json::from_str::<StartedItem>(item.get()).ok());
                let call = begun.filter(|begun| begun.r#type.as_deref() == Some("function_call"));
                if let Some(name) = call.and_then(|call| call.name) {
                    deltas(Delta::ToolUse(name));
                }
            }
            "response.output_item.done" => {
                if let Some(item) = event.item {
                    let index = event.output_index.unwrap_or(self.items.len() as u64);
                    self.items.insert(index, item.get().to_owned());
                }
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => {
                let json = event.response.as_deref().map_or("{}", RawValue::get);
                let response = serde_json::from_str(json)
                    .map_err(|error| malformed_in("reply", json, &error))?;
                self.response = Some(response);
            }
            "error" => {
                // Without a field `error`, the event itself is the error object.
                let whole_event = || serde_json::from_str(data).unwrap_or_default();
                return Err(failure::in_body(&event.error.unwrap_or_else(whole_event)));
            }
            // The events for parts of items and for the provider's progress are not needed. Event
            // types that a provider adds later are ignored too.
            _ => {}
        }
        Ok(())
    }

    fn progress(&self) -> Progress {
        if self.response.is_some() {
            Progress::Complete
        } else {
            Progress::Open
        }
    }

    fn finish(self) -> Result<Reply, ModelError> {
        let Some(response) = self.response else {
            return Err(failure::cut(format!(
                "the stream ended after {} items before its response",
                self.items.len()
            )));
        };
        // Some servers send no events for items, only the items within the response.
        let items = match self.items.is_empty() {
            true => response
                .output
                .iter()
                .map(|item| item.get().to_owned())
                .collect(),
            false => self.items.into_values().collect(),
        };
        decode::finish(items, response)
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
